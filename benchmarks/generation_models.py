"""The decoder of ``generation.py`` in the files that each program reads, with random weights of few bits.

python benchmarks/generation_models.py 4 FOLDER     ONNX, as ONNX Runtime's model builder writes it
python benchmarks/generation_models.py Q4_0 FILE    GGUF, for llama.cpp and OpenVINO GenAI; or Q8_0; needs gguf alone
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import onnx

LAYERS, WIDTH, HEADS, GROUPS, WORDS, CONTEXT = 8, 2048, 32, 4, 8000, 4096
SIZE, WIDE = WIDTH // HEADS, WIDTH * 11 // 4
CACHE = {
    f"past_key_values.{layer}.{part}": f"present.{layer}.{part}" for layer in range(LAYERS) for part in ("key", "value")
}
"""The inputs of the cache, and the outputs that take their places in the next call."""


def onnx_folder(bits: int, folder: Path) -> Path:
    """Write the decoder and its ``genai_config.json``; return the model's path."""
    import onnx

    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
    from kernels.generation import decoder
    from kernels.transformer import Sizes

    sizes = Sizes(1, "sequence", "past")
    structure = decoder(sizes, bits, 32, False, 4, width=WIDTH, heads=HEADS, groups=GROUPS, layers=LAYERS, words=WORDS)
    model = with_builders_inputs(with_random_weights(structure, bits))
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="model.onnx.data")
    part = {"key": "past_key_values.%d.key", "value": "past_key_values.%d.value"}
    names = {f"past_{each}_names": name for each, name in part.items()}
    kept = {f"present_{each}_names": name.replace("past_key_values", "present") for each, name in part.items()}
    config = {
        "model": {
            "type": "llama", "context_length": CONTEXT, "vocab_size": WORDS,
            "bos_token_id": 0, "eos_token_id": 0, "pad_token_id": 0,
            "decoder": {
                "session_options": {"provider_options": []}, "filename": path.name,
                "head_size": SIZE, "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_hidden_layers": LAYERS,
                "num_key_value_heads": GROUPS,
                "inputs": {"input_ids": "input_ids", "attention_mask": "attention_mask", **names},
                "outputs": {"logits": "logits", **kept},
            },
        },
        "search": {"max_length": CONTEXT, "do_sample": False, "past_present_share_buffer": True},
    }  # fmt: skip
    (folder / "genai_config.json").write_text(json.dumps(config, indent=1))
    return path


