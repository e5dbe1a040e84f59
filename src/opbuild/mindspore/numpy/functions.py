"""The functions of ``mindspore.numpy``: elementwise ones, shapes, tensors from nothing, and numpy's own on data."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import ops
from opbuild.mindspore.dtype import Type, float32, int32, to_type
from opbuild.mindspore.execution import array_of, nested, on_data, promote, tensors
from opbuild.mindspore.ops import matrices, reduction
from opbuild.mindspore.ops.declaration import formula
from opbuild.mindspore.ops.reduction import reduce
from opbuild.mindspore.ops.shaping import ints
from opbuild.mindspore.tensor import Tensor


def tensor(value: Any) -> Tensor:
    """Return a tensor of anything that numpy would take as an array."""
    return value if isinstance(value, Tensor) else Tensor(value)


def typed(result: Any, dtype: Any) -> Any:
    """Return a tensor in an element type, if one is given."""
    return result if dtype is None else ops.cast(result, to_type(dtype))


def _unary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dtype=None: typed(function(tensor(x)), dtype)


def _binary(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x1, x2, dtype=None: typed(
        function(tensor(x1), x2 if isinstance(x2, (bool, int, float)) else tensor(x2)), dtype
    )


def _signed(name: str) -> Callable[..., Any]:
    def function(x: Any) -> Any:
        value = tensor(x)
        return getattr(ops, name)(value if value.is_floating_point() else ops.cast(value, to_type("float32")))

    return function


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a, axis=None, keepdims=False, initial=None, where=True: function(tensor(a), axis, keepdims)


def sum(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False, initial: Any = None) -> Any:
    """Return the sum over ``axis``, in the element type of the tensor."""
    value = typed(tensor(a), dtype)
    value = ops.cast(value, to_type("int32")) if value.type.dtype == "bool" else value
    result = reduce("ReduceSum", value, axis, keepdims)
    return result if initial is None else ops.add(result, initial)


def mean(a: Any, axis: Any = None, keepdims: bool = False, dtype: Any = None) -> Any:
    """Return the mean over ``axis``."""
    value = tensor(a)
    value = value if value.is_floating_point() else ops.cast(value, to_type("float32"))
    return typed(ops.mean(value, axis, keepdims), dtype)


def average(x: Any, axis: Any = None, weights: Any = None, returned: bool = False) -> Any:
    """Return the mean over ``axis``, weighted."""
    value = tensor(x)
    if weights is None:
        result, total = mean(value, axis), None
    else:
        weight = tensor(weights)
        if weight.ndim == 1 and value.ndim > 1:
            shape = [1] * value.ndim
            shape[axis] = weight.size
            weight = ops.broadcast_to(ops.reshape(weight, tuple(shape)), value.shape)
        total = ops.sum(weight, axis)
        result = ops.div(ops.sum(ops.mul(value, weight), axis), total)
    if not returned:
        return result
    count = value.size if axis is None else value.shape[axis]
    return result, total if total is not None else ops.full_like(result, float(count))


def _nan(function: Callable[..., Any], fill: float) -> Callable[..., Any]:
    def reduced(a: Any, axis: Any = None, dtype: Any = None, keepdims: bool = False) -> Any:
        value = typed(tensor(a), dtype)
        value = ops.where(ops.isnan(value), fill, value) if value.is_floating_point() else value
        return function(value, axis, keepdims)

    return reduced


def nanvar(a: Any, axis: Any = None, dtype: Any = None, ddof: int = 0, keepdims: bool = False) -> Any:
    """Return the variance over ``axis`` of the elements that are not NaN."""
    value = typed(tensor(a), dtype)
    there = ops.cast(ops.logical_not(ops.isnan(value)), value.dtype)
    count = ops.sum(there, axis, True)
    kept = ops.where(ops.isnan(value), 0.0, value)
    mean = ops.div(ops.sum(kept, axis, True), count)
    spread = ops.sum(ops.mul(ops.square(ops.sub(kept, mean)), there), axis, keepdims)
    return ops.div(spread, ops.sub(ops.sum(there, axis, keepdims), float(ddof)))


_SAME_UNARY = """
    abs absolute arccos arccosh arcsin arcsinh arctan arctanh bitwise_not cos cosh deg2rad exp exp2 expm1 invert
    isfinite isinf isnan log log10 log1p log2 logical_not negative positive rad2deg reciprocal sign signbit sin sinh
    sqrt square tan tanh
