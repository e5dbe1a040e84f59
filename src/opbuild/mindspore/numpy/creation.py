"""Tensors from nothing of ``mindspore.numpy``: they hold data at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import ops
from opbuild.mindspore.dtype import Type, float32, int32, to_type
from opbuild.mindspore.host import tensors
from opbuild.mindspore.numpy.elementwise import tensor, typed
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.promotion import promote
from opbuild.mindspore.tensor import Tensor


def _name(dtype: Any) -> str:
    return to_type(dtype).name


def _array(obj: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> Tensor:
    """Return a tensor of numbers, nested lists or tensors."""
    value = Tensor(obj, dtype)
    if isinstance(obj, (list, tuple, int)) and dtype is None and value.type.dtype == "int64":
        value = ops.cast(value, int32)
    return ops.reshape(value, (1,) * (ndmin - value.ndim) + value.shape) if value.ndim < ndmin else value


def _like(value: float) -> Callable[..., Any]:
    return lambda a, dtype=None, shape=None: _full_like(a, value, dtype, shape)


def _full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    given = tensor(a)
    return ops.full(given.shape if shape is None else shape, fill_value, dtype=dtype or given.dtype)


def _full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    kind = dtype or (float32 if isinstance(fill_value, float) else int32 if not isinstance(fill_value, bool) else bool)
    return ops.full(shape, fill_value, dtype=kind)


def _arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    values = np.arange(start, stop, 1 if step is None else step) if stop is not None else np.arange(0, start, step or 1)
    kind = _name(dtype) if dtype is not None else "float32" if values.dtype.kind == "f" else "int32"
    return Tensor.of(values.astype(kind))


def _spaced(function: Callable[..., Any]) -> Callable[..., Any]:
    def spaced(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0,
               **named: Any) -> Any:  # fmt: skip
        values = function(_data(start), _data(stop), num, endpoint=endpoint, axis=axis, **named)
        return tensors(values.astype("float32" if dtype is None else _name(dtype)))

    return spaced


def _linspace(start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None,
              axis: int = 0) -> Any:  # fmt: skip
    values, step = np.linspace(_data(start), _data(stop), num, endpoint=endpoint, retstep=True, axis=axis)
    result = tensors(values.astype("float32" if dtype is None else _name(dtype)))
    return (result, tensors(np.float32(step))) if retstep else result


def _data(value: Any) -> Any:
    return value.asnumpy() if isinstance(value, Tensor) else value


def _window(function: Callable[[int], Any]) -> Callable[..., Any]:
    return lambda M: Tensor.of(function(int(M)).astype(np.float32))


def _indices(dimensions: Any, dtype: Any = int32, sparse: Any = False) -> Any:
    """Return the coordinates of a grid."""
    return tuple(tensors(each.astype(_name(dtype))) for each in np.indices(tuple(dimensions), sparse=sparse))


def _meshgrid(*xi: Any, sparse: bool = False, indexing: Any = "xy") -> Any:
    """Return the coordinates of a grid from one vector for each axis."""
    if not sparse:
        return list(ops.meshgrid(*map(tensor, xi), indexing=indexing))
    return [tensors(each) for each in np.meshgrid(*map(_data, xi), sparse=True, indexing=indexing)]


def _result_type(*arrays_and_dtypes: Any) -> Type:
    """Return the element type that all are converted to."""
    kinds = [each.dtype.name if isinstance(each, Tensor) else to_type(each if isinstance(each, (Type, type))
             else type(each)).name for each in arrays_and_dtypes]  # fmt: skip
    return to_type(functools.reduce(promote, kinds))


class _Grid:
    """``mgrid`` and ``ogrid``: coordinates by slices."""

    def __init__(self, grid: Any) -> None:
        self._grid = grid

    def __getitem__(self, key: Any) -> Any:
        axes = self._grid[key]
        if isinstance(axes, (list, tuple)):
            return tuple(tensors(_narrow(each)) for each in axes)
        return tensors(_narrow(axes))


def _narrow(array: Any) -> Any:
    return array.astype(np.float32 if array.dtype.kind == "f" else np.int32)


def _randint(minval: int, maxval: int | None = None, shape: Any = None, dtype: Any = int32) -> Tensor:
    low, high = (0, minval) if maxval is None else (minval, maxval)
    return ops.randint(low, high, ints(shape if shape is not None else (1,), "the shape"), dtype=dtype)


FUNCTIONS: dict[str, Any] = {
    "arange": _arange,
    "array": _array,
    "array_str": lambda a: str(tensor(a)),
    "asarray": lambda a, dtype=None: _array(a, dtype),
    "asfarray": lambda a, dtype=float32: ops.cast(_array(a), to_type(dtype)),
    "bartlett": _window(np.bartlett), "blackman": _window(np.blackman), "hamming": _window(np.hamming),
    "hanning": _window(np.hanning),
    "diag_indices": lambda n, ndim=2: tuple(Tensor.of(np.arange(n, dtype=np.int32)) for _ in range(ndim)),
    "empty": lambda shape, dtype=float32: ops.zeros(shape, dtype),
    "empty_like": _like(0),
    "eye": lambda N, M=None, k=0, dtype=float32: Tensor.of(np.eye(N, M, k, _name(dtype))),
    "full": _full, "full_like": _full_like, "geomspace": _spaced(np.geomspace),
    "identity": lambda n, dtype=float32: Tensor.of(np.eye(n, dtype=_name(dtype))),
    "indices": _indices,
    "isscalar": lambda element: np.isscalar(element),
    "ix_": lambda *args: tuple(tensors(each) for each in np.ix_(*map(_data, args))),
    "linspace": _linspace, "logspace": _spaced(np.logspace), "meshgrid": _meshgrid,
    "mgrid": _Grid(np.mgrid), "ogrid": _Grid(np.ogrid),
    "ones": lambda shape, dtype=float32: ops.ones(shape, dtype),
    "ones_like": _like(1),
    "promote_types": lambda type1, type2: to_type(promote(to_type(type1).name, to_type(type2).name)),
    "rand": lambda *shape, dtype=float32: ops.rand(*shape, dtype=dtype),
    "randint": _randint,
    "randn": lambda *shape, dtype=float32: ops.randn(*shape, dtype=dtype),
    "result_type": _result_type,
    "tri": lambda N, M=None, k=0, dtype=float32: Tensor.of(np.tri(N, M, k, _name(dtype))),
    "tril_indices": lambda n, k=0, m=None: tuple(tensors(each.astype(np.int32)) for each in np.tril_indices(n, k, m)),
    "tril_indices_from": lambda arr, k=0: FUNCTIONS["tril_indices"](arr.shape[-2], k, arr.shape[-1]),
    "triu_indices": lambda n, k=0, m=None: tuple(tensors(each.astype(np.int32)) for each in np.triu_indices(n, k, m)),
    "triu_indices_from": lambda arr, k=0: FUNCTIONS["triu_indices"](arr.shape[-2], k, arr.shape[-1]),
    "vander": lambda x, N=None, increasing=False: _vander(tensor(x), N, increasing),
    "zeros": lambda shape, dtype=float32: ops.zeros(shape, dtype),
    "zeros_like": _like(0),
}  # fmt: skip


def _vander(x: Tensor, count: int | None, increasing: bool) -> Any:
    powers = ops.vander(x, count)
    return ops.fliplr(powers) if increasing else typed(powers, None)
