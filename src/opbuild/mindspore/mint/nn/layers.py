"""The layers of ``mint.nn``: rows that call functions of ``mint.nn.functional`` and ``ops``; those with parameters."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentValueError, defaults_of, of_rank, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import HeUniform, Normal, Uniform, initializer
from opbuild.mindspore.mint.nn.functional import FUNCTIONS
from opbuild.mindspore.nn.basic import Dropout as _Dropout
from opbuild.mindspore.nn.basic import Dropout2d as _Dropout2d
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import derived, layer, parameter
from opbuild.mindspore.ops import batch_norm, conv_transpose2d, group_norm, layer_norm, loss, prelu
from opbuild.mindspore.ops.normalization import batch_norm_of_ranks
from opbuild.mindspore.ops.pooling import per_axis
from opbuild.mindspore.ops.shaping import pad
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


def _padding(mode: str, axes: int) -> Callable[..., Any]:
    def function(input: Any, padding: Any, value: Any = None) -> Any:
        """Return the tensor with elements around its last axes: pairs, the last axis first."""
        amounts = (padding,) * 2 * axes if isinstance(padding, int) else padding
        return pad(input, amounts, mode, value)

    return function


def _resized(mode: str, align: bool | None) -> Callable[..., Any]:
    def function(input: Any, size: Any, scale_factor: Any) -> Any:
        """Return images of another size."""
        return FUNCTIONS["interpolate"](input, size, scale_factor, mode, align)

    return function


def _kl_div(input: Any, target: Any, reduction: str, log_target: bool) -> Any:
    """Return the divergence of log-probabilities from probabilities, or from their logarithms."""
    return loss.kl_div(input, ops.exp(target) if log_target else target, reduction)


_OF_OPS = dict(  # noqa: C408 - a row reads as the call
    CosineEmbeddingLoss="margin reduction", Flatten="start_dim end_dim", GELU="approximate", Hardshrink="lambd",
    Hardsigmoid="", Hardswish="", LogSigmoid="", Mish="", MSELoss="reduction", NLLLoss="weight ignore_index reduction",
    L1Loss="reduction", PixelShuffle="upscale_factor", ReLU="", SELU="", Sigmoid="", SoftMarginLoss="reduction",
    Softshrink="lambd", Tanh="",
)  # fmt: skip
_OF_FUNCTIONAL = dict(  # noqa: C408
    AdaptiveAvgPool1d="output_size", AdaptiveAvgPool2d="output_size", AdaptiveAvgPool3d="output_size",
    AdaptiveMaxPool1d="output_size return_indices", AdaptiveMaxPool2d="output_size return_indices",
    AvgPool1d="kernel_size stride padding ceil_mode count_include_pad",
    AvgPool2d="kernel_size stride padding ceil_mode count_include_pad divisor_override",
    AvgPool3d="kernel_size stride padding ceil_mode count_include_pad divisor_override",
    Fold="output_size kernel_size dilation padding stride", GLU="dim", LogSoftmax="dim",
    MaxUnpool2d="kernel_size stride padding", Softmax="dim", Unfold="kernel_size dilation padding stride",
)  # fmt: skip
"""Layers that have the name of their function, and its arguments that the constructor takes, with its defaults."""


def _namesakes(functions: Mapping[str, Any], listed: Mapping[str, str]) -> dict[str, type[Cell]]:
    known = {name.replace("_", ""): function for name, function in functions.items()}
    found = {name: (known[name.lower()], attributes) for name, attributes in listed.items()}
    return {name: layer(function, **defaults_of(function, attributes))
            for name, (function, attributes) in found.items()}  # fmt: skip


class _Conv(Cell):
    """A convolution of mint: arguments as PyTorch's, ``padding`` an integer, one for each axis, or a word."""

    rank = 2
    transposed = False
    output_padding: Any = 0

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros",
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        name = type(self).__name__
        if padding_mode != "zeros":
            raise ArgumentValueError(f"padding_mode of {name} is {padding_mode!r}", "pad with mint.nn's layers first")
        positive(in_channels, f"in_channels of {name}", groups)
        positive(out_channels, f"out_channels of {name}", groups)
        kernel = per_axis(kernel_size, self.rank, f"kernel_size of {name}")
        self.arguments = (stride, padding, dilation, groups)
        first, second = (in_channels, out_channels) if self.transposed else (out_channels, in_channels)
        shape = (first, second // groups, *kernel)
        self.weight = parameter(HeUniform(math.sqrt(5)), shape, dtype, "weight")
        bound = 1 / math.sqrt(math.prod(shape[1:]))
        self.bias = parameter(Uniform(bound), (out_channels,), dtype, "bias") if bias else None

    def construct(self, input: Tensor) -> Tensor:
        """Return the convolution, or transposed one, of a tensor with or without a batch axis."""
        if self.transposed:
            stride, padding, dilation, groups = self.arguments
            more = self.output_padding
            return conv_transpose2d(input, self.weight, self.bias, stride, padding, more, groups, dilation)
        result: Tensor = FUNCTIONS[f"conv{self.rank}d"](input, self.weight, self.bias, *self.arguments)
        return result


class _BatchNorm(Cell):
    """Each channel normalized by its stored mean and variance, in training by the batch's, which move those."""

    ranks: tuple[int, ...] = ()
    _normalized = staticmethod(batch_norm)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 track_running_stats: bool = True, dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        shape = (positive(num_features, f"num_features of {type(self).__name__}"),)
        if not track_running_stats:
            raise ArgumentValueError(f"{type(self).__name__} was given track_running_stats=False", "leave it out")
        self.eps, self.momentum = eps, momentum
        self.weight = parameter("ones", shape, dtype, "weight") if affine else None
        self.bias = parameter("zeros", shape, dtype, "bias") if affine else None
        self.running_mean = parameter("zeros", shape, dtype, "running_mean", requires_grad=False)
        self.running_var = parameter("ones", shape, dtype, "running_var", requires_grad=False)
        self.num_batches_tracked = Parameter(np.asarray(0, np.float32), "num_batches_tracked", False)

    def construct(self, input: Tensor) -> Tensor:
        """Return the normalized tensor."""
        of_rank(input, self.ranks, type(self).__name__)
        scale = Tensor.of(np.ones(self.running_mean.shape, np.float32)) if self.weight is None else self.weight
        shift = Tensor.of(np.zeros(self.running_mean.shape, np.float32)) if self.bias is None else self.bias
        return self._normalized(
            input, self.running_mean, self.running_var, scale, shift, self.training, self.momentum, self.eps
        )


def _of_shape(self: Any, start: str, name: str) -> Parameter:
    return parameter(start, self.normalized_shape, self.dtype, name)


def _of_channels(start: str, name: str) -> Callable[[Any], Parameter]:
    return lambda self: parameter(start, (self.num_channels,), self.dtype, name, requires_grad=self.affine)


class Embedding(Cell):
    """Rows of a table, by index."""

    def __init__(self, num_embeddings: int, embedding_dim: int, padding_idx: int | None = None,
                 max_norm: float | None = None, norm_type: float = 2.0, scale_grad_by_freq: bool = False,
                 sparse: bool = False, _weight: Tensor | None = None, _freeze: bool = False,
                 dtype: Any = None) -> None:  # fmt: skip
        super().__init__()
        start = Normal(1.0) if _weight is None else _weight
        values = initializer(start, (num_embeddings, embedding_dim), dtype or float32)
        table = values.asnumpy().copy()
        if padding_idx is not None and _weight is None:
            table[padding_idx] = 0
        self.weight = Parameter(table, "weight", not _freeze)
        self.padding_idx, self.max_norm = padding_idx, max_norm

    def construct(self, input: Tensor) -> Tensor:
        """Return a tensor of shape (..., embedding_dim)."""
        result: Tensor = FUNCTIONS["embedding"](input, self.weight, self.padding_idx, self.max_norm)
        return result


globals().update(_namesakes(vars(ops), _OF_OPS), **_namesakes(FUNCTIONS, _OF_FUNCTIONAL))
for _axes in (1, 2, 3):
    globals()[f"ConstantPad{_axes}d"] = layer(_padding("constant", _axes), padding=..., value=...)
    for _kind, _mode in (("Reflection", "reflect"), ("Replication", "replicate"), ("Zero", "constant")):
        globals()[f"{_kind}Pad{_axes}d"] = layer(_padding(_mode, _axes), padding=...)
GroupNorm = layer(lambda self, input: group_norm(input, self.num_groups, self.weight, self.bias, self.eps),
    "Normalization over each group of channels (axis 1).", checks={"num_groups": positive},
    made={"weight": _of_channels("ones", "weight"), "bias": _of_channels("zeros", "bias")},
    num_groups=..., num_channels=..., eps=1e-5, affine=True, dtype=None)  # fmt: skip
LayerNorm = layer(lambda self, input: layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps),
    "Normalization over the last axes, whose extents are ``normalized_shape``.", made={
        "normalized_shape": lambda self: tuple(np.atleast_1d(self.normalized_shape).tolist()),
        "weight": lambda self: _of_shape(self, "ones", "weight") if self.elementwise_affine else None,
        "bias": lambda self: _of_shape(self, "zeros", "bias") if self.elementwise_affine and self.bias else None,
    }, normalized_shape=..., eps=1e-5, elementwise_affine=True, bias=True, dtype=None)  # fmt: skip