"""
_SAME_BINARY = """
    add arctan2 bitwise_and bitwise_or bitwise_xor copysign divide equal floor_divide fmod gcd greater greater_equal
    heaviside lcm less less_equal logaddexp logaddexp2 logical_and logical_or logical_xor matmul maximum minimum
    multiply not_equal remainder subtract true_divide
"""
"""Functions that ``ops`` has under the same name."""

_UNARY = {
    **{name: getattr(ops, name) for name in _SAME_UNARY.split()},
    "cbrt": lambda x: ops.mul(ops.sign(x), ops.pow(ops.abs(ops.mul(x, 1.0)), 1 / 3)),
    "ceil": _signed("ceil"), "fabs": _signed("abs"), "floor": _signed("floor"),
    "radians": ops.deg2rad, "rint": _signed("round"), "trunc": _signed("trunc"),
}  # fmt: skip

_BINARY = {
    **{name: getattr(ops, name) for name in _SAME_BINARY.split()},
    "divmod": lambda x1, x2: (ops.floor_divide(x1, x2), ops.floor_mod(x1, x2)),
    "float_power": lambda x1, x2: ops.pow(ops.mul(x1, 1.0), x2),
    "hypot": lambda x1, x2: ops.sqrt(ops.add(ops.square(ops.mul(x1, 1.0)), ops.square(ops.mul(x2, 1.0)))),
    "mod": ops.floor_mod, "power": ops.pow,
}  # fmt: skip

_ELEMENTWISE: dict[str, Callable[..., Any]] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _binary(function) for name, function in _BINARY.items()},
    "amax": _reduced(ops.amax), "amin": _reduced(ops.amin), "max": _reduced(ops.amax), "min": _reduced(ops.amin),
    "argmax": lambda a, axis=None: ops.cast(ops.argmax(tensor(a), axis), to_type("int32")),
    "argmin": lambda a, axis=None: ops.argmin(tensor(a), axis),
    "array_equal": lambda a1, a2, equal_nan=False: (
        ops.all(ops.equal(tensor(a1), tensor(a2))) if tensor(a1).shape == tensor(a2).shape else Tensor(False)),
    "clip": lambda x, xmin, xmax, dtype=None: typed(ops.clip(tensor(x), xmin, xmax), dtype),
    "count_nonzero": lambda x, axis=None, keepdims=False: ops.count_nonzero(
        tensor(x), () if axis is None else axis, keepdims),
    "cumprod": lambda a, axis=None, dtype=None: typed(
        ops.cumprod(ops.ravel(a) if axis is None else a, axis or 0), dtype),
    "cumsum": lambda a, axis=None, dtype=None: ops.cumsum(ops.ravel(a) if axis is None else a, axis or 0, dtype),
    "dot": lambda a, b: ops.dot(tensor(a), tensor(b)),
    "fix": lambda x: ops.trunc(tensor(x)),
    "inner": lambda a, b: ops.inner(tensor(a), tensor(b)),
    "isclose": lambda a, b, rtol=1e-05, atol=1e-08, equal_nan=False: ops.isclose(
        tensor(a), tensor(b), rtol, atol, equal_nan),
    "isneginf": lambda x: ops.isneginf(tensor(x)),
    "isposinf": lambda x: ops.isposinf(tensor(x)),
    "kron": lambda a, b: ops.kron(tensor(a), tensor(b)),
    "multi_dot": lambda arrays: functools.reduce(ops.matmul, map(tensor, arrays)),
    "nancumsum": lambda a, axis=None, dtype=None: _ELEMENTWISE["cumsum"](ops.where(ops.isnan(a), 0.0, a), axis, dtype),
    "nanmax": _nan(ops.amax, -math.inf), "nanmin": _nan(ops.amin, math.inf),
    "nanmean": lambda a, axis=None, dtype=None, keepdims=False: ops.nanmean(tensor(a), axis, keepdims, dtype=dtype),
    "nanstd": lambda a, axis=None, dtype=None, ddof=0, keepdims=False: ops.sqrt(
        nanvar(a, axis, dtype, ddof, keepdims)),
    "nansum": _nan(lambda value, axis, keepdims: sum(value, axis, None, keepdims), 0.0),
    "norm": lambda x, ord=None, axis=None, keepdims=False: matrices.norm(tensor(x), ord, axis, keepdims),
    "outer": lambda a, b: ops.outer(ops.ravel(tensor(a)), ops.ravel(tensor(b))),
    "ptp": lambda x, axis=None, keepdims=False: reduction.ptp(tensor(x), axis, keepdims),
    "sometrue": lambda a, axis=None, keepdims=False: ops.any(tensor(a), axis, keepdims),
    "std": lambda x, axis=None, ddof=0, keepdims=False: ops.std(tensor(x), axis, ddof, keepdims),
    "tensordot": lambda a, b, axes=2: ops.tensor_dot(tensor(a), tensor(b), axes),
    "trapz": lambda y, x=None, dx=1.0, axis=-1: ops.trapz(tensor(y), x, dx=dx, dim=axis),
    "var": lambda x, axis=None, ddof=0, keepdims=False: ops.var(tensor(x), axis, ddof, keepdims),
}  # fmt: skip


def _tensors(values: Any) -> list[Tensor]:
    return [tensor(each) for each in values]


def _parts(x: Any, indices_or_sections: Any, axis: int) -> Any:
    return ops.tensor_split(tensor(x), indices_or_sections, axis)


def broadcast_arrays(*args: Any) -> Any:
    """Return tensors repeated to their common shape."""
    items = _tensors(args)
    shape = np.broadcast_shapes(*(item.shape for item in items))
    return [ops.broadcast_to(item, shape) for item in items]


def flip(m: Any, axis: Any = None) -> Any:
    value = tensor(m)
    return ops.flip(value, tuple(range(value.ndim)) if axis is None else axis)


def append(arr: Any, values: Any, axis: int | None = None) -> Any:
    first, second = tensor(arr), tensor(values)
    if axis is None:
        first, second = ops.ravel(first), ops.ravel(second)
    return ops.concat((first, second), axis or 0)


def rollaxis(x: Any, axis: int, start: int = 0) -> Any:
    value = tensor(x)
    place = axis % value.ndim
    goal = start + value.ndim if start < 0 else start
    return ops.moveaxis(value, place, goal - (goal > place))


def repeat(a: Any, repeats: Any, axis: int | None = None) -> Any:
    value = tensor(a)
    if isinstance(repeats, int):
        return ops.repeat_interleave(value, repeats, axis)
    places = np.repeat(np.arange(value.size if axis is None else value.shape[axis]), repeats)
    return ops.gather(ops.ravel(value) if axis is None else value, Tensor.of(places), axis or 0)


def diag(v: Any, k: int = 0) -> Any:
    value = tensor(v)
    return ops.diag_embed(value, k) if value.ndim == 1 else ops.diagonal(value, k)


def take(a: Any, indices: Any, axis: int | None = None, mode: str = "clip") -> Any:
    value, places = tensor(a), tensor(indices)
    extent = value.size if axis is None else value.shape[axis]
    places = ops.clip(places, 0, extent - 1) if mode == "clip" else ops.floor_mod(places, extent)
    return ops.gather(ops.ravel(value) if axis is None else value, places, axis or 0)


def pad(arr: Any, pad_width: Any, mode: Any = "constant", stat_length: Any = None, constant_values: Any = 0,
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


_SHAPES: dict[str, Callable[..., Any]] = {
    "array_split": lambda x, indices_or_sections, axis=0: _parts(x, indices_or_sections, axis),
    "atleast_1d": lambda *arys: _single(ops.atleast_1d(_tensors(arys))),
    "atleast_2d": lambda *arys: _single(ops.atleast_2d(_tensors(arys))),
    "atleast_3d": lambda *arys: _single(ops.atleast_3d(_tensors(arys))),
    "broadcast_to": lambda array, shape: ops.broadcast_to(tensor(array), shape),
    "column_stack": _stacked(ops.column_stack),
    "concatenate": lambda arrays, axis=0: ops.concat(
        [ops.ravel(each) for each in _tensors(arrays)] if axis is None else _tensors(arrays), axis or 0),
    "diagflat": lambda v, k=0: ops.diagflat(tensor(v), k),
    "diagonal": lambda a, offset=0, axis1=0, axis2=1: ops.diagonal(tensor(a), offset, axis1, axis2),
    "diff": lambda a, n=1, axis=-1, prepend=None, append=None: ops.diff(tensor(a), n, axis, prepend, append),
    "dsplit": lambda x, indices_or_sections: _parts(x, indices_or_sections, 2),
    "dstack": _stacked(ops.dstack),
    "expand_dims": lambda a, axis: ops.expand_dims(tensor(a), axis),
    "fliplr": lambda m: ops.fliplr(tensor(m)),
    "flipud": lambda m: ops.flipud(tensor(m)),
    "hsplit": lambda x, indices_or_sections: ops.hsplit(tensor(x), indices_or_sections),
    "hstack": _stacked(ops.hstack),
    "moveaxis": lambda a, source, destination: ops.moveaxis(tensor(a), source, destination),
    "ravel": lambda x: ops.ravel(tensor(x)),
    "reshape": lambda x, new_shape: ops.reshape(tensor(x), new_shape),
    "roll": lambda a, shift, axis=None: ops.roll(tensor(a), shift, axis),
    "rot90": lambda a, k=1, axes=(0, 1): ops.rot90(tensor(a), k, axes),
    "size": lambda a, axis=None: tensor(a).size if axis is None else tensor(a).shape[axis],
    "split": lambda x, indices_or_sections, axis=0: _parts(x, indices_or_sections, axis),
    "squeeze": lambda a, axis=None: ops.squeeze(tensor(a), axis),
    "stack": lambda arrays, axis=0: ops.stack(_tensors(arrays), axis),
    "swapaxes": lambda x, axis1, axis2: ops.swapaxes(tensor(x), axis1, axis2),
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


def _name(dtype: Any) -> str:
    return to_type(dtype).name


def array(obj: Any, dtype: Any = None, copy: bool = True, ndmin: int = 0) -> Tensor:
    """Return a tensor of numbers, nested lists or tensors."""
    value = Tensor(obj, dtype)
    if isinstance(obj, (list, tuple, int)) and dtype is None and value.type.dtype == "int64":
        value = ops.cast(value, int32)
    return ops.reshape(value, (1,) * (ndmin - value.ndim) + value.shape) if value.ndim < ndmin else value


def _like(value: float) -> Callable[..., Any]:
    return lambda a, dtype=None, shape=None: full_like(a, value, dtype, shape)


def full_like(a: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Tensor:
    given = tensor(a)
    return ops.full(given.shape if shape is None else shape, fill_value, dtype=dtype or given.dtype)


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Tensor:
    kind = dtype or (float32 if isinstance(fill_value, float) else int32 if not isinstance(fill_value, bool) else bool)
    return ops.full(shape, fill_value, dtype=kind)


def arange(start: Any, stop: Any = None, step: Any = None, dtype: Any = None) -> Tensor:
    values = np.arange(start, stop, 1 if step is None else step) if stop is not None else np.arange(0, start, step or 1)
    kind = _name(dtype) if dtype is not None else "float32" if values.dtype.kind == "f" else "int32"
    return Tensor.of(values.astype(kind))


def _spaced(function: Callable[..., Any]) -> Callable[..., Any]:
    def spaced(start: Any, stop: Any, num: int = 50, endpoint: bool = True, dtype: Any = None, axis: int = 0,
               **named: Any) -> Any:  # fmt: skip
        values = function(array_of(start), array_of(stop), num, endpoint=endpoint, axis=axis, **named)
        return tensors(values.astype("float32" if dtype is None else _name(dtype)))

    return spaced


def linspace(
    start: Any, stop: Any, num: int = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    values, step = np.linspace(array_of(start), array_of(stop), num, endpoint=endpoint, retstep=True, axis=axis)
    result = tensors(values.astype("float32" if dtype is None else _name(dtype)))
    return (result, tensors(np.float32(step))) if retstep else result


def _window(function: Callable[[int], Any]) -> Callable[..., Any]:
    return lambda M: Tensor.of(function(int(M)).astype(np.float32))


def meshgrid(*xi: Any, sparse: bool = False, indexing: Any = "xy") -> Any:
    """Return the coordinates of a grid from one vector for each axis."""
    if not sparse:
        return list(ops.meshgrid(*map(tensor, xi), indexing=indexing))
    return [tensors(each) for each in np.meshgrid(*map(array_of, xi), sparse=True, indexing=indexing)]


def result_type(*arrays_and_dtypes: Any) -> Type:
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


def randint(minval: int, maxval: int | None = None, shape: Any = None, dtype: Any = int32) -> Tensor:
    low, high = (0, minval) if maxval is None else (minval, maxval)
    return ops.randint(low, high, ints(shape if shape is not None else (1,), "the shape"), dtype=dtype)


_CREATION: dict[str, Any] = {
    "array_str": lambda a: str(tensor(a)),
    "asarray": lambda a, dtype=None: array(a, dtype),
    "asfarray": lambda a, dtype=float32: ops.cast(array(a), to_type(dtype)),
    "bartlett": _window(np.bartlett), "blackman": _window(np.blackman), "hamming": _window(np.hamming),
    "hanning": _window(np.hanning),
    "diag_indices": lambda n, ndim=2: tuple(Tensor.of(np.arange(n, dtype=np.int32)) for _ in range(ndim)),
    "empty": lambda shape, dtype=float32: ops.zeros(shape, dtype),
    "empty_like": _like(0),
    "eye": lambda N, M=None, k=0, dtype=float32: Tensor.of(np.eye(N, M, k, _name(dtype))),
    "geomspace": _spaced(np.geomspace),
    "identity": lambda n, dtype=float32: Tensor.of(np.eye(n, dtype=_name(dtype))),
    "indices": formula("the coordinates of a grid", lambda dimensions, dtype=int32, sparse=False: tuple(
        tensors(each.astype(_name(dtype))) for each in np.indices(tuple(dimensions), sparse=sparse))),
    "isscalar": lambda element: np.isscalar(element),
    "ix_": lambda *args: tuple(tensors(each) for each in np.ix_(*map(array_of, args))),
    "logspace": _spaced(np.logspace), "mgrid": _Grid(np.mgrid), "ogrid": _Grid(np.ogrid),
    "ones": lambda shape, dtype=float32: ops.ones(shape, dtype),
    "ones_like": _like(1),
    "promote_types": lambda type1, type2: to_type(promote(to_type(type1).name, to_type(type2).name)),
    "rand": lambda *shape, dtype=float32: ops.rand(*shape, dtype=dtype),
    "randn": lambda *shape, dtype=float32: ops.randn(*shape, dtype=dtype),
    "tri": lambda N, M=None, k=0, dtype=float32: Tensor.of(np.tri(N, M, k, _name(dtype))),
    "tril_indices": lambda n, k=0, m=None: tuple(tensors(each.astype(np.int32)) for each in np.tril_indices(n, k, m)),
    "tril_indices_from": lambda arr, k=0: _CREATION["tril_indices"](arr.shape[-2], k, arr.shape[-1]),
    "triu_indices": lambda n, k=0, m=None: tuple(tensors(each.astype(np.int32)) for each in np.triu_indices(n, k, m)),
    "triu_indices_from": lambda arr, k=0: _CREATION["triu_indices"](arr.shape[-2], k, arr.shape[-1]),
    "vander": lambda x, N=None, increasing=False: (ops.fliplr if increasing else ops.positive)(
        ops.vander(tensor(x), N)),
    "zeros": lambda shape, dtype=float32: ops.zeros(shape, dtype),
    "zeros_like": _like(0),
}  # fmt: skip


def _plain(name: str, kind: Any = None) -> Callable[..., Any]:
    """Return numpy's function on data; integers become ``kind``, if one is given, and float64 float32."""
    function = getattr(np, name)

    def narrowed(result: Any) -> Any:
        array = np.asarray(result)
        if array.dtype == np.float64:
            return array.astype(np.float32)
        return array.astype(kind) if array.dtype.kind in "iu" and kind is not None else array

    def computed(*args: Any, **named: Any) -> Any:
        return nested(function(*args, **named), narrowed)

    computed.__name__ = computed.__qualname__ = name
    computed.__doc__ = f"Return numpy's ``{name}``."
    return on_data(computed)


