"""Operators that pick elements by index."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.rules.scattering import stacked
from opbuild.frontend.torch.writing import StepBuilder, Value


@rule("embedding.default")
def embedding(
    of: StepBuilder, weight: Value, indices: Value, padding: int = -1, by_frequency: bool = False, sparse: bool = False
) -> Value:
    """Rows of a table."""
    return of("Gather", weight, of.in_range(indices, weight.shape[0]), axis=0)


@rule("index_select.default")
def index_select(of: StepBuilder, x: Value, axis: int, indices: Value) -> Value:
    """Elements along a dimension."""
    axis = of.axis(axis, len(x.shape))
    return of("Gather", x, of.in_range(indices, x.shape[axis]), axis=axis) if x.shape else x


@rule("gather.default")
def gather(of: StepBuilder, x: Value, axis: int, indices: Value, sparse_grad: bool = False) -> Value:
    """An element for each index, along a dimension."""
    if not x.shape or not indices.shape:
        of.refuse("of tensors without dimensions")
    axis = of.axis(axis, len(x.shape))
    return of("GatherElements", x, of.in_range(indices, x.shape[axis]), axis=axis)


@rule("index.Tensor", "_unsafe_index.Tensor")
def index(of: StepBuilder, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements by indices along some dimensions, which meet as operands do."""
    used = [axis for axis, each in enumerate(indices) if each is not None]
    given = [each for each in indices if each is not None]
    if any(each.dtype in ("bool", "uint8") for each in given):
        of.refuse("truth values")
    if len(used) == 1:
        return of("Gather", x, given[0], axis=used[0])
    others = [axis for axis in range(len(x.shape)) if axis not in used]
    places = stacked(of, given)
    found = of("GatherND", of.transpose(x, (*used, *others)), places)
    if used != list(range(used[0], used[-1] + 1)):
        return found  # dimensions of indices that are apart stand first
    count = len(places.shape) - 1
    before = range(count, count + used[0])
    return of.transpose(found, (*before, *range(count), *range(count + used[0], len(found.shape))))
