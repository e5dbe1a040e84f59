"""Triton's Python back end for the network in ``model.onnx`` beside this file; its first dimension is the batch.

What Triton has collected is one call: the network takes any batch, and none compiles anything.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import triton_python_backend_utils as pb_utils

import opbuild
from opbuild.errors import OpbuildError

MODEL = Path(__file__).with_name("model.onnx")
TYPES = {np.dtype(kind): name for name, kind in pb_utils.TRITON_STRING_TO_NUMPY.items()}


class TritonPythonModel:
    """A network, called by batches."""

    @staticmethod
    def auto_complete_config(config: Any) -> Any:
        """Add the network's inputs and outputs to Triton's configuration; Triton knows the batch."""
        network = opbuild.compile(MODEL)
        for endpoints, add in ((network.inputs, config.add_input), (network.outputs, config.add_output)):
            for each in endpoints:
                add({"name": each.name, "data_type": TYPES[np.dtype(each.dtype)], "dims": list(each.shape[1:])})
        return config

    def initialize(self, args: dict[str, str]) -> None:
        """Build the network and call it, so that no request waits for what a first call does."""
        self.network = opbuild.compile(MODEL)
        self.network.run({each.name: np.zeros(np.abs(each.shape), each.dtype) for each in self.network.inputs})

    def execute(self, requests: list[Any]) -> list[Any]:
        """Return the responses to some requests, in their order; what one gets wrong is an error of that one alone."""
        try:
            return self._together(requests)
        except OpbuildError as error:
            if len(requests) == 1:
                return [pb_utils.InferenceResponse(error=pb_utils.TritonError(str(error)))]
            return [response for request in requests for response in self.execute([request])]

    def _together(self, requests: list[Any]) -> list[Any]:
        """Return the responses to requests that are one batch."""
        parts = {
            each.name: [pb_utils.get_input_tensor_by_name(request, each.name).as_numpy() for request in requests]
            for each in self.network.inputs
        }
        ends = list(accumulate(len(rows) for rows in next(iter(parts.values()))))
        results = self.network.run({name: np.concatenate(arrays) for name, arrays in parts.items()})
        split = {name: np.split(result, ends[:-1]) for name, result in results.items()}
        return [
            pb_utils.InferenceResponse([pb_utils.Tensor(name, rows[number]) for name, rows in split.items()])
            for number in range(len(requests))
        ]
