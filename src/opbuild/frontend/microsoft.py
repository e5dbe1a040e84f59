"""Products, convolutions and activations of ``com.microsoft`` that ONNX Runtime fuses, as ONNX's own operators.

What they compute is what ONNX Runtime's schemas say (``onnxruntime/core/graph/contrib_ops``); passes fuse it again.
Operators of that domain that have kernels of their own have shape rules instead.

In domain ``com.microsoft.nchwc``, into which ONNX Runtime's optimizer turns networks of convolutions, values lie in
blocks of channels, and so do the weights that are in the model. Here values are as they would be without blocks, with
the channels that fill the last one, and weights are put back; what lowering makes of them is its own. How many channels
a block has the model does not say: it is what ONNX Runtime takes on the machine that wrote it, which is to be of the
kind of the one that runs it.
"""

from __future__ import annotations

import platform
from collections.abc import Sequence
from functools import cache
from typing import Any

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.frontend.rewritten import MICROSOFT, NCHWC, REWRITES
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Node
from opbuild.target.host import host_flags
from opbuild.text.plural import counted

CONV = ("auto_pad", "dilations", "group", "kernel_shape", "pads", "strides")


_PARAMETERS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("Gelu", "HardSwish", "Relu", "Sigmoid", "Softplus", "Softsign", "Tanh"), ()),
    **dict.fromkeys(("Celu", "Elu", "LeakyRelu", "ThresholdedRelu"), ("alpha",)),
    "HardSigmoid": ("alpha", "beta"),
    "Selu": ("alpha", "gamma"),
}
"""Activations that ONNX has too, and the names of their parameters."""


def activated(of: Rewriting, value: str, names: tuple[str, str, str]) -> str:
    """Apply the activation that a fused operator names.

    Args:
        of: Where it is written.
        value: What it is applied to.
        names: The attributes that hold alpha, beta and gamma; an operator may have ``activation_params`` instead.
    """
    kind = of.node.text("activation", "")
    listed = tuple(map(float, of.attr("activation_params", ())))
    named = {name.rpartition("_")[2]: float(of.attr(name, 0.0)) for name in names if name in of.node.attrs}
    if not kind:
        return value
    if kind in _PARAMETERS:
        attrs: dict[str, Any] = dict(zip(_PARAMETERS[kind], listed, strict=False)) if listed else named
        attrs = {name: attrs[name] for name in _PARAMETERS[kind] if name in attrs}
        return of(kind, value, **attrs)
    if kind == "Clip":
        return of("Clip", value, *map(of.floats, listed))
    if kind == "QuickGelu":
        return _gated(of, value, (*listed, 1.702)[0])
    alpha, beta = (of.floats(named.get(name, 1.0)) for name in ("alpha", "beta"))
    inner = {"ScaledTanh": "Tanh", "ParametricSoftplus": "Softplus"}.get(kind)
    if inner is None:
        of.refuse(f"its activation {kind!r} is not known")
    return of("Mul", alpha, of(inner, of("Mul", beta, value)))


@writes("FusedConv")
@writes("Conv", domain=NCHWC)
def _fused_conv(of: Rewriting) -> Sequence[Node]:
    """A convolution, a sum, and an activation; those of domain ``com.microsoft.nchwc`` have weights in blocks."""
    weights = _weights(of) if of.node.domain == NCHWC else of.input(1)
    value = of("Conv", of.input(0), weights, *of.optional(2), **of.attributes(CONV))
    return of.finish(activated(of, of.plus(value, 3), ("", "", "")))


@writes("NhwcConv", "NhwcFusedConv")
def _nhwc_conv(of: Rewriting) -> Sequence[Node]:
    rank = len(of.shape(0))
    value = of("Conv", to_front(of, of.input(0), rank), *of.node.inputs[1:3], **of.attributes(CONV))
    return of.finish(activated(of, of.plus(to_end(of, value, rank), 3), ("", "", "")))


@writes("FusedGemm")
def _fused_gemm(of: Rewriting) -> Sequence[Node]:
    value = of("Gemm", *of.node.inputs, **of.attributes(("alpha", "beta", "transA", "transB")))
    return of.finish(activated(of, value, ("activation_alpha", "activation_beta", "activation_gamma")))


def _biased(of: Rewriting) -> Value:
    return of.plus(of.input(0), 1)


@writes("FusedMatMul", "TransposeMatMul")
def _fused_matmul(of: Rewriting) -> Sequence[Node]:
    sides = []
    for index, side in enumerate("AB"):
        rank = len(of.shape(index))
        order = list(range(rank))
        if of.attr(f"transBatch{side}", 0) and rank > 2:
            order = [*order[1:-1], 0, order[-1]]
        if of.attr(f"trans{side}", 0) and rank > 1:
            order[-2:] = order[:-3:-1]
        value = of.input(index)
        sides.append(value if order == sorted(order) else of("Transpose", value, perm=tuple(order)))
    value, alpha = of("MatMul", *sides), float(of.attr("alpha", 1.0))
    return of.finish(value if alpha == 1.0 else of("Mul", value, of.floats(alpha)))


@writes("BiasSplitGelu")
def _split_gelu(of: Rewriting) -> Sequence[Node]:
    """The first half of the last axis times the GELU of the second, after a bias."""
    left, right = of.several("Split", 2, of("Add", of.input(0), of.input(1)), axis=-1, num_outputs=2)
    return of.finish(of("Mul", left, of("Gelu", right)))


