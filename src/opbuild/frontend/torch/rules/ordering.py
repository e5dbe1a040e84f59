"""Sorting, and what looks for places in what is sorted."""

from __future__ import annotations

from typing import Any

from opbuild.frontend.torch.promotion import category, promoted
from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import StepBuilder, Value
from opbuild.graph.extents import is_open


@rule("topk.default")
def topk(of: StepBuilder, x: Value, k: Any, axis: int = -1, largest: bool = True, is_sorted: bool = True) -> Any:
    """The greatest or smallest elements of a dimension, and where they are."""
    if not x.shape or category(x.dtype) == 0:
        of.refuse("of a number, or of truth values")
    return of.several("TopK", 2, x, of.ints(k), axis=of.axis(axis, len(x.shape)), largest=int(largest), sorted=1)


@rule("sort.default", "sort.stable")
def sort(of: StepBuilder, x: Value, dim: int = -1, descending: bool = False, stable: bool | None = None) -> Any:
    """A dimension in order, and where its elements were; equal ones stay as they stood."""
    if not x.shape:
        return x, of.constant(0, "int64")
    extent = x.shape[of.axis(dim, len(x.shape))]
    return topk(of, x, extent, dim, descending)


@rule("bucketize.Tensor")
def bucketize(of: StepBuilder, x: Value, bounds: Value, out_int32: bool = False, right: bool = False) -> Value:
    """Between which bounds each element is; what is no number is after the last one."""
    if is_open(bounds.shape) or bounds.shape == (0,):
        of.refuse("no bounds, or how many is not known")
    kind = promoted((x, bounds))
    bounds = of.cast(bounds, kind)
    element = of.cast(of.reshape(x, (*x.shape, 1)), kind)
    after = of("Greater" if right else "GreaterOrEqual", bounds, element)
    return of("ReduceSum", of.cast(of("Not", after), of.dtype), of.ints(len(x.shape)), keepdims=0)
