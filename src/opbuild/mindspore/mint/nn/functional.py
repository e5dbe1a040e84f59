"""``mint.nn.functional``: layers as functions, with the arguments of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.ops import images, matrices, pooling
from opbuild.mindspore.ops.arranging import replaced
from opbuild.mindspore.ops.declaration import formula, name_table, spelled
from opbuild.mindspore.ops.pooling import conv
from opbuild.mindspore.tensor import Tensor


def _padded(padding: Any, rank: int) -> tuple[str, Any]:
    """Return MindSpore's pad_mode and padding for PyTorch's: words, or one amount for each axis."""
    if isinstance(padding, str):
        return padding, 0
    amounts = (padding,) * rank if isinstance(padding, int) else tuple(padding)
    amounts = amounts * rank if len(amounts) == 1 else amounts
    return "pad", tuple(amount for each in amounts for amount in (each, each))


def _conv(rank: int) -> Callable[..., Any]:
    def function(input: Any, weight: Any, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1) -> Tensor:  # fmt: skip
        batched = input if input.ndim == rank + 2 else ops.expand_dims(input, 0)
        mode, amounts = _padded(padding, rank)
        result = conv(batched, weight, bias, stride, mode, amounts, dilation, groups, rank)
        return result if input.ndim == rank + 2 else ops.squeeze(result, 0)

    return formula("a convolution of a tensor with or without a batch axis", function)


def _pool(rank: int) -> Callable[..., Any]:
    average = (ops.avg_pool1d, ops.avg_pool2d, pooling.avg_pool3d)[rank - 1]

    def function(input: Any, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
                 count_include_pad: bool = True, divisor_override: int | None = None) -> Any:  # fmt: skip
        step = kernel_size if stride is None else stride
        border = padding if isinstance(padding, int) else _padded(padding, rank)[1]
        more = () if rank == 1 else (divisor_override or 0,)
        return average(input, kernel_size, step, border, ceil_mode, count_include_pad, *more)

    return formula("the mean under a window", function)


def _activation(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an activation that may be told to replace the elements of its input."""

    def activation(input: Any, *args: Any, inplace: bool = False, **named: Any) -> Tensor:
        result: Tensor = function(input, *args, **named)
        return replaced(input, result, function.__name__) if inplace else result

    activation.__doc__ = function.__doc__
    return activation


def _in_place(function: Callable[..., Any]) -> Callable[..., Any]:
    def activation(input: Any, *args: Any, **named: Any) -> Tensor:
        return replaced(input, function(input, *args, **named), f"{function.__name__}_")

    activation.__doc__ = function.__doc__
    return activation


_elu = spelled(ops.elu, input="input_x")
_threshold = spelled(ops.threshold, threshold="thr")


def _last(dim: int | None, rank: int) -> int:
    """Return the axis of softmax: if it is None the first of 0, 1 and 3 dimensions, else the second."""
    return (0 if rank in (0, 1, 3) else 1) if dim is None else dim


def log_softmax(input: Any, dim: int | None = None, *, dtype: Any = None) -> Tensor:
    """Return the logarithm of ``softmax(input, dim)``."""
    tensor = input if dtype is None else ops.cast(input, to_type(dtype))
    return ops.log_softmax(tensor, _last(dim, tensor.ndim))


