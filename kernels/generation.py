"""Decoders with weights of few bits, as ONNX Runtime's tools write them: caches are inputs, extents are open."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

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


def with_onnx_attention(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a decoder whose caches have room, with ONNX's own attention; its lengths are those before new tokens."""
    graph, nodes = model.graph, list[onnx.NodeProto]()

    def add(op_type: str, *inputs: str, output: str = "", **attrs: Any) -> str:
        name = output or f"{op_type}_of_onnx_{len(nodes)}"
        nodes.append(helper.make_node(op_type, inputs, [name], **attrs))
        return name

    def number(name: str, *values: int) -> str:
        graph.initializer.append(numpy_helper.from_array(np.array(values), name))
        return name

    size = next(port for port in graph.input if port.name == "past_0_key").type.tensor_type.shape.dim[3].dim_value
    zero, one, heads = number("zero", 0), number("one", 1), number("heads", 0, 0, -1, size)
    row = number("row", 0, 0, -1)
    before = add("Cast", "seqlens_k", to=TensorProto.INT64)
    new = add("Shape", "input_ids", start=1, end=2)
    steps = add("Range", *(add("Squeeze", each) for each in (zero, new, one)))
    there, places = add("Add", before, new), add("Add", add("Unsqueeze", before, one), steps)
    for node in graph.node:
        if node.op_type != "GroupQueryAttention":
            nodes.append(node)
            continue
        query, key, value = (add("Transpose", add("Reshape", x, heads), perm=[0, 2, 1, 3]) for x in node.input[:3])
        query, key = (add("RotaryEmbedding", x, *node.input[7:9], places) for x in (query, key))
        pairs = zip((key, value), node.input[3:5], node.output[1:], strict=True)
        present = [add("TensorScatter", past, new, before, output=output) for new, past, output in pairs]
        attended = add("Attention", query, *present, "", "", "", there, is_causal=1)
        add("Reshape", add("Transpose", attended, perm=[0, 2, 1, 3]), row, output=node.output[0])
    del graph.node[:]
    graph.node.extend(nodes)
    next(each for each in model.opset_import if not each.domain).version = 24
    return without_unread(model)


def without_unread(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without the nodes whose results nobody reads."""
    graph, kept = model.graph, list[onnx.NodeProto]()
    read = {port.name for port in graph.output}
    for node in reversed(graph.node):
        if not read.isdisjoint(node.output):
            kept.append(node)
            read.update(node.input)
    del graph.node[:]
    graph.node.extend(reversed(kept))
    return model
