"""Methods and operators of ``Tensor``: indexing, those that differ from functions of ``ops``, those that are them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Any

import numpy as np

from opbuild.errors import InvalidModelError
from opbuild.frontend.cell import current, location
from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.dtype import Type, to_type
from opbuild.mindspore.execution import emit, on_data
from opbuild.mindspore.ops import arranging, matrices, reduction
from opbuild.mindspore.ops.arranging import replaced
from opbuild.mindspore.ops.declaration import formula
from opbuild.mindspore.ops.random import drawn, shape_of
from opbuild.mindspore.ops.shaping import cut, ints, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


def get_item(tensor: Tensor, index: Any) -> Tensor:
    """Return the part of a tensor that an index names; a view where the data are at hand."""
    if current() is None:
        array = tensor.asnumpy()[_concrete(index)]
        return Tensor.of(np.asarray(array))
    return _Reader(tensor).read(index if isinstance(index, tuple) else (index,))


def set_item(tensor: Tensor, index: Any, value: Any) -> None:
    """Replace the part of a tensor that an index names."""
    if current() is not None:
        raise InvalidModelError(
            f"construct assigns to a part of a tensor{location()}",
            "select with ops.where or join parts with ops.concat; traced tensors cannot be changed",
        )
    array = tensor.asnumpy()
    if not array.flags.writeable:
        array = array.copy()
        tensor._value = array
    array[_concrete(index)] = value.asnumpy() if isinstance(value, Tensor) else value
    if isinstance(tensor, Parameter):
        tensor.version += 1


def _concrete(index: Any) -> Any:
    if isinstance(index, tuple):
        return tuple(_concrete(item) for item in index)
    if isinstance(index, Tensor):
        return index.asnumpy()
    if isinstance(index, slice):
        return slice(*(_bound(item) for item in (index.start, index.stop, index.step)))
    return index


def _bound(value: Any) -> int | None:
    return None if value is None else int(value)


class _Reader:
    """Reads one index of a traced tensor: slices first, then indices, then the axes that go and come."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        self.bounds: list[tuple[int, int, int, int]] = []  # axis, start, end, step
        self.advanced: list[tuple[int, Tensor]] = []
        self.dropped: set[int] = set()
        self.added: list[int] = []  # places among the source's axes before which an axis of extent 1 comes

    def read(self, items: tuple[Any, ...]) -> Tensor:
        axis = 0
        for item in self._expanded(items):
            if item is None:
                self.added.append(axis)
            else:
                self._take(axis, item)
                axis += 1
        tensor = self.tensor
        if self.bounds:
            axes, starts, ends, steps = (list(column) for column in zip(*self.bounds, strict=True))
            tensor = cut(tensor, starts, ends, axes, steps)
        if self.advanced:
            return self._gathered(tensor)
        shape: list[int] = []
        for place in range(tensor.ndim + 1):
            shape.extend([1] * self.added.count(place))
            if place < tensor.ndim and place not in self.dropped:
                shape.append(tensor.shape[place])
        return reshaped(tensor, tuple(shape))

    def _expanded(self, items: tuple[Any, ...]) -> list[Any]:
        used = sum(item is not None and item is not Ellipsis for item in items)
        if used > self.tensor.ndim:
            raise ArgumentValueError(f"{used} indices of a tensor of shape {self.tensor.shape}", "give fewer")
        rest = [slice(None)] * (self.tensor.ndim - used)
        if not any(item is Ellipsis for item in items):
            return [*items, *rest]
        place = next(index for index, item in enumerate(items) if item is Ellipsis)
        return [*items[:place], *rest, *items[place + 1 :]]

    def _take(self, axis: int, item: Any) -> None:
        extent = self.tensor.shape[axis]
        if isinstance(item, (int, np.integer)) and not isinstance(item, bool):
            if not -extent <= item < extent:
                raise IndexError(f"index {item} of axis {axis} of size {extent}{location()}")
            start = int(item) % extent
            self.bounds.append((axis, start, start + 1, 1))
            self.dropped.add(axis)
        elif isinstance(item, slice):
            start, stop, step = slice(*(_bound(part) for part in (item.start, item.stop, item.step))).indices(extent)
            if (start, stop, step) != (0, extent, 1):
                self.bounds.append((axis, start, stop if stop >= 0 else -(2**31), step))
        elif isinstance(item, (Tensor, list, np.ndarray)):
            self.advanced.append((axis, self._indices(item)))
        else:
            raise ArgumentTypeError(
                f"an index of type {type(item).__name__}", "use integers, slices, ..., None or tensors of indices"
            )

    def _indices(self, item: Any) -> Tensor:
        indices = item if isinstance(item, Tensor) else Tensor(np.asarray(item))
        if indices.type.dtype == "bool":
            if indices.symbol is not None:
                raise InvalidModelError(
                    f"construct selects by a mask that is computed{location()}",
                    "how many elements it selects is not known when the network is built: "
                    "use ops.where or ops.masked_fill",
                )
            (places,) = np.nonzero(indices.asnumpy())
            return Tensor.of(places)
        return indices

    def _gathered(self, tensor: Tensor) -> Tensor:
        axes = [axis for axis, _ in self.advanced]
        if (
            self.added
            or (self.dropped and axes[0] > min(self.dropped))
            or axes != list(range(axes[0], axes[0] + len(axes)))
        ):
            raise ArgumentValueError("an index that mixes tensors with None or integers", "index in two steps")
        if self.dropped:
            kept = [extent for axis, extent in enumerate(tensor.shape) if axis not in self.dropped]
            tensor = reshaped(tensor, tuple(kept))
        if len(axes) == 1:
            return ops.gather(tensor, self.advanced[0][1], axes[0])
        if axes[0] != 0:
            raise ArgumentValueError(f"several tensors that index axes {axes}", "transpose these axes to the front")
        shape = np.broadcast_shapes(*(indices.shape for _, indices in self.advanced))
        columns = [ops.broadcast_to(emit("Cast", indices, to=7), shape) for _, indices in self.advanced]
        return ops.gather_nd(tensor, ops.stack(columns, len(shape)))


