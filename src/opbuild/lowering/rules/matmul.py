"""Lowering of MatMul and Gemm."""

from __future__ import annotations

from opbuild.dtypes import NARROW_FLOATS
from opbuild.families.family import FLOATS
from opbuild.graph.extents import is_one, is_step
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import ASKED, NotServedError, ask, serves
from opbuild.lowering.matrix import Product, emit_product
from opbuild.lowering.operands import Plain
from opbuild.lowering.rows import fused_with
from opbuild.lowering.strided import broadcast, transposed, viewed_as
from opbuild.operations.expression import ACC, Expression, arg, const, substitute


@serves("MatMul")
def matmul(lowering: Lowering, node: Node) -> None:
    """Lower ``MatMul``; inputs beyond two are the epilogue's operands."""
    _check_types(lowering, node)
    emit_product(lowering, _product(lowering, node))


@serves("opbuild.IntegerMatMul")
def integer_matmul(lowering: Lowering, node: Node) -> None:
    """Lower a product of uint8 by int8 with its sums in int32; inputs beyond two are the epilogue's operands."""
    ask(lowering, (ASKED, "IntegerProduct"), _product(lowering, node))


def _product(lowering: Lowering, node: Node) -> Product:
    """Return a product with numpy's broadcasting of batches."""
    left, right = node.inputs[:2]
    lhs, rhs = lowering.plain(left), lowering.plain(right)
    lhs_rank, rhs_rank = len(lhs.shape), len(rhs.shape)
    if lhs_rank == 1:
        lhs = viewed_as(lhs, (1, *lhs.shape), (0, *lhs.strides))
    if rhs_rank == 1:
        rhs = viewed_as(rhs, (*rhs.shape, 1), (*rhs.strides, 0))
    expression, names = fused_with(node)
    found = [_operand(lowering, name, node) for name in names]
    out = lowering.new_plain(node.outputs[0])
    operands = [broadcast(value, out.shape) for value in found]
    out, *operands = (_with_ones(value, lhs_rank == 1, rhs_rank == 1) for value in (out, *operands))
    constant = None
    if lowering.is_constant(right) and rhs_rank > 1 and all(extent == 1 for extent in rhs.shape[:-2]):
        constant = (right, False)
    return Product(lhs, rhs, out, expression, tuple(operands), node.name, constant, lowering.impl_mode(node))


@serves("Gemm")
def gemm(lowering: Lowering, node: Node) -> None:
    """Lower ``Gemm``; alpha, beta and C become part of the epilogue."""
    _check_types(lowering, node)
    left, right = node.inputs[:2]
    addend = node.inputs[2] if len(node.inputs) > 2 else ""
    alpha, beta = (float(node.attrs.get(name, 1.0)) for name in ("alpha", "beta"))
    is_turned = bool(node.attrs.get("transB", 0))
    lhs, rhs = lowering.plain(left), lowering.plain(right)
    lhs = transposed(lhs, (1, 0)) if node.attrs.get("transA", 0) else lhs
    rhs = transposed(rhs, (1, 0)) if is_turned else rhs
    expression, names = fused_with(node)
    dtype = lowering.type(node.outputs[0]).dtype
    value: Expression = ACC if alpha == 1.0 else ("mul", ACC, const(alpha, dtype))
    if addend and beta != 0.0:
        names = (*names, addend)
        last = arg(len(names) - 1)
        value = ("add", value, last if beta == 1.0 else ("mul", last, const(beta, dtype)))
    expression = substitute(expression, lambda e: value if e == ACC else None)
    found = [_operand(lowering, name, node) for name in names]
    out = lowering.new_plain(node.outputs[0])
    operands = tuple(broadcast(operand, out.shape) for operand in found)
    constant = (right, is_turned) if lowering.is_constant(right) else None
    mode = lowering.impl_mode(node)
    emit_product(lowering, Product(lhs, rhs, out, expression, operands, node.name, constant, mode))


def _check_types(lowering: Lowering, node: Node) -> None:
    result = lowering.type(node.outputs[0]).dtype
    if result not in FLOATS:
        raise NotServedError(f"{node.op_type} with a result of {result} has no kernel")
    for place, name in enumerate(node.inputs[: node.attrs.get("own_inputs")]):
        is_narrow = place == 1 and lowering.is_constant(name) and lowering.type(name).dtype in NARROW_FLOATS
        if name and lowering.type(name).dtype != result and not (is_narrow and result == "float32"):
            raise NotServedError(f"{node.op_type} of {lowering.type(name).dtype} has no kernel")


def _operand(lowering: Lowering, name: str, node: Node) -> Plain:
    """Return an operand of the epilogue, its innermost elements adjacent."""
    value = lowering.plain(name)
    if value.shape and not is_one(value.shape[-1]) and not is_step(value.strides[-1]):
        return lowering.dense(name)
    return value


def _with_ones(value: Plain, row: bool, column: bool) -> Plain:
    """Return a result of vectors as a matrix: a row and a column of extent 1 where the product has none."""
    shape, strides = value.shape, value.strides
    if column:
        shape, strides = (*shape, 1), (*strides, 0)
    if row:
        shape, strides = (*shape[:-1], 1, shape[-1]), (*strides[:-1], 0, strides[-1])
    return viewed_as(value, shape, strides)
