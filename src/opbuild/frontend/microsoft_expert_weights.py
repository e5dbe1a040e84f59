"""Weights of experts, and products with them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd
from typing import cast

import numpy as np

from opbuild.frontend.rewriting import Rewriting
from opbuild.graph.types import Array
from opbuild.platform.records import dataclass

DOMAIN = "com.microsoft"
KERNEL_BITS = (4, 8)
LEAST_BLOCK = 16


@dataclass(frozen=True, eq=False)
class Weights:
    """One layer of all experts: either it is one product of all, or each expert has one of its own.

    Attributes:
        every: Writes the product of all experts with ``(1, tokens, size)``; given places, a second name, of those at
            them with ``(places, 1, size)``.
        one: Writes the product of an expert, which is given by its number, with ``(tokens, size)``.
    """

    every: Callable[[str, str], str] | None = None
    one: Callable[[str, int], str] | None = None


def float_weights(of: Rewriting, index: int, bias: int) -> Weights:
    """Return a layer of floats, whose weights ``(experts, out, in)`` are an input."""
    of.shape(index, 3)
    return _batch(of, _wide(of, index), bias)


def _wide(of: Rewriting, index: int) -> str:
    return of.input(index) if of.dtype(index) == "float32" else of("Cast", of.input(index), to=1)


def _batch(of: Rewriting, weights: str, bias: int) -> Weights:
    turned = of("Transpose", weights, perm=(0, 2, 1))
    added = of("Unsqueeze", _wide(of, bias), of.ints(1)) if of.has(bias) else ""

    def product(x: str, at: str) -> str:
        own, beside = ((of("Gather", each, at, axis=0) if each and at else each) for each in (turned, added))
        value = of("MatMul", x, own)
        return of("Add", value, beside) if beside else value

    return Weights(every=product)


def quantized_layers(of: Rewriting, layers: Mapping[int, tuple[int, int]]) -> dict[int, Weights]:
    """Return layers of integers of few bits.

    Args:
        of: Where they are written.
        layers: Of each layer, 1, 2 or 3, the input with the weights, some to a byte, the first in the lowest bits,
            behind which are its scales and its bias; and the input with the zero points, packed alike, without which
            they are in the middle.
    """
    bits = {layer: _bits(of, layer) for layer in layers}
    are_apart = all(_has_kernels(of, *layers[layer], bits[layer]) for layer in layers)
    make = _each if are_apart else _together
    return {layer: make(of, *layers[layer], bits[layer]) for layer in layers}


def _bits(of: Rewriting, layer: int) -> int:
    bits = int(of.attr(f"fc{layer}_expert_weight_bits", of.attr("expert_weight_bits", 4)))
    if bits not in (2, 4, 8) or (of.attr("weights_prepacked", -1) == 1 and bits != 8):
        of.refuse(f"weights of {bits} bits, or in the order of a processor, are not served")
    return bits


def _has_kernels(of: Rewriting, index: int, zeros: int, bits: int) -> bool:
    """Return whether kernels read a layer as it is: known numbers of 4 or 8 bits in blocks of a power of 2."""
    size = _block(of, index, bits)
    are_known = all(not of.has(each) or of.known(of.input(each)) is not None for each in (index, index + 1, zeros))
    return are_known and bits in KERNEL_BITS and size >= LEAST_BLOCK and not size & (size - 1)


def _block(of: Rewriting, index: int, bits: int) -> int:
    """Return the inputs that share a scale, or some of a row that do."""
    _, _, columns, block = _size(of, index, bits)
    return block or gcd(columns, 128)


def _together(of: Rewriting, index: int, zeros: int, bits: int) -> Weights:
    return _batch(of, _dequantized(of, index, zeros, bits), index + 2)


def _size(of: Rewriting, index: int, bits: int) -> tuple[int, int, int, int]:
    """Return experts, outputs, inputs, and the inputs of one scale; 0 if a row has one."""
    experts, rows, packed = of.shape(index, 3)
    columns, scales = packed * 8 // bits, of.shape(index + 1, 2, 3)
    count = scales[2] if len(scales) == 3 else 1
    if scales[:2] != (experts, rows) or columns % count:
        of.refuse(f"scales of shape {list(scales)} are not those of {rows} rows of {columns} weights")
    return experts, rows, columns, columns // count if count > 1 else 0


def _each(of: Rewriting, index: int, zeros: int, bits: int) -> Weights:
    """Return a layer whose experts are products of their own, which keep their few bits."""
    _, rows, columns, _ = _size(of, index, bits)
    size, weights, scales = _block(of, index, bits), *(cast("Array", of.known(of.input(index + i))) for i in (0, 1))
    blocks, points = columns // size, _points(of, index, zeros, bits)
    bias = of.known(of.input(index + 2)) if of.has(index + 2) else None
    added = _wide(of, index + 2) if of.has(index + 2) and bias is None else ""

    def product(x: str, at: int) -> str:
        shared = np.broadcast_to(scales[at].reshape(rows, -1), (rows, blocks))
        inputs = [x, of.constant(weights[at]), of.constant(np.array(shared, np.float32))]
        if points is not None or bias is not None:
            inputs.append("" if points is None else of.constant(_packed(points[at], rows, blocks, bits)))
        if bias is not None:
            inputs += ["", of.constant(np.array(bias[at], np.float32))]
        value = of.fresh("MatMulNBits")
        of.write("MatMulNBits", inputs, (value,), {"K": columns, "N": rows, "bits": bits, "block_size": size}, DOMAIN)
        return of("Add", value, of("Gather", added, of.constant(np.array(at)), axis=0)) if added else value

    return Weights(one=product)


def _points(of: Rewriting, index: int, zeros: int, bits: int) -> Array | None:
    """Return the zero points ``(experts, rows, blocks)``."""
    packed = of.known(of.input(zeros)) if of.has(zeros) else None
    if packed is None:
        return None
    _, rows, columns, block = _size(of, index, bits)
    found = np.stack([packed >> shift & (1 << bits) - 1 for shift in range(0, 8, bits)], -1)
    found = found.reshape(*packed.shape[:-1], -1)
    return found[..., :rows, None] if packed.ndim == 2 else found[..., : columns // block if block else 1]


def _packed(points: Array, rows: int, blocks: int, bits: int) -> Array:
    """Return an expert's zero points as MatMulNBits has them, one to a byte or two."""
    full = np.zeros((rows, blocks + blocks % 2), np.uint8)
    full[:, :blocks] = points
    return full[:, :blocks].reshape(-1) if bits == 8 else (full[:, ::2] | full[:, 1::2] << 4).reshape(-1)