PReLU = layer(lambda self, input: prelu(input, self.weight),
    "``input`` where it is positive, ``weight * input`` elsewhere, one weight or one a channel.",
    made={"weight": lambda self: parameter(float(self.init), (self.num_parameters,), self.dtype, "weight")},
    num_parameters=1, init=0.25, dtype=None)  # fmt: skip
MaxPool2d = layer(FUNCTIONS["max_pool2d"], kernel_size=1, stride=None, padding=0, dilation=1, return_indices=False,
    ceil_mode=False)  # fmt: skip
BCELoss = layer(loss.binary_cross_entropy, weight=None, reduction="mean")
BCEWithLogitsLoss = layer(loss.binary_cross_entropy_with_logits, weight=None, reduction="mean", pos_weight=None)
CrossEntropyLoss = layer(loss.cross_entropy, weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0)
KLDivLoss = layer(_kl_div, reduction="mean", log_target=False)
SmoothL1Loss = layer(loss.smooth_l1_loss, reduction="mean", beta=1.0)
ELU = layer(FUNCTIONS["elu"], alpha=1.0, inplace=False)
Hardtanh = layer(FUNCTIONS["hardtanh"], min_val=-1.0, max_val=1.0, inplace=False)
ReLU6 = layer(FUNCTIONS["relu6"], inplace=False)
SiLU = layer(FUNCTIONS["silu"], inplace=False)
Threshold = layer(FUNCTIONS["threshold"], threshold=..., value=..., inplace=False)
Upsample = layer(FUNCTIONS["interpolate"], size=None, scale_factor=None, mode="nearest", align_corners=None,
    recompute_scale_factor=None)  # fmt: skip
