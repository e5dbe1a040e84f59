"""Mixtures of experts of domain ``com.microsoft``: a router chooses some of many pairs of layers for each token.

Every expert computes every token, and what was not chosen is left out of the sum: its kernels know all weights, and
nothing is cut. Of a few tokens in float the chosen experts' weights are gathered instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any, cast

import numpy as np

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import Value
from opbuild.graph.types import Array, Node
from opbuild.platform.records import NamedTuple

DOMAIN = "com.microsoft"
LEAST_BLOCK = 16


class ExpertWeights(NamedTuple):
    """One layer of all experts.

    Attributes:
        product: Writes the product of all experts with ``(1, tokens, size)``; given places, a name, of those at them
            with ``(places, 1, size)``; or where experts are apart, of one, which is given by its number, with
            ``(tokens, size)``.
        is_apart: Whether each expert is a product of its own.
    """

    product: Callable[[str, Any], str]
    is_apart: bool


def _batch(of: Rewriting, weights: str, bias: int) -> ExpertWeights:
    """Return a layer whose weights are ``(experts, out, in)``."""
    turned = of("Transpose", weights, perm=(0, 2, 1))
    added = of("Unsqueeze", of.in_float32(bias), of.ints(1)) if of.has(bias) else ""

    def product(x: str, at: str) -> str:
        own, beside = ((of("Gather", each, at, axis=0) if each and at else each) for each in (turned, added))
        value = of("MatMul", x, own)
        return of("Add", value, beside) if beside else value

    return ExpertWeights(product, is_apart=False)


def quantized_layers(of: Rewriting, layers: Mapping[int, tuple[int, int]]) -> dict[int, ExpertWeights]:
    """Return layers of integers of few bits.

    Args:
        of: Where they are written.
        layers: Of each layer, 1, 2 or 3, the input with the weights, some to a byte, the first in the lowest bits,
            behind which are its scales and its bias; and the input with the zero points, packed alike, without which
            they are in the middle.
    """
    bits = {layer: _bits(of, layer) for layer in layers}
    are_apart = all(_has_kernels(of, *layers[layer], bits[layer]) for layer in layers)
    return {
        layer: _separate_products(of, index, zeros, bits[layer])
        if are_apart
        else _batch(of, _dequantized(of, index, zeros, bits[layer]), index + 2)
        for layer, (index, zeros) in layers.items()
    }


def _bits(of: Rewriting, layer: int) -> int:
    bits = int(of.attr(f"fc{layer}_expert_weight_bits", of.attr("expert_weight_bits", 4)))
    if bits not in (2, 4, 8) or (of.attr("weights_prepacked", -1) == 1 and bits != 8):
        of.refuse(f"weights of {bits} bits, or in the order of a processor, are not served")
    return bits


def _has_kernels(of: Rewriting, index: int, zeros: int, bits: int) -> bool:
    """Return whether kernels read a layer as it is: known numbers in blocks of a power of 2."""
    size = _block(of, index, bits)
    are_known = all(not of.has(each) or of.known(of.input(each)) is not None for each in (index, index + 1, zeros))
    return are_known and size >= LEAST_BLOCK and not size & (size - 1)


def _block(of: Rewriting, index: int, bits: int) -> int:
    """Return the inputs that share a scale, or some of a row that do."""
    _, _, columns, block = _size(of, index, bits)
    return block or gcd(columns, 128)


def _size(of: Rewriting, index: int, bits: int) -> tuple[int, int, int, int]:
    """Return experts, outputs, inputs, and the inputs of one scale; 0 if a row has one."""
    experts, rows, packed = of.shape(index, 3)
    columns, scales = packed * 8 // bits, of.shape(index + 1, 2, 3)
    count = scales[2] if len(scales) == 3 else 1
    if scales[:2] != (experts, rows) or columns % count:
        of.refuse(f"scales of shape {list(scales)} are not those of {rows} rows of {columns} weights")
    return experts, rows, columns, columns // count if count > 1 else 0


def _separate_products(of: Rewriting, index: int, zeros: int, bits: int) -> ExpertWeights:
    """Return a layer whose experts are products of their own, which keep their few bits."""
    _, rows, columns, _ = _size(of, index, bits)
    size, weights, scales = _block(of, index, bits), *(cast("Array", of.known(of.input(index + i))) for i in (0, 1))
    blocks, points = columns // size, _points(of, index, zeros, bits)
    bias = of.known(of.input(index + 2)) if of.has(index + 2) else None
    added = of.in_float32(index + 2) if of.has(index + 2) and bias is None else ""

    def product(x: str, at: int) -> str:
        shared = np.broadcast_to(scales[at].reshape(rows, -1), (rows, blocks))
        inputs = [x, of.constant(weights[at]), of.constant(np.array(shared, np.float32))]
        if points is not None or bias is not None:
            inputs.append("" if points is None else of.constant(_packed(points[at], rows, blocks, bits)))
        if bias is not None:
            inputs += ["", of.constant(bias[at], "float32")]
        value = of("MatMulNBits", *inputs, domain=DOMAIN, K=columns, N=rows, bits=bits, block_size=size)
        return of("Add", value, of("Gather", added, of.constant(np.array(at)), axis=0)) if added else value

    return ExpertWeights(product, is_apart=True)


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
    """Return an expert's zero points as MatMulNBits has them, one, two or four to a byte."""
    shifts = np.arange(0, 8, bits, dtype=np.uint8)
    full = np.zeros((rows, -(-blocks // len(shifts)) * len(shifts)), np.uint8)
    full[:, :blocks] = points
    packed: Array = np.bitwise_or.reduce(full.reshape(-1, len(shifts)) << shifts, -1)
    return packed


def _dequantized(of: Rewriting, index: int, zeros: int, bits: int) -> Value:
    """Write the weights as floats."""
    experts, rows, columns, block = _size(of, index, bits)
    blocks = columns // block if block else 1
    split = (experts, rows, blocks, columns // blocks)
    numbers = of.reshape(_unpacked(of, of.input(index), bits), split)
    scales = of.reshape(of.in_float32(index + 1), (experts, rows, blocks, 1))
    middle = of.constant(1 << bits - 1, "float32")
    if of.has(zeros):
        of_rows = len(of.shape(zeros, 2, 3)) == 2
        middle = of.reshape(_unpacked(of, of.input(zeros), bits), (experts, *((-1,) if of_rows else (rows, -1))))
        middle = of.slice(middle, -1, 0, rows if of_rows else blocks)
        middle = of.reshape(middle, (experts, rows, blocks, 1))
    return of.reshape(of("Mul", of("Sub", numbers, middle), scales), (experts, rows, columns))


def _unpacked(of: Rewriting, packed: str, bits: int) -> Value:
    """Write the numbers in bytes as floats, with an axis more, whose last ones lie in the highest bits."""
    steps = np.array([2.0**-shift for shift in range(0, 8, bits)], np.float32)
    shifted = of("Floor", of("Mul", of("Unsqueeze", of.cast(packed, "float32"), of.ints(-1)), of.constant(steps)))
    above = of("Floor", of("Mul", shifted, of.constant(2.0**-bits, "float32")))
    return of("Sub", shifted, of("Mul", above, of.constant(2.0**bits, "float32")))


LEAST_WEIGHT = 1e-8
"""The weight that a quantised expert must exceed, or it is left out."""

GATED = "swiglu"


@writes("MoE")
def mixture(of: Rewriting) -> Sequence[Node]:
    """MoE: experts of floats.

    ``use_sparse_mixer`` changes nothing, as in ONNX Runtime's kernel for CPUs.
    """
    layers = {}
    for layer, index in ((1, 2), (2, 4), (3, 6)) if of.has(6) else ((1, 2), (2, 4)):
        of.shape(index, 3)
        layers[layer] = _batch(of, of.in_float32(index), index + 1)
    return _mix(of, layers, quantized=False)


@writes("QMoE")
def quantized_mixture(of: Rewriting) -> Sequence[Node]:
    """QMoE: experts of integers of few bits, each row or block of which has a scale."""
    kind = of.node.text("quant_type", "int")
    of.refuse_if(kind != "int", f"weights of quant_type {kind!r} are not served")
    places = {1: (2, 11), 2: (5, 12), **({3: (8, 13)} if of.has(8) else {})}
    return _mix(of, quantized_layers(of, places), quantized=True)


def _mix(of: Rewriting, layers: dict[int, ExpertWeights], *, quantized: bool) -> Sequence[Node]:
    shape = of.shape(0, 2, 3)
    tokens, experts = of.shape(1, 2)
    wide, is_apart = of.in_float32(0), layers[2].is_apart
    x = wide if len(shape) == 2 else of.reshape(wide, (tokens, shape[-1]))
    count = int(of.attr("k", 1))
    of.refuse_if(not 0 < count <= experts, f"it chooses k = {count} of {experts} experts")
    if quantized:
        places, shares = _quantized_route(of, count)
    else:
        places, shares = _top(of, of("Softmax", of.in_float32(1), axis=-1), count)
        shares = _part(of, shares) if of.attr("normalize_routing_weights", 0) else shares
    of_few = not is_open((tokens,)) and tokens * count < experts and not is_apart
    if of_few:
        found: str = _gathered(of, x, layers, places, shares)
    else:
        none = of("ConstantOfShape", of.ints(tokens, experts), value=np.zeros(1, np.float32))
        chosen = of("ScatterElements", none, places, shares, axis=1)
        found = _expert_by_expert(of, x, layers, chosen) if is_apart else _batched(of, x, layers, chosen)
    if len(shape) != 2:
        found = of.reshape(found, shape)
    return of.finish(of.cast(found, of.dtype(), "float32"))


# Who computes which token


def _top(of: Rewriting, scores: str, count: int) -> tuple[Value, Value]:
    """Return the greatest scores and their experts; of equal ones the last come first, as in ONNX Runtime."""
    experts = of.shape(1)[1]
    backwards = of("Gather", scores, of.constant(np.arange(experts - 1, -1, -1)), axis=1)
    best, places = of.several("TopK", 2, backwards, of.ints(count), axis=1)
    return of("Sub", of.ints(experts - 1), places), best


def _part(of: Rewriting, shares: Value) -> Value:
    """Return shares of which all of a token are 1."""
    return of("Div", shares, of.sum(shares, [1], keepdims=True))


def _quantized_route(of: Rewriting, count: int) -> tuple[Value, Value]:
    """Return each token's experts and their shares, ``(tokens, k)``, those of a tensor of their own if it is given."""
    places, best = _top(of, of.in_float32(1), count)
    if not of.has(14):
        return places, _unless_small(of, of("Softmax", best, axis=-1))
    shares = of("GatherElements", of.in_float32(14), places, axis=1)
    if of.attr("normalize_routing_weights", 0):
        shares = _part(of, shares)  # of nothing but zeros none is above the least one
    return places, _unless_small(of, shares)


def _unless_small(of: Rewriting, shares: str) -> Value:
    least, none = (of.constant(value, "float32") for value in (LEAST_WEIGHT, 0.0))
    return of("Where", of("Greater", shares, least), shares, none)


# What they compute


def _both_layers(of: Rewriting, x: str, layers: dict[int, ExpertWeights], at: str | int = "") -> str:
    """Write both layers, of all experts, those at places or one."""
    value = _activated(of, *(layers[each].product(x, at) for each in (1, 3) if each in layers))
    return layers[2].product(value, at)


def _weighed(of: Rewriting, value: str, shares: str) -> Value:
    """Return values times their shares; 0 of those that have none, which may be infinite."""
    none = of.constant(0.0, "float32")
    return of("Where", of("Greater", shares, none), of("Mul", value, shares), none)


def _batched(of: Rewriting, x: str, layers: dict[int, ExpertWeights], chosen: str) -> Value:
    shares = of("Unsqueeze", of("Transpose", chosen, perm=(1, 0)), of.ints(2))
    every = _both_layers(of, of("Unsqueeze", x, of.ints(0)), layers)
    return of.sum(_weighed(of, every, shares), [0])


def _gathered(of: Rewriting, x: str, layers: dict[int, ExpertWeights], places: str, shares: str) -> Value:
    tokens, count = of.shape(1)[0], int(of.attr("k", 1))
    rows = of.constant(np.repeat(np.arange(tokens), count))
    each = of("Unsqueeze", of("Gather", x, rows, axis=0), of.ints(1))
    value = _both_layers(of, each, layers, of.reshape(places, (tokens * count,)))
    weighed = _weighed(of, value, of.reshape(shares, (tokens * count, 1, 1)))
    split = of.reshape(weighed, (tokens, count, of.shape(0)[-1]))
    return of.sum(split, [1])


def _expert_by_expert(of: Rewriting, x: str, layers: dict[int, ExpertWeights], chosen: str) -> str:
    total = ""
    for expert in range(of.shape(1)[1]):
        own = _weighed(of, _both_layers(of, x, layers, expert), of.slice(chosen, 1, expert, expert + 1))
        total = of("Add", total, own) if total else own
    return total


def _activated(of: Rewriting, value: str, linear: str = "") -> str:
    """Write the activation; ``linear`` is the third layer's result, by which it is multiplied."""
    kind = of.node.text("activation_type", "relu")
    if kind == GATED:
        return _gate(of, value, linear)
    of.refuse_if(kind not in ("relu", "gelu", "silu", "identity"), f"its activation {kind!r} is not served")
    if kind == "silu":
        value = of.silu(value)
    elif kind != "identity":
        value = of("Relu", value) if kind == "relu" else of("Gelu", value, approximate="tanh")
    return of("Mul", value, linear) if linear else value


def _gate(of: Rewriting, value: str, linear: str) -> Value:
    fusion = int(of.attr("swiglu_fusion", 0))
    if not linear:
        value, linear = _halves(of, value, fusion)
    elif fusion:
        of.refuse("swiglu_fusion says that both layers are one, and there is a third")
    alpha, beta, limit = (
        of.constant(of.attr(name, default), "float32")
        for name, default in (("activation_alpha", 1.0), ("activation_beta", 0.0), ("swiglu_limit", np.inf))
    )
    if "swiglu_limit" in of.node.attrs:
        value = of("Min", value, limit)
        linear = of("Clip", linear, of("Neg", limit), limit)
    gate = of("Mul", value, of("Sigmoid", of("Mul", alpha, value)))
    return of("Mul", gate, of("Add", linear, beta))


def _halves(of: Rewriting, value: str, fusion: int) -> tuple[str, str]:
    of.refuse_if(fusion not in (1, 2), "swiglu needs swiglu_fusion 1 or 2, or a third layer")
    size = of.shape(2)[1] // 2
    if fusion == 2:
        return of.slice(value, -1, 0, size), of.slice(value, -1, size, 2 * size)
    first, second = (of("Slice", value, of.ints(begin), of.ints(2 * size), of.ints(-1), of.ints(2)) for begin in (0, 1))
    return first, second
