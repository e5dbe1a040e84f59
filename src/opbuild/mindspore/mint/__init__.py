"""``mint``: the functions of ``ops`` with the arguments of PyTorch.

``_SAME`` are the functions of ``ops``; ``_OWN`` gives the others their arguments in MindSpore's order and by its names.
"""

from __future__ import annotations

from collections.abc import Callable
from inspect import signature
from typing import Any

import numpy as np

from opbuild.mindspore import names, ops
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.methods import add, allclose, clone, fill_diagonal, index_add, scatter_add, unique
from opbuild.mindspore.mint.nn.functional import conv2d
from opbuild.mindspore.ops import arranging, matrices
from opbuild.mindspore.ops.declaration import formula, name_table, spelled
from opbuild.mindspore.ops.random import drawn
from opbuild.mindspore.tensor import Tensor

_SAME = """
    abs acos acosh addbmm addmm addmv arange arccos arccosh arcsin arcsinh arctan arctan2 arctanh argmax asin asinh
    atan atan2 atanh bincount bitwise_and bitwise_not bitwise_or bitwise_xor bmm broadcast_to cdist ceil chunk clamp
    clip cos cosh cross cummax cummin cumprod cumsum diff div divide dot dstack einsum eq erf erfc erfinv exp exp2
    expm1 eye flip float_power floor floor_divide fmod frac full full_like gather gcd greater greater_equal gt histc
    hstack imag index_select inverse isclose isfinite isinf isnan isneginf le lerp less less_equal log log10 log1p log2
    logaddexp logaddexp2 logical_and logical_not logical_or logical_xor logsumexp lt masked_select matmul maximum
    minimum mm mul multinomial mv nan_to_num nansum narrow ne neg negative nonzero not_equal ones ones_like outer
    permute pow ravel real reciprocal remainder repeat_interleave reshape roll round rsqrt searchsorted sigmoid sign
    sin sinc sinh softmax split sqrt square sum swapaxes t take tan tanh tile trace tril triu trunc unbind
    unique_consecutive unsqueeze where xlogy zeros zeros_like
"""


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a reduction over ``dim``; of all elements if it is None."""
    return lambda input, dim=None, keepdim=False, *, dtype=None: function(_typed(input, dtype), dim, keepdim)


def _typed(tensor: Any, dtype: Any) -> Any:
    return tensor if dtype is None else ops.cast(tensor, to_type(dtype))


def _spread(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a deviation or variance; the divisor is the number of elements less ``correction``."""
    return lambda input, dim=None, *, correction=1, keepdim=False: function(input, dim, correction, keepdim)


def _extreme(of_all: Callable[..., Any], of_two: Callable[..., Any], along: Callable[..., Any]) -> Callable[..., Any]:
    """Return max or min: of all elements, along an axis with indices, or of two tensors."""

    def extreme(input: Any, dim: Any = None, keepdim: bool = False, *, other: Any = None) -> Any:
        if other is not None or isinstance(dim, Tensor):
            return of_two(input, dim if other is None else other)
        return of_all(input) if dim is None else along(input, dim, keepdim)

    extreme.__doc__ = of_all.__doc__
    return extreme


def _drawn(function: Callable[..., Any]) -> Callable[..., Any]:
    def random(*size: Any, generator: Any = None, dtype: Any = None, device: Any = None) -> Any:
        return function(*size, dtype=dtype)

    random.__doc__ = function.__doc__
    return random


def _randint(*args: Any, generator: Any = None, dtype: Any = None, device: Any = None) -> Any:
    """Return integers drawn evenly: ``randint(high, size)`` or ``randint(low, high, size)``."""
    low, high, size = args if len(args) == 3 else (0, *args)
    return ops.randint(low, high, size, dtype=dtype)


def _randint_like(input: Any, *bounds: Any, dtype: Any = None, device: Any = None) -> Any:
    """Return integers drawn evenly, in the shape and type of a tensor."""
    low, high = bounds if len(bounds) == 2 else (0, *bounds)
    return drawn("randint_like", lambda random: random.integers(low, high, input.shape), dtype or input.dtype)


