"""Layers that keep their arguments and call a function: activations, shapes and matrices, paddings, images."""

from __future__ import annotations

import math
import operator
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import (
    ArgumentTypeError,
    ArgumentValueError,
    allowed,
    axis_in,
    of_rank,
    one_of,
    positive,
)
from opbuild.mindspore.dtype import float32, to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.initializer import Uniform
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, derived, layer, parameter
from opbuild.mindspore.ops import arithmetic, images
from opbuild.mindspore.ops.pooling import conv, pads_of
from opbuild.mindspore.ops.reduction import axes_of, neighbours, reduce
from opbuild.mindspore.ops.shaping import cut, reshaped
from opbuild.mindspore.tensor import Tensor


@cell()
def Softmax2d(x: Any) -> Tensor:
    """Softmax over the channels of a tensor of shape (N, C, H, W) or (C, H, W)."""
    of_rank(x, (3, 4), "Softmax2d")
    return arithmetic.softmax(x, -3)


ReLU = layer(arithmetic.relu, "``max(x, 0)``.", "x")
ReLU6 = layer(arithmetic.relu6, "``min(max(x, 0), 6)``.")
GELU = layer(lambda x, *, approximate=True: arithmetic.gelu(x, "tanh" if approximate else "none"),
    "GELU; ``approximate`` takes tanh instead of erf, and is the default.")  # fmt: skip
FastGelu = layer(arithmetic.fast_gelu, "``x * sigmoid(1.702 * x)``.")
Sigmoid = layer(arithmetic.sigmoid, "``1 / (1 + exp(-x))``.", "input_x")
Tanh = layer(arithmetic.tanh, "The hyperbolic tangent.", "x")
Softmax = layer(arithmetic.softmax, "Softmax along ``axis``.", "x", axis=-1)
LogSoftmax = layer(arithmetic.log_softmax, "The logarithm of softmax along ``axis``.", "x", axis=-1)
LeakyReLU = layer(arithmetic.leaky_relu, "``x`` where it is not negative, ``alpha * x`` elsewhere.", "x", alpha=0.2)
ELU = layer(arithmetic.elu, "``x`` where it is positive, ``alpha * (exp(x) - 1)`` elsewhere.", "x", alpha=1.0)
CELU = layer(arithmetic.celu, "``max(0, x) + min(0, alpha * (exp(x / alpha) - 1))``.", alpha=1.0)
SeLU = layer(arithmetic.selu, "The scaled ELU.")
HSwish = layer(arithmetic.hardswish, "``x * relu6(x + 3) / 6``.", "x")
HSigmoid = layer(arithmetic.hardsigmoid, "``relu6(x + 3) / 6``.", "input_x")
SiLU = layer(arithmetic.silu, "``x * sigmoid(x)``.", "x")
Mish = layer(arithmetic.mish, "``x * tanh(softplus(x))``.", "input_x")
Softsign = layer(arithmetic.softsign, "``x / (1 + |x|)``.")
LogSigmoid = layer(arithmetic.logsigmoid, "``log(sigmoid(x))``.", "input_x")
Tanhshrink = layer(arithmetic.tanhshrink, "``x - tanh(x)``.", "x")
SoftShrink = layer(arithmetic.softshrink, "Elements moved by ``lambd`` towards 0.", "input_x", lambd=0.5)
HShrink = layer(arithmetic.hardshrink, "Elements whose absolute value is above ``lambd``, and 0 elsewhere.", "input_x",
    lambd=0.5)  # fmt: skip
Softmin = layer(arithmetic.softmin, "Softmax of the negative along ``axis``.", "x", axis=-1)
Threshold = layer(lambda input_x, *, threshold, value: arithmetic.threshold(input_x, threshold, value),
    "Elements above ``threshold``, and ``value`` elsewhere.")  # fmt: skip
GLU = layer(arithmetic.glu, "The first half along ``axis`` times the sigmoid of the second.", axis=-1)
LRN = layer(ops.lrn, "Elements divided by the squares of neighbouring channels: ``ops.lrn``.", "input_x",
    depth_radius=5, bias=1.0, alpha=1.0, beta=0.5, norm_region="ACROSS_CHANNELS")  # fmt: skip