def scatter_add(self: Tensor, dim: Any, index: Any, src: Any = None) -> Tensor:
    """Return the tensor with ``src`` added: ``(dim, index, src)`` along an axis, ``(indices, updates)`` at places."""
    if isinstance(dim, int):
        return ops.tensor_scatter_elements(self, index, src, dim, "add")
    return ops.tensor_scatter_add(self, dim, index)


def select(self: Tensor, condition: Any, y: Any) -> Tensor:
    """Return the slice ``y`` along the axis ``condition``; for a tensor ``where(condition, self, y)``."""
    if isinstance(condition, Tensor):
        return ops.where(condition, self, y)
    return ops.squeeze(ops.narrow(self, condition, y % self.shape[condition], 1), condition)


def index_add(self: Tensor, indices: Any, y: Any, axis: Any, use_lock: bool = True, check_index_bound: bool = True,
              *, alpha: float = 1) -> Tensor:  # fmt: skip
    """Return the tensor with slices added: ``(indices, y, axis)`` or ``(dim, index, source)``."""
    if isinstance(indices, int):
        indices, y, axis = y, axis, indices
    return arranging.along(self, axis, indices, y if alpha == 1 else ops.mul(y, alpha), "add", "index_add")


def gather(self: Tensor, input_indices: Any, axis: Any, batch_dims: int = 0) -> Tensor:
    """Return slices: ``(input_indices, axis)``; or elements, each at its own place: ``(dim, index)``."""
    if isinstance(input_indices, int):
        return ops.gather_elements(self, input_indices, axis)
    return ops.gather(self, input_indices, axis, batch_dims)