def _conv_tbc(input: Any, weight: Any, bias: Any, pad: int = 0) -> Tensor:
    """Return a convolution over time of a tensor (time, batch, channels) by a weight (time, in, out)."""
    moved = ops.conv1d(ops.permute(input, (1, 2, 0)), ops.permute(weight, (2, 1, 0)), None, 1, "pad", pad)
    return ops.add(ops.permute(moved, (2, 0, 1)), bias)


_OWN: dict[str, Callable[..., Any]] = {
    "add": add,
    "addcdiv": lambda input, tensor1, tensor2, *, value=1: ops.addcdiv(input, tensor1, tensor2, value),
    "addcmul": lambda input, tensor1, tensor2, *, value=1: ops.addcmul(input, tensor1, tensor2, value),
    "addr_": lambda input, vec1, vec2, beta=1, alpha=1: arranging.replaced(
        input, matrices.addr(input, vec1, vec2, beta=beta, alpha=alpha), "addr_"),
    "allclose": spelled(allclose, input="self"),
    "amax": lambda input, dim=(), keepdim=False: ops.amax(input, dim, keepdim),
    "amin": lambda input, dim=(), keepdim=False: ops.amin(input, dim, keepdim),
    "argmin": lambda input, dim=None, keepdim=False: ops.cast(ops.argmin(input, dim, keepdim), to_type("int64")),
    "argsort": lambda input, dim=-1, descending=False, stable=False: _with_int64(
        ops.sort(input, dim, descending))[1],
    "baddbmm": lambda input, batch1, batch2, *, beta=1, alpha=1: ops.baddbmm(input, batch1, batch2, beta, alpha),
    "bernoulli": lambda input, *, generator=None: input.bernoulli(),
    "cat": spelled(ops.concat, dim="axis"), "clone": clone,
    "conv2d": conv2d,
    "conv_tbc": _conv_tbc,
    "count_nonzero": formula("the number of elements over ``dim`` that are not zero (int64)",
        lambda input, dim=None: ops.count_nonzero(input, () if dim is None else dim, dtype=to_type("int64"))),
    "cummin": lambda input, dim: _with_int64(ops.cummin(input, dim)),
    "diag": formula("a matrix with a vector on a diagonal, or a diagonal of a matrix",
        lambda input, diagonal=0: (ops.diag_embed if input.ndim == 1 else ops.diagonal)(input, diagonal)),
    "dist": lambda input, other, p=2: matrices.dist(input, other, p),
    "empty": formula("a tensor of a shape; its elements are zeros",
        lambda *size, dtype=None, device=None, pin_memory=False: ops.zeros(size[0] if len(size) == 1 else size, dtype)),
    "empty_like": lambda input, *, dtype=None, device=None, pin_memory=False: ops.zeros_like(input, dtype=dtype),
    "equal": lambda input, other: input.shape == other.shape and bool(ops.all(ops.equal(input, other))),
    "fill_diagonal": fill_diagonal,
    "flatten": lambda input, start_dim=0, end_dim=-1: ops.flatten(input, start_dim=start_dim, end_dim=end_dim),
    "gather": ops.gather_elements, "index_add": index_add, "isnan": spelled(ops.isnan, tensor="input"),
    "permute": spelled(ops.permute, dims="axis"),
    "transpose": spelled(ops.swapaxes, dim0="axis0", dim1="axis1"),
    "kthvalue": arranging.kthvalue,
    "linspace": lambda start, end, steps, *, dtype=None: _typed(ops.linspace(start, end, steps), dtype),
    "max": _extreme(ops.amax, ops.maximum, ops.max),
    "mean": _reduced(ops.mean),
    "median": formula("the middle element of all, or along ``dim`` with its index",
        lambda input, dim=None, keepdim=False:
            ops.median(ops.ravel(input), 0)[0] if dim is None else ops.median(input, dim, keepdim)),
    "meshgrid": lambda *tensors, indexing=None: ops.meshgrid(*tensors, indexing=indexing or "ij"),
    "min": _extreme(ops.amin, ops.minimum, ops.min),
    "multinomial": lambda input, num_samples, replacement=False, *, generator=None: ops.cast(
        ops.multinomial(input, num_samples, replacement), to_type("int64")),
    "norm": formula("the norm of order ``p`` over ``dim``, of all elements if it is None",
        lambda input, p="fro", dim=None, keepdim=False, *, dtype=None: matrices.vector_norm(
            input, 2 if p in ("fro", None) else p, dim, keepdim, dtype=dtype)),
    "normal": formula("numbers drawn from normal distributions", lambda mean=0.0, std=1.0, size=None, generator=None:
        ops.normal(() if size is None else tuple(size), mean, std)),
    "prod": _reduced(ops.prod),
    "rand": _drawn(ops.rand),
    "rand_like": lambda input, *, dtype=None, device=None: ops.rand_like(input, dtype=dtype),
    "randint": _randint,
    "randint_like": _randint_like,
    "randn": _drawn(ops.randn),
    "randn_like": lambda input, *, dtype=None, device=None: ops.randn_like(input, dtype=dtype),
    "randperm": lambda n, *, generator=None, dtype=None: ops.randperm(n, dtype=dtype or np.int64),
    "repeat_interleave": lambda input, repeats, dim=None, *, output_size=None: ops.repeat_interleave(
        input, repeats, dim),
    "scatter_add": scatter_add,
    "select": lambda input, dim, index: input.select(dim, index),
    "softmax": lambda input, dim, *, dtype=None: ops.softmax(input, dim, dtype=dtype),
    "sort": formula("the elements in order along ``dim`` and the indices (int64) that they had",
        lambda input, *, dim=-1, descending=False, stable=False: _with_int64(ops.sort(input, dim, descending))),
    "squeeze": formula("the tensor without axes of extent 1", lambda input, dim=None: input.squeeze(dim)),
    "std": _spread(ops.std),
    "std_mean": _spread(ops.std_mean),
    "sub": lambda input, other, *, alpha=1: ops.subtract(input, other, alpha=alpha),
    "topk": formula("the ``k`` greatest (or smallest) elements along ``dim`` and their indices (int64)",
        lambda input, k, dim=-1, largest=True, sorted=True: _with_int64(ops.topk(input, k, dim, largest, sorted))),
    "triangular_solve": matrices.triangular_solve,
    "unique": unique,
    "var": _spread(ops.var),
    "var_mean": _spread(ops.var_mean),
    "vdot": lambda input, other: matrices.vecdot(input, other),
    "zeros": lambda size, *, dtype=None: ops.zeros(size, dtype),
}  # fmt: skip


_BY_DIM = "all any chunk concat cummax cumsum diff index_select narrow scatter split stack"
"""Functions that differ from those of ``ops`` in what they call the axis and whether it stays."""


def _with_dim(name: str) -> Callable[..., Any]:
    function = getattr(ops, name)
    here = {"axis": "dim", "keep_dims": "keepdim", "x": "input"}
    return spelled(function, **{here[each]: each for each in signature(function).parameters if each in here})


def _with_int64(pair: Any) -> Any:
    return pair[0], ops.cast(pair[1], to_type("int64"))


_FUNCTIONS = {
    **{name: getattr(ops, name) for name in _SAME.split()},
    **{name: _with_dim(name) for name in _BY_DIM.split()},
    **_OWN,
}  # fmt: skip
name_table(_FUNCTIONS, __name__, "Return ``{}`` as ``ops`` computes it.")
globals().update(_FUNCTIONS)
__getattr__ = names.getter(__name__, lazy=("linalg", "nn", "special"))
__all__ = [*_FUNCTIONS]