def _dequantized(of: Rewriting, index: int, zeros: int, bits: int) -> str:
    """Write the weights as floats."""
    experts, rows, columns, block = _size(of, index, bits)
    blocks = columns // block if block else 1
    split = (experts, rows, blocks, columns // blocks)
    numbers = of.reshape(_unpacked(of, of.input(index), bits), split)
    scales = of.reshape(_wide(of, index + 1), (experts, rows, blocks, 1))
    middle = of.constant(np.array(1 << bits - 1, np.float32))
    if of.has(zeros):
        of_rows = len(of.shape(zeros, 2, 3)) == 2
        middle = of.reshape(_unpacked(of, of.input(zeros), bits), (experts, *((-1,) if of_rows else (rows, -1))))
        middle = of.slice(middle, -1, 0, rows if of_rows else blocks)
        middle = of.reshape(middle, (experts, rows, blocks, 1))
    return of.reshape(of("Mul", of("Sub", numbers, middle), scales), (experts, rows, columns))


def _unpacked(of: Rewriting, packed: str, bits: int) -> str:
    """Write the numbers in bytes as floats, with an axis more, whose last ones lie in the highest bits."""
    steps = np.array([2.0**-shift for shift in range(0, 8, bits)], np.float32)
    shifted = of("Floor", of("Mul", of("Unsqueeze", of("Cast", packed, to=1), of.ints(-1)), of.constant(steps)))
    above = of("Floor", of("Mul", shifted, of.constant(np.array(2.0**-bits, np.float32))))
    return of("Sub", shifted, of("Mul", above, of.constant(np.array(2.0**bits, np.float32))))
