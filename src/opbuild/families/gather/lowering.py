"""Lowering of Gather, GatherElements and GatherND.

Indices may be negative. Kernels have no way to fail: an index that is out of range reads the nearest element of its
axis, so that nothing outside the tensor is ever read. Whether one is, is looked at before (``rules.movement``).
"""

from __future__ import annotations

from itertools import pairwise
from math import prod

from opbuild.dtypes import itemsize
from opbuild.families.gather import family as gathers
from opbuild.graph.extents import is_one, is_step
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import dense_as, narrowed, without
from opbuild.program import View


@serves("Gather")
def gather(lowering: Lowering, node: Node) -> None:
    """Lower Gather; a single known index is a view, and so is an even sequence of them."""
    source, indices, output = node.inputs[0], node.inputs[1], node.outputs[0]
    shape = lowering.type(source).shape
    axis = int(node.attrs.get("axis", 0)) % max(1, len(shape))
    if _view(lowering, source, indices, output, axis):
        return
    data, places = lowering.dense(source), lowering.dense(indices)
    x = dense_as(data, (prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :])))
    index = dense_as(places, (prod(places.shape),))
    out = lowering.new_plain(output)
    target = dense_as(out, (x.shape[0], index.shape[0], x.shape[2]))
    emit_gather(lowering, node, (x, index, target), {"kind": "rows"}, "Gather")


@serves("GatherElements")
def gather_elements(lowering: Lowering, node: Node) -> None:
    """Lower GatherElements."""
    x, index = lowering.plain(node.inputs[0]), lowering.plain(node.inputs[1])
    axis = int(node.attrs.get("axis", 0)) % max(1, len(x.shape))
    out = lowering.new_plain(node.outputs[0])
    emit_gather(
        lowering, node, (x, index, out), {"kind": "elements", "axis": len(x.shape) - 1 - axis}, "GatherElements"
    )


@serves("GatherND")
def gather_nd(lowering: Lowering, node: Node) -> None:
    """Lower GatherND with its batch dimensions as one."""
    batch = int(node.attrs.get("batch_dims", 0))
    data, places = lowering.dense(node.inputs[0]), lowering.dense(node.inputs[1])
    count = places.shape[-1]
    shape, outer = data.shape, prod(data.shape[:batch])
    x = dense_as(data, (outer, *shape[batch : batch + count], prod(shape[batch + count :])))
    index = dense_as(places, (outer, prod(places.shape[batch:-1]), count))
    out = lowering.new_plain(node.outputs[0])
    target = dense_as(out, (outer, index.shape[1], x.shape[-1]))
    emit_gather(lowering, node, (x, index, target), {"kind": "nd"}, "GatherND")


def _view(lowering: Lowering, source: str, indices: str, output: str, axis: int) -> bool:
    known = lowering.constant(indices)
    value = lowering.plain(source)
    if known is None or known.ndim > 1 or not known.size or not prod(value.shape):
        return False
    extent = value.shape[axis]
    places = [int(place) + (extent if place < 0 else 0) for place in known.reshape(-1)]
    step, *others = [later - place for place, later in pairwise(places)] or [1]
    if any(other != step for other in others) or not all(0 <= place < extent for place in places):
        return False
    part = narrowed(value, axis, places[0], len(places), step)
    lowering.bind(output, part if known.ndim else without(part, axis))
    return True


def _with_unit_stride(view: View) -> View:
    """Return a view of which a single element lies beside the next one: how far that is does not matter."""
    (extent, stride), *others = view.dims
    return view._replace(dims=((1, 1), *others)) if is_one(extent) and not is_step(stride) else view


@serves("lowering.Gather")
def emit_gather(
    lowering: Lowering, node: Node, operands: tuple[Plain, Plain, Plain], attrs: dict[str, object], op_type: str
) -> None:
    """Emit a gather; operands are the data, the indices and the output, with the dimensions that the kernel has."""
    x, index, out = operands
    if not prod(out.shape):
        return
    if not prod(x.shape):
        raise NotServedError(f"{node.op_type} of an empty tensor")
    types = (x.storage.dtype, index.storage.dtype)
    variant = lowering.choose(gathers.FAMILY, out.shape[-1], itemsize(types[0]), str(attrs["kind"]))

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        views = tuple(map(_with_unit_stride, views))
        data, places, result = (view.dims for view in views)
        return gathers.describe(op_type, attrs, types, (data, places, result), variant), views

    lowering.emit(make, operands, node)
