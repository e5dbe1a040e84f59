"""Conv as a product of the weights and of a copy of the elements that each output reads: of float64, or on a device."""

from __future__ import annotations

from math import prod

from opbuild.graph.extents import always_equal, same_shape
from opbuild.graph.tables import PooledAxis
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.matrix import Product, emit_product
from opbuild.lowering.operands import Plain, dense_strides
from opbuild.lowering.rows import fused_with
from opbuild.lowering.strided import broadcast, dense_as, viewed_as
from opbuild.lowering.windows import axes_of, what_is_read
from opbuild.operations.expression import ACC, arg, substitute


def conv_by_product(lowering: Lowering, node: Node) -> None:
    """Lower a Conv of up to three spatial dimensions and any groups: one product for each group of each image.

    Raises:
        NotServedError: If the operands are not of one type or empty, or dimensions or padding are not served.
    """
    data, weights, bias = (*node.inputs[: node.attrs.get("own_inputs", 3)], "")[:3]
    if len({lowering.type(name).dtype for name in (data, weights, bias) if name}) > 1:
        raise NotServedError("Conv of several types")
    (images, inputs, *_), (outputs, _, *kernel) = lowering.type(data).shape, lowering.type(weights).shape
    axes, groups = axes_of(lowering, node, kernel), int(node.attrs.get("group", 1))
    if not lowering.type(data).size or not lowering.type(weights).size or any(axis.out < 1 for axis in axes):
        raise NotServedError("an operand is empty")
    positions, sums = prod(axis.out for axis in axes), inputs // groups * prod(kernel)
    shape = (images, groups, outputs // groups, positions)
    columns = dense_as(_columns(lowering, node, axes), (images, groups, sums, positions))
    rows = viewed_as(lowering.dense(weights), (*shape[:3], sums), (0, shape[2] * sums, sums, 1))
    expression, names = fused_with(node)
    operands = [_operand(lowering, lowering.plain(name), node, shape) for name in names]
    if bias:
        index = len(operands)
        expression = substitute(expression, lambda e: ("add", ACC, arg(index)) if e == ACC else None)
        operands.append(viewed_as(lowering.dense(bias), shape, (0, shape[2], 1, 0)))
    out = dense_as(lowering.new_plain(node.outputs[0]), shape)
    mode = lowering.impl_mode(node, differs=False)
    emit_product(lowering, Product(rows, columns, out, expression, tuple(operands), node.name, None, mode))


def _columns(lowering: Lowering, node: Node, axes: list[PooledAxis]) -> Plain:
    """Return the operand of the product, dense: the input itself if that is one element of each channel."""
    if all(axis.taps == axis.stride == 1 and axis.before == 0 and always_equal(axis.out, axis.size) for axis in axes):
        return lowering.dense(node.inputs[0])
    return lowering.dense_copy(what_is_read(lowering, node, axes, "sum"), node.name)


def _operand(lowering: Lowering, value: Plain, node: Node, shape: tuple[int, ...]) -> Plain:
    """Return an operand of the epilogue in the shape of the product."""
    result = lowering.type(node.outputs[0]).shape
    whole = broadcast(value, result)
    if not any(whole.strides[2:]):  # a number for each channel, or one for all
        image, channel = whole.strides[:2]
        return viewed_as(value, shape, (image, channel * shape[2], channel, 0))
    if not same_shape(whole.strides, dense_strides(result)):
        whole = lowering.dense_copy(whole, node.name)
    return dense_as(whole, shape)
