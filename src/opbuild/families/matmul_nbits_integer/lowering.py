"""Lowering of com.microsoft's MatMulNBits where the model allows activations of int8."""

from __future__ import annotations

from functools import reduce
from operator import or_

import numpy as np

from opbuild.families.matmul_integer.family import panel
from opbuild.families.matmul_nbits.lowering import FewBits, emit_few_bits, few_bits
from opbuild.families.matmul_nbits_integer import family
from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import HIGH_PRECISION
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.operands import Plain
from opbuild.platform.arrange import interleaved

BYTES = 4
"""The ``accuracy_level`` that allows activations of int8."""


@serves("com.microsoft.MatMulNBits", cost=0.5)
def matmul_nbits(lowering: Lowering, node: Node) -> None:
    """Lower a product with weights of few bits whose left operand becomes int8."""
    product = few_bits(lowering, node)
    if int(node.attrs.get("accuracy_level", 0)) != BYTES or lowering.impl_mode(node) == HIGH_PRECISION:
        raise NotServedError("the model does not allow activations of int8")
    if product.k % product.block or product.block > family.MOST_BLOCK or 0 in lowering.type(node.outputs[0]).shape:
        raise NotServedError("a kernel for activations of int8 takes whole blocks of at most 256")
    variant, machine = lowering.choose(family.FAMILY, product.m, product.n), lowering.machine
    own = family.operands(variant, product.bits, product.scale_type, product.zeros_type, machine)
    halves = {"halves": True} if family.in_halves(product.bits, machine) else {}
    emit_few_bits(lowering, node, product, family.FAMILY, variant, own, _groups(lowering, product), **halves)


def _groups(lowering: Lowering, product: FewBits) -> Plain:
    """Return weights ``(N, K)`` in panels of groups along K: ``(N/panel, bytes of K/group, panel, group)``.

    Where a byte holds several, the one in its lowest bits is of the first part of a block, and so on.
    """
    name, n, k, bits, block = product.weights, product.n, product.k, product.bits, product.block
    width, near, parts = panel(lowering.machine), family.group(bits, lowering.machine), 8 // bits
    panels, groups = -(-n // width), k // (near * parts)

    def pack() -> Array:
        rows = np.asarray(lowering.constant(name)).reshape(n, -1)
        if parts > 1:  # neighbours lie in one byte
            rows = _parts_together(rows, block, bits)
        full = np.zeros((panels * width, groups), f"u{near}")  # a group is moved as one number
        full[:n] = np.ascontiguousarray(rows).view(full.dtype)
        moved = np.ascontiguousarray(full.reshape(panels, width, groups).transpose(0, 2, 1))
        return moved.view(np.uint8).reshape(panels, groups, width, near)

    recipe = f"panels of {width} rows of groups of {near} of {bits} bits in blocks of {block}"
    return lowering.packed((name,), recipe, (panels, groups, width, near), "uint8", pack)


def _parts_together(rows: Array, block: int, bits: int) -> Array:
    """Return rows of bytes that have a number of each part of a block, from bytes that have neighbours of one part."""
    parts = 8 // bits
    size = block // parts**2  # bytes of a part, which are moved as numbers of up to eight of them
    words = np.ascontiguousarray(rows).view(f"u{min(size, 8)}").reshape(-1, parts, max(1, size // 8))
    of_parts = [np.ascontiguousarray(words[:, part]) for part in range(parts)]
    of_places = [
        reduce(or_, (_moved(part, place, to, bits) for to, part in enumerate(of_parts))) for place in range(parts)
    ]
    return interleaved([each.view(np.uint8) for each in of_places]).view(np.uint8).reshape(rows.shape)


def _moved(words: Array, place: int, to: int, bits: int) -> Array:
    """Return words in whose bytes the number at one place is at another, and zeros beside it."""
    wanted = words.dtype.type(int.from_bytes(words.itemsize * bytes([((1 << bits) - 1) << to * bits]), "little"))
    steps = words.dtype.type(abs(to - place) * bits)
    moved: Array = (words << steps if to > place else words >> steps) & wanted
    return moved
