"""Networks that ONNX Runtime's optimizer and quantizer wrote, whole: what ONNX Runtime computes of them.

``OPBUILD_FUZZ=300`` tries so many networks of convolutions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

import opbuild
from generated.microsoft_cases import NCHWC, Draw
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED

NETWORKS = CAMPAIGN or 4
LEVELS = onnxruntime.GraphOptimizationLevel

Feeds = dict[str, Any]


class Convolutions:
    """A random network of convolutions, pools and what stands between them."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.nodes: list[onnx.NodeProto] = []
        self.known: list[onnx.TensorProto] = []

    def add(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Add a node and return its result."""
        name = f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(op_type, inputs, [name], name, **attrs))
        return name

    def constant(self, value: Any) -> str:
        """Add a constant and return its name."""
        self.known.append(numpy_helper.from_array(np.asarray(value), f"k{len(self.known)}"))
        return self.known[-1].name

    def model(self) -> onnx.ModelProto:
        """Return the network."""
        draw, x, channels, size = self.draw, "x", 3, 24
        for _ in range(draw.int(3, 6)):
            kind = draw.one("conv", "conv", "conv", "pool", "resize", "sum") if size > 4 else "conv"
            if kind == "pool":
                x = self.add(draw.one("MaxPool", "AveragePool"), x, kernel_shape=[2, 2], strides=[2, 2])
                size //= 2
            elif kind == "resize":
                scales = self.constant(np.float32([1, 1, 2, 2]))
                how = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
                x, size = self.add("Resize", x, "", scales, mode=draw.one("nearest", "linear"), **how), 2 * size
            elif kind == "sum":
                other, _ = self.conv(x, channels, channels, 1)
                x = self.add("Add", x, other)
            else:
                depthwise = channels > 3 and draw.yes(0.3)
                out = channels if depthwise else draw.one(8, 16, 20, 32)
                x, channels = self.conv(x, channels, out, channels if depthwise else 1)
        x = self.add(draw.one("GlobalAveragePool", "GlobalMaxPool"), x)
        x = self.add("Gemm", self.add("Flatten", x), self.constant(draw.f(channels, 10) / 4))
        ends = [helper.make_tensor_value_info("x", 1, (1, 3, 24, 24)), onnx.ValueInfoProto(name=self.add("Softmax", x))]
        ends[1].type.tensor_type.elem_type = 1
        graph = helper.make_graph(self.nodes, "convolutions", ends[:1], ends[1:], self.known)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)

    def conv(self, x: str, channels: int, out: int, group: int) -> tuple[str, int]:
        """Add a convolution, with an activation perhaps, and return its result and channels."""
        draw, side = self.draw, self.draw.one(1, 3)
        weights = draw.f(out, channels // group, side, side) / np.sqrt(channels // group * side**2)
        x = self.add("Conv", x, self.constant(weights.astype(np.float32)), self.constant(draw.f(out) / 4),
                     group=group, pads=[side // 2] * 4)  # fmt: skip
        kind = draw.one("", "Relu", "Sigmoid", "LeakyRelu", "HardSwish", "Clip", "SiLU")
        if kind == "SiLU":
            return self.add("Mul", x, self.add("Sigmoid", x)), out
        if kind == "Clip":
            return self.add("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6))), out
        return self.add(kind, x) if kind else x, out


class Reader(CalibrationDataReader):
    """Reads random images to calibrate with."""

    def __init__(self, feeds: Callable[[int], Feeds]) -> None:
        self._data = iter([feeds(seed) for seed in range(3)])

    def get_next(self) -> Feeds | None:
        """Return the next image."""
        return next(self._data, None)


def optimized(source: Path, level: Any) -> Path:
    """Return the file that ONNX Runtime's optimizer writes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.graph_optimization_level = 4, level
    options.optimized_model_filepath = str(source.with_suffix(f".{level.name}.onnx"))
    onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])
    return Path(options.optimized_model_filepath)


def quantized(source: Path, feeds: Callable[[int], Feeds], draw: Draw) -> Iterator[Path]:
    """Yield files that ONNX Runtime's quantizer writes, with drawn options."""
    logging.disable(logging.WARNING)  # it says that it would like other models
    target = source.with_suffix(".dynamic.onnx")
    kinds = (QuantType.QInt8, QuantType.QUInt8)
    quantize_dynamic(source, target, per_channel=draw.yes(), reduce_range=draw.yes(), weight_type=draw.one(*kinds))
    yield target
    kind = draw.one(*kinds)
    target = source.with_suffix(".operators.onnx")
    quantize_static(source, target, Reader(feeds), quant_format=QuantFormat.QOperator, activation_type=kind,
                    weight_type=kind, per_channel=draw.yes())  # fmt: skip
    yield target
    target = source.with_suffix(".pairs.onnx")
    kind = draw.one(QuantType.QUInt8, QuantType.QInt8, QuantType.QUInt16, QuantType.QInt16)
    weights = draw.one(QuantType.QInt8, QuantType.QInt4)
    quantize_static(source, target, Reader(feeds), activation_type=kind, weight_type=weights, per_channel=draw.yes(),
                    extra_options={"UseQDQContribOps": draw.yes()})  # fmt: skip
    yield target


def assert_same(path: Path, feeds: Feeds, cache: Path, tolerance: float) -> Counter[str]:
    """Check a network against ONNX Runtime, and return which of its operators it has."""
    model = onnx.load(path)
    network = opbuild.compile(path, cache_path=cache, num_threads=1)
    for got, right in zip(network.run(None, feeds), onnxruntime_outputs(model, feeds), strict=True):
        assert np.abs(got - right).max() <= tolerance * np.abs(right).max(), path.name
    assert network.report.host.keys() <= {"Resize"}  # that of bytes by lines has no kernel
    return Counter(f"{node.domain}.{node.op_type}" for node in model.graph.node if node.domain)