def with_builders_inputs(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a decoder with the names of ONNX Runtime's model builder, whose lengths follow from a mask."""
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    attentions = [node for node in graph.node if node.op_type == "GroupQueryAttention"]
    names = {graph.output[0].name: "logits"}
    names |= dict(zip([each for node in attentions for each in node.input[3:5]], CACHE, strict=True))
    names |= dict(zip([each for node in attentions for each in node.output[1:]], CACHE.values(), strict=True))
    names |= dict(zip(attentions[0].input[5:7], ("lengths", "total"), strict=True))
    for node in graph.node:
        node.input[:] = [names.get(each, each) for each in node.input]
        node.output[:] = [names.get(each, each) for each in node.output]
    lengths = [
        helper.make_node("ReduceSum", ["attention_mask", "ones"], ["counts"], keepdims=0),
        helper.make_node("Sub", ["counts", "ones"], ["last"]),
        helper.make_node("Cast", ["last"], ["lengths"], to=TensorProto.INT32),
        helper.make_node("Shape", ["attention_mask"], ["mask_shape"]),
        helper.make_node("Gather", ["mask_shape", "one"], ["mask_length"], axis=0),
        helper.make_node("Cast", ["mask_length"], ["total"], to=TensorProto.INT32),
    ]
    others = [node for node in graph.node if "total" not in node.output]
    nodes = [*lengths, *_needed(others, {"logits", *CACHE.values()})]
    del graph.node[:], graph.input[:], graph.output[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(np.array(value), name) for name, value in _ONES.items())
    tokens = {"input_ids": "sequence", "attention_mask": "total"}
    graph.input.extend(helper.make_tensor_value_info(each, TensorProto.INT64, [1, tokens[each]]) for each in tokens)
    scores = helper.make_tensor_value_info("logits", TensorProto.FLOAT, [1, "sequence", WORDS])
    graph.output.append(scores)
    for ends, those, length in ((graph.input, CACHE, "past"), (graph.output, CACHE.values(), "total")):
        shape = [1, GROUPS, length, SIZE]
        ends.extend(helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in those)
    return model


_ONES = {"one": 1, "ones": [1]}


def _needed(nodes: list[onnx.NodeProto], wanted: set[str]) -> list[onnx.NodeProto]:
    """Return the nodes from which some values follow."""
    found = []
    for node in reversed(nodes):
        if wanted.intersection(node.output):
            found.append(node)
            wanted.update(node.input)
    return found[::-1]


def with_random_weights(model: onnx.ModelProto, bits: int) -> onnx.ModelProto:
    """Return a structure with random numbers in place of its constants of one number."""
    from onnx import numpy_helper

    draw, graph = np.random.default_rng(0), model.graph
    known = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    made = {}
    for name, value in known.items():
        if value.dtype == np.uint8:
            made[name] = draw.integers(0, 256, value.shape, np.uint8)
        elif value.dtype == np.float32 and value.ndim == 2:
            made[name] = (draw.random(value.shape) * 0.01 / 2 ** (bits - 4)).astype(np.float32)
    nodes = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape" and node.input[0] in known:
            shape = tuple(known[node.input[0]])
            value = np.ones(shape) if len(shape) == 1 else draw.standard_normal(shape) * 0.02
            made[node.output[0]] = value.astype(np.float32)
        else:
            nodes.append(node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(nodes)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in (known | made).items())
    return model


def gguf_file(kind: str, path: Path) -> None:
    """Write the decoder for llama.cpp and OpenVINO GenAI, which asks for the type of the file."""
    import gguf

    type_, draw = getattr(gguf.GGMLQuantizationType, kind), np.random.default_rng(0)
    to = gguf.GGUFWriter(path, "llama")
    to.add_file_type(getattr(gguf.LlamaFileType, f"MOSTLY_{kind}"))
    to.add_block_count(LAYERS)
    to.add_context_length(CONTEXT)
    to.add_embedding_length(WIDTH)
    to.add_feed_forward_length(WIDE)
    to.add_head_count(HEADS)
    to.add_head_count_kv(GROUPS)
    to.add_layer_norm_rms_eps(1e-5)
    to.add_rope_dimension_count(SIZE)
    to.add_vocab_size(WORDS)
    to.add_tokenizer_model("no_vocab")
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd": (WORDS, WIDTH), "output": (WORDS, WIDTH), "output_norm": (WIDTH,)
    }  # fmt: skip
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}": shape for name, shape in _LAYER.items()}
    for name, shape in shapes.items():
        if len(shape) == 1:
            to.add_tensor(f"{name}.weight", np.ones(shape, np.float32))
        else:
            values = (draw.standard_normal(shape) * 0.02).astype(np.float32)
            to.add_tensor(f"{name}.weight", gguf.quants.quantize(values, type_), raw_dtype=type_)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


_LAYER = {
    "attn_norm": (WIDTH,), "attn_q": (WIDTH, WIDTH), "attn_k": (GROUPS * SIZE, WIDTH), "attn_v": (GROUPS * SIZE, WIDTH),
    "attn_output": (WIDTH, WIDTH), "ffn_norm": (WIDTH,), "ffn_gate": (WIDE, WIDTH), "ffn_up": (WIDE, WIDTH),
    "ffn_down": (WIDTH, WIDE),
}  # fmt: skip


if __name__ == "__main__":
    if sys.argv[1].isdecimal():
        onnx_folder(int(sys.argv[1]), Path(sys.argv[2]))
    else:
        gguf_file(sys.argv[1], Path(sys.argv[2]))
