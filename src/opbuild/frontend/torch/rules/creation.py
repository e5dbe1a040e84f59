"""Tensors that are made of nothing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


@rule("full.default")
def full(of: StepBuilder, shape: Sequence[Any], value: Any, **_: Any) -> Value:
    """One number everywhere."""
    scalar = of.operand(value, of.dtype)
    return of("Expand", scalar, of.ints(*shape)) if shape else scalar


@rule("full_like.default")
def full_like(of: StepBuilder, x: Value, value: Any, **_: Any) -> Value:
    """One number everywhere."""
    return full(of, x.shape, value)


@rule("zeros.default", "ones.default")
def filled(of: StepBuilder, shape: Sequence[Any], **_: Any) -> Value:
    """Zeros or ones."""
    return full(of, shape, int("ones" in of.step.target))


@rule("zeros_like.default", "ones_like.default")
def filled_like(of: StepBuilder, x: Value, **_: Any) -> Value:
    """Zeros or ones."""
    return full(of, x.shape, int("ones" in of.step.target))


@rule("scalar_tensor.default")
def scalar_tensor(of: StepBuilder, value: Any, **_: Any) -> Value:
    """A number."""
    return of.operand(value, of.dtype)


@rule("arange.start_step")
def arange(of: StepBuilder, start: Any, end: Any, step: Any = 1, **_: Any) -> Value:
    """Numbers one after the other."""
    if not all(isinstance(each, int) or is_open([each]) for each in (start, end, step)):
        of.refuse("numbers with a fraction")
    bounds = [of("Squeeze", of.ints(each), of.ints(0)) for each in (start, end, step)]
    return of.cast(of("Range", *bounds), of.dtype)


@rule("arange.default")
def arange_to(of: StepBuilder, end: Any, **_: Any) -> Value:
    """Numbers from 0 on."""
    return arange(of, 0, end)


@rule("arange.start")
def arange_from(of: StepBuilder, start: Any, end: Any, **_: Any) -> Value:
    """Numbers from ``start`` on."""
    return arange(of, start, end)


@rule("empty.memory_format", "empty_permuted.default", "new_empty_strided.default", "empty_strided.default")
def empty(of: StepBuilder, *_: Any, **__: Any) -> Value:
    """Zeros, as nothing is said of the values."""
    kind = of.step.types[0]
    if kind is None or -1 in kind.shape:
        of.refuse("sizes that are open")
    return full(of, kind.shape, 0)
