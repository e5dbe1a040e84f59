"""Lowering of com.microsoft's MatMulNBits: weights of 4 or 8 bits in blocks of one scale."""

from __future__ import annotations

from math import prod

import numpy as np

from opbuild.families.matmul_integer.family import panel
from opbuild.families.matmul_nbits import family
from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import viewed_as, with_inner_stride
from opbuild.operations.expression import ACC, Expression, arg, operations


@serves("com.microsoft.MatMulNBits")
def matmul_nbits(lowering: Lowering, node: Node) -> None:
    """Lower a product with weights of few bits, which are packed when the network is built; they stay few bits."""
    x, weights, scale, zeros, order, bias = (*node.inputs, "", "", "")[:6]
    k, n, bits, block = (int(node.attrs.get(name, 4)) for name in ("K", "N", "bits", "block_size"))
    if order or bits not in (4, 8) or any(not lowering.is_constant(name) for name in (weights, scale, zeros) if name):
        raise NotServedError("MatMulNBits has kernels for known weights of 4 or 8 bits in the order of K")
    if {lowering.type(name).dtype for name in (x, scale, bias) if name} != {"float32"}:
        raise NotServedError("MatMulNBits has kernels for float32")
    out = lowering.new_plain(node.outputs[0])
    if 0 in out.shape:
        return
    m, blocks = prod(out.shape[:-1]), -(-k // block)
    variant = lowering.choose(family.FAMILY, m, n)
    unpacked = "" if not zeros else lowering.type(zeros).dtype
    expression: Expression = ("add", ACC, arg(0)) if bias else ACC
    own = family.operands(variant, unpacked, lowering.machine)
    beside = (Operand("e0", "float32", (Dim(stride=1), Dim())),) if bias else ()
    lhs = with_inner_stride(viewed_as(lowering.dense(x), (m, k), (k, 1)), 1)
    references = [lhs, _panels(lowering, weights, (n, blocks * block * bits // 8), "bytes")]
    references.append(_panels(lowering, scale, (n, blocks), "blocks"))
    if zeros:
        references.append(_panels(lowering, zeros, (n, blocks), "blocks", bits if unpacked == "uint8" else 8))
    if bias:
        references.append(viewed_as(lowering.dense(bias), (m, n), (0, 1)))
    desc = family.FAMILY.desc(
        (node.op_type, *operations(expression)),
        (*own, *beside),
        (Operand("out", "float32", (Dim(stride=1), Dim())),),
        {"bits": bits, "block": block, "zeros": unpacked, "epilogue": expression},
        variant,
        lowering.impl_mode(node, differs=False),
    )
    lowering.emit(desc, (*references, with_inner_stride(viewed_as(out, (m, n), (n, 1)), 1)), node)


def _panels(lowering: Lowering, name: str, shape: tuple[int, int], what: str, bits: int = 8) -> Plain:
    """Return a constant with a row for each column of the product in panels: ``(N/panel, shape[1], panel)``.

    Of numbers of less than 8 bits several lie in each byte of a row, the first one in its lowest bits.
    """
    width, (n, count) = panel(lowering.machine), shape
    panels, dtype = -(-n // width), lowering.type(name).dtype

    def pack() -> Array:
        rows = np.asarray(lowering.constant(name)).reshape(n, -1)
        if bits < 8:
            parts = rows[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)
            rows = (parts & ((1 << bits) - 1)).reshape(n, -1)[:, :count]
        full = np.zeros((panels * width, count), dtype)
        full[:n] = rows
        return np.ascontiguousarray(full.reshape(panels, width, count).transpose(0, 2, 1))

    return lowering.packed(
        (name,),
        f"panels of {width} rows of {what}" + (f" of {bits} bits" if bits < 8 else ""),
        (panels, count, width),
        dtype,
        pack,
    )
