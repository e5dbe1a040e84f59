"""Gather and scatter: elements chosen by indices."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore.arguments import ArgumentValueError, axis_in
from opbuild.mindspore.execution import cast as _cast
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.declaration import formula, need_tensor, of_tensor, spelled
from opbuild.mindspore.ops.shaping import ints, ravel, reshaped
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "embedding", "gather", "gather_d", "gather_elements", "gather_nd", "index_select", "one_hot", "scatter_nd", "take",
    "tensor_scatter_update",
]  # fmt: skip

index_select = formula("index_select", "``gather(input, index, axis)``",
                       lambda input, axis, index: gather(input, index, axis))  # fmt: skip
take = formula("take", "the elements of the flattened tensor that ``index`` names",
               lambda input, index: gather(ravel(input), index, 0))  # fmt: skip
gather_nd = formula(
    "gather_nd", "the slices that the vectors along the last axis of ``indices`` name",
    of_tensor(lambda input_x, indices: emit("GatherND", input_x, _cast(_indices(indices, "gather_nd"), "int64"))),
)  # fmt: skip
in_range = formula(
    "in_range", "indices of one of ``count`` elements; what is outside is an error",
    lambda indices, count: emit("InRange", indices, domain="opbuild", counts=(count,), negative=False),
)  # fmt: skip


def _indices(value: Any, name: str) -> Tensor:
    tensor = Tensor(value) if isinstance(value, (int, list, tuple)) else need_tensor(value, name)
    return tensor if tensor.type.dtype in ("int32", "int64") else _cast(tensor, "int64")


def gather(input_params: Any, input_indices: Any, axis: int, batch_dims: int = 0) -> Tensor:
    """Return the slices of ``input_params`` along ``axis`` that ``input_indices`` names.

    Raises:
        ArgumentValueError: If ``batch_dims`` is not 0.
    """
    if batch_dims != 0:
        raise ArgumentValueError(f"gather was given batch_dims={batch_dims}{location()}", "use gather_elements")
    tensor = need_tensor(input_params, "gather")
    axis = axis.item() if isinstance(axis, Tensor) else axis
    return emit("Gather", tensor, _indices(input_indices, "gather"), axis=axis_in(axis, tensor.ndim, "gather"))


def gather_elements(input: Any, dim: int, index: Any) -> Tensor:
    """Return, for each element of ``index``, the element at its place but at that index along ``dim``."""
    tensor = need_tensor(input, "gather_elements")
    axis = axis_in(dim, tensor.ndim, "gather_elements")
    return emit("GatherElements", tensor, _indices(index, "gather_elements"), axis=axis)


gather_d = spelled(gather_elements, "gather_d", x="input")


def scatter_nd(indices: Any, updates: Any, shape: Any) -> Tensor:
    """Return zeros of ``shape`` with ``updates`` added at ``indices``."""
    values = need_tensor(updates, "scatter_nd")
    zeros = np.zeros(ints(shape, "the shape of scatter_nd"), values.type.dtype)
    return emit("ScatterND", zeros, _cast(_indices(indices, "scatter_nd"), "int64"), values, reduction="add")


def tensor_scatter_update(input_x: Any, indices: Any, updates: Any) -> Tensor:
    """Return the tensor with ``updates`` at ``indices``."""
    tensor = need_tensor(input_x, "tensor_scatter_update")
    places = _cast(_indices(indices, "tensor_scatter_update"), "int64")
    return emit("ScatterND", tensor, places, need_tensor(updates, "tensor_scatter_update"))


def one_hot(indices: Any, depth: int, on_value: Any = 1, off_value: Any = 0, axis: int = -1) -> Tensor:
    """Return ``off_value``, and ``on_value`` at each index along a new axis of extent ``depth``."""
    places = _indices(indices, "one_hot")
    values = np.array([_number(off_value), _number(on_value)])
    typed = next((item for item in (on_value, off_value) if isinstance(item, Tensor)), None)
    dtype = typed.type.dtype if typed is not None else "float32" if values.dtype.kind == "f" else "int64"
    return emit("OneHot", places, np.asarray(depth, np.int64), values.astype(dtype), axis=axis)


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, Tensor) else value


def embedding(input: Any, weight: Any, padding_idx: int | None = None) -> Tensor:
    """Return the rows of ``weight`` that ``input`` names; ``padding_idx`` matters only to training."""
    ids, table = _indices(input, "embedding"), need_tensor(weight, "embedding")
    rows = emit("Gather", table, ids, axis=0)
    return reshaped(rows, (*ids.shape, table.shape[1]))
