"""The networks whose sizes ``sizes.py`` changes, with random weights: written by hand, or exported from modules.

A case is a network, the sizes that it is called with in order, and what makes its inputs in a size. The first size is
the one that is built.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.writer import FLOAT, INT64, Writer

Data = dict[str, np.ndarray]
Size = tuple[int, ...]

WORDS = 200


class Case(NamedTuple):
    """One network and its sizes.

    Attributes:
        row: The row of the table that it belongs to.
        name: What it is called.
        write: Writes it to a file.
        sizes: In the order in which they are called.
        data: Makes the inputs of a size; the number is the call's, for what data decides.
        how: Which measurement: ``sizes``, ``decode``, ``file``, ``first`` or ``memory``.
        further: Sizes that another process calls, which nobody has called before.
        ranges: For ``file``: what the file is for.
    """

    row: int
    name: str
    write: Callable[[Path], None]
    sizes: Sequence[Size]
    data: Callable[[Size, int], Data]
    how: str = "sizes"
    further: Sequence[Size] = ()
    ranges: dict[str, Sequence[Any]] = {}  # noqa: RUF012  nobody changes it


def drawn(*shape: int) -> np.ndarray:
    """Return weights, the same for the same shape."""
    spread = max(shape[-2] if len(shape) > 1 else 1, 1) ** 0.5
    return (np.random.default_rng(shape).standard_normal(shape) / spread).astype(np.float32)


def floats(number: int, *shape: int) -> np.ndarray:
    """Return inputs of a call."""
    return np.random.default_rng(number).standard_normal(shape).astype(np.float32)


def words(number: int, *shape: int) -> np.ndarray:
    """Return words of a call."""
    return np.random.default_rng(number).integers(3, 38, shape)


def scalar(to: Writer, value: str, axis: int) -> str:
    """Return an extent as a number."""
    return to.add("Gather", to.add("Shape", value), to.numbers(axis), axis=0)


def listed(to: Writer, value: str, axis: int) -> str:
    """Return an extent as a list of one."""
    return to.add("Unsqueeze", scalar(to, value, axis), to.numbers([0]))


# -- single operators whose numbers are lengths ------------------------------------------------------------------------

TOKEN, PAST = (1, 8), 8


def _sliced(to: Writer, x: str, n: str) -> str:
    table = to.numbers(drawn(512, 8), "float32")
    more = to.add("Add", n, to.numbers([1]))
    return to.add("Add", x, to.add("Slice", table, n, more, to.numbers([0])))


def _gathered(to: Writer, x: str, n: str) -> str:
    return to.add("Add", x, to.add("Gather", to.numbers(drawn(512, 8), "float32"), n, axis=0))


def _ranged(to: Writer, x: str, n: str) -> str:
    start = to.add("Squeeze", n, to.numbers([0]))
    places = to.add("Range", start, to.add("Add", start, to.numbers(1)), to.numbers(1))
    return to.add("Mul", x, to.add("Unsqueeze", to.add("Cast", places, to=FLOAT), to.numbers([1])))


def _masked(to: Writer, x: str, n: str) -> str:
    keys = to.add("Concat", "past", x, axis=0)
    scores = to.add("MatMul", x, to.add("Transpose", keys, perm=[1, 0]))
    more = to.add("Add", n, to.numbers([1]))
    seen = to.numbers(np.tril(np.ones((512, 512), bool)), "bool")
    row = to.add("Slice", to.add("Slice", seen, n, more, to.numbers([0])), to.numbers([0]), more, to.numbers([1]))
    shown = to.add("Where", row, scores, to.number(-1e4))
    return to.add("MatMul", to.add("Softmax", shown, axis=-1), keys)


def _expanded(to: Writer, x: str, n: str) -> str:
    return to.add("Add", "past", to.add("Expand", x, to.add("Concat", n, to.numbers([8]), axis=0)))


def _filled(to: Writer, x: str, n: str) -> str:
    zero = onnx.numpy_helper.from_array(np.float32([0.5]))
    shape = to.add("Concat", n, to.numbers([8]), axis=0)
    return to.add("Add", "past", to.add("Mul", to.add("ConstantOfShape", shape, value=zero), x))


def _padded(to: Writer, x: str, n: str) -> str:
    pads = to.add("Concat", to.numbers([0, 0]), n, to.numbers([0]), axis=0)
    return to.add("Add", to.add("Pad", x, pads), to.number(1.0))


def _tiled(to: Writer, x: str, n: str) -> str:
    return to.add("Add", "past", to.add("Tile", x, to.add("Concat", n, to.numbers([1]), axis=0)))


def _resized(to: Writer, x: str, n: str) -> str:
    image = to.add("Reshape", x, to.numbers([1, 1, 2, 4]))
    sizes = to.add("Concat", to.numbers([1, 1]), n, n, axis=0)
    return to.add("Relu", to.add("Resize", image, "", "", sizes, mode="linear"))


def _chosen(to: Writer, x: str, n: str) -> str:
    is_long = to.add("Greater", to.add("Squeeze", n, to.numbers([0])), to.numbers(8))
    branches = {}
    for name, op_type in (("then_branch", "Exp"), ("else_branch", "Tanh")):
        node = onnx.helper.make_node(op_type, [x], [f"{op_type}_result"], op_type)
        result = onnx.helper.make_tensor_value_info(f"{op_type}_result", FLOAT, None)
        branches[name] = onnx.helper.make_graph([node], name, [], [result])
    return to.add("Add", to.add("If", is_long, **branches), to.add("ReduceSum", "past", to.numbers([0]), keepdims=1))


OPERATORS = {
    "Slice(W, n)": _sliced, "Gather(W, n)": _gathered, "Range(n, n+1)": _ranged, "row of a mask": _masked,
    "Expand": _expanded, "ConstantOfShape": _filled, "Pad": _padded, "Tile": _tiled, "Resize": _resized,
    "If": _chosen,
}  # fmt: skip
"""What an operator of one network is given by the length of an input."""


def _write_operator(name: str, path: Path) -> None:
    to = Writer(18)
    to.input("past", ("n", PAST))
    x = to.add("Relu", to.input("x", TOKEN))
    onnx.save(to.model(OPERATORS[name](to, x, listed(to, "past", 0))), path)


def _operator_data(size: Size, number: int) -> Data:
    return {"past": floats(number, size[0], PAST), "x": floats(number + 1, *TOKEN)}


# -- networks of images ------------------------------------------------------------------------------------------------


def _conv(to: Writer, x: str, inputs: int, outputs: int, stride: int = 1) -> str:
    weights = to.numbers(drawn(outputs, inputs, 3, 3) / (3 * inputs), "float32")
    bias = to.numbers(drawn(outputs), "float32")
    return to.add("Relu", to.add("Conv", x, weights, bias, pads=[1] * 4, strides=[stride] * 2))


def _write_pyramid(path: Path, *, enlarges: bool) -> None:
    """Two images of which one is twice as large: it is halved, or the other enlarged."""
    to = Writer(18)
    small = _conv(to, to.input("small", (1, 8, "h", "w")), 8, 16)
    large = to.input("large", (1, 8, "h2", "w2"))
    if enlarges:
        small = to.add("Resize", small, "", to.numbers([1, 1, 2, 2], "float32"), mode="nearest")
        joined = to.add("Concat", small, _conv(to, large, 8, 16), axis=1)
        onnx.save(to.model(_conv(to, joined, 32, 16)), path)
    else:
        onnx.save(to.model(_conv(to, to.add("Add", small, _conv(to, large, 8, 16, 2)), 16, 16)), path)


def _pyramid_data(size: Size, number: int) -> Data:
    height, width = size
    return {"small": floats(number, 1, 8, height, width), "large": floats(number + 1, 1, 8, 2 * height, 2 * width)}


def _write_convnet(path: Path) -> None:
    to = Writer(18)
    x = _conv(to, to.input("x", ("b", 3, "h", "w")), 3, 16, 2)
    for inputs, outputs in ((16, 16), (16, 32), (32, 64)):
        y = _conv(to, _conv(to, x, inputs, outputs, 1 + (outputs > inputs)), outputs, outputs)
        if inputs != outputs:
            weights = to.numbers(drawn(outputs, inputs, 1, 1) / inputs, "float32")
            x = to.add("Conv", x, weights, strides=[2, 2])
        x = to.add("Relu", to.add("Add", x, y))
    x = to.add("Flatten", to.add("GlobalAveragePool", x))
    onnx.save(to.model(to.add("Gemm", x, to.numbers(drawn(64, 10), "float32"))), path)


def _convnet_data(size: Size, number: int) -> Data:
    batch, height, width = size
    return {"x": floats(number, batch, 3, height, width)}


def _write_detector(path: Path) -> None:
    """Boxes of each place of an image, of which suppression leaves a few, and what is at those."""
    to = Writer(18)
    x = _conv(to, _conv(to, to.input("x", (1, 3, "h", "w")), 3, 16, 2), 16, 32, 2)
    flat = to.add("Reshape", x, to.numbers([1, 32, -1]))
    rows = to.add("Transpose", flat, perm=[0, 2, 1])
    sizes = to.add("Sigmoid", to.add("MatMul", rows, to.numbers(9 * drawn(32, 4), "float32")))
    sizes = to.add("Mul", sizes, to.numbers([1, 1, 0.4, 0.4], "float32"))
    scores = to.add("Sigmoid", to.add("MatMul", rows, to.numbers(drawn(32, 3), "float32")))
    turned = to.add("Transpose", scores, perm=[0, 2, 1])
    limits = to.numbers([20]), to.number(0.3), to.number(0.4)
    kept = to.add("NonMaxSuppression", sizes, turned, *limits, center_point_box=1)
    places = to.add("Gather", kept, to.numbers(2), axis=1)
    found = to.add("Gather", to.add("Squeeze", rows, to.numbers([0])), places, axis=0)
    boxes = to.add("Gather", to.add("Squeeze", sizes, to.numbers([0])), places, axis=0)
    head = to.add("Relu", to.add("Gemm", found, to.numbers(drawn(32, 64), "float32")))
    onnx.save(to.model(to.add("Softmax", to.add("Gemm", head, to.numbers(drawn(64, 5), "float32"))), boxes), path)


def _scene_data(size: Size, number: int) -> Data:
    return {"x": floats(number, 1, 3, *size)}


# -- transformers and other sequences ----------------------------------------------------------------------------------


def _dense(to: Writer, x: str, inputs: int, outputs: int) -> str:
    product = to.add("MatMul", x, to.numbers(drawn(inputs, outputs), "float32"))
    return to.add("Add", product, to.numbers(drawn(outputs), "float32"))


def _norm(to: Writer, x: str, width: int) -> str:
    ones, zeros = np.ones(width), np.zeros(width)
    return to.add("LayerNormalization", x, to.numbers(ones, "float32"), to.numbers(zeros, "float32"), axis=-1)


IDS = ("ids", "mask")


def _write_bert(path: Path, width: int = 128, heads: int = 4, layers: int = 2) -> None:
    to = Writer(20)
    ids, mask = (to.input(name, ("b", "n"), INT64) for name in IDS)
    places = to.add("Slice", to.numbers(np.arange(512)[None]), to.numbers([0]), listed(to, ids, 1), to.numbers([1]))
    x = to.add("Gather", to.numbers(drawn(WORDS, width), "float32"), ids, axis=0)
    x = to.add("Add", x, to.add("Gather", to.numbers(drawn(512, width), "float32"), places, axis=0))
    hidden = to.add("Cast", to.add("Unsqueeze", mask, to.numbers([1, 2])), to=FLOAT)
    hidden = to.add("Mul", to.add("Sub", to.number(1.0), hidden), to.number(-1e4))
    split = to.add("Concat", listed(to, ids, 0), listed(to, ids, 1), to.numbers([heads, width // heads]), axis=0)
    joined = to.add("Concat", listed(to, ids, 0), listed(to, ids, 1), to.numbers([width]), axis=0)
    for _ in range(layers):
        q, k, v = (
            to.add("Transpose", to.add("Reshape", _dense(to, x, width, width), split), perm=perm)
            for perm in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        scores = to.add("Mul", to.add("MatMul", q, k), to.number((width // heads) ** -0.5))
        weights = to.add("Softmax", to.add("Add", scores, hidden), axis=-1)
        mixed = to.add("Reshape", to.add("Transpose", to.add("MatMul", weights, v), perm=[0, 2, 1, 3]), joined)
        x = _norm(to, to.add("Add", x, _dense(to, mixed, width, width)), width)
        wide = to.add("Gelu", _dense(to, x, width, 4 * width))
        x = _norm(to, to.add("Add", x, _dense(to, wide, 4 * width, width)), width)
    onnx.save(to.model(x), path)


def _bert_data(size: Size, number: int) -> Data:
    return {"ids": words(number, *size), "mask": np.ones(size, np.int64)}


def _write_collected(path: Path) -> None:
    """Sentences of a batch, each cut to its length, computed one by one, and put behind one another."""
    to = Writer(18)
    x, lengths = to.input("x", ("b", "n", 16)), to.input("lengths", ("b",), INT64)
    inner = Writer(18)
    turn, more, kept = (f"inner_{name}" for name in ("turn", "more", "kept"))
    row = inner.add("Gather", x, turn, axis=0)
    one = inner.add("Gather", lengths, inner.add("Unsqueeze", turn, inner.numbers([0])), axis=0)
    cut = inner.add("Slice", row, inner.numbers([0]), one, inner.numbers([0]))
    value = inner.add("Tanh", inner.add("MatMul", cut, inner.numbers(drawn(16, 16), "float32")))
    joined, still = inner.add("Concat", kept, value, axis=0), inner.add("Identity", more)
    info = onnx.helper.make_tensor_value_info
    inputs = [info(turn, INT64, []), info(more, onnx.TensorProto.BOOL, []), info(kept, FLOAT, None)]
    outputs = [info(still, onnx.TensorProto.BOOL, []), info(joined, FLOAT, None)]
    for node in inner.nodes:  # names of the body are not those of the network
        node.name = f"inner_{node.name}"
    rename = {name: f"inner_{name}" for node in inner.nodes for name in node.output}
    rename |= {each.name: f"inner_{each.name}" for each in inner.constants}
    for node in inner.nodes:
        node.input[:] = [rename.get(name, name) for name in node.input]
        node.output[:] = [rename[name] for name in node.output]
    for each in (*outputs, *inner.constants):
        each.name = rename.get(each.name, each.name)
    body = onnx.helper.make_graph(inner.nodes, "body", inputs, outputs, inner.constants)
    start = to.numbers(np.zeros((0, 16)), "float32")
    made = to.add("Loop", scalar(to, x, 0), to.numbers(True, "bool"), start, body=body)
    onnx.save(to.model(to.add("Softmax", _dense(to, made, 16, 8), axis=-1)), path)


def _collected_data(size: Size, number: int) -> Data:
    batch, length = size
    return {
        "x": floats(number, batch, length, 16),
        "lengths": np.random.default_rng(number).integers(1, length + 1, batch),
    }


# -- modules -----------------------------------------------------------------------------------------------------------


def _export(
    module: Any, given: Any, names: Sequence[str], outputs: int, axes: dict[str, dict[int, str]], path: Path
) -> None:
    import logging
    import warnings

    import torch

    logging.disable(logging.WARNING)
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        results = [f"y{number}" for number in range(outputs)]
        torch.onnx.export(
            module.eval(), given, path, input_names=list(names), output_names=results, dynamic_axes=axes,
            opset_version=17, dynamo=False,
        )  # fmt: skip


def _called(function: Callable[..., Any], model: Any) -> Any:
    """Return a module that computes a function of a model."""
    import torch

    torch.manual_seed(0)

    class Called(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def forward(self, *given: Any) -> Any:
            return function(self.model, *given)

    return Called()


def _cached(past: Sequence[Any]) -> Any:
    import transformers

    cache = transformers.DynamicCache()
    for layer in range(len(past) // 2):
        cache.update(past[2 * layer], past[2 * layer + 1], layer)
    return cache


def _kept(cache: Any) -> list[Any]:
    return [each for layer in cache.layers for each in (layer.keys, layer.values)]


def _past(number: int, layers: int, heads: int, length: int, size: int) -> Data:
    return {f"past{place}": floats(number + place, 1, heads, length, size) for place in range(2 * layers)}


def _write_whisper(path: Path) -> None:
    """A decoder whose positions are learned, and read at the length of what came before."""
    import torch
    import transformers as tr

    torch.manual_seed(0)
    config = tr.WhisperConfig(
        vocab_size=WORDS, d_model=128, decoder_layers=2, encoder_layers=1, decoder_attention_heads=4,
        encoder_attention_heads=4, decoder_ffn_dim=256, encoder_ffn_dim=128, max_source_positions=50, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=1,
    )  # fmt: skip

    def step(model: Any, ids: Any, heard: Any, *past: Any) -> Any:
        cache = tr.EncoderDecoderCache(_cached(past), tr.DynamicCache())
        found = model.model.decoder(input_ids=ids, encoder_hidden_states=heard, past_key_values=cache, use_cache=True)
        return (found.last_hidden_state, *_kept(cache.self_attention_cache))

    data = {name: torch.from_numpy(each) for name, each in _whisper_data((5,), 0).items()}
    axes = {name: {2: "past"} for name in data if name.startswith("past")}
    _export(_called(step, tr.WhisperForConditionalGeneration(config)), tuple(data.values()), list(data), 5, axes, path)


def _whisper_data(size: Size, number: int) -> Data:
    return {"ids": words(number, 1, 1), "heard": floats(number, 1, 50, 128), **_past(number, 2, 4, size[0], 32)}


DECODER = (12, 4, 64)
"""Layers, heads, and elements of each, of the decoder with a growing cache."""


def _write_decoder(path: Path, data: Data) -> None:
    import torch
    import transformers as tr

    torch.manual_seed(0)
    layers, heads, size = DECODER
    config = tr.GPT2Config(n_embd=heads * size, n_layer=layers, n_head=heads, vocab_size=1000)
    given = {name: torch.from_numpy(each) for name, each in data.items()}

    def step(model: Any, *values: Any) -> Any:
        cache, places = _cached(values[-2 * layers :]), {"position_ids": values[1]} if "places" in given else {}
        return (model(input_ids=values[0], past_key_values=cache, use_cache=True, **places).logits, *_kept(cache))

    axes = {name: {2: "past"} for name in given if name.startswith("past")}
    _export(_called(step, tr.GPT2LMHeadModel(config)), tuple(given.values()), list(given), 1 + 2 * layers, axes, path)


def decoder_data(size: Size, number: int) -> Data:
    """Return a token, and the cache of as many as a size says."""
    return {"ids": words(number, 1, 1), **_past(number, *DECODER[:2], size[0], DECODER[2])}


def placed_data(size: Size, number: int) -> Data:
    """Return a token with its place, and the cache."""
    ids, *past = decoder_data(size, number).items()
    return dict([ids, ("places", np.array([size])), *past])


def _write_t5(path: Path) -> None:
    import torch
    import transformers as tr

    torch.manual_seed(0)
    config = tr.T5Config(vocab_size=WORDS, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4)

    def decode(model: Any, ids: Any, read: Any) -> Any:
        return model(decoder_input_ids=ids, encoder_outputs=(read,), use_cache=False).logits

    data = {name: torch.from_numpy(each) for name, each in _t5_data((1, 7, 9), 0).items()}
    axes = {"ids": {0: "b", 1: "n"}, "read": {0: "b", 1: "m"}}
    module = _called(decode, tr.T5ForConditionalGeneration(config))
    _export(module, tuple(data.values()), list(data), 1, axes, path)


def _t5_data(size: Size, number: int) -> Data:
    batch, length, read = size
    return {"ids": words(number, batch, length), "read": floats(number, batch, read, 64)}


def _write_diffusion(path: Path) -> None:
    """A U-Net of one level down and up with a time, of blocks as those of diffusion models."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch_networks import Diffusion

    torch.manual_seed(0)

    class UNet(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.first, self.down = nn.Conv2d(4, width, 3, padding=1), nn.Conv2d(width, width, 3, 2, 1)
            self.block, self.last = Diffusion(width, 2 * width), nn.Conv2d(3 * width, 4, 3, padding=1)

        def forward(self, x: Any, time: Any) -> Any:
            x = functional.silu(self.first(x))
            return self.last(torch.cat([self.block(self.down(x), time), x], 1))

    data = {name: torch.from_numpy(each) for name, each in _diffusion_data((1, 16, 16), 0).items()}
    axes = {"x": {0: "b", 2: "h", 3: "w"}, "time": {0: "b"}}
    _export(UNet(32), tuple(data.values()), list(data), 1, axes, path)


def _diffusion_data(size: Size, number: int) -> Data:
    batch, height, width = size
    return {"x": floats(number, batch, 4, height, width), "time": floats(number, batch, 32)}


def _write_depth(path: Path) -> None:
    import torch
    import transformers as tr

    torch.manual_seed(0)
    stages = [f"stage{number}" for number in range(1, 5)]
    backbone = tr.Dinov2Config(
        hidden_size=96, num_hidden_layers=4, num_attention_heads=4, image_size=224, patch_size=14,
        out_features=stages, reshape_hidden_states=False, apply_layernorm=True,
    )  # fmt: skip
    config = tr.DepthAnythingConfig(
        backbone_config=backbone, reassemble_hidden_size=96, neck_hidden_sizes=[24, 48, 96, 96],
        fusion_hidden_size=32, head_hidden_size=16,
    )  # fmt: skip
    module = _called(lambda model, x: model(x).predicted_depth, tr.DepthAnythingForDepthEstimation(config))
    _export(module, (torch.zeros(1, 3, 140, 126),), ["x"], 1, {"x": {0: "b", 2: "h", 3: "w"}}, path)


def _depth_data(size: Size, number: int) -> Data:
    return {"x": floats(number, 1, 3, *size)}


def _write_speech(path: Path) -> None:
    """Text to speech: how long each letter lasts is computed, and each is repeated so often."""
    import torch
    import transformers as tr

    torch.manual_seed(0)
    config = tr.VitsConfig(
        vocab_size=38, hidden_size=64, num_hidden_layers=2, num_attention_heads=2, ffn_dim=128, flow_size=64,
        spectrogram_bins=65, upsample_initial_channel=64, upsample_rates=[8, 8], upsample_kernel_sizes=[16, 16],
        resblock_kernel_sizes=[3], resblock_dilation_sizes=[[1, 3]], prior_encoder_num_flows=2,
        posterior_encoder_num_wavenet_layers=2, prior_encoder_num_wavenet_layers=2, duration_predictor_num_flows=2,
        use_stochastic_duration_prediction=False,
    )  # fmt: skip
    model = tr.VitsModel(config)
    model.noise_scale = 0.0
    data = {name: torch.from_numpy(each) for name, each in _speech_data((20,), 0).items()}
    axes = {name: {1: "n"} for name in data}
    module = _called(lambda model, ids, mask: model(ids, mask).waveform, model)
    _export(module, tuple(data.values()), list(data), 1, axes, path)


def _speech_data(size: Size, number: int) -> Data:
    return {"ids": words(number, 1, *size), "mask": np.ones((1, *size), np.int64)}


# -- the table ---------------------------------------------------------------------------------------------------------

LENGTHS = [(n,) for n in (5, 6, 7, 8, 9, 10, 17, 12, 20, 40, 41, 100)]
TOKENS = [(n,) for n in range(1, 101)]
NEW_LENGTHS = [(n,) for n in (11, 13, 21, 33, 50, 51, 99, 101)]
IMAGES = [(8, 8), (8, 12), (10, 14), (12, 12), (16, 10), (9, 11), (20, 20), (24, 16)]
NEW_IMAGES = [(14, 10), (11, 9), (18, 18), (16, 24)]
KINDS = [(1, 32, 32), (2, 32, 32), (1, 32, 48), (2, 48, 32), (1, 64, 64), (3, 33, 47), (1, 16, 80)]
NEW_KINDS = [(2, 64, 48), (1, 40, 40), (4, 32, 64), (2, 80, 16)]
BATCHES = [(1, 16), (2, 16), (1, 1), (1, 2), (2, 1), (4, 4), (3, 40), (1, 33)]
PICTURES = [
    (14 * height, 14 * width)
    for height, width in (
        *((10, 9), (9, 9), (9, 10), (5, 6), (6, 5), (18, 15), (16, 16), (12, 20), (7, 7), (20, 12), (11, 13), (8, 17)),
        *((10, 10), (13, 11), (17, 8), (6, 6)),
    )
]
PICTURES, NEW_PICTURES = PICTURES[:12], PICTURES[12:]
NEW_BATCHES = [(1, 17), (2, 2), (5, 1), (2, 50)]
TEXTS = [(n,) for n in (20, 13, 31, 8, 24, 20, 40)]
NEW_TEXTS = [(n,) for n in (21, 14, 35, 7)]
SCENES = [(64, 64), (64, 96), (96, 64), (80, 80), (64, 64), (128, 96), (72, 88)]
NEW_SCENES = [(64, 80), (112, 64), (88, 88)]
SENTENCES = [(3, 7), (4, 9), (2, 5), (6, 12), (3, 7), (5, 20), (1, 4)]
NEW_SENTENCES = [(4, 8), (7, 3), (3, 30)]
SEQUENCES = [(1, 1, 9), (1, 2, 9), (2, 1, 9), (1, 7, 9), (2, 3, 5), (1, 9, 9)]
NEW_SEQUENCES = [(1, 3, 9), (3, 1, 4), (2, 2, 2)]

CASES: tuple[Case, ...] = (
    Case(1, "Whisper's decoder", _write_whisper, LENGTHS, _whisper_data, further=NEW_LENGTHS),
    *(
        Case(1, name, partial(_write_operator, name), LENGTHS, _operator_data, further=NEW_LENGTHS)
        for name in OPERATORS
    ),
    Case(2, "larger halved", partial(_write_pyramid, enlarges=False), IMAGES, _pyramid_data, further=NEW_IMAGES),
    Case(2, "smaller enlarged", partial(_write_pyramid, enlarges=True), IMAGES, _pyramid_data, further=NEW_IMAGES),
    Case(3, "convnet", _write_convnet, KINDS, _convnet_data, further=NEW_KINDS),
    Case(3, "BERT", _write_bert, BATCHES, _bert_data, further=NEW_BATCHES),
    Case(3, "diffusion U-Net", _write_diffusion, KINDS[:5], _diffusion_data, further=NEW_KINDS),
    Case(3, "T5's decoder", _write_t5, SEQUENCES, _t5_data, further=NEW_SEQUENCES),
    Case(4, "monocular depth", _write_depth, PICTURES, _depth_data, further=NEW_PICTURES),
    Case(5, "text to speech", _write_speech, TEXTS, _speech_data, further=NEW_TEXTS),
    Case(5, "detector", _write_detector, SCENES, _scene_data, further=NEW_SCENES),
    Case(5, "loop over sentences", _write_collected, SENTENCES, _collected_data, further=NEW_SENTENCES),
    Case(6, "12 layers of 256", partial(_write_decoder, data=placed_data((5,), 0)), TOKENS, placed_data, "decode"),
    Case(6, "and positions", partial(_write_decoder, data=decoder_data((5,), 0)), TOKENS, decoder_data, "decode"),
    Case(7, "convnet, file", _write_convnet, KINDS[1:], _convnet_data, "file", NEW_KINDS, {"x": (-1, 3, -1, -1)}),
    Case(7, "BERT, file", _write_bert, BATCHES[1:], _bert_data, "file", NEW_BATCHES, dict.fromkeys(IDS, (-1, -1))),
    Case(8, "convnet, first", _write_convnet, KINDS[:1], _convnet_data, "first"),
    Case(8, "BERT, first", _write_bert, BATCHES[:1], _bert_data, "first"),
    Case(8, "monocular depth, first", _write_depth, PICTURES[:1], _depth_data, "first"),
    Case(9, "Whisper's decoder, memory", _write_whisper, [(n,) for n in range(1, 301)], _whisper_data, "memory"),
    Case(9, "BERT, memory", _write_bert, [(1, n) for n in range(2, 302)], _bert_data, "memory"),
)
"""Row 9 is what the sizes of one network take of memory."""
