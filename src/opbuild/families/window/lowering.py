"""Pools of plain values: any number of spatial dimensions up to three, any dilation, with places, by any norm."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.window import family as windows
from opbuild.graph.tables import SPATIAL, PooledAxis
from opbuild.graph.types import Node, TensorType
from opbuild.kernel.opdesc import Dim
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.lowering.strided import dense_as, transposed, viewed_as, without
from opbuild.lowering.windows import axes_of, slid, slid_over, what_is_read, with_height
from opbuild.platform.records import replace


@serves("LpPool")
def lp_pool(lowering: Lowering, node: Node) -> None:
    """Lower a pool by the norm of order 1 or 2."""
    order = int(node.attrs.get("p", 2))
    if order not in (1, 2):
        raise NotServedError(f"LpPool of order {order}")
    _pool(lowering, node, f"l{order}")


@serves("MaxPool", "AveragePool", cost=2.0)
def plain_pool(lowering: Lowering, node: Node) -> None:
    """Lower a pool of a value that lies plain, in plain layout."""
    _pool(lowering, node, "max" if node.op_type == "MaxPool" else "average")


def _pool(lowering: Lowering, node: Node, kind: str) -> None:
    type_ = lowering.type(node.inputs[0])
    places = node.outputs[1] if len(node.outputs) > 1 else ""
    axes = axes_of(lowering, node, [int(taps) for taps in node.attrs["kernel_shape"]])
    if type_.dtype not in windows.TYPES[kind]:
        raise NotServedError(f"{node.op_type} of {type_.dtype}")
    if not type_.size or any(axis.out < 1 for axis in axes):
        raise NotServedError("an operand is empty")
    if not places and lowering.plain(node.inputs[0]).has_channels_last and lowering.is_for_device(windows.FAMILY.name):
        _pool_channels(lowering, node, kind, axes)
        return
    source = what_is_read(lowering, node, axes, kind)
    if node.outputs[0]:
        counted = bool(node.attrs.get("count_include_pad", 0))
        extra = [_counts(lowering, axes, counted, type_.dtype)] if kind == "average" else []
        _emit(lowering, node, node.outputs[0], kind, source, extra)
    if places:
        extra = [_places(lowering, axes, bool(node.attrs.get("storage_order", 0))), _starts(lowering, axes, type_)]
        _emit(lowering, node, places, "place", source, extra)


def _pool_channels(lowering: Lowering, node: Node, kind: str, axes: Sequence[PooledAxis]) -> None:
    """Emit a pool of images whose channels lie innermost: these are what kernels take for the columns of outputs."""
    x = transposed(with_height(lowering.plain(node.inputs[0])), (0, 2, 3, 1))
    source = viewed_as(x, (x.shape[0], 1, *x.shape[1:]), (x.strides[0], 0, *x.strides[1:]))
    read = without(slid_over(lowering, node, source, axes, kind), 1 + SPATIAL)
    out = transposed(with_height(lowering.new_channels_last(node.outputs[0])), (0, 2, 3, 1))
    dtype = x.storage.dtype
    mode = lowering.impl_mode(node, differs=dtype == "float32" and kind != "max")
    desc = windows.describe(node.op_type, kind, dtype, 1, {"lanes": 1}, mode)
    extra = []
    if kind == "average":
        counts = _counts(lowering, axes, bool(node.attrs.get("count_include_pad", 0)), dtype)
        extra.append(viewed_as(counts, out.shape[1:], (*counts.strides[1:], 0)))
    operands = (replace(each, dims=(Dim(),) * len(each.dims)) for each in desc.operands)
    *inputs, result = operands
    lowering.emit(replace(desc, inputs=tuple(inputs), outputs=(result,)), (read, *extra, out), node)


def _counts(lowering: Lowering, axes: Sequence[PooledAxis], padded: bool, dtype: str) -> Plain:
    """Return the number of elements that each output is the average of, 1 where there are none."""
    shape = tuple(axis.out for axis in axes)
    return lowering.table("window counts", (tuple(map(tuple, axes)), padded, dtype), shape, dtype)


def _places(lowering: Lowering, axes: Sequence[PooledAxis], columns_first: bool) -> Plain:
    """Return the place in its plane of the element that each output reads at each tap, -1 in the padding."""
    extents = tuple(axis.reach for axis in axes)
    own = lowering.table("window places", (tuple(map(tuple, axes)), columns_first), extents, "int64")
    seen = slid(viewed_as(own, (1, *extents), (0, *dense_strides(extents))), axes)
    return viewed_as(seen, seen.shape[1:], seen.strides[1:])


def _starts(lowering: Lowering, axes: Sequence[PooledAxis], type_: TensorType) -> Plain:
    """Return the place of each plane's first element."""
    planes, plane = type_.shape[0] * type_.shape[1], prod(axis.size for axis in axes)
    return lowering.table("window starts", (planes, plane), (planes,), "int64")


def _emit(lowering: Lowering, node: Node, output: str, kind: str, source: Plain, extra: Sequence[Plain]) -> None:
    dtype, out = source.storage.dtype, lowering.new_plain(output)
    target = dense_as(out, (source.shape[0], *source.shape[1 + SPATIAL :]))
    variant = lowering.choose(windows.FAMILY, target.shape[-1])
    mode = lowering.impl_mode(node, differs=dtype == "float32" and kind not in ("max", "place"))
    desc = windows.describe(node.op_type, kind, dtype, source.strides[-1], variant, mode)
    lowering.emit(desc, (source, *extra, target), node)
