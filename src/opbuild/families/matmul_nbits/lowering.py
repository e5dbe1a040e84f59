"""Lowering of com.microsoft's MatMulNBits: weights of 2, 4 or 8 bits in blocks of one scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from opbuild.families.family import Family, Variant
from opbuild.families.matmul_integer.family import panel
from opbuild.families.matmul_nbits import family
from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import Dim, Operand
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.lowering.strided import viewed_as, with_inner_stride
from opbuild.operations.expression import ACC, Expression, arg, operations
from opbuild.platform.records import NamedTuple

SERVED = (2, 4, 8)
"""Bits of weights that kernels take."""


class FewBits(NamedTuple):
    """A product with weights of few bits.

    Attributes:
        x: The left operand.
        weights: The weights, a row for each column of the product.
        scale: Their scales, one a block.
        scale_type: The type in which kernels read these.
        zeros: Their zero points; empty: half of the range.
        zeros_type: The type of these; empty: there are none.
        bias: What is added; empty: nothing.
        m: Rows of the product.
        n: Its columns.
        k: Columns of the left operand.
        bits: Of a weight.
        block: Neighbours along K that share a scale and a zero point.
    """

    x: str
    weights: str
    scale: str
    scale_type: str
    zeros: str
    zeros_type: str
    bias: str
    m: Any
    n: int
    k: int
    bits: int
    block: int

    @property
    def blocks(self) -> int:
        """Blocks of a column; the last one may not be full."""
        return -(-self.k // self.block)


def few_bits(lowering: Lowering, node: Node) -> FewBits:
    """Return the product that a MatMulNBits is.

    Raises:
        NotServedError: If no kernel computes it.
    """
    x, weights, scale, zeros, order, bias = (*node.inputs, "", "", "")[:6]
    k, n, bits, block = (int(node.attrs.get(name, 4)) for name in ("K", "N", "bits", "block_size"))
    if order or bits not in SERVED or any(not lowering.is_constant(name) for name in (weights, scale, zeros) if name):
        raise NotServedError("MatMulNBits has kernels for known weights of 2, 4 or 8 bits in the order of K")
    if {lowering.type(name).dtype for name in (x, scale, bias) if name} != {"float32"}:
        raise NotServedError("MatMulNBits has kernels for float32")
    m = prod(lowering.type(node.outputs[0]).shape[:-1])
    zeros_type = lowering.type(zeros).dtype if zeros else ""
    return FewBits(x, weights, scale, _scale_type(lowering, scale), zeros, zeros_type, bias, m, n, k, bits, block)


LEAST_LANES = 8
"""Lanes of the vectors of levels that have an instruction that makes float16 float32."""


def _scale_type(lowering: Lowering, scale: str) -> str:
    """Return the type in which kernels read scales: float16 where that holds all of them exactly, else float32.

    The next token waits for memory, and float32 scales are a fifth of what blocks of 32 with 4 bits read.
    """
    known = np.abs(np.asarray(lowering.constant(scale)))
    if lowering.machine.lanes < LEAST_LANES or np.bitwise_or.reduce(known.view(np.uint32), None) % 2**13:
        return "float32"  # of its 23 digits float16 has 10
    is_held = known.max(initial=0) <= 65504 and not known[known < 2**-14].any()
    return "float16" if is_held else "float32"


@serves("com.microsoft.MatMulNBits")
def matmul_nbits(lowering: Lowering, node: Node) -> None:
    """Lower a product with weights of few bits, which are packed when the network is built; they stay few bits."""
    product = few_bits(lowering, node)
    if 0 in lowering.type(node.outputs[0]).shape:
        lowering.new_plain(node.outputs[0])
        return
    variant = lowering.choose(family.FAMILY, product.m, product.n)
    own = family.operands(variant, product.scale_type, product.zeros_type, lowering.machine)
    shape = (product.n, product.blocks * product.block * product.bits // 8)
    emit_few_bits(
        lowering,
        node,
        product,
        family.FAMILY,
        variant,
        own,
        _panels(lowering, product.weights, "uint8", shape, "bytes"),
    )


def emit_few_bits(
    lowering: Lowering,
    node: Node,
    product: FewBits,
    record: Family,
    variant: Variant,
    own: Sequence[Operand],
    rhs: Plain,
    **attributes: Any,
) -> None:
    """Emit the call of a product with weights of few bits.

    Args:
        lowering: The state of lowering.
        node: The product.
        product: The same.
        record: The family that computes it.
        variant: Its variant.
        own: Its operands lhs, rhs, scale and perhaps zeros.
        rhs: The weights, packed.
        attributes: Further attributes of its descriptor.
    """
    m, n, bits, blocks, zeros = product.m, product.n, product.bits, product.blocks, product.zeros_type
    expression: Expression = ("add", ACC, arg(0)) if product.bias else ACC
    beside = (Operand("e0", "float32", (Dim(stride=1), Dim())),) if product.bias else ()
    lhs = with_inner_stride(viewed_as(lowering.dense(product.x), (m, product.k), (product.k, 1)), 1)
    references = [lhs, rhs, _panels(lowering, product.scale, product.scale_type, (n, blocks), "blocks")]
    if zeros:
        each = bits if zeros == "uint8" else 8
        references.append(_panels(lowering, product.zeros, zeros, (n, blocks), "blocks", each))
    if product.bias:
        references.append(viewed_as(lowering.dense(product.bias), (m, n), (0, 1)))
    desc = record.desc(
        (node.op_type, *operations(expression)),
        (*own, *beside),
        (Operand("out", "float32", (Dim(stride=1), Dim())),),
        {"bits": bits, "block": product.block, "zeros": zeros, "epilogue": expression, **attributes},
        variant,
        lowering.impl_mode(node, differs=False),
    )
    out = lowering.new_plain(node.outputs[0])
    lowering.emit(desc, (*references, with_inner_stride(viewed_as(out, (m, n), (n, 1)), 1)), node)


def _panels(lowering: Lowering, name: str, dtype: str, shape: tuple[int, int], what: str, bits: int = 8) -> Plain:
    """Return a constant with a row for each column of the product in panels of a type: ``(N/panel, shape[1], panel)``.

    Of numbers of less than 8 bits several lie in each byte of a row, the first one in its lowest bits.
    """
    width, (n, count) = panel(lowering.machine), shape
    panels = -(-n // width)

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
