"""Indices out of range: the check that refuses them is called as a kernel is, and its message.

It reads the indices, and the extents of an argument that stands for the numbers of elements
(``native/support/indices.c``).
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Protocol

import numpy as np

from opbuild.errors import RunError
from opbuild.graph.indices import is_check, out_of_range, outside
from opbuild.graph.types import Array, Node
from opbuild.program import HostCall
from opbuild.runtime.devices.cpu.library import DIMENSION
from opbuild.runtime.record import CHECKS, KernelStep


class _Typed(Protocol):
    @property
    def dtype(self) -> str: ...


def check_symbol(node: Node, indices: _Typed | None) -> str:
    """Return the symbol in a network's library that refuses a node's indices; empty if it has none."""
    if not is_check(node) or indices is None or indices.dtype not in ("int32", "int64"):
        return ""
    return CHECKS[bool(node.attrs["negative"])]


def check_step(call: HostCall) -> KernelStep | None:
    """Return the step of a network's library in the place of a call that refuses indices; None if there is none."""
    symbol = check_symbol(call.node, call.input_types[0] if call.input_types else None)
    views = tuple(view for view in call.inputs if view is not None)
    return KernelStep(symbol, views, call.nodes, work=work_of(views[0].dims[0][0]), writes=0) if symbol else None


def work_of(count: int) -> int:
    """Return the nanoseconds that so many indices take on one core, roughly: as long as they are read from memory."""
    return count // 2


def refuse(name: str, indices: Array, counts: Sequence[int], *, negative: bool) -> None:
    """Raise the error of the first index out of range, if there is one.

    Raises:
        OutOfRangeError: If there is one.
    """
    found = outside(indices, counts, negative=negative)
    if found:
        raise out_of_range(name, found)


def refused(name: str, arguments: Array, symbol: str) -> RunError:
    """Return the error of a call that refused its arguments.

    Args:
        name: The node that was to read them.
        arguments: The call's headers.
        symbol: What was called.
    """
    indices, bounds = arguments
    (size,), counts = _extents(indices), _extents(bounds)[::-1]
    bits = int(indices["type_bits"])
    values = np.frombuffer(ctypes.string_at(int(indices["host"]), size * bits // 8), f"i{bits // 8}")
    found = outside(values, counts, negative=symbol == CHECKS[True])
    if found is None:  # somebody writes to the caller's array
        return RunError(f"node {name!r}: its indices changed while they were read", "leave inputs alone until the end")
    return out_of_range(name, found)


def _extents(header: Array) -> list[int]:
    memory = ctypes.string_at(int(header["dim"]), int(header["dimensions"]) * DIMENSION.itemsize)
    extents: list[int] = np.frombuffer(memory, DIMENSION)["extent"].tolist()
    return extents
