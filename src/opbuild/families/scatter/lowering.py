"""Lowering of ScatterElements and ScatterND.

The data is copied, and the updates are written into the copy. Indices may be negative. Kernels have no way to fail: an
update whose index is out of range changes nothing. Whether one is, is looked at before (``rules.movement``).
"""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.scatter import family as scatters
from opbuild.graph.extents import always_equal, is_one, same_shape
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import broadcast, dense_as, viewed_as
from opbuild.program import View


@serves("ScatterElements")
def scatter_elements(lowering: Lowering, node: Node) -> None:
    """Lower ScatterElements: rows if one index counts for a whole row, else single elements."""
    reduction = _reduction(lowering, node)
    data, index, updates = (lowering.type(name).shape for name in node.inputs[:3])
    axis = int(node.attrs.get("axis", 0)) % max(1, len(data))
    if not data:
        raise NotServedError("ScatterElements of a scalar")
    out = _copied_data(lowering, node)
    if not prod(updates):
        return
    places = lowering.plain(node.inputs[1])
    covers = same_shape(index[:axis] + index[axis + 1 :], data[:axis] + data[axis + 1 :])
    others = [number for number in range(len(data)) if number != axis]
    is_row = all(always_equal(places.strides[i], 0) or is_one(places.shape[i]) for i in others)
    if covers and is_one(prod(data[:axis])) and is_row:
        inner = prod(data[axis + 1 :])
        rows = viewed_as(places, (index[axis], 1), (places.strides[axis], 1))
        operands = (
            rows,
            dense_as(lowering.dense(node.inputs[2]), (index[axis], inner)),
            dense_as(out, (data[axis], inner)),
        )
        _emit(lowering, node, operands, {"kind": "rows", "reduction": reduction})
        return
    whole, part, place = _merged(data, index, axis)
    operands = (
        dense_as(lowering.dense(node.inputs[1]), part),
        dense_as(lowering.dense(node.inputs[2]), part),
        dense_as(out, whole),
    )
    attrs = {"kind": "elements", "axis": len(whole) - 1 - place, "covers": covers, "reduction": reduction}
    _emit(lowering, node, operands, attrs)


@serves("ScatterND")
def scatter_nd(lowering: Lowering, node: Node) -> None:
    """Lower ScatterND, which writes rows of the dimensions that its indices leave."""
    reduction = _reduction(lowering, node)
    data, index = (lowering.type(name).shape for name in node.inputs[:2])
    count, rows = index[-1], prod(index[:-1])
    if not count:
        raise NotServedError("ScatterND by indices of no axes")
    out, inner = _copied_data(lowering, node), prod(data[count:])
    if not rows * inner:
        return
    shape = (*data[:count], inner)
    operands = (
        dense_as(lowering.dense(node.inputs[1]), (rows, count)),
        dense_as(lowering.dense(node.inputs[2]), (rows, inner)),
        dense_as(out, shape),
    )
    _emit(lowering, node, operands, {"kind": "rows", "reduction": reduction})


def _copied_data(lowering: Lowering, node: Node) -> Plain:
    """Emit the copy of the data to the output, and return the output.

    Of a constant of one number, as the zeros into which the edges of a graph are summed, one element is stored.
    """
    out, name = lowering.new_plain(node.outputs[0]), node.inputs[0]
    value = lowering.constant(name)
    if value is not None and value.dtype != object and value.size and not any(value.strides):
        one = lowering.packed((name,), "one of all", (), lowering.type(name).dtype, lambda: value.reshape(-1)[0])
        data = broadcast(one, out.shape)
    else:
        data = lowering.plain(name)
    lowering.copy(data, out, node.name)
    return out


def _reduction(lowering: Lowering, node: Node) -> str:
    """Return the reduction by which updates are combined with the elements that are there.

    Raises:
        NotServedError: If no kernel does.
    """
    reduction, dtype = node.text("reduction", "none"), lowering.type(node.inputs[0]).dtype
    if reduction not in ("none", "add", "mul", "max", "min"):
        raise NotServedError(f"{node.op_type} with the reduction {reduction}")
    if reduction != "none" and dtype not in scatters.TYPES:
        raise NotServedError(f"{node.op_type} with the reduction {reduction} of {dtype}")
    if 0 in lowering.type(node.inputs[0]).shape:
        raise NotServedError(f"{node.op_type} of an empty tensor")
    return reduction


def _merged(data: tuple[int, ...], index: tuple[int, ...], axis: int) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the shapes of the data and of the indices, and the axis, with neighbouring dimensions merged.

    A dimension can become part of the one before it if the indices have all of it.
    """
    whole, part, place = [data[0]], [index[0]], 0
    for number in range(1, len(data)):
        if axis not in (number, number - 1) and always_equal(data[number], index[number]):
            whole[-1] *= data[number]
            part[-1] *= index[number]
        else:
            whole.append(data[number])
            part.append(index[number])
        place = len(whole) - 1 if number == axis else place
    return tuple(whole), tuple(part), place


def _emit(lowering: Lowering, node: Node, operands: tuple[Plain, ...], attrs: dict[str, object]) -> None:
    dtype, kind = (lowering.type(name).dtype for name in node.inputs[:2])
    row = operands[-1].shape[-1]
    variant = lowering.choose(scatters.FAMILY, row, np.dtype(dtype).itemsize)

    def make(views: tuple[View, ...]) -> tuple[OpDesc, tuple[View, ...]]:
        dims = [view.dims for view in views]
        return scatters.describe(node.op_type, attrs, (dtype, kind), dims, variant), views

    lowering.emit(make, operands, node)
