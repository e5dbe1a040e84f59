"""Lowering of Resize and Upsample: one axis after the other, by tables made when the network is built.

A table says for each position of the output which neighbours of the input count, and how much. So every way to map
coordinates, and nearest, linear and cubic alike, are the same kernel with other constants; nearest is a gather.
"""

from __future__ import annotations

from math import prod

from opbuild.families.resize import family as resizes
from opbuild.graph.extents import example_value, is_one, is_open
from opbuild.graph.tables import TAPS, ResampledAxis, axes_of, coordinates, is_plain, mode_of, way_of
from opbuild.graph.types import Node, TensorType
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.rules.movement import integers, known
from opbuild.lowering.strided import dense_as, viewed_as


@serves("Resize", "Upsample")
def resize(lowering: Lowering, node: Node) -> None:
    """Lower Resize with scales or sizes known when the network is built."""
    source, output = node.inputs[0], node.outputs[0]
    mode = mode_of(node)
    if not is_plain(node) or node.attrs.get("antialias", 0):
        raise NotServedError(
            f"Resize in mode {mode}, coordinates {coordinates(node)}, or with antialiasing has no kernel"
        )
    if mode != "nearest" and lowering.type(source).dtype not in resizes.FAMILY.types:
        raise NotServedError(f"Resize of {lowering.type(source).dtype} has no kernel")
    axes = _axes(lowering, node)
    if not lowering.type(output).size:
        lowering.new_plain(output)
        return
    if not axes:
        lowering.bind(output, lowering.plain(source))
        return
    # Shrinking comes first, so that the other axes have less to do; then the innermost, whose neighbours are gathered.
    value = lowering.dense(source)
    for number, axis in enumerate(sorted(axes, key=lambda a: (_grows(a), -a.index))):
        value = _resample(lowering, node, value, axis, last=number == len(axes) - 1)


def _resample(lowering: Lowering, node: Node, value: Plain, axis: ResampledAxis, last: bool) -> Plain:
    shape = (*value.shape[: axis.index], axis.wanted, *value.shape[axis.index + 1 :])
    name, way = node.outputs[0], way_of(node)
    target = lowering.new_plain(name) if last else lowering.temporary(TensorType(value.storage.dtype, shape))
    outer, inner = prod(shape[: axis.index]), prod(shape[axis.index + 1 :])
    x, out = dense_as(value, (outer, axis.extent, inner)), dense_as(target, (outer, axis.wanted, inner))
    arguments, taps = (tuple(way), axis.extent, axis.wanted, *axis.scale), TAPS[way.mode]
    index = lowering.table("resize places", arguments, (axis.wanted, taps), "int32")
    if taps == 1:
        rows = viewed_as(index, (axis.wanted,), (1,))
        ask(lowering, (ASKED, "Gather"), node, (x, rows, out), {"kind": "rows"}, "Resize")
        return target
    factors = lowering.table("resize weights", arguments, (axis.wanted, taps), "float32")
    if is_one(inner):
        x, out = dense_as(value, (outer, axis.extent)), dense_as(target, (outer, axis.wanted))
    variant = lowering.choose(resizes.FAMILY, out.shape[-1])
    desc = resizes.describe(taps, len(out.shape), variant)
    lowering.emit(desc, (x, index, factors, out), node)
    return target


def _grows(axis: ResampledAxis) -> bool:
    """Return whether an axis becomes longer; where that is open, whether it does in the size at hand."""
    return (
        example_value(axis.wanted) >= example_value(axis.extent)
        if is_open(axis.scale)
        else axis.scale[0] >= axis.scale[1]
    )


def _axes(lowering: Lowering, node: Node) -> list[ResampledAxis]:
    shape, wanted = lowering.type(node.inputs[0]).shape, lowering.type(node.outputs[0]).shape
    scales = known(lowering, node, 1 if node.op_type == "Upsample" else 2)
    factors = None if scales is None or not scales.size else scales.reshape(-1).tolist()
    sizes = None if node.op_type == "Upsample" else integers(lowering, node, 3)
    if factors is None and not sizes:
        raise NotServedError("Resize without scales and sizes")
    return axes_of(node, shape, wanted, factors, sizes)
