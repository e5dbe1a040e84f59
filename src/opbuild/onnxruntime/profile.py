"""SessionProfile: a session's profile, as ONNX Runtime writes it: the session, each call and each kernel."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any

from opbuild.dtypes import itemsize
from opbuild.graph.types import TensorType
from opbuild.onnxruntime.environment import CPU
from opbuild.onnxruntime.values import element_name
from opbuild.platform.paths import Path
from opbuild.runtime.calls import NetworkCall
from opbuild.runtime.executor import Executor
from opbuild.runtime.profile import call_of
from opbuild.runtime.record import KernelStep
from opbuild.runtime.timing import Timed, timing

Shapes = list[tuple[str, Sequence[int]]]
"""Element types and extents of values."""


class SessionProfile:
    """The profile of a session.

    Args:
        prefix: How the file's name begins; the time stands behind it.

    Attributes:
        start: Nanoseconds of ``time.monotonic_ns`` when it began.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.monotonic_ns()
        now = time.time()
        moment = f"{time.strftime('%Y-%m-%d_%H-%M-%S', time.localtime(now))}_{int(now * 1000) % 1000:03}"
        self._path = Path(f"{prefix}_{moment}.json")
        self._events: list[str] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Write down how long the block takes, and each kernel that runs in it."""
        began = time.monotonic_ns()
        with timing() as timer:
            try:
                yield
            finally:
                self._add("Session", name, began, time.monotonic_ns() - began, {})
        for number, each in enumerate(timer.calls):
            call = call_of(each)
            node = call.nodes[0] if call.nodes else call.kernel
            taken = int(each.seconds * 1e9)
            self._add("Node", f"{node}_kernel_time", int(each.started * 1e9), taken, _arguments(number, each, call))

    def _add(self, category: str, name: str, began: int, taken: int, arguments: dict[str, Any]) -> None:
        fields = {
            "cat": category,
            "pid": os.getpid(),
            "tid": threading.get_native_id(),
            "dur": taken // 1000,
            "ts": (began - self.start) // 1000,
            "ph": "X",
            "name": name,
            "args": arguments,
        }
        self._events.append(json.dumps(fields))

    def write(self) -> str:
        """Write the file and return its name."""
        self._path.write_text("[\n" + ",\n".join(self._events) + "\n]\n", encoding="utf-8")
        return str(self._path)


def _arguments(number: int, timed: Timed, call: NetworkCall) -> dict[str, Any]:
    """Return the attributes of a kernel's event; numbers are texts, as ONNX Runtime has them."""
    inputs, outputs = _operands(timed)
    return {
        "op_name": call.family,
        "node_index": str(number),
        "provider": CPU,
        "kernel": call.kernel,
        "nodes": list(call.nodes),
        "input_type_shape": [{element_name(dtype): [*shape]} for dtype, shape in inputs],
        "output_type_shape": [{element_name(dtype): [*shape]} for dtype, shape in outputs],
        "output_size": str(sum(prod(shape) * itemsize(dtype) for dtype, shape in outputs)),
    }


def _operands(timed: Timed) -> tuple[Shapes, Shapes]:
    """Return the operands of a call, read and written; a kernel sees them in its own layout."""
    if not isinstance(timed.what, Executor):
        return [], []
    record = timed.what.record
    step = record.steps[timed.step]
    if not isinstance(step, KernelStep):
        return _types(step.input_types), _types(step.output_types)
    shapes = [[extent for extent, _ in reversed(view.dims)] for view in step.views]
    operands: Shapes = [*zip(step.argument_types(record.buffers), shapes, strict=True)]
    return operands[: len(operands) - step.writes], operands[len(operands) - step.writes :]


def _types(types: Sequence[TensorType | None]) -> Shapes:
    return [(each.dtype, each.shape) for each in types if each is not None]