def trace(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """Return the sum along a diagonal."""
    result: Tensor = ops.sum(ops.diagonal(self, offset, axis1, axis2), -1)
    return ops.cast(result, self.dtype if dtype is None else dtype)


def uniform(self: Tensor, from_: Any = 0.0, to: Any = 1.0, generator: Any = None) -> Tensor:
    """Return numbers drawn evenly from ``from_`` to below ``to``, in the shape and type of the tensor."""
    low, high = (item.item() if isinstance(item, Tensor) else item for item in (from_, to))
    return drawn("uniform", lambda random: random.uniform(low, high, self.shape), self.dtype)


def _drawn(self: Tensor, distribution: str, *parameters: float) -> Tensor:
    return drawn(distribution, lambda random: getattr(random, distribution)(*parameters, self.shape), self.dtype)


def random_integers(self: Tensor, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Tensor:
    """Return whole numbers drawn evenly from ``from_`` to below ``to``, in the shape and type of the tensor."""
    high = to if to is not None else 2**24 if self.is_floating_point() else int(np.iinfo(self.type.dtype).max)
    return drawn("random", lambda random: random.integers(from_, high, self.shape), self.dtype)


@on_data
def choose(self: Any, choices: Any, mode: Any = "clip") -> Any:
    """Return, at each place, the element of the choice that the tensor names."""
    pool = np.stack([np.asarray(each) for each in choices]) if isinstance(choices, (list, tuple)) else choices
    return np.choose(self.astype(np.int64), list(pool), mode=mode)


def stride(self: Tensor, dim: int | None = None) -> Any:
    """Return the elements between neighbours in each dimension, or in one."""
    steps = [step // self.itemsize for step in self.strides]
    return steps if dim is None else steps[dim]


def resize(self: Tensor, *new_shape: Any) -> Tensor:
    """Return the first elements in another shape, filled up with zeros."""
    shape = shape_of(new_shape)
    wanted, flat = int(np.prod(shape, dtype=np.int64)), reshaped(self, (self.size,))
    flat = ops.pad(flat, (0, wanted - self.size)) if wanted > self.size else ops.narrow(flat, 0, 0, wanted)
    return reshaped(flat, shape)


def sum_to_size(self: Tensor, *size: Any) -> Tensor:
    """Return the sums over the axes that have extent 1 in ``size``, or are missing there."""
    shape = shape_of(size)
    lead = self.ndim - len(shape)
    axes = [*range(lead), *(lead + axis for axis, extent in enumerate(shape) if extent == 1)]
    result = reduction.reduce_sum(self, tuple(axes)) if axes else self
    return reshaped(result, shape)


def to(self: Tensor, *args: Any, dtype: Any = None, non_blocking: bool = False, copy: bool = False) -> Tensor:
    """Return the tensor in another element type; a device is ignored: there is one."""
    for each in args:
        if isinstance(each, Tensor):
            dtype = each.dtype
        elif isinstance(each, (Type, np.dtype, type)):
            dtype = each
        elif not isinstance(each, (str, bool)):
            raise ArgumentTypeError(f"Tensor.to was given a {type(each).__name__}", "give an element type")
        elif isinstance(each, str) and each.partition(":")[0].lower() not in ("cpu", "ascend", "gpu", "npu"):
            dtype = each
    result = self if dtype is None else ops.cast(self, to_type(dtype))
    return result.copy() if copy and result is self else result


def transpose(self: Tensor, *axes: Any) -> Tensor:
    """Return the tensor with two axes exchanged, with its axes in an order, or reversed if none is given."""
    if not axes or axes == (None,):
        return ops.transpose(self, tuple(reversed(range(self.ndim))))
    if len(axes) == 2 and all(isinstance(axis, int) for axis in axes):
        return ops.swapaxes(self, *axes)
    return ops.transpose(self, shape_of(axes))


def squeeze(self: Tensor, axis: Any = None) -> Tensor:
    """Return the tensor without axes of extent 1: all of them, or those of ``axis`` that have it."""
    if axis is None or axis == ():
        return ops.squeeze(self)
    axes = tuple(item for item in ints(axis, "the axis of squeeze") if self.shape[item] == 1)
    return ops.squeeze(self, axes) if axes else self


@on_data
def _unique(array: Any, return_inverse: bool, return_counts: bool, dim: int | None) -> Any:
    found = np.unique(array, return_index=True, return_inverse=True, return_counts=True, axis=dim)
    results = [found[0]]
    if return_inverse:
        results.append(found[2].reshape(array.shape if dim is None else -1))
    if return_counts:
        results.append(found[3])
    return results[0] if len(results) == 1 else tuple(results)


def device(self: Tensor) -> str:
    """The device that holds the data."""
    return "CPU"


index_copy = formula("the tensor with the slices along ``dim`` that ``index`` names replaced",
    lambda self, dim, index, tensor: arranging.along(self, dim, index, tensor, "none", "index_copy"))  # fmt: skip
bernoulli_of = formula("1 with probability ``p`` and 0 otherwise, in the shape and type of the tensor",
    lambda self, p=0.5, *, generator=None: ops.bernoulli(self, p))  # fmt: skip
new_zeros = formula("zeros of a shape, in the tensor's element type by default",
    lambda self, *size, dtype=None: ops.zeros(shape_of(size), dtype or self.dtype))  # fmt: skip
new_ones = formula("ones of a shape, in the tensor's element type by default",
    lambda self, *size, dtype=None: ops.ones(shape_of(size), dtype or self.dtype))  # fmt: skip
new_full = formula("one number in every element of a shape, in the tensor's element type by default",
    lambda self, size, fill_value, *, dtype=None: ops.full(size, fill_value, dtype=dtype or self.dtype))  # fmt: skip
new_empty = formula("a tensor of a shape, of zeros, in the tensor's element type by default",
    lambda self, *size, dtype=None, device=None: new_zeros(self, *size, dtype=dtype))  # fmt: skip
fill = formula("one number in the shape and type of the tensor",
    lambda self, value: ops.full_like(self, 0 if value is None else value))  # fmt: skip
fill_diagonal = formula("the tensor with a number on its diagonal",
    lambda self, fill_value, wrap=False: ops.FillDiagonal(float(fill_value), wrap)(self))  # fmt: skip
clone = formula("a copy", lambda self: self.copy())
init_data = formula("the tensor: an initializer's numbers are drawn at once",
    lambda self, slice_index=None, shape=None, opt_shard_group=None: self)  # fmt: skip
value = formula("the tensor", lambda self: self)
is_signed = formula("whether the element type has a sign", lambda self: self.type.dtype.startswith(("int", "float")))
get_bytes = formula("the data as bytes", lambda self: self.asnumpy().tobytes())
storage_offset = formula("0: tensors are dense", lambda self: 0)
qr = formula("an orthogonal and an upper triangular factor",
    lambda self, some=True: matrices.qr(self, "reduced" if some else "complete"))  # fmt: skip
permute = formula("the tensor with its axes in an order", lambda self, *dims: ops.transpose(self, shape_of(dims)))
turned = formula("matrices transposed; vectors as they are", lambda self: ops.adjoint(self) if self.ndim > 1 else self)
add = formula("``self + alpha * other``",
    lambda self, other, *, alpha=1: ops.add(self, other if alpha == 1 else ops.mul(other, alpha)))  # fmt: skip
copy_from = formula("the elements of another tensor in the shape and type of the tensor",
    lambda self, src, non_blocking=False: ops.broadcast_to(ops.cast(src, self.dtype), self.shape))  # fmt: skip
normal = formula("numbers drawn from a normal distribution, in the shape and type of the tensor",
    lambda self, mean=0, std=1, *, generator=None: _drawn(self, "normal", mean, std))  # fmt: skip
log_normal = formula("numbers drawn from a log-normal distribution, in the shape and type of the tensor",
                     lambda self, mean=1.0, std=2.0: drawn(
                         "log_normal", lambda random: random.lognormal(mean, std, self.shape), self.dtype))  # fmt: skip
exponential = formula("numbers drawn from an exponential distribution, in the shape and type of the tensor",
    lambda self, lambd=1, *, generator=None: _drawn(self, "exponential", 1 / lambd))  # fmt: skip
allclose = formula(
    "whether all elements are close to those of another tensor",
    lambda self, other, rtol=1e-05, atol=1e-08, equal_nan=False: bool(
        ops.all(ops.isclose(self, other, rtol, atol, equal_nan))))  # fmt: skip
reshape = formula("the elements in another shape, given as integers or as a tuple",
    lambda self, *shape: ops.reshape(self, shape_of(shape)))  # fmt: skip
expand = formula("the tensor repeated to a shape",
    lambda self, *size: ops.broadcast_to(self, shape_of(size)))  # fmt: skip
astype = formula("the tensor in another element type", lambda self, dtype, copy=True: ops.cast(self, to_type(dtype)))
flatten = formula("the tensor with the axes from ``start_dim`` to ``end_dim`` as one: a vector by default",
    lambda self, order="C", *, start_dim=0, end_dim=-1:
        ops.flatten(self, order, start_dim=start_dim, end_dim=end_dim))  # fmt: skip
take = formula("the elements or slices along ``axis`` that ``indices`` names",
    lambda self, indices, axis=None:
        ops.take(self, indices) if axis is None else ops.gather(self, indices, axis))  # fmt: skip
view_as = formula("the elements in the shape of ``other``", lambda self, other: ops.reshape(self, other.shape))
expand_as = formula("the tensor repeated to the shape of ``other``",
    lambda self, other: ops.broadcast_to(self, other.shape))  # fmt: skip
where = formula("elements of the tensor where ``condition`` is true and of ``y`` elsewhere",
    lambda self, condition, y: ops.where(condition, self, y))  # fmt: skip
searchsorted = formula("the place where each value would be inserted so that the tensor stays in order",
    lambda self, v, side="left", sorter=None:
        arranging.searchsorted(self, v, side=side, sorter=sorter, out_int32=True))  # fmt: skip
cauchy = formula("numbers drawn from a Cauchy distribution, in the shape and type of the tensor",
    lambda self, median=0.0, sigma=1.0:
        drawn("cauchy", lambda random: random.standard_cauchy(self.shape) * sigma + median, self.dtype))  # fmt: skip
bernoulli = formula("1 with the probability that each element is, and 0 otherwise",
    lambda self, *, generator=None:
        drawn("bernoulli", lambda random: random.random(self.shape) < self.asnumpy(), self.dtype))  # fmt: skip
unique = formula("the different elements in order (or slices along ``dim``), their places and how often they appear",
    lambda self, sorted=True, return_inverse=False, return_counts=False, dim=None:
        _unique(self, return_inverse, return_counts, dim))  # fmt: skip

names.call_rows(vars(), __name__)

OVERLOADS: dict[str, Callable[..., Any]] = {
    **{each.__name__: each for each in (
        allclose, bernoulli, cauchy, choose, clone, fill, fill_diagonal, gather, get_bytes, index_add, init_data,
        is_signed, log_normal, matrices.triangular_solve, new_empty, new_full, new_ones, new_zeros, permute,
        qr, reduction.ptp, resize, scatter_add, arranging.index_put, arranging.kthvalue, arranging.masked_scatter,
        searchsorted, select, squeeze, storage_offset, stride, sum_to_size, to, trace, transpose, uniform, unique,
        value,
    )},
    **{f"scatter_{how}": getattr(ops, f"tensor_scatter_{how}") for how in ("div", "max", "min", "mul", "sub")},
    "ndimension": Tensor.dim, "nelement": Tensor.numel,
}  # fmt: skip
"""Methods by name."""

PROPERTIES: dict[str, Callable[..., Any]] = {
    "H": turned, "data": value, "device": device, "mH": turned, "mT": turned,
}  # fmt: skip
"""Properties by name."""

IN_PLACE: dict[str, Callable[..., Any]] = {
    **{f"{each.__name__}_": each for each in (
        add, exponential, fill, fill_diagonal, index_add, index_copy, normal, ops.addmm, ops.clamp, ops.div, ops.erfinv,
        ops.exp, ops.floor, ops.floor_divide, ops.index_fill, ops.log, ops.masked_fill, ops.mul, ops.remainder,
        ops.scatter, ops.sigmoid, ops.sign, ops.tanh, scatter_add, arranging.index_put, arranging.masked_scatter,
        uniform,
    )},
    "bernoulli_": bernoulli_of, "copy_": copy_from, "random_": random_integers, "sub_": ops.subtract,
    "zero_": ops.zeros_like,
}  # fmt: skip
"""Methods that give the tensor the result of a function."""


_SPELLINGS = ({"axis", "dim"}, {"keepdims", "keepdim", "keep_dims"}, {"dim1", "axis1"}, {"dim2", "axis2"})
"""Names of arguments that mean the same: MindSpore's methods take those of several of its functions."""

_SAME = """
    abs absolute acos acosh add addbmm addcdiv addcmul addmm addmv addr adjoint amax amin aminmax angle
    approximate_equal arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax argmin argsort argwhere asin asinh
    atan atan2 atanh baddbmm bincount bitwise_and bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift
    bitwise_xor bmm broadcast_to ceil cholesky cholesky_inverse cholesky_solve chunk clamp clip col2im conj copysign
    cos cosh count_nonzero cov cross cummax cummin cumprod cumsum deg2rad det diag diagflat diagonal diagonal_scatter
    diff digamma div divide dot dsplit eq equal erf erfc erfinv exp expand_dims expm1 fills flip fliplr flipud
    float_power floor floor_divide fmax fmin fmod fold frac gather_elements gather_nd gcd ge geqrf ger greater
    greater_equal gt hardshrink heaviside histc hsplit hypot i0 igamma igammac imag index_fill index_select inner inv
    inverse invert is_complex isclose isfinite isinf isnan isneginf isposinf isreal lcm ldexp le lerp less less_equal
    lgamma log log10 log1p log2 log_matrix_determinant logaddexp logaddexp2 logcumsumexp logdet logical_and logical_not
    logical_or logical_xor logit logsumexp lstsq lt lu_solve masked_fill masked_select matmul matrix_determinant
    matrix_power maximum median minimum mm moveaxis movedim msort mul multinomial multiply mvlgamma nan_to_num nanmean
    nanmedian nanquantile nansum narrow ne neg negative nextafter nonzero norm not_equal orgqr ormqr outer positive pow
    put_ quantile rad2deg random_categorical ravel real reciprocal remainder renorm repeat_interleave reverse
    reverse_sequence roll rot90 round rsqrt scatter select_scatter sgn sigmoid sign signbit sin sinc sinh slice_scatter
    slogdet soft_shrink softmax sort split sqrt square std sub subtract svd swapaxes swapdims t tan tanh tensor_split
    tile top_k topk tril triu true_divide trunc type_as unbind unfold unique_consecutive unique_with_pad
    unsorted_segment_max unsorted_segment_min unsorted_segment_prod unsqueeze var vsplit xdivy xlogy
"""
"""Methods that are the function of the same name with the tensor as its first argument."""


def _attach_operators() -> None:
    arithmetic = {
        "add": ops.add, "sub": ops.sub, "mul": ops.mul, "truediv": ops.div, "floordiv": ops.floor_divide,
        "mod": ops.floor_mod, "pow": ops.pow, "matmul": ops.matmul, "and": ops.bitwise_and, "or": ops.bitwise_or,
        "xor": ops.bitwise_xor, "lshift": ops.bitwise_left_shift, "rshift": ops.bitwise_right_shift,
    }  # fmt: skip
    for name, function in arithmetic.items():
        setattr(Tensor, f"__{name}__", lambda self, other, function=function: function(self, other))
        setattr(Tensor, f"__r{name}__", lambda self, other, function=function: function(other, self))
    plain: dict[str, Callable[..., Any]] = {
        "lt": ops.less, "le": ops.less_equal, "gt": ops.greater, "ge": ops.greater_equal, "neg": ops.neg,
        "abs": ops.abs, "invert": ops.bitwise_not, "pos": ops.identity,
    }  # fmt: skip
    for name, function in plain.items():
        setattr(Tensor, f"__{name}__", lambda *operands, function=function: function(*operands))


def _compared(function: Callable[..., Tensor], otherwise: bool) -> Callable[..., Any]:
    """Return the operator of a comparison, which is known of what is no tensor and no number."""
    return lambda self, other: otherwise if other is None or isinstance(other, (str, type)) else function(self, other)


def _reduction(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return the method of a reduction: the axis may be called ``axis`` or ``dim``, and ``keepdims`` three ways."""

    def method(self: Tensor, axis: Any = None, keepdims: bool = False, **named: Any) -> Tensor:
        axis = named.pop("dim", axis)
        for name in ("keepdim", "keep_dims"):
            keepdims = named.pop(name, keepdims)
        return function(self, axis, keepdims, **named)

    method.__doc__ = function.__doc__
    return method


def _extreme(of_all: Callable[..., Tensor], with_index: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method of an extreme: ``x.max(1)``, ``x.max(dim=1)`` give indices too, ``x.max(axis=1)`` does not."""

    def method(self: Tensor, dim: Any = None, keepdim: bool = False, *, axis: Any = None, keepdims: bool = False,
               return_indices: bool = False) -> Any:  # fmt: skip
        if dim is not None:
            return with_index(self, dim, keepdim)
        return with_index(self, axis, keepdims) if return_indices else of_all(self, axis, keepdims)

    method.__doc__ = of_all.__doc__
    return method


def repeat(self: Tensor, *repeats: Any, axis: int | None = None) -> Tensor:
    """Return the tensor repeated along its axes, one number for each; with ``axis=`` each slice along it."""
    if axis is not None:
        return ops.repeat_interleave(self, repeats[0], axis)
    counts = shape_of(repeats)
    if len(counts) < self.ndim:
        raise ArgumentValueError(
            f"repeat of {self.ndim} axes by {counts}", "give a number for each axis, or use repeat_interleave"
        )
    return ops.tile(self, counts)


def _tolerant(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that takes ``axis`` and ``dim``, and ``keepdims`` as it is spelled in any of three ways."""
    taken = signature(function).parameters
    renamed = {other: name for group in _SPELLINGS for name in group & set(taken) for other in group - set(taken)}
    if not renamed:
        return function

    @wraps(function)
    def method(*args: Any, **named: Any) -> Any:
        return function(*args, **{renamed.get(name, name): value for name, value in named.items()})

    return method


def _in_place(function: Callable[..., Any], name: str) -> Callable[..., Tensor]:
    @wraps(function)
    def method(self: Tensor, *args: Any, **named: Any) -> Tensor:
        return replaced(self, function(self, *args, **named), f"Tensor.{name}")

    return method


def attach() -> None:
    """Give ``Tensor`` its operators and methods. Done once, when ``opbuild.mindspore`` is imported."""
    _attach_operators()
    for name in _SAME.split():
        setattr(Tensor, name, _tolerant(getattr(ops, name)))
    own: dict[str, Callable[..., Any]] = {
        "__eq__": _compared(ops.equal, False), "__ne__": _compared(ops.not_equal, True), "__getitem__": get_item,
        "__setitem__": set_item, "reshape": reshape,
        "view": reshape, "expand": expand, "astype": astype,
        "max": _extreme(ops.amax, ops.max), "min": _extreme(ops.amin, ops.min), "sum": _reduction(ops.sum),
        "mean": _reduction(ops.mean), "prod": _reduction(ops.prod), "all": _reduction(ops.all),
        "any": _reduction(ops.any),
        "flatten": flatten, "take": take, "repeat": repeat, "where": where,
        "view_as": view_as, "reshape_as": view_as, "expand_as": expand_as,
    }  # fmt: skip
    for name, function in own.items():
        setattr(Tensor, name, function)
    for name, target in {"float": "float32", "half": "float16", "bfloat16": "bfloat16", "double": "float64",
                         "int": "int32", "long": "int64", "bool": "bool", "short": "int16",
                         "byte": "uint8"}.items():  # fmt: skip
        setattr(Tensor, name, lambda self, target=target: astype(self, target))
    for name, function in OVERLOADS.items():
        setattr(Tensor, name, _tolerant(function))
    for name, function in IN_PLACE.items():
        setattr(Tensor, name, _in_place(_tolerant(function), name))
    for name, function in {**PROPERTIES, "T": transpose}.items():
        setattr(Tensor, name, property(function))
