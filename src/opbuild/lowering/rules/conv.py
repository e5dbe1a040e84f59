"""Conv: a convolution as the families that compute it are asked, and their shared parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from opbuild.families.blocked import BLOCKED
from opbuild.families.epilogue import Epilogue
from opbuild.graph.constants import factors_of
from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering import conv_weights as packing
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.epilogue import epilogue_of, pack_channels, padding, references
from opbuild.lowering.implementations import ASKED, NotServedError, ask, implementations, serves
from opbuild.lowering.operands import Blocked, OperandRef, Plain
from opbuild.lowering.windows import ConvolvedWindows, image_shape, window_of, with_height
from opbuild.platform.records import dataclass, replace
from opbuild.target.devices import PACKED
from opbuild.target.level import CPU


@dataclass(frozen=True)
class Convolution(ConvolvedWindows):
    """A convolution, ready to be given to a family.

    Attributes:
        weights: Name of the weights.
        bias: Name of the bias, or empty.
        epilogue: What is applied to the result.
    """

    weights: str
    bias: str
    epilogue: Epilogue


@serves("Conv")
def lower_conv(lowering: Lowering, node: Node) -> None:
    """Lower a Conv of one or two spatial dimensions to the fastest family that serves it."""
    if not lowering.takes("conv", BLOCKED) and lowering.is_for_device("conv"):
        from opbuild.lowering.rules.conv_plain import conv_of_plain

        if conv_of_plain(lowering, node):
            return
    if lowering.type(node.inputs[0]).dtype == "float64" or _is_multiplied(lowering):
        from opbuild.lowering.rules.conv_product import conv_by_product

        conv_by_product(lowering, node)
        return
    gate = lowering.gates.get(node.inputs[0])
    if gate is None:
        ask(lowering, (ASKED, "Convolution"), _conv(lowering, node))
    else:
        conv = _conv(lowering, replace(node, inputs=(gate.data, *node.inputs[1:])))
        ask(lowering, (ASKED, "GatedConvolution"), conv, gate)


def _is_multiplied(lowering: Lowering) -> bool:
    """Return whether convolutions are for a device that has kernels of products, and none of convolutions in blocks."""
    own = implementations((ASKED, "Convolution"), lowering.target)
    is_own = (lowering.has_device_kernels("conv") and lowering.takes("conv", BLOCKED)) or any(
        each.target != CPU for each in own
    )
    return not is_own and lowering.is_for_device("matmul")


def operands_of(lowering: Lowering, node: Node) -> tuple[str, str, str]:
    """Return the names of a convolution's data, weights and bias, which is empty if there is none.

    Raises:
        NotServedError: If the data are not float32.
    """
    data, weights, bias = (*node.inputs[:3], "")[:3]
    if lowering.type(data).dtype != "float32":
        raise NotServedError(f"{node.op_type} of {lowering.type(data).dtype}")
    return data, weights, bias


def _conv(lowering: Lowering, node: Node) -> Convolution:
    data, weights, bias = operands_of(lowering, node)
    shape = lowering.type(weights).shape
    window = window_of(lowering, node, shape[2:])
    images, inputs, _, _ = image_shape(lowering.type(data).shape)
    epilogue = epilogue_of(lowering, node)
    return Convolution(node, images, inputs, shape[0], int(node.attrs.get("group", 1)), window, weights, bias, epilogue)


def emit_images(
    lowering: Lowering,
    conv: Convolution,
    desc: OpDesc,
    weights: Plain,
    *more: OperandRef,
    source: Blocked | None = None,
    order: Array | None = None,
    taps: bool = False,
) -> None:
    """Emit a family that reads a blocked window, or its taps, and writes a blocked value, its channels in ``order``."""
    window = conv.window
    if order is None:
        keep_unpacked(lowering, conv, desc.family, weights)
    source = source or lowering.blocked(conv.node.inputs[0])
    source.storage.grow_halo(*window.halo)
    extra = [references(conv.epilogue, lowering, conv.outputs, image) for image in lowering.images(conv.images)]
    bias, result = result_of(lowering, conv, order)
    for image, other in zip(lowering.images(conv.images), extra, strict=True):
        data = window.taps(source, image) if taps else window.read(source, image)
        lowering.emit(desc, [data, weights, bias, *more, *other, result.window(image)], conv.node)


def result_of(lowering: Lowering, conv: Convolution, order: Array | None = None) -> tuple[Plain, Blocked]:
    """Return the packed bias and the place of the result."""
    fill, beyond = padding(conv.epilogue, lowering, conv.outputs)
    bias = pack_channels(lowering, conv.bias, conv.outputs, fill, order)
    return bias, lowering.new_blocked(conv.node.outputs[0], beyond, order)


def packed_weights(
    lowering: Lowering,
    conv: Convolution,
    recipe: str,
    pack: Callable[[Array, Array | None], Array],
    shape: tuple[int, ...],
    layout: Sequence[run_time_weights.Place],
) -> Plain:
    """Return the weights as a family reads them, packed now or, if they are not known, by copies at each call."""
    if not lowering.is_constant(conv.weights):
        by_kernel = layout is run_time_weights.DIRECT
        found = run_time_weights.in_blocks(lowering, conv.weights, conv.node.name) if by_kernel else None
        if found is not None:
            return found
        return run_time_weights.packed(lowering, _plain_weights(lowering, conv), layout, conv.node.name)

    def late() -> Array:
        array, factors = factors_of(lowering.graph.constants, conv.weights)
        four = packing.four_dimensional
        return pack(four(np.asarray(array)), None if factors is None else four(factors))

    return lowering.packed((conv.weights,), recipe, shape, "float32", late)


def keep_unpacked(lowering: Lowering, conv: Convolution, family: str, weights: Plain) -> None:
    """Keep constant weights as the model has them, too, where the device's kernels of a family take them so."""
    if not lowering.takes(family, PACKED) and weights.storage.kind == "constant":
        weights.storage.unpacked = _plain_weights(lowering, conv), {}


def _plain_weights(lowering: Lowering, conv: Convolution) -> Plain:
    """Return weights as the model has them, with a height of 1 if they have one spatial dimension."""
    return with_height(lowering.plain(conv.weights))
