"""Replicas of Ray Serve that collect requests into batches: ``MODEL=/a/model.onnx serve run ray_serve:application``.

Requests and answers are arrays, as numpy's ``.npy`` files.
"""

from __future__ import annotations

import asyncio
import io
import os
from itertools import accumulate
from typing import Any

import numpy as np
from ray import serve
from starlette.requests import Request
from starlette.responses import Response

import opbuild
from opbuild.errors import InputError


@serve.deployment(num_replicas=2, ray_actor_options={"runtime_env": {"env_vars": {"OPBUILD_NUM_THREADS": "1"}}})
class Opbuild:
    """The network in a file, which has one input; its first dimension is the batch."""

    def __init__(self, model: str) -> None:
        self.network = opbuild.compile(model)
        [declared] = self.network.inputs
        self.network(np.zeros(np.abs(declared.shape), declared.dtype))  # so that no request waits for a first call

    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.001)
    async def together(self, batches: list[Any]) -> list[Any]:
        """Return the answers to what Ray Serve collected, which is one call, and compiles nothing."""
        ends = list(accumulate(map(len, batches)))
        result = await asyncio.to_thread(self.network, np.concatenate(batches))
        return np.split(result, ends[:-1])

    async def __call__(self, request: Request) -> Response:
        """Answer a request."""
        try:
            result = await self.together(np.load(io.BytesIO(await request.body()), allow_pickle=False))
        except (InputError, ValueError, EOFError) as error:
            return Response(str(error), 400)
        file = io.BytesIO()
        np.save(file, result)
        return Response(file.getvalue(), media_type="application/octet-stream")


application = Opbuild.bind(os.environ["MODEL"])