RReLU = layer(ops.rrelu, "``x`` where it is not negative, elsewhere times slopes that each call draws anew.", "x",
              checks={"lower upper": allowed(operator.le, "lower must not be above upper", "{owner} from {0} to {1}")},
              lower=1 / 8, upper=1 / 3)  # fmt: skip
PReLU = layer(lambda self, x: arithmetic.prelu(x, self.w),
    "``x`` where it is positive, ``w * x`` elsewhere, with one ``w`` for all channels or one for each.",
    made={"w": lambda self: parameter(self.w, (self.channel,), None, "a")}, channel=1, w=0.25)  # fmt: skip
Hardtanh = layer(arithmetic.hardtanh, "Elements limited to ``min_val`` and ``max_val``.", "x",
    checks={"min_val max_val": allowed(operator.lt, "the first must be below the second", "{owner} from {0} to {1}")},
    min_val=-1.0, max_val=1.0)  # fmt: skip

_BY_NAME: dict[str, type[Cell]] = {
    "softmax": Softmax, "logsoftmax": LogSoftmax, "relu": ReLU, "relu6": ReLU6, "silu": SiLU, "tanh": Tanh,
    "tanhshrink": Tanhshrink, "gelu": GELU, "fast_gelu": FastGelu, "elu": ELU, "sigmoid": Sigmoid, "softsign": Softsign,
    "prelu": PReLU, "leakyrelu": LeakyReLU, "hswish": HSwish, "hsigmoid": HSigmoid, "logsigmoid": LogSigmoid,
    "softmin": Softmin, "softmax2d": Softmax2d, "hardtanh": Hardtanh,
    "softshrink": SoftShrink, "hshrink": HShrink, "mish": Mish,
}  # fmt: skip


def get_activation(name: str | None, prim_name: str | None = None) -> Cell | None:
    """Return the activation of a name, None for None."""
    if name is None:
        return None
    if name not in _BY_NAME:
        raise ArgumentValueError(f"no activation {name!r}", "use one of " + ", ".join(sorted(_BY_NAME)))
    return _BY_NAME[name]()


