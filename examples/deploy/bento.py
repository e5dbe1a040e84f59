"""A service of BentoML that collects requests into batches: ``MODEL=model.onnx bentoml serve bento:Opbuild``."""

from __future__ import annotations

import os

import bentoml
import numpy as np

import opbuild
from opbuild.errors import InputError


@bentoml.service(workers=1)
class Opbuild:
    """The network in the file ``MODEL``, which has one input, x; its first dimension is the batch."""

    def __init__(self) -> None:
        self.network = opbuild.compile(os.environ["MODEL"])
        [declared] = self.network.inputs
        self.network(np.zeros(np.abs(declared.shape), declared.dtype))  # so that no request waits for a first call

    @bentoml.api(batchable=True, max_batch_size=64, max_latency_ms=10_000)
    def predict(self, x: np.ndarray) -> np.ndarray:
        """Return the network's answers to a batch: any that BentoML collected is one call, and compiles nothing."""
        try:
            return self.network(x.astype(self.network.inputs[0].dtype))
        except InputError as error:
            raise bentoml.exceptions.InvalidArgument(str(error)) from error
