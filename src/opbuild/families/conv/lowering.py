"""Convolutions by the direct algorithm, in pairs of bfloat16 too, and phases of transposed ones."""

from __future__ import annotations

from functools import partial
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv import family as direct
from opbuild.graph.constants import numbers_of
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import HIGH_PRECISION, Dim, Operand
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.gates import PRODUCT
from opbuild.lowering.implementations import call_of, serves
from opbuild.lowering.operands import Gate, Plain
from opbuild.lowering.rules.conv import Convolution, emit_images, packed_weights
from opbuild.lowering.strided import broadcast, dense_as, viewed_as
from opbuild.operations.expression import canonical
from opbuild.platform.records import replace

if TYPE_CHECKING:
    from opbuild.lowering.rules.conv_plain import PlainConvolution
    from opbuild.lowering.rules.conv_transpose import Phase


def _is_dense(_lowering: Lowering, conv: Convolution) -> bool:
    return conv.groups == 1


@serves("lowering.Convolution", where=_is_dense)
def lower_direct(lowering: Lowering, conv: Convolution) -> None:
    """Emit a convolution of one group."""
    _emit(lowering, conv, None)


@serves("lowering.GatedConvolution")
def lower_gated(lowering: Lowering, conv: Convolution, gate: Gate) -> None:
    """Emit a convolution of 1 x 1 whose weights take the factors of input channels over."""
    _emit(lowering, conv, gate)


def _emit(lowering: Lowering, conv: Convolution, gate: Gate | None) -> None:
    window = conv.window
    taps = window.kernel[0] * window.kernel[1]
    variant = lowering.choose(direct.FAMILY, window.out, conv.inputs, conv.outputs, taps, False)
    desc = direct.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant)
    shape = (blocks(conv.outputs), blocks(conv.inputs), *window.kernel[::-1], BLOCK, BLOCK)
    weights = packed_weights(lowering, conv, "direct", packing.pack_direct, shape, run_time_weights.DIRECT)
    if gate is not None:
        weights = _multiplied(lowering, weights, gate)
    emit_images(lowering, conv, desc, weights, taps=True)


def _multiplied(lowering: Lowering, weights: Plain, gate: Gate) -> Plain:
    """Emit the product of weights of 1 x 1 and the factors of input channels, and return it."""
    target = lowering.temporary(TensorType("float32", weights.shape))
    shape = (*weights.shape[:2], BLOCK, BLOCK)
    make = partial(call_of("Expression"), expression=PRODUCT, dtypes=("float32",) * 3, choose=lowering.choose)
    operands = (dense_as(weights, shape), replace(gate, outputs=shape[0]), dense_as(target, shape))
    lowering.emit(make, operands, (gate.node,))
    return target


def _has_pairs(lowering: Lowering, conv: Convolution) -> bool:
    return _is_dense(lowering, conv) and direct.worth_pairs(conv.outputs, lowering.machine)


@serves("lowering.Convolution", cost=0.75, where=_has_pairs)
def lower_pairs(lowering: Lowering, conv: Convolution) -> bool:
    """Emit a convolution of bfloat16 by the instruction for pairs; return whether it is one.

    Weights that a pass made float32 are those of an operator whose input has bfloat16's numbers too.
    """
    window = conv.window
    if numbers_of(lowering.graph.constants, conv.weights) != "bfloat16":
        return False
    if lowering.impl_mode(conv.node) == HIGH_PRECISION:
        return False
    taps = window.kernel[0] * window.kernel[1]
    variant = lowering.choose(direct.FAMILY, window.out, conv.inputs, conv.outputs, taps, True)
    desc = direct.describe(window.kernel, window.stride, window.dilation, conv.epilogue, variant, pairs=True)
    shape = (blocks(conv.outputs), blocks(conv.inputs), *window.kernel[::-1], BLOCK // 2, 2 * BLOCK)

    def pack() -> Array:
        array = packing.four_dimensional(np.asarray(lowering.constant(conv.weights)))
        return packing.pack_pairs(array).reshape(shape)

    emit_images(lowering, conv, desc, lowering.packed((conv.weights,), "pairs", shape, "bfloat16", pack), taps=True)
    return True


@serves("lowering.PlainConvolution")
def lower_plain(lowering: Lowering, conv: PlainConvolution) -> None:
    """Emit a convolution of plain values, of any groups, for a device."""
    expression, order = canonical(conv.expression)
    own, window = conv.of, conv.of.window
    x, out, *operands = (_in_groups(each, own.groups) for each in (conv.x, conv.out, *conv.operands))
    rows = broadcast(x, (prod(out.shape[:3]), *x.shape))
    given = (rows, conv.weights, *(operands[index] for index in order))
    names = ("x", "w", *(f"e{number}" for number in range(len(order))), "out")
    *inputs, result = (
        Operand(name, each.storage.dtype, (Dim(),) * len(each.shape))
        for name, each in zip(names, (*given, out), strict=True)
    )
    attrs = {
        "kernel": window.kernel,
        "stride": window.stride,
        "dilation": window.dilation,
        "before": window.before,
        "is_padded": window.padded,
        "is_depthwise": own.is_depthwise,
    }
    desc = direct.describe_plain(attrs, inputs, result, expression, lowering.impl_mode(own.node, differs=False))
    lowering.emit(desc, (*given, out), own.node)


def _in_groups(value: Plain, groups: int) -> Plain:
    """Return an image as ``(N, H, W, groups, channels of one)``."""
    (n, c, h, w), (image, step, row, column) = value.shape, value.strides
    each = c // groups
    return viewed_as(value, (n, h, w, groups, each), (image, row, column, step * each, step if each > 1 else 0))


def _is_of_one_group(_lowering: Lowering, phase: Phase) -> bool:
    return phase.conv.groups == 1


@serves("lowering.ConvPhase", where=_is_of_one_group)
def lower_phase(lowering: Lowering, phase: Phase) -> None:
    """Emit a phase of a transposed convolution; one that no tap reaches is a convolution over no channels."""
    conv, x, y = phase.conv, phase.x, phase.y
    if not phase.is_reached:
        variant = lowering.choose(direct.FAMILY, (x.count, y.count), 0, conv.outputs, 1, False)
        desc = direct.describe((1, 1), (1, 1), (1, 1), conv.epilogue, variant, conv.stride[0])
        area = BLOCK * BLOCK
        shape, strides = (blocks(conv.outputs), 0, 1, 1, BLOCK, BLOCK), (0, area, area, area, BLOCK, 1)
        phase.emit(lowering, desc, viewed_as(phase.bias, shape, strides), taps=True)
        return
    kernel = phase.kernel
    taps = kernel[0] * kernel[1]
    variant = lowering.choose(direct.FAMILY, (x.count, y.count), conv.inputs, conv.outputs, taps, False)
    desc = direct.describe(kernel, (1, 1), phase.dilation, conv.epilogue, variant, conv.stride[0])
    shape = (blocks(conv.outputs), blocks(conv.inputs), kernel[1], kernel[0], BLOCK, BLOCK)
    phase.emit(lowering, desc, phase.weights(lowering, shape), taps=True)