UpsamplingBilinear2d = layer(_resized("bilinear", True), size=None, scale_factor=None)
UpsamplingNearest2d = layer(_resized("nearest", None), size=None, scale_factor=None)
Conv1d = derived(_Conv, "A convolution over one spatial axis.", rank=1)
Conv2d = derived(_Conv, "A convolution over two spatial axes.")
Conv3d = derived(_Conv, "A convolution over three spatial axes.", rank=3)
ConvTranspose2d = derived(_Conv, "A transposed convolution over two spatial axes.",
    "in_channels out_channels kernel_size stride padding output_padding groups bias dilation padding_mode dtype",
    transposed=True, output_padding=0)  # fmt: skip
BatchNorm1d = derived(_BatchNorm, "Batch normalization of shape (N, C) or (N, C, L).", ranks=(2, 3))
BatchNorm2d = derived(_BatchNorm, "Batch normalization of shape (N, C, H, W).", ranks=(4,))
BatchNorm3d = derived(_BatchNorm, "Batch normalization of shape (N, C, D, H, W).", ranks=(5,))
SyncBatchNorm = derived(_BatchNorm, "Batch normalization; in training on several ranks all of them are one batch.",
    "num_features eps momentum affine track_running_stats process_group dtype", ranks=(2, 3, 4, 5), process_group=None,
    _normalized=staticmethod(batch_norm_of_ranks))  # fmt: skip
Dropout = derived(_Dropout, "Nothing, when a network runs; in training it would zero elements with probability ``p``.",
    "p inplace", p=0.5, inplace=False)  # fmt: skip
Dropout2d = derived(
    _Dropout2d, "Nothing, when a network runs; in training it would zero channels with probability ``p``.",
    "p inplace", inplace=False)  # fmt: skip

names.call_rows(vars(), __name__)
__all__ = names.public(vars(), Cell)
