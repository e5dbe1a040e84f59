"""Operators that pick elements by index."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.torch.registry import rule
from opbuild.frontend.torch.writing import Value, Writing


@rule("embedding.default")
def embedding(
    of: Writing, weight: Value, indices: Value, padding: int = -1, by_frequency: bool = False, sparse: bool = False
) -> Value:
    """Rows of a table."""
    return of("Gather", weight, indices, axis=0)


@rule("index_select.default")
def index_select(of: Writing, x: Value, axis: int, indices: Value) -> Value:
    """Elements along a dimension."""
    return of("Gather", x, indices, axis=of.axis(axis, len(x.shape))) if x.shape else x


@rule("gather.default")
def gather(of: Writing, x: Value, axis: int, indices: Value, sparse_grad: bool = False) -> Value:
    """An element for each index, along a dimension."""
    if not x.shape or not indices.shape:
        of.refuse("of tensors without dimensions")
    return of("GatherElements", x, indices, axis=of.axis(axis, len(x.shape)))


@rule("index.Tensor")
def index(of: Writing, x: Value, indices: Sequence[Value | None]) -> Value:
    """Elements by indices along one dimension."""
    used = [axis for axis, each in enumerate(indices) if each is not None]
    found = indices[used[0]] if len(used) == 1 else None
    if found is None or found.dtype == "bool":
        of.refuse("indices along several dimensions, or truth values")
    return of("Gather", x, found, axis=used[0])