def image(seed: int) -> Feeds:
    """Return a random image."""
    return {"x": Draw(seed).f(1, 3, 24, 24)}


@pytest.mark.slow
def test_optimized_and_quantized_convolutions(tmp_path: Path, shared_store: Path) -> None:
    """Networks in blocks of channels, with fused activations, and in whole numbers in each form."""
    found = Counter[str]()
    for number in range(NETWORKS):
        draw, path = Draw(SEED + number), tmp_path / f"{number}.onnx"
        onnx.save(Convolutions(draw).model(), path)
        found += assert_same(optimized(path, LEVELS.ORT_ENABLE_EXTENDED), image(9), shared_store, 1e-4)
        found += assert_same(optimized(path, LEVELS.ORT_ENABLE_ALL), image(9), shared_store, 1e-4)
        for each in quantized(path, image, draw):
            found += assert_same(each, image(9), shared_store, 0.05)
        found += assert_same(optimized(each, LEVELS.ORT_ENABLE_ALL), image(9), shared_store, 0.05)
    print(found)
    assert {f"{NCHWC}.{name}" for name in ("Conv", "ReorderInput", "ReorderOutput")} <= set(found)
    assert {"com.microsoft.FusedConv", "com.microsoft.QGemm"} <= set(found)


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small BERT as torch exports it."""
    torch = pytest.importorskip("torch", reason="the network is exported by torch")
    transformers = pytest.importorskip("transformers", reason="the network is one of transformers")
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 128}
    config = transformers.BertConfig(**sizes, vocab_size=50, max_position_embeddings=32, attn_implementation="eager")
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("bert") / "bert.onnx"
    ids = torch.zeros(2, 8, dtype=torch.int64)

    class Encoder(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.bert = transformers.BertModel(config, add_pooling_layer=False)

        def forward(self, ids: Any, mask: Any) -> Any:
            return self.bert(input_ids=ids, attention_mask=mask).last_hidden_state

    torch.onnx.export(Encoder().eval(), (ids, ids + 1), str(path), input_names=["ids", "mask"], output_names=["y"],
                      opset_version=17, dynamo=False)  # fmt: skip
    return path


def tokens(seed: int) -> Feeds:
    """Return random tokens, the last of which the first batch does not have."""
    mask = np.ones((2, 8), np.int64)
    mask[0, -2:] = 0
    return {"ids": Draw(seed).ints(0, 49, 2, 8), "mask": mask}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("name", "options"),
    [("plain", {}), ("apart", {"use_multi_head_attention": True}), ("approximate", {"enable_gelu_approximation": True}),
     ("lengths", {"attention_mask_format": 1})],
)  # fmt: skip
def test_a_fused_transformer(name: str, options: Feeds, bert: Path, shared_store: Path) -> None:
    """Attention, embeddings and GELU as the transformer optimizer fuses them, in each of its forms."""
    optimizer = pytest.importorskip("onnxruntime.transformers.optimizer", reason="it wants sympy")
    from onnxruntime.transformers.fusion_options import FusionOptions

    fusion = FusionOptions("bert")
    for option, value in options.items():
        setattr(fusion, option, value)
    fused = optimizer.optimize_model(str(bert), "bert", 4, 64, opt_level=0, optimization_options=fusion)
    path = bert.with_name(f"{name}.onnx")
    fused.save_model_to_file(str(path))
    found = assert_same(path, tokens(9), shared_store, 1e-4)
    assert found["com.microsoft.Attention"] + found["com.microsoft.MultiHeadAttention"] == 1
    assert_same(optimized(path, LEVELS.ORT_ENABLE_ALL), tokens(9), shared_store, 1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_transformer_with_weights_of_few_bits(bert: Path, shared_store: Path) -> None:
    """Products, and tables of embeddings, by each bit width that the quantizer knows, symmetric or not."""
    quantizer = pytest.importorskip(
        "onnxruntime.quantization.matmul_nbits_quantizer", reason="it wants the package onnx_ir"
    )
    for bits, symmetric in ((2, True), (4, False), (4, True), (8, False)):
        config = quantizer.DefaultWeightOnlyQuantConfig(
            block_size=32, is_symmetric=symmetric, bits=bits, op_types_to_quantize=("MatMul", "Gather")
        )
        made = quantizer.MatMulNBitsQuantizer(onnx.load(bert), algo_config=config)
        made.process()
        path = bert.with_name(f"few{bits}{symmetric}.onnx")
        made.model.save_model_to_file(str(path))
        assert assert_same(path, tokens(9), shared_store, 1e-4)["com.microsoft.MatMulNBits"] == 6


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", [0, 1], ids=["FP4", "NF4"])
def test_a_transformer_with_bitsandbytes_weights(kind: int, bert: Path, shared_store: Path) -> None:
    """Both tables of sixteen numbers."""
    from onnxruntime.quantization.matmul_bnb4_quantizer import MatMulBnb4Quantizer

    made = MatMulBnb4Quantizer(onnx.load(bert), kind, 64)
    made.process()
    path = bert.with_name(f"bnb{kind}.onnx")
    made.model.save_model_to_file(str(path))
    assert assert_same(path, tokens(9), shared_store, 1e-4)["com.microsoft.MatMulBnb4"] == 6
