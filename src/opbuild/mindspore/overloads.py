"""Methods of ``Tensor`` that differ from the functions of the same name, or that have no function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import ops
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.dtype import Type, to_type
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops import arranging, matrices, reduction
from opbuild.mindspore.ops.declaration import formula
from opbuild.mindspore.ops.random import drawn, shape_of
from opbuild.mindspore.ops.shaping import ints, reshaped
from opbuild.mindspore.tensor import Tensor

index_copy = formula(
    "index_copy", "the tensor with the slices along ``dim`` that ``index`` names replaced",
    lambda self, dim, index, tensor: arranging.along(self, dim, index, tensor, "none", "index_copy"),
)  # fmt: skip
bernoulli_of = formula("bernoulli_of", "1 with probability ``p`` and 0 otherwise, in the shape and type of the tensor",
                       lambda self, p=0.5, *, generator=None: ops.bernoulli(self, p))  # fmt: skip
new_zeros = formula("new_zeros", "zeros of a shape, in the tensor's element type by default",
                    lambda self, *size, dtype=None: ops.zeros(shape_of(size), dtype or self.dtype))  # fmt: skip
new_ones = formula("new_ones", "ones of a shape, in the tensor's element type by default",
                   lambda self, *size, dtype=None: ops.ones(shape_of(size), dtype or self.dtype))  # fmt: skip
new_full = formula(
    "new_full", "one number in every element of a shape, in the tensor's element type by default",
    lambda self, size, fill_value, *, dtype=None: ops.full(size, fill_value, dtype=dtype or self.dtype),
)  # fmt: skip
new_empty = formula("new_empty", "a tensor of a shape, of zeros, in the tensor's element type by default",
                    lambda self, *size, dtype=None, device=None: new_zeros(self, *size, dtype=dtype))  # fmt: skip
fill = formula("fill", "one number in the shape and type of the tensor",
               lambda self, value: ops.full_like(self, 0 if value is None else value))  # fmt: skip
fill_diagonal = formula(
    "fill_diagonal", "the tensor with a number on its diagonal",
    lambda self, fill_value, wrap=False: ops.FillDiagonal(float(fill_value), wrap)(self),
)  # fmt: skip
clone = formula("clone", "a copy", lambda self: self.copy())
init_data = formula("init_data", "the tensor: an initializer's numbers are drawn at once",
                    lambda self, slice_index=None, shape=None, opt_shard_group=None: self)  # fmt: skip
value = formula("value", "the tensor", lambda self: self)
is_signed = formula("is_signed", "whether the element type has a sign",
                    lambda self: self.type.dtype.startswith(("int", "float")))  # fmt: skip
get_bytes = formula("get_bytes", "the data as bytes", lambda self: self.asnumpy().tobytes())
storage_offset = formula("storage_offset", "0: tensors are dense", lambda self: 0)
qr = formula("qr", "an orthogonal and an upper triangular factor",
             lambda self, some=True: matrices.qr(self, "reduced" if some else "complete"))  # fmt: skip
permute = formula("permute", "the tensor with its axes in an order",
                  lambda self, *dims: ops.transpose(self, shape_of(dims)))  # fmt: skip
turned = formula("turned", "matrices transposed; vectors as they are",
                 lambda self: ops.adjoint(self) if self.ndim > 1 else self)  # fmt: skip
add = formula(
    "add", "``self + alpha * other``",
    lambda self, other, *, alpha=1: ops.add(self, other if alpha == 1 else ops.mul(other, alpha)),
)  # fmt: skip
copy_from = formula(
    "copy_from", "the elements of another tensor in the shape and type of the tensor",
    lambda self, src, non_blocking=False: ops.broadcast_to(ops.cast(src, self.dtype), self.shape),
)  # fmt: skip


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


def searchsorted(self: Tensor, v: Any, side: str = "left", sorter: Any = None) -> Tensor:
    """Return the place where each value would be inserted so that the tensor stays in order."""
    return arranging.searchsorted(self, v, side=side, sorter=sorter, out_int32=True)  # type: ignore[no-any-return]


def trace(self: Tensor, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None) -> Tensor:
    """Return the sum along a diagonal."""
    result: Tensor = ops.sum(ops.diagonal(self, offset, axis1, axis2), -1)
    return ops.cast(result, self.dtype if dtype is None else dtype)


def uniform(self: Tensor, from_: Any = 0.0, to: Any = 1.0, generator: Any = None) -> Tensor:
    """Return numbers drawn evenly from ``from_`` to below ``to``, in the shape and type of the tensor."""
    low, high = (item.item() if isinstance(item, Tensor) else item for item in (from_, to))
    return drawn("uniform", lambda random: random.uniform(low, high, self.shape), self.dtype)


normal = formula("normal", "numbers drawn from a normal distribution, in the shape and type of the tensor",
                 lambda self, mean=0, std=1, *, generator=None: _drawn(self, "normal", mean, std))  # fmt: skip
log_normal = formula("log_normal", "numbers drawn from a log-normal distribution, in the shape and type of the tensor",
                     lambda self, mean=1.0, std=2.0: drawn(
                         "log_normal", lambda random: random.lognormal(mean, std, self.shape), self.dtype))  # fmt: skip
exponential = formula("exponential",
                      "numbers drawn from an exponential distribution, in the shape and type of the tensor",
                      lambda self, lambd=1, *, generator=None: _drawn(self, "exponential", 1 / lambd))  # fmt: skip


def _drawn(self: Tensor, distribution: str, *parameters: float, name: str = "") -> Tensor:
    return drawn(
        name or distribution, lambda random: getattr(random, distribution)(*parameters, self.shape), self.dtype
    )


def cauchy(self: Tensor, median: float = 0.0, sigma: float = 1.0) -> Tensor:
    """Return numbers drawn from a Cauchy distribution, in the shape and type of the tensor."""
    return drawn("cauchy", lambda random: random.standard_cauchy(self.shape) * sigma + median, self.dtype)


def random_integers(self: Tensor, from_: int = 0, to: int | None = None, *, generator: Any = None) -> Tensor:
    """Return whole numbers drawn evenly from ``from_`` to below ``to``, in the shape and type of the tensor."""
    high = to if to is not None else 2**24 if self.is_floating_point() else int(np.iinfo(self.type.dtype).max)
    return drawn("random", lambda random: random.integers(from_, high, self.shape), self.dtype)


def bernoulli(self: Tensor, *, generator: Any = None) -> Tensor:
    """Return 1 with the probability that each element is, and 0 otherwise."""
    return drawn("bernoulli", lambda random: random.random(self.shape) < self.asnumpy(), self.dtype)


@on_data
def choose(self: Any, choices: Any, mode: Any = "clip") -> Any:
    """Return, at each place, the element of the choice that the tensor names."""
    pool = np.stack([np.asarray(each) for each in choices]) if isinstance(choices, (list, tuple)) else choices
    return np.choose(self.astype(np.int64), list(pool), mode=mode)


allclose = formula(
    "allclose", "whether all elements are close to those of another tensor",
    lambda self, other, rtol=1e-05, atol=1e-08, equal_nan=False: bool(
        ops.all(ops.isclose(self, other, rtol, atol, equal_nan))),
)  # fmt: skip


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
    """Return the tensor in another element type; a device is ignored: there is one.

    Raises:
        ArgumentTypeError: If an argument is neither.
    """
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


def unique(self: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Any:  # fmt: skip
    """Return the different elements in order (or slices along ``dim``), their places and how often they appear."""
    return _unique(self, return_inverse, return_counts, dim)


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

PROPERTIES = {
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
