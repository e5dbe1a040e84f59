"""Decoders with weights of few bits, as ONNX Runtime's tools write them: caches are inputs, extents are open."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto

from kernels.transformer import Sizes
from kernels.writer import FLOAT, INT64, Writer

MICROSOFT = "com.microsoft"
INT32 = TensorProto.INT32


def decoder(
    sizes: Sizes,
    bits: int,
    block: int,
    zeros: bool,
    accuracy: int,
    scale: float = 0.01,
    width: int = 2048,
    heads: int = 32,
    groups: int = 4,
    layers: int = 2,
    words: int = 1000,
    has_room: bool = False,
    has_mask: bool = False,
    **attending: float,
) -> onnx.ModelProto:
    """Return a decoder of prompts and of next tokens.

    Args:
        sizes: Sequences, new tokens, and tokens that were computed before; names where they are open.
        bits: Of a weight.
        block: Weights that share a scale.
        zeros: Whether blocks have zero points.
        accuracy: The ``accuracy_level`` of products.
        scale: Of all blocks: kernels differ where float16 holds it.
        width: Of a token.
        heads: Of queries.
        groups: Heads of keys.
        layers: How many there are.
        words: Rows of the table of tokens, and columns of the result.
        has_room: Whether new keys fit into the caches, which are then as long as all that they may hold.
        has_mask: Whether the lengths are counted in a mask, as ONNX Runtime's model builder does; else they are inputs.
        attending: Attributes of attention: ``local_window_size``, ``softcap``.
    """
    to, (batch, seq, past) = Writer(20), sizes
    size, wide = width // heads, width * 11 // 4

    def product(x: str, depth: int, columns: int) -> str:
        blocks = depth // block
        inputs = [
            to.numbers(np.zeros((columns, blocks, block * bits // 8)), "uint8"),
            to.numbers(np.full((columns, blocks), scale), "float32"),
        ]
        if zeros:
            inputs.append(to.numbers(np.zeros((columns, -(-blocks * bits // 8))), "uint8"))
        how = {"K": depth, "N": columns, "bits": bits, "block_size": block, "accuracy_level": accuracy}
        return to.add("MatMulNBits", x, *inputs, domain=MICROSOFT, **how)

    def norm(x: str) -> str:
        return to.add("SimplifiedLayerNormalization", x, to.weight(width), axis=-1, epsilon=1e-5)

    x = to.add("Gather", to.weight(words, width), to.input("input_ids", (batch, seq), INT64))
    if has_mask:
        mask = to.input("attention_mask", (batch, "total"), INT64)
        count = to.add("ReduceSum", mask, to.numbers([1]), keepdims=0)
        lengths = to.add("Cast", to.add("Sub", count, to.numbers([1])), to=INT32)
    else:
        lengths = to.input("seqlens_k", (batch,), INT32)
    angles = [to.weight(4096, size // 2) for _ in range(2)]
    caches, kept = (
        [
            [to.input(f"past_{number}_{part}", (batch, groups, past, size), FLOAT) for part in ("key", "value")]
            for number in range(layers)
        ],
        list[str](),
    )
    # An input in exports; here it follows from the extents, so that kernels are known without numbers.
    length = to.shape("total" if has_mask else past if has_room else to.total(past, seq))
    total = to.add("Cast", to.add("Squeeze", length), to=INT32)
    for cache in caches:
        normed = norm(x)
        q, k, v = (product(normed, width, columns) for columns in (width, groups * size, groups * size))
        how = {"num_heads": heads, "kv_num_heads": groups, "do_rotary": 1, "domain": MICROSOFT, **attending}
        mixed, *present = to.several(3, "GroupQueryAttention", q, k, v, *cache, lengths, total, *angles, **how)
        kept += present
        x = to.add("Add", x, product(mixed, width, width))
        normed = norm(x)
        gate = product(normed, width, wide)
        gate = to.add("Mul", gate, to.add("Sigmoid", gate))
        x = to.add("Add", x, product(to.add("Mul", gate, product(normed, width, wide)), wide, width))
    return to.model(product(norm(x), width, words), *kept)
