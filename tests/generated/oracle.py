"""What others make of a model: ONNX Runtime and onnx's reference evaluator, in a process that may die or hang."""

from __future__ import annotations

import os
import pickle
import resource
import select
import signal
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
MEMORY = 6 * 2**30
"""Bytes of address space that a process may add to what it has."""


def limit_memory() -> None:
    """Let this process have so much more memory than now, and no core dumps."""
    with open("/proc/self/statm") as file:  # noqa: PTH123
        size = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


class Oracle:
    """Runs models by ``onnxruntime`` or ``reference``, in one process until it dies.

    Args:
        seconds: After which a model is given up.
    """

    def __init__(self, seconds: float = 20) -> None:
        self._seconds = seconds
        self._process = 0
        self._ask = self._answer = -1

    def run(self, who: str, model: bytes, feeds: Mapping[str, Array]) -> list[Array] | str:
        """Return a model's outputs, or in a few words why there are none."""
        if not self._process:
            self._start()
        request = pickle.dumps((who, model, dict(feeds)))
        try:
            _send(self._ask, request)
            answer = self._receive()
        except (OSError, EOFError):
            answer = None
        if answer is None:
            self.close()
            return "died or hung"
        result: list[Array] | str = pickle.loads(answer)
        return result

    def close(self) -> None:
        """End the process."""
        if self._process:
            os.close(self._ask)
            os.close(self._answer)
            os.kill(self._process, signal.SIGKILL)
            os.waitpid(self._process, 0)
            self._process = 0

    def _receive(self) -> bytes | None:
        if not select.select([self._answer], [], [], self._seconds)[0]:
            return None
        return _take(self._answer)

    def _start(self) -> None:
        there, self._ask = os.pipe()
        self._answer, back = os.pipe()
        self._process = os.fork()
        if not self._process:
            os.close(self._ask)
            os.close(self._answer)
            _serve(there, back)
        os.close(there)
        os.close(back)


def _send(pipe: int, data: bytes) -> None:
    data = struct.pack("<Q", len(data)) + data
    while data:
        data = data[os.write(pipe, data) :]


def _take(pipe: int) -> bytes:
    (size,) = struct.unpack("<Q", _read(pipe, 8))
    return _read(pipe, size)


def _read(pipe: int, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = os.read(pipe, min(size - len(parts), 1 << 20))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def _serve(there: int, back: int) -> None:
    try:
        limit_memory()
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        while True:
            who, model, feeds = pickle.loads(_take(there))
            _send(back, pickle.dumps(_run(who, model, feeds)))
    except BaseException:
        os._exit(0)


def _run(who: str, model: bytes, feeds: dict[str, Array]) -> list[Array] | str:
    try:
        found = _onnxruntime(model, feeds) if who == "onnxruntime" else _reference(model, feeds)
    except Exception as error:
        return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
    if not all(isinstance(value, (np.ndarray, np.generic)) for value in found):
        return "not all outputs are tensors"
    return [np.asarray(value) for value in found]


def _onnxruntime(model: bytes, feeds: dict[str, Array]) -> list[Any]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


def _reference(model: bytes, feeds: dict[str, Array]) -> list[Any]:
    import onnx
    from onnx.reference import ReferenceEvaluator

    with np.errstate(all="ignore"):
        return list(ReferenceEvaluator(onnx.ModelProto.FromString(model)).run(None, feeds))