def _histogram(name: str) -> Callable[..., Any]:
    function = getattr(np, name)

    @on_data
    def computed(*args: Any, **named: Any) -> Any:
        counts, *edges = function(*args, **named)
        if name == "histogramdd":
            return counts.astype(np.float32), [np.asarray(edge, np.float32) for edge in edges[0]]
        return (counts.astype(np.float32), *(np.asarray(edge, np.float32) for edge in edges))

    return computed


def apply_along_axis(func1d: Any, axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the results of a function of each vector along ``axis``."""
    place = axis % arr.ndim
    front = ops.moveaxis(arr, place, -1)
    rows = ops.reshape(front, (-1, front.shape[-1]))
    results = [func1d(row, *args, **kwargs) for row in rows]
    stacked = ops.stack([each if isinstance(each, Tensor) else Tensor(each) for each in results])
    whole = ops.reshape(stacked, (*front.shape[:-1], *stacked.shape[1:]))
    return whole if stacked.ndim == 1 else ops.moveaxis(whole, -1, place)


def apply_over_axes(func: Any, a: Any, axes: Any) -> Any:
    """Return a function applied over several axes, one after the other, which stay with extent 1."""
    for axis in (axes,) if isinstance(axes, int) else axes:
        result = func(a, axis)
        a = result if result.ndim == a.ndim else ops.expand_dims(result, axis)
    return a


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """Return, at each element, the function whose condition is true."""
    conditions = list(condlist) if isinstance(condlist, (list, tuple)) else [condlist]
    results = [each(x, *args, **kw) if callable(each) else ops.full(
        x.shape, each, dtype=np.float32 if isinstance(each, float) else np.int32) for each in funclist]  # fmt: skip
    chosen = results.pop() if len(results) == len(conditions) + 1 else ops.zeros_like(results[0])
    for condition, result in zip(conditions, results, strict=True):
        chosen = ops.where(condition, result, chosen)
    return chosen


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """Return the element of the first choice whose condition is true."""
    choices = [each if isinstance(each, Tensor) else Tensor(each) for each in choicelist]
    chosen: Any = ops.full_like(choices[0], default)
    for condition, choice in reversed(list(zip(condlist, choices, strict=True))):
        chosen = ops.where(condition if isinstance(condition, Tensor) else Tensor(condition), choice, chosen)
    return chosen


def unique(x: Any, return_inverse: bool = False) -> Any:
    """Return the different elements in the order of their first appearance, and each element's index among them."""
    values, places = ops.unique(x)
    return (values, ops.ravel(places)) if return_inverse else values


@on_data
def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    found = np.intersect1d(ar1, ar2, assume_unique, True)
    return (found[0], *(each.astype(np.int32) for each in found[1:])) if return_indices else found[0]


@on_data
def correlate(a: Any, v: Any, mode: Any = "valid") -> Any:
    return np.correlate(a, v, mode).astype(np.result_type(a, v) if np.result_type(a, v) != np.float64 else np.float32)


def array_equiv(a1: Any, a2: Any) -> Any:
    try:
        return Tensor(bool(ops.all(ops.equal(Tensor(a1), Tensor(a2)))))
    except ValueError:
        return Tensor(False)


_ON_ARRAYS: dict[str, Callable[..., Any]] = {
    **{name: _plain(name) for name in (
        "convolve", "corrcoef", "cov", "cross", "ediff1d", "gradient", "histogram_bin_edges", "interp", "polyadd",
        "polyder", "polyint", "polymul", "polysub", "polyval", "unwrap", "setdiff1d")},
    **{name: _plain(name, np.int32) for name in ("digitize", "searchsorted")},
    **{name: _plain(name, np.int64) for name in ("argwhere", "isin", "unravel_index")},
    **{name: _histogram(name) for name in ("histogram", "histogram2d", "histogramdd")},
    "bincount": lambda x, weights=None, minlength=0, length=None: ops.bincount(
        x, weights, length or minlength),
    "choose": on_data(lambda a, choices, mode="clip": np.choose(a, choices, mode=mode)),
    "ravel_multi_index": on_data(lambda multi_index, dims, mode="clip", order="C": np.asarray(
        np.ravel_multi_index(tuple(multi_index), dims, mode, order)).astype(np.float32)),
}  # fmt: skip
_ON_ARRAYS["in1d"] = _ON_ARRAYS["isin"]

FUNCTIONS: dict[str, Any] = {
    **_ELEMENTWISE, **_SHAPES, **_CREATION, **_ON_ARRAYS,
    **{each.__name__: each for each in (
        append, apply_along_axis, apply_over_axes, arange, array, array_equiv, average, broadcast_arrays, correlate,
        diag, flip, full, full_like, intersect1d, linspace, mean, meshgrid, nanvar, pad, piecewise, randint, repeat,
        result_type, rollaxis, select, sum, take, unique,
    )},
}  # fmt: skip
"""Functions by name."""