def _batch_norm(input: Any, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None,
                training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    """Return the tensor normalized by the mean and variance of each channel (axis 1)."""
    scale = ops.ones_like(running_mean) if weight is None else weight
    shift = ops.zeros_like(running_mean) if bias is None else bias
    return ops.batch_norm(input, running_mean, running_var, scale, shift, training, momentum, eps)


def _adaptive(function: Callable[..., Any], rank: int) -> Callable[..., Any]:
    def pooled(input: Any, output_size: Any, return_indices: bool = False) -> Any:
        if return_indices and rank == 1:
            return pooling.adaptive_with_indices(input, output_size, rank)
        return function(input, output_size, return_indices) if return_indices else function(input, output_size)

    pooled.__doc__ = function.__doc__
    return pooled


def _one_hot(tensor: Any, num_classes: int = -1) -> Tensor:
    """Return 1 (int64) at each index along a new last axis; as many classes as there are indices if -1."""
    count = int(tensor.asnumpy().max()) + 1 if num_classes == -1 else num_classes
    return ops.cast(ops.one_hot(tensor, count, 1, 0, -1), to_type("int64"))


def _embedding(input: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
               norm_type: float = 2.0, scale_grad_by_freq: bool = False) -> Tensor:  # fmt: skip
    """Return the rows of ``weight`` that ``input`` names."""
    if max_norm is not None:
        raise ArgumentValueError("embedding was given max_norm", "scale the weights once, before they are used")
    return ops.embedding(input, weight, padding_idx)


conv2d = _conv(2)
dropout = formula("the tensor, in training with elements zeroed at random",
    lambda input, p=0.5, training=True, inplace=False: ops.dropout(input, p, training))  # fmt: skip

FUNCTIONS: dict[str, Callable[..., Any]] = {
    "adaptive_avg_pool1d": _adaptive(pooling.adaptive_avg_pool1d, 1),
    "adaptive_avg_pool2d": _adaptive(ops.adaptive_avg_pool2d, 2),
    "adaptive_avg_pool3d": _adaptive(pooling.adaptive_avg_pool3d, 3),
    "adaptive_max_pool1d": _adaptive(pooling.adaptive_max_pool1d, 1),
    "adaptive_max_pool2d": _adaptive(ops.adaptive_max_pool2d, 2),
    "avg_pool1d": _pool(1), "avg_pool2d": _pool(2), "avg_pool3d": _pool(3), "batch_norm": _batch_norm,
    "conv1d": _conv(1), "conv2d": conv2d, "conv3d": _conv(3), "conv_transpose2d": ops.conv_transpose2d,
    "dropout": dropout, "dropout2d": dropout, "elu": _activation(_elu), "elu_": _in_place(_elu),
    "embedding": _embedding,
    "flatten": lambda input, start_dim=0, end_dim=-1: ops.flatten(input, start_dim=start_dim, end_dim=end_dim),
    "fold": images.fold, "gelu": lambda input, *, approximate="none": ops.gelu(input, approximate),
    "glu": lambda input, dim=-1: ops.glu(input, dim), "grid_sample": images.grid_sample, "group_norm": ops.group_norm,
    "hardtanh": _activation(ops.hardtanh), "hardtanh_": _in_place(ops.hardtanh), "interpolate": ops.interpolate,
    "layer_norm": ops.layer_norm,
    "leaky_relu": lambda input, negative_slope=0.01: ops.leaky_relu(input, negative_slope),
    "linear": ops.dense, "log_softmax": log_softmax, "logsigmoid": lambda input: ops.logsigmoid(input),
    "max_pool2d": formula("the greatest element under a window and, if asked, its place in the flattened image",
        lambda input, kernel_size, stride=None, padding=0, dilation=1, ceil_mode=False, return_indices=False:
            ops.max_pool2d(input, kernel_size, stride, padding, dilation, return_indices, ceil_mode)),
    "max_unpool2d": spelled(pooling.max_unpool2d, input="x"),
    "normalize": matrices.normalize, "one_hot": _one_hot,
    "pad": spelled(ops.pad, input="input_x", pad="padding"), "pixel_shuffle": ops.pixel_shuffle,
    "prelu": ops.prelu, "relu": _activation(ops.relu), "relu6": _activation(ops.relu6), "relu_": _in_place(ops.relu),
    "sigmoid": ops.sigmoid,
    "sigmoid_": _in_place(ops.sigmoid), "silu": _activation(ops.silu),
    "softmax": formula("``exp(input)`` divided by its sum along ``dim``", lambda input, dim=None, dtype=None:
        ops.softmax(input, _last(dim, input.ndim), dtype=dtype)),
    "tanh": ops.tanh,
    "threshold": _activation(_threshold), "threshold_": _in_place(_threshold), "unfold": images.unfold,
    "upsample": ops.interpolate,
}  # fmt: skip

name_table(FUNCTIONS, __name__, "Return ``{}`` as ``ops`` computes it.")
globals().update(FUNCTIONS)


_LOSSES: dict[str, Callable[..., Any]] = {name: vars(ops)[name] for name in (
    "binary_cross_entropy", "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cross_entropy", "kl_div",
    "mse_loss", "nll_loss", "soft_margin_loss",
)}  # fmt: skip
"""The losses that ``ops`` has under the same name."""
globals().update(_LOSSES)
__getattr__ = names.getter(__name__)
__all__ = [*FUNCTIONS, *_LOSSES]
