"""Small decoders with random weights, in the files and folders of Optimum and of ONNX Runtime's model builder."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from generated.search_networks import Sizes, Writer

FLOAT, INT32, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL
SIZES = Sizes(vocabulary=96, layers=2, heads=4, size=16, opset=20, places=64)
GROUPS, BLOCK = 2, 32
PARTS = [f"{layer}.{part}" for layer in range(SIZES.layers) for part in ("key", "value")]
OUTPUTS = ["logits", *(f"present.{part}" for part in PARTS)]


def optimum(folder: Path) -> Path:
    """Write a decoder as Optimum exports it, with attention written out and weights beside it; return its path."""
    return _with_weights(folder / "model.onnx", "model.onnx_data", _attention("decoder", _past(SIZES.heads)))


def optimum_merged(folder: Path) -> Path:
    """Write a decoder of both steps as Optimum merges them: an If chooses between the first and the next."""
    first, following = (_attention(name, {}) for name in ("no_past", "with_past"))
    step = helper.make_node("If", ["use_cache_branch"], OUTPUTS, then_branch=following, else_branch=first)
    cache = _past(SIZES.heads)
    ends = [_declared({**_tokens(), **cache, "use_cache_branch": (BOOL, (1,))}), _outputs(cache)]
    graph = helper.make_graph([step], "merged", *ends)
    return _with_weights(folder / "decoder_model_merged.onnx", "decoder_model_merged.onnx_data", graph)


def genai(folder: Path) -> Path:
    """Write a decoder as ONNX Runtime's model builder does: weights of 4 bits, GroupQueryAttention, its config."""
    of, rng = Writer(SIZES, np.random.default_rng(1)), np.random.default_rng(0)
    h, group = SIZES.hidden, GROUPS * SIZES.size

    def product(x: str, columns: int) -> str:
        blocks = h // BLOCK
        weight = of.constant(rng.integers(0, 256, (columns, blocks, BLOCK // 2), np.uint8))
        scale = of.constant((rng.random((columns, blocks)) * 0.1).astype(np.float32))
        sizes = {"K": h, "N": columns, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        return of("MatMulNBits", x, weight, scale, domain="com.microsoft", **sizes)

    counts = of("ReduceSum", "attention_mask", of.ints(1), keepdims=0)
    lengths = of("Cast", of("Sub", counts, of.ints(1)), to=INT32)
    total = of("Cast", of("Gather", of("Shape", "attention_mask"), of.constant(np.int64(1))), to=INT32)
    turns = np.arange(SIZES.places)[:, None] / 100.0 ** (np.arange(SIZES.size // 2) / 8)
    angles = [of.constant(each(turns).astype(np.float32)) for each in (np.cos, np.sin)]
    ones = of.constant(np.ones(h, np.float32))
    x = of("Gather", of.weights(SIZES.vocabulary, h, scale=4), "input_ids")
    normed = of("SimplifiedLayerNormalization", x, ones, axis=-1, epsilon=1e-5)
    for layer in range(SIZES.layers):
        parts = [product(normed, columns) for columns in (h, group, group)]
        past = [f"past_key_values.{layer}.{part}" for part in ("key", "value")]
        mixed = of(
            *("GroupQueryAttention", *parts, *past, lengths, total, *angles),
            outputs=[f"mixed.{layer}", f"present.{layer}.key", f"present.{layer}.value"],
            domain="com.microsoft",
            num_heads=SIZES.heads,
            kv_num_heads=GROUPS,
            do_rotary=1,
        )
        normed, x = f"normed.{layer}", of_sum(of, x, product(mixed, h), ones, layer)
    of.nodes.append(helper.make_node("Identity", [product(normed, SIZES.vocabulary)], ["logits"]))
    cache, inputs = _past(GROUPS), _tokens()
    del inputs["position_ids"]
    graph = helper.make_graph(of.nodes, "main_graph", _declared({**inputs, **cache}), _outputs(cache), of.tensors)
    path = _saved(folder / "model.onnx", "model.onnx.data", graph)
    names = {f"past_{part}_names": f"past_key_values.%d.{part}" for part in ("key", "value")}
    config = {"model": {"type": "llama", "decoder": {"filename": path.name, "inputs": names}}}
    (folder / "genai_config.json").write_text(json.dumps(config))
    return path


def of_sum(of: Writer, x: str, added: str, ones: str, layer: int) -> str:
    """Write a sum and its normalization, ``normed.<layer>``, as one node; return the sum."""
    outputs = [f"normed.{layer}", "", "", f"sum.{layer}"]
    inputs = [x, added, ones]
    of("SkipSimplifiedLayerNormalization", *inputs, outputs=outputs, domain="com.microsoft", epsilon=1e-5)
    return outputs[3]


LAYOUTS: Mapping[str, Callable[[Path], Path]] = {"optimum": optimum, "optimum merged": optimum_merged, "genai": genai}


def _attention(name: str, cache: Mapping[str, Any]) -> onnx.GraphProto:
    """Return the layers as a graph of their own, with the inputs of ``cache``; else the branch of an If."""
    of = Writer(SIZES, np.random.default_rng(0))
    x = of("Add", of("Gather", "words", "input_ids"), of("Gather", "places", "position_ids"))
    length = of("Gather", of("Shape", "attention_mask"), of.constant(np.int64(1)))
    keys = of("Range", of.constant(np.int64(0)), length, of.constant(np.int64(1)))
    later = of("Greater", keys, of("Unsqueeze", "position_ids", of.ints(1, 3)))
    unseen = of("Where", later, of.constant(np.float32(-1e4)), of.constant(np.float32(0)))
    shown = of("Add", of.hidden_by("attention_mask"), unseen)
    for layer in range(SIZES.layers):
        query, *new = (of.split(of("MatMul", x, f"{layer}.{part}")) for part in ("query", "key", "value"))
        for place, part in enumerate(("key", "value")):
            before = [] if name == "no_past" else [f"past_key_values.{layer}.{part}"]
            new[place] = of("Concat", *before, new[place], axis=2, outputs=[f"present.{layer}.{part}"])
        x = of("Add", x, of("Tanh", of("MatMul", of.attend(query, *new, shown), f"{layer}.mixed")))
    of("MatMul", x, "scores", outputs=["logits"])
    return helper.make_graph(
        of.nodes, name, _declared({**_tokens(), **cache} if cache else {}), _outputs(_past(SIZES.heads)), of.tensors
    )


def _with_weights(path: Path, beside: str, graph: onnx.GraphProto) -> Path:
    """Add the weights of the layers to a graph, and write it."""
    rng, h = np.random.default_rng(2), SIZES.hidden
    shapes = {"words": (SIZES.vocabulary, h), "places": (SIZES.places, h), "scores": (h, SIZES.vocabulary)}
    parts = ("query", "key", "value", "mixed")
    shapes |= {f"{layer}.{part}": (h, h) for layer in range(SIZES.layers) for part in parts}
    graph.initializer.extend(
        numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name)
        for name, shape in shapes.items()
    )
    return _saved(path, beside, graph)


def _saved(path: Path, beside: str, graph: onnx.GraphProto) -> Path:
    sets = [helper.make_opsetid("", SIZES.opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=sets, ir_version=9)
    onnx.save(model, path, save_as_external_data=True, location=beside, size_threshold=256)
    return path


def _tokens() -> dict[str, Any]:
    tokens, total = (INT64, ("batch_size", "sequence_length")), (INT64, ("batch_size", "total_sequence_length"))
    return {"input_ids": tokens, "attention_mask": total, "position_ids": tokens}


def _past(heads: int) -> dict[str, Any]:
    shape = ("batch_size", heads, "past_sequence_length", SIZES.size)
    return {f"past_key_values.{part}": (FLOAT, shape) for part in PARTS}


def _outputs(cache: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
    declared = {"logits": (FLOAT, ("batch_size", "sequence_length", SIZES.vocabulary))}
    for name, (kind, (batch, heads, _, size)) in cache.items():
        declared[name.replace("past_key_values", "present")] = kind, (batch, heads, "total_sequence_length", size)
    return _declared(declared)


def _declared(ends: Mapping[str, Any]) -> list[onnx.ValueInfoProto]:
    return [helper.make_tensor_value_info(name, *each) for name, each in ends.items()]


def fixed(folder: Path, room: int) -> Path:
    """Write a decoder whose caches and mask are of a fixed length, each token written behind those before it."""
    of, rng, h = Writer(SIZES, np.random.default_rng(0)), np.random.default_rng(2), SIZES.hidden
    heads = SIZES.heads

    def product(x: str, columns: int) -> str:
        return of("MatMul", x, of.constant((rng.standard_normal((h, columns)) * 0.2).astype(np.float32)))

    x = of("Add", of("Gather", of.weights(SIZES.vocabulary, h), "input_ids"),
           of("Gather", of.weights(SIZES.places, h), "position_ids"))  # fmt: skip
    keys = of.constant(np.arange(room, dtype=np.int64))
    later = of("Greater", keys, of("Unsqueeze", "position_ids", of.ints(1, 3)))
    absent = of("Equal", of("Unsqueeze", "attention_mask", of.ints(1, 2)), of.constant(np.int64(0)))
    hidden = of("Where", of("Or", later, absent), of.constant(np.float32(-1e4)), of.constant(np.float32(0)))
    place = of("Unsqueeze", "cache_position", of.ints(0, 1, 3))
    for layer in range(SIZES.layers):
        query, *new = (of.split(product(x, h)) for _ in range(3))
        for number, part in enumerate(("key", "value")):
            inputs = [f"past_key_values.{layer}.{part}", of("Expand", place, of("Shape", new[number])), new[number]]
            new[number] = of("ScatterElements", *inputs, axis=2, outputs=[f"present.{layer}.{part}"])
        x = of("Add", x, of("Tanh", product(of.attend(query, *new, hidden), h)))
    of.nodes.append(helper.make_node("Identity", [product(x, SIZES.vocabulary)], ["logits"]))
    cache = {f"past_key_values.{part}": (FLOAT, (1, heads, room, SIZES.size)) for part in PARTS}
    tokens = {**_tokens(), "attention_mask": (INT64, (1, room)), "cache_position": (INT64, ("sequence_length",))}
    declared = {"logits": (FLOAT, (1, "sequence_length", SIZES.vocabulary))}
    declared |= {name.replace("past_key_values", "present"): each for name, each in cache.items()}
    graph = helper.make_graph(of.nodes, "fixed", _declared({**tokens, **cache}), _declared(declared), of.tensors)
    return _saved(folder / "model.onnx", "model.onnx_data", graph)
