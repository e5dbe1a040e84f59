"""Kernels for NVIDIA's GPUs on arrays: the descriptor that the device has, its function interpreted, canaries around.

Arrays lie as they are given: views, strides of 0, any start.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from opbuild.families.catalogue import find
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.target.cuda import CLASS
from support.interpreter import interpret

Array = Any
CANARY = 0xA5
GAP = 64
"""Bytes around an array that nobody may write."""


def guarded(shape: Sequence[int], dtype: Any, offset: int = 0, order: Sequence[int] = ()) -> tuple[Array, Array]:
    """Return an array among canaries, and all of its memory.

    Args:
        shape: Its extents, outermost first.
        dtype: Its element type.
        offset: Elements between a multiple of 64 bytes and its start.
        order: Its axes as they lie, outermost first; default: in order.
    """
    dtype, order = np.dtype(dtype), [*(order or range(len(shape)))]
    count = int(np.prod(shape, dtype=int))
    memory = np.full(count * dtype.itemsize + offset * dtype.itemsize + 3 * GAP, CANARY, np.uint8)
    start = GAP + -memory.ctypes.data % GAP + offset * dtype.itemsize
    flat = memory[start : start + count * dtype.itemsize].view(dtype)
    return flat.reshape([shape[axis] for axis in order]).transpose(np.argsort(order)), memory


def is_untouched(array: Array, memory: Array) -> bool:
    """Return whether the canaries around an array of ``guarded`` are what they were; it is overwritten."""
    array.view(np.uint8 if array.dtype == bool else array.dtype)[...] = np.full(
        array.dtype.itemsize, CANARY, np.uint8
    ).view(np.uint8 if array.dtype == bool else array.dtype)[0]
    return bool((memory == CANARY).all())


def operand(name: str, array: Array, known: bool = True) -> Operand:
    """Return an array as an operand; strides of 0 and 1 of its innermost dimension are constants if ``known``."""
    strides = [stride // array.itemsize for stride in array.strides][::-1]
    dims = [
        Dim(stride=stride) if known and dim == 0 and stride in (0, 1) else Dim() for dim, stride in enumerate(strides)
    ]
    return Operand(name, array.dtype.name, tuple(dims))


def describe(
    family: str,
    inputs: Sequence[Array],
    outputs: Sequence[Array],
    attrs: Mapping[str, Any],
    variant: Mapping[str, Any],
    known: bool = True,
) -> OpDesc:
    """Return a CPU's descriptor of operands."""
    given = tuple(operand(f"x{number}", each, known) for number, each in enumerate(inputs))
    made = tuple(operand(f"out{number}", each, known) for number, each in enumerate(outputs))
    return find(family).desc((family,), given, made, dict(attrs), dict(variant))


def run(desc: OpDesc, inputs: Sequence[Array], outputs: Sequence[Array]) -> OpDesc:
    """Run the device's kernel for a CPU's descriptor, interpreted, and return its descriptor."""
    served = CLASS.kernel(desc)
    assert served is not None, "there is no kernel"
    run_served(served, inputs, outputs)
    return served


def run_served(served: OpDesc, inputs: Sequence[Array], outputs: Sequence[Array]) -> None:
    """Run the kernel of a device's descriptor, interpreted."""
    dims = [
        [*zip(each.shape[::-1], (s // each.itemsize for s in each.strides[::-1]), strict=True)]
        for each in (*inputs, *outputs)
    ]
    assert served.problem(dims) is None
    interpret(import_module(f"opbuild.families.{served.family}.triton").define(served), [*inputs, *outputs])