class BiDense(Cell):
    """``input1 @ weight @ input2 + bias`` for each row and each output channel.

    Args:
        in1_channels: Extent of the first input's last axis.
        in2_channels: Extent of the second input's last axis.
        out_channels: Extent of the output's last axis.
        weight_init: Initial weight of shape (out_channels, in1_channels, in2_channels).
    """

    def __init__(self, in1_channels: int, in2_channels: int, out_channels: int, weight_init: Any = None,
                 bias_init: Any = None, has_bias: bool = True, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.in1_channels = positive(in1_channels, "in1_channels of BiDense")
        self.in2_channels = positive(in2_channels, "in2_channels of BiDense")
        self.out_channels = positive(out_channels, "out_channels of BiDense")
        usual, shape = Uniform(1 / math.sqrt(in1_channels)), (out_channels, in1_channels, in2_channels)
        self.weight = parameter(weight_init, shape, dtype, "weight", usual)
        self.bias = parameter(bias_init, (out_channels,), dtype, "bias", usual) if has_bias else None

    def construct(self, input1: Tensor, input2: Tensor) -> Tensor:
        """Return a tensor of shape (..., out_channels)."""
        rows = input1.size // self.in1_channels
        first = reshaped(input1, (1, rows, self.in1_channels))
        second = reshaped(input2, (1, rows, self.in2_channels))
        result = ops.swapaxes(ops.sum(ops.mul(ops.matmul(first, self.weight), second), 2), 0, 1)
        result = result if self.bias is None else ops.add(result, self.bias)
        return reshaped(result, (*input1.shape[:-1], self.out_channels))


@cell()
def ClipByNorm(x: Tensor, clip_norm: Any, *, axis: Any = None) -> Tensor:
    """A tensor scaled down so that its Euclidean norm over ``axis`` is ``clip_norm`` at most."""
    norm = ops.sqrt(ops.sum(ops.square(x), axis, True))
    return ops.div(ops.mul(x, clip_norm), ops.maximum(norm, clip_norm))


@cell()
def MatrixDiagPart(input_x: Tensor) -> Tensor:
    """The diagonals of matrices."""
    rows, columns = input_x.shape[-2:]
    found = ops.sum(ops.mul(input_x, Tensor.of(np.eye(rows, columns, dtype=input_x.type.dtype))), -1)
    least = min(rows, columns)
    return found if least == rows else cut(found, [0], [least], [-1], [1])


@cell()
def MatrixSetDiag(input_x: Tensor, diagonal: Tensor) -> Tensor:
    """Matrices with their diagonals replaced."""
    rows, columns = input_x.shape[-2:]
    front, least = diagonal.shape[:-1], diagonal.shape[-1]
    spread = reshaped(diagonal, (*front, least, 1) if rows <= columns else (*front, 1, least))
    return ops.where(Tensor.of(np.eye(rows, columns, dtype=bool)), spread, input_x)


@cell()
def MatMul(x1: Tensor, x2: Tensor, *, transpose_x1: bool = False, transpose_x2: bool = False) -> Tensor:
    """The product of matrices, each transposed first if asked."""
    x1 = ops.swapaxes(x1, -1, -2) if transpose_x1 and x1.ndim > 1 else x1
    x2 = ops.swapaxes(x2, -1, -2) if transpose_x2 and x2.ndim > 1 else x2
    return ops.matmul(x1, x2)


@cell(checks={"unflattened_size": allowed(
    lambda value: isinstance(value, (tuple, list)), "give a tuple", "{what} is {0!r}", ArgumentTypeError)})  # fmt: skip
def Unflatten(input_x: Tensor, *, axis: int, unflattened_size: Any) -> Tensor:
    """An axis as several, whose extents are ``unflattened_size``."""
    place = axis_in(axis, input_x.ndim, "Unflatten")
    return ops.reshape(input_x, (*input_x.shape[:place], *unflattened_size, *input_x.shape[place + 1 :]))


@cell()
def Moments(x: Tensor, *, axis: Any = None, keep_dims: bool | None = None) -> tuple[Tensor, Tensor]:
    """The mean and the variance over ``axis``."""
    axes = axes_of(() if axis is None else axis, x.ndim, "Moments")
    wide = cast(x, "float32")
    center = ops.mean(wide, axes, True)
    spread = ops.mean(ops.square(ops.sub(wide, center)), axes, bool(keep_dims))
    center = center if keep_dims else reduce("ReduceMean", center, axes, False)
    return cast(center, x.type.dtype), cast(spread, x.type.dtype)


@cell(checks={"delta": allowed(lambda delta: delta != 0, "give another number")})
def Range(*, start: Any, limit: Any = None, delta: Any = 1) -> Tensor:
    """The numbers from ``start`` to below ``limit``, ``delta`` apart."""
    numbers = ops.arange(*((0, start, delta) if limit is None else (start, limit, delta)))
    return numbers if numbers.is_floating_point() else cast(numbers, "int32")


def _pairs(paddings: Any, what: str) -> None:
    if not isinstance(paddings, tuple):
        raise ArgumentTypeError(f"{what} is a {type(paddings).__name__}", "give a tuple of pairs")
    if any(len(pair) != 2 for pair in paddings):
        raise ArgumentValueError(f"{what} is {paddings}", "give a pair (before, after) for each axis")


@cell(checks={"mode": lambda mode, what: one_of(mode, ("CONSTANT", "REFLECT", "SYMMETRIC"), what), "paddings": _pairs})
def Pad(x: Tensor, *, paddings: tuple[tuple[int, int], ...], mode: str = "CONSTANT") -> Tensor:
    """Elements around a tensor.

    ``paddings`` has a pair (before, after) for each axis, the first axis first; ``mode`` is ``CONSTANT`` (zeros),
    ``REFLECT`` (without the edge) or ``SYMMETRIC`` (with it).
    """
    if mode == "SYMMETRIC":
        return ops.mirror_pad(x, paddings, mode)
    flat = [amount for pair in reversed(paddings) for amount in pair]
    return ops.pad(x, flat, "constant" if mode == "CONSTANT" else "reflect")


class _Padding(Cell):
    """Elements before and after the last axes, pairs with the last axis first; of a negative padding, elements less."""

    axes = 1
    mode = "constant"
    value: float = 0

    def __init__(self, padding: Any) -> None:
        super().__init__()
        name = type(self).__name__
        amounts = (padding,) * 2 * self.axes if isinstance(padding, int) else padding
        if not isinstance(amounts, tuple) or not all(isinstance(item, int) for item in amounts):
            raise ArgumentTypeError(f"padding of {name} is {padding!r}", "give an integer or a tuple of integers")
        if len(amounts) % 2 or len(amounts) > 2 * self.axes:
            raise ArgumentValueError(f"padding of {name} is {padding}", f"give up to {self.axes} pairs")
        if self.mode == "reflect" and min(amounts, default=0) < 0:
            raise ArgumentValueError(f"padding of {name} is {padding}", "give integers of at least 0")
        self.padding = amounts

    def construct(self, x: Tensor) -> Tensor:
        """Return the padded tensor."""
        added = [max(amount, 0) for amount in self.padding]
        result = ops.pad(x, added, self.mode, self.value if self.mode == "constant" else None)
        pairs = zip(self.padding[::2], self.padding[1::2], strict=True)
        for place, (before, after) in enumerate(pairs, 1):
            if before < 0 or after < 0:
                axis = x.ndim - place
                start, end = max(-before, 0), result.shape[axis] - max(-after, 0)
                result = cut(result, [start], [end], [axis], [1])
        return result


class _ConstantPad(_Padding):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        if not isinstance(value, (int, float)):
            raise ArgumentTypeError(f"value of {type(self).__name__} is {value!r}", "give a number")
        self.value = value


_ABOVE_ZERO = allowed(lambda value: value > 0, "give a number above 0")


@cell(checks={"central_fraction": allowed(lambda share: 0 < share <= 1, "it is in (0, 1]")})
def CentralCrop(image: Tensor, *, central_fraction: float) -> Tensor:
    """The middle of images of shape (..., H, W): ``central_fraction`` of each extent."""
    of_rank(image, (3, 4), "CentralCrop")
    starts = [int((extent - extent * central_fraction) / 2) for extent in image.shape[-2:]]
    ends = [extent - start for extent, start in zip(image.shape[-2:], starts, strict=True)]
    return cut(image, starts, ends, (image.ndim - 2, image.ndim - 1), (1, 1))


def _along(images: Tensor, axis: int) -> Tensor:
    return ops.pad(ops.sub(*neighbours(images, axis)), (0, 0, 0, 1) if axis == 2 else (0, 1))


_of_plane = allowed(lambda given: len(given) == 4 and given[0] == given[3] == 1, "give [1, rows, columns, 1]")


@cell(
    checks={"ksizes": _of_plane, "strides": _of_plane, "rates": _of_plane,
            "padding": lambda padding, what: one_of(str(padding).lower(), ("valid", "same"), what)},
)  # fmt: skip
def Unfold(input_x: Tensor, *, ksizes: Any, strides: Any, rates: Any, padding: str = "valid") -> Tensor:
    """Patches of images: a tensor of shape (N, C, H, W) as (N, rows * columns * C, H', W').

    ``ksizes`` is ``[1, rows, columns, 1]`` of a patch, ``strides`` from patch to patch, ``rates`` from element to
    element of a patch; ``padding`` is ``valid`` or ``same``.
    """
    kernel, stride, rate = (tuple(each[1:3]) for each in (ksizes, strides, rates))
    top, left, bottom, right = pads_of(padding.lower(), 0, input_x.shape[2:], kernel, stride, rate, "Unfold")
    padded = ops.pad(input_x, (left, right, top, bottom))
    spans = [extent - (size - 1) * gap for extent, size, gap in zip(padded.shape[2:], kernel, rate, strict=True)]
    parts = []
    for row in range(kernel[0]):
        for column in range(kernel[1]):
            start = (row * rate[0], column * rate[1])
            ends = [place + span for place, span in zip(start, spans, strict=True)]
            parts.append(cut(padded, start, ends, (2, 3), stride))
    return ops.concat(parts, 1)


def _scaled(image: Tensor, max_val: float) -> Tensor:
    wide = cast(image, "float32")
    return ops.mul(wide, 1 / max_val) if max_val > 1 else wide


@cell(checks={"max_val": _ABOVE_ZERO})
def PSNR(img1: Tensor, img2: Tensor, *, max_val: float = 1.0) -> Tensor:
    """The peak signal-to-noise ratio of two batches of images of shape (N, C, H, W)."""
    first, second = (_scaled(image, float(max_val)) for image in (img1, img2))
    noise = ops.mean(ops.square(ops.sub(first, second)), (-3, -2, -1))
    return ops.mul(ops.log10(ops.div(min(float(max_val), 1.0) ** 2, noise)), 10.0)


@cell(checks={"max_val": _ABOVE_ZERO, "filter_size": positive, "filter_sigma": _ABOVE_ZERO})
def SSIM(img1: Tensor, img2: Tensor, *, max_val: float = 1.0, filter_size: int = 11, filter_sigma: float = 1.5,
         k1: float = 0.01, k2: float = 0.03) -> Tensor:  # fmt: skip
    """The structural similarity of two batches of images of shape (N, C, H, W).

    A pixel is ``max_val`` at most; ``filter_size`` and ``filter_sigma`` are the Gaussian window's extent and standard
    deviation; ``k1`` and ``k2`` are the constants of luminance and contrast.
    """
    first, second = (_scaled(image, float(max_val)) for image in (img1, img2))
    peak, window = min(float(max_val), 1.0), _window(filter_size, float(filter_sigma))
    c1, c2 = (k1 * peak) ** 2, (k2 * peak) ** 2
    mean1, mean2 = _blurred(first, window), _blurred(second, window)
    product = ops.mul(mean1, mean2)
    squares = ops.add(ops.square(mean1), ops.square(mean2))
    luminance = ops.div(ops.add(ops.mul(product, 2.0), c1), ops.add(squares, c1))
    covariance = ops.sub(_blurred(ops.mul(first, second), window), product)
    variances = ops.sub(_blurred(ops.add(ops.square(first), ops.square(second)), window), squares)
    contrast = ops.div(ops.add(ops.mul(covariance, 2.0), c2), ops.add(variances, c2))
    return ops.mean(ops.mean(ops.mul(luminance, contrast), (2, 3)), -1)


def _window(size: int, sigma: float) -> Array:
    offsets = np.arange(size, dtype=np.float32) - (size - 1) / 2
    exponents = -0.5 * np.square(offsets / sigma)
    weights = np.exp(exponents[:, None] + exponents)
    return np.asarray(weights / weights.sum(), np.float32)


def _blurred(images: Tensor, window: Array) -> Tensor:
    """Return each channel under the window."""
    channels = images.shape[1]
    return conv(images, Tensor.of(np.tile(window, (channels, 1, 1, 1))), groups=channels)


ConstantPad1d = derived(_ConstantPad, "A value around the last axis.", axes=1)
ConstantPad2d = derived(_ConstantPad, "A value around the last two axes.", axes=2)
ConstantPad3d = derived(_ConstantPad, "A value around the last three axes.", axes=3)
ZeroPad2d = derived(_Padding, "Zeros around the last two axes.", axes=2)
ReflectionPad1d = derived(_Padding, "The reflection at the edge around the last axis.", axes=1, mode="reflect")
ReflectionPad2d = derived(_Padding, "The reflection at the edge around the last two axes.", axes=2, mode="reflect")
ReflectionPad3d = derived(_Padding, "The reflection at the edge around the last three axes.", axes=3, mode="reflect")
ReplicationPad1d = derived(_Padding, "The edge around the last axis.", axes=1, mode="replicate")
ReplicationPad2d = derived(_Padding, "The edge around the last two axes.", axes=2, mode="replicate")
ReplicationPad3d = derived(_Padding, "The edge around the last three axes.", axes=3, mode="replicate")
Upsample = layer(ops.interpolate, "A tensor resized to ``size`` or by ``scale_factor``: ``ops.interpolate``.", "x",
    size=None, scale_factor=None, mode="nearest", align_corners=None, recompute_scale_factor=None)  # fmt: skip
PixelShuffle = layer(images.pixel_shuffle, "A tensor of shape (..., C * r**2, H, W) as (..., C, H * r, W * r).",
    checks={"upscale_factor": positive}, upscale_factor=...)  # fmt: skip
PixelUnshuffle = layer(images.pixel_unshuffle, "A tensor of shape (..., C, H * r, W * r) as (..., C * r**2, H, W).",
    checks={"downscale_factor": positive}, downscale_factor=...)  # fmt: skip
ChannelShuffle = layer(images.channel_shuffle, "Channels in the order of their places in ``groups``.",
    checks={"groups": positive}, groups=...)  # fmt: skip
Norm = layer(lambda x, *, axis=(), keep_dims=False: ops.sqrt(ops.sum(ops.square(x), axis, keep_dims)),
    "The Euclidean norm over ``axis``.")  # fmt: skip
OneHot = layer(lambda indices, *, axis=-1, depth=1, on_value=1.0, off_value=0.0, dtype=float32:
        cast(ops.one_hot(indices, depth, float(on_value), float(off_value), axis), to_type(dtype).name),
    "``off_value``, and ``on_value`` at each index.")  # fmt: skip
Roll = layer(lambda input_x, *, shift, axis: ops.roll(input_x, shift, axis),
    "Elements moved around by ``shift`` along ``axis``.")  # fmt: skip
Tril = layer(lambda x, k=0: ops.tril(x, k), "The matrix with 0 above a diagonal.")
Triu = layer(lambda x, k=0: ops.triu(x, k), "The matrix with 0 below a diagonal.")
ReduceLogSumExp = layer(lambda x, *, axis, keep_dims=False: ops.logsumexp(x, axis, keep_dims),
    "The logarithm of the sum of exponentials over ``axis``.")  # fmt: skip
L1Regularizer = layer(lambda weights, *, scale: ops.mul(ops.sum(emit("Abs", weights)), scale),
    "``scale`` times the sum of the absolute values.",
    checks={"scale": allowed(lambda scale: 0 < scale < math.inf, "give a number above 0")})  # fmt: skip
LBeta = layer(lambda x, y: ops.sub(ops.add(ops.lgamma(x), ops.lgamma(y)), ops.lgamma(ops.add(x, y))),
    "The logarithm of the beta function.")  # fmt: skip
LGamma = layer(ops.lgamma, "The logarithm of the absolute value of the gamma function.", "x")
DiGamma = layer(ops.digamma, "The derivative of the logarithm of the gamma function.", "x")
IGamma = layer(ops.igamma, "The lower regularized incomplete gamma function.", "a x")
MatrixDiag = layer(
    lambda input_x: ops.mul(
        reshaped(input_x, (*input_x.shape, 1)), Tensor.of(np.eye(input_x.shape[-1], dtype=input_x.type.dtype))),
    "Matrices with vectors on their diagonals.")  # fmt: skip
MatDet = layer(ops.det, "The determinant of symmetric, positive definite matrices.", "x")
MatInverse = layer(ops.inverse, "The inverse of symmetric, positive definite matrices.", "x")
ImageGradients = layer(lambda images: (_along(images, 2), _along(images, 3)),
    "Differences to the next row and to the next column; 0 in the last.")  # fmt: skip

names.export(vars())
