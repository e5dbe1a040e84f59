"""Functions of shapes of ``mindspore.numpy``: they compute nothing and work in networks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import ops
from opbuild.mindspore.numpy.elementwise import tensor
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.tensor import Tensor


def _tensors(values: Any) -> list[Tensor]:
    return [tensor(each) for each in values]


def _parts(x: Any, indices_or_sections: Any, axis: int) -> Any:
    return ops.tensor_split(tensor(x), indices_or_sections, axis)


def _broadcast(*args: Any) -> Any:
    """Return tensors repeated to their common shape."""
    items = _tensors(args)
    shape = np.broadcast_shapes(*(item.shape for item in items))
    return [ops.broadcast_to(item, shape) for item in items]


def _flip(m: Any, axis: Any = None) -> Any:
    value = tensor(m)
    return ops.flip(value, tuple(range(value.ndim)) if axis is None else axis)


def _append(arr: Any, values: Any, axis: int | None = None) -> Any:
    first, second = tensor(arr), tensor(values)
    if axis is None:
        first, second = ops.ravel(first), ops.ravel(second)
    return ops.concat((first, second), axis or 0)


def _roll_axis(x: Any, axis: int, start: int = 0) -> Any:
    value = tensor(x)
    place = axis % value.ndim
    goal = start + value.ndim if start < 0 else start
    return ops.moveaxis(value, place, goal - (goal > place))


def _repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    value = tensor(a)
    if isinstance(repeats, int):
        return ops.repeat_interleave(value, repeats, axis)
    places = np.repeat(np.arange(value.size if axis is None else value.shape[axis]), repeats)
    return ops.gather(ops.ravel(value) if axis is None else value, Tensor.of(places), axis or 0)


def _diag(v: Any, k: int = 0) -> Any:
    value = tensor(v)
    return ops.diag_embed(value, k) if value.ndim == 1 else ops.diagonal(value, k)


def _take(a: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Any:
    value, places = tensor(a), tensor(indices)
    extent = value.size if axis is None else value.shape[axis]
    places = ops.clip(places, 0, extent - 1) if mode == "clip" else ops.floor_mod(places, extent)
    return ops.gather(ops.ravel(value) if axis is None else value, places, axis or 0)


def _pad(arr: Any, pad_width: Any, mode: Any = "constant", stat_length: Any = None, constant_values: Any = 0,
         end_values: Any = 0, reflect_type: str = "even", **kwargs: Any) -> Any:  # fmt: skip
    """Return the tensor with elements added around it: constants, or the tensor mirrored, repeated or its edges."""
    value = tensor(arr)
    pairs = np.broadcast_to(np.asarray(pad_width), (value.ndim, 2)).tolist()
    if mode == "constant":
        return ops.pad(value, [amount for pair in reversed(pairs) for amount in pair], value=constant_values)
    for axis, pair in enumerate(pairs):
        places = np.pad(np.arange(value.shape[axis]), pair, mode)
        value = ops.gather(value, Tensor.of(places), axis)
    return value


def _stacked(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda tup: function(_tensors(tup))


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "append": _append,
    "array_split": lambda x, indices_or_sections, axis=0: _parts(x, indices_or_sections, axis),
    "atleast_1d": lambda *arys: _single(ops.atleast_1d(_tensors(arys))),
    "atleast_2d": lambda *arys: _single(ops.atleast_2d(_tensors(arys))),
    "atleast_3d": lambda *arys: _single(ops.atleast_3d(_tensors(arys))),
    "broadcast_arrays": _broadcast,
    "broadcast_to": lambda array, shape: ops.broadcast_to(tensor(array), shape),
    "column_stack": _stacked(ops.column_stack),
    "concatenate": lambda arrays, axis=0: ops.concat(
        [ops.ravel(each) for each in _tensors(arrays)] if axis is None else _tensors(arrays), axis or 0),
    "diag": _diag,
    "diagflat": lambda v, k=0: ops.diagflat(tensor(v), k),
    "diagonal": lambda a, offset=0, axis1=0, axis2=1: ops.diagonal(tensor(a), offset, axis1, axis2),
    "diff": lambda a, n=1, axis=-1, prepend=None, append=None: ops.diff(tensor(a), n, axis, prepend, append),
    "dsplit": lambda x, indices_or_sections: _parts(x, indices_or_sections, 2),
    "dstack": _stacked(ops.dstack),
    "expand_dims": lambda a, axis: ops.expand_dims(tensor(a), axis),
    "flip": _flip,
    "fliplr": lambda m: ops.fliplr(tensor(m)),
    "flipud": lambda m: ops.flipud(tensor(m)),
    "hsplit": lambda x, indices_or_sections: ops.hsplit(tensor(x), indices_or_sections),
    "hstack": _stacked(ops.hstack),
    "moveaxis": lambda a, source, destination: ops.moveaxis(tensor(a), source, destination),
    "pad": _pad,
    "ravel": lambda x: ops.ravel(tensor(x)),
    "repeat": _repeat,
    "reshape": lambda x, new_shape: ops.reshape(tensor(x), new_shape),
    "roll": lambda a, shift, axis=None: ops.roll(tensor(a), shift, axis),
    "rollaxis": _roll_axis,
    "rot90": lambda a, k=1, axes=(0, 1): ops.rot90(tensor(a), k, axes),
    "size": lambda a, axis=None: tensor(a).size if axis is None else tensor(a).shape[axis],
    "split": lambda x, indices_or_sections, axis=0: _parts(x, indices_or_sections, axis),
    "squeeze": lambda a, axis=None: ops.squeeze(tensor(a), axis),
    "stack": lambda arrays, axis=0: ops.stack(_tensors(arrays), axis),
    "swapaxes": lambda x, axis1, axis2: ops.swapaxes(tensor(x), axis1, axis2),
    "take": _take,
    "take_along_axis": lambda arr, indices, axis: ops.gather_elements(
        ops.ravel(arr) if axis is None else arr, axis or 0, indices),
    "tile": lambda a, reps: ops.tile(tensor(a), ints(reps, "reps")),
    "trace": lambda a, offset=0, axis1=0, axis2=1, dtype=None: tensor(a).trace(offset, axis1, axis2, dtype),
    "transpose": lambda a, axes=None: ops.transpose(tensor(a), axes or tuple(reversed(range(tensor(a).ndim)))),
    "tril": lambda m, k=0: ops.tril(tensor(m), k),
    "triu": lambda m, k=0: ops.triu(tensor(m), k),
    "vsplit": lambda x, indices_or_sections: _parts(x, indices_or_sections, 0),
    "vstack": _stacked(ops.vstack),
    "where": lambda condition, x=None, y=None: ops.where(tensor(condition), x, y),
}  # fmt: skip


def _single(items: Any) -> Any:
    return items[0] if len(items) == 1 else items