def _gated(of: Rewriting, value: str, alpha: float) -> Value:
    scaled = value if alpha == 1 else of("Mul", value, of.floats(alpha))
    return of("Mul", value, of("Sigmoid", scaled))


@writes("BiasSoftmax")
def _bias_softmax(of: Rewriting) -> Sequence[Node]:
    """Softmax of all axes from one on; the bias lacks axes before it, or in front of its own."""
    shape, bias, axis = of.shape(0), of.shape(1), int(of.attr("axis", 1)) % len(of.shape(0))
    added = of.input(1)
    if of.attr("is_inner_broadcast", 1) and len(bias) < len(shape):
        missing = len(shape) - len(bias)
        kept = len(bias) - (len(shape) - axis)
        added = of.reshape(added, (*bias[:kept], *(1,) * missing, *bias[kept:]))
    total = of("Add", of.input(0), added)
    if axis == len(shape) - 1:
        return of.finish(of("Softmax", total, axis=-1))
    rows = of("Softmax", of("Flatten", total, axis=axis), axis=-1)
    return of.finish(of.reshape(rows, shape))


POOL = ("auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides")


@cache
def channels_of_block() -> int:
    """Return the number of channels of a block in ONNX Runtime on this machine."""
    return 16 if "avx512f" in host_flags() or platform.machine() == "aarch64" else 8


def to_front(of: Rewriting, value: str, rank: int) -> Value:
    """Write that channels, which are last, come second."""
    return of("Transpose", value, perm=(0, rank - 1, *range(1, rank - 1)))


def to_end(of: Rewriting, value: str, rank: int) -> Value:
    """Write that channels, which are second, come last."""
    return of("Transpose", value, perm=(0, *range(2, rank), 1))


@writes("ReorderInput", domain=NCHWC)
def _reorder_input(of: Rewriting) -> Sequence[Node]:
    shape, last = of.shape(0), bool(of.attr("channels_last", 0))
    value = to_front(of, of.input(0), len(shape)) if last else of.input(0)
    missing = -shape[-1 if last else 1] % channels_of_block()
    if missing:
        value = of("Pad", value, of.ints(*(0,) * (len(shape) + 1), missing, *(0,) * (len(shape) - 2)))
    return of.finish(value)


@writes("ReorderOutput", domain=NCHWC)
def _reorder_output(of: Rewriting) -> Sequence[Node]:
    value, rank, channels = of.input(0), len(of.shape(0)), int(of.attr("channels", 0))
    if channels != of.shape(0)[1]:
        value = of.slice(value, 1, 0, channels)
    return of.finish(to_end(of, value, rank) if of.attr("channels_last", 0) else value)


def _weights(of: Rewriting) -> Value:
    """Return the weights of a convolution without blocks.

    They lie in blocks of outputs, and within these of inputs, unless a convolution reads what has no blocks, or each of
    its channels alone.
    """
    outputs, inputs, *window = of.shape(1)
    block = channels_of_block()
    if outputs % block:
        of.refuse(
            f"its weights have {counted(outputs, 'output')}: the model was optimised for a machine "
            f"where blocks have not {block} "
            "channels, as they have here"
        )
    size = tuple(window)
    if inputs < block:
        blocked = of.reshape(of.input(1), (outputs // block, inputs, *size, block))
        order: tuple[int, ...] = (0, len(size) + 2, *range(1, len(size) + 2))
    else:
        blocked = of.reshape(of.input(1), (outputs // block, inputs // block, *size, block, block))
        order = (0, len(size) + 3, 1, len(size) + 2, *range(2, len(size) + 2))
    return of.reshape(of("Transpose", blocked, perm=order), (outputs, inputs, *size))


@writes("Upsample", domain=NCHWC)
def _upsample(of: Rewriting) -> Sequence[Node]:
    attrs: dict[str, Any] = {
        "mode": of.node.text("mode", "nearest"),
        "coordinate_transformation_mode": of.node.text("coordinate_transformation_mode", "asymmetric"),
        "nearest_mode": "floor",
    }
    scales = of.floats(tuple(map(float, of.attr("scales", ()))))
    return of.finish(of("Resize", of.input(0), "", scales, **attrs))


REWRITES.register_all(
    {
        "BiasGelu Gelu": lambda of: of.finish(of("Gelu", _biased(of), approximate="none")),
        "FastGelu": lambda of: of.finish(of("Gelu", _biased(of), approximate="tanh")),
        "GemmFastGelu": lambda of: of.finish(
            of("Gelu", of.plus(of("MatMul", of.input(0), of.input(1)), 2), approximate="tanh")
        ),
        "BiasAdd": lambda of: of.finish(of("Add", of("Add", of.input(0), of.input(1)), of.input(2))),
        "QuickGelu": lambda of: of.finish(_gated(of, of.input(0), float(of.attr("alpha", 1.702)))),
        "Tokenizer": lambda of: of.same("opbuild"),
    },
    MICROSOFT,
)
REWRITES.register_all(
    {
        "MaxPool AveragePool GlobalAveragePool GlobalMaxPool": lambda of: of.finish(
            of(of.node.op_type, of.input(0), **of.attributes(POOL))
        )
    },
    NCHWC,
)
