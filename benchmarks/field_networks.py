"""The networks on which people compare runtimes, with random weights that keep activations near one.

Structures are those of ``kernels/`` in full depth, and the nine of the ``onnx`` package. A network whose activations
vanish or grow measures something else: denormal numbers, saturated functions. ``written`` refuses such a network.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import models
import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from recurrent import tagger

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from kernels.transformer import FORMS, Sizes, bert, gpt2, llama, vit
from kernels.vision import convnext, efficientnet, mobilenet_v2, mobilenet_v3, resnet, unet

IMAGE = (1, 224, 224)
FORM = FORMS[1]
WORDS = 1000
LEAST, GREATEST = 1e-3, 1e5
"""Between these is the standard deviation of what each layer returns."""

LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")

Data = dict[str, np.ndarray]


def _bert(tokens: int, width: int, layers: int) -> onnx.ModelProto:
    return drawn(bert(Sizes(1, tokens), FORM, width, masked="keys", layers=layers))


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    **{name: partial(models.network, name) for name in models.NAMES if name != "resnet50"},
    "ResNet-50": lambda: drawn(resnet(IMAGE, (3, 4, 6, 3))),
    "MobileNet-v2": lambda: drawn(mobilenet_v2(IMAGE)),
    "MobileNet-v3": lambda: drawn(mobilenet_v3(IMAGE)),
    "EfficientNet-b0": lambda: drawn(efficientnet(IMAGE)),
    "ConvNeXt-T": lambda: drawn(convnext(IMAGE, whole=True, depths=(3, 3, 9, 3))),
    "ViT-B": lambda: drawn(vit(Sizes(1, 196), FORM, layers=12)),
    "U-Net 256": lambda: drawn(unet((1, 256, 256))),
    **{f"BERT-base {tokens}": partial(_bert, tokens, 768, 12) for tokens in (32, 128, 384)},
    **{f"MiniLM {tokens}": partial(_bert, tokens, 384, 6) for tokens in (8, 32, 128)},
    "GPT-2 128": lambda: drawn(gpt2(Sizes(1, 128), FORM, layers=12)),
    "GPT-2 next": lambda: drawn(gpt2(Sizes(1, 1, 127), FORM, layers=12)),
    "Llama 128": lambda: drawn(llama(Sizes(1, 128), FORM, layers=4)),
    "Llama next": lambda: drawn(llama(Sizes(1, 1, 127), FORM, layers=4)),
    "LSTM 2x256": lambda: tagger("LSTM", 2, 1, 40, 256),
    "ResNet-50 int8": partial(models.network, "resnet50"),
    "BERT-base 128 int8": partial(_bert, 128, 768, 12),
}
"""What makes each of them; those of 8 bits are quantised by ONNX Runtime's tools afterwards."""


def written(name: str, folder: Path) -> tuple[Path, Data]:
    """Write a network to a file.

    Args:
        name: One of ``NETWORKS``.
        folder: Where to.

    Returns:
        The file, and data for its inputs.

    Raises:
        SystemExit: If its activations vanish or grow.
    """
    path = folder / f"{name.replace(' ', '_')}.onnx"
    model = NETWORKS[name]()
    data = inputs(model)
    if name.endswith("int8"):
        quantised(model, data, path)
    else:
        check(name, model, data)
        onnx.save(model, path)
    return path, data


def inputs(model: onnx.ModelProto) -> Data:
    """Return random data for a model's inputs: words, masks of ones, numbers of the normal distribution."""
    draw, found = np.random.default_rng(0), {}
    for each in model.graph.input:
        shape = [extent.dim_value for extent in each.type.tensor_type.shape.dim]
        if each.type.tensor_type.elem_type != TensorProto.INT64:
            found[each.name] = draw.standard_normal(shape).astype(np.float32)
        else:
            found[each.name] = np.ones(shape, np.int64) if "mask" in each.name else draw.integers(0, 100, shape)
    return found


# -- weights -----------------------------------------------------------------------------------------------------------


def drawn(model: onnx.ModelProto, seed: int = 0) -> onnx.ModelProto:
    """Return a structure of ``kernels/`` with random weights in place of constants of one number."""
    draw = np.random.default_rng(seed)
    shapes = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    readers = {name: (node, place) for node in reversed(model.graph.node) for place, name in enumerate(node.input)}
    nodes, weights = [], dict(shapes)
    for node in model.graph.node:
        fill = numpy_helper.to_array(node.attribute[0].t) if node.op_type == "ConstantOfShape" else None
        if fill is None or fill.dtype != np.float32:
            nodes.append(node)
        else:
            weights[node.output[0]] = np.empty(shapes[node.input[0]], np.float32)
    for name, value in weights.items():
        if name in readers and value.dtype == np.float32 and value.ndim:
            reader, place = readers[name]
            weights[name] = _weights(draw, reader, place, value.shape).astype(np.float32)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, model.graph.name, model.graph.input, model.graph.output,
        [numpy_helper.from_array(value, name) for name, value in weights.items() if name in used],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _weights(draw: np.random.Generator, node: onnx.NodeProto, place: int, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights that keep the deviation of what they are multiplied with (He et al., 2015)."""
    if place == 1 and node.op_type in LAYERS and len(shape) > 1:
        turned = any(each.name == "transB" and each.i for each in node.attribute)
        fan = math.prod(shape[1:]) if node.op_type == "Conv" or turned else shape[0]
        gain = 1.5 if "Conv" in node.op_type else 1.0  # half of what Relu reads is lost
        return draw.standard_normal(shape) * math.sqrt(gain / fan)
    if node.op_type in ("BatchNormalization", "LayerNormalization", "Mul"):
        return draw.uniform(0.5, 1.0, shape) if place in (0, 1, 4) else draw.normal(0, 0.1, shape)
    return draw.standard_normal(shape) * (0.5 if node.op_type == "Gather" else 0.1)


def check(name: str, model: onnx.ModelProto, data: Data) -> None:
    """Raise SystemExit if what a layer returns vanishes or grows."""
    whole = onnx.ModelProto.FromString(model.SerializeToString())
    whole.graph.output.extend(
        helper.make_tensor_value_info(node.output[0], TensorProto.FLOAT, None)
        for node in model.graph.node
        if node.op_type in LAYERS
    )
    session = onnxruntime.InferenceSession(whole.SerializeToString(), providers=["CPUExecutionProvider"])
    for each, value in zip(session.get_outputs(), session.run(None, data), strict=True):
        if not LEAST < np.std(value) < GREATEST:
            raise SystemExit(f"{name}: the deviation of {each.name} is {np.std(value):.3g}: draw other weights")


# -- 8 bits ------------------------------------------------------------------------------------------------------------


class _Samples(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    def __init__(self, data: Data) -> None:
        self._rest: Iterator[Data] = iter([data])

    def get_next(self) -> Data | None:
        return next(self._rest, None)


def quantised(model: onnx.ModelProto, data: Data, path: Path) -> None:
    """Write a network of 8 bits: convolutions statically, per channel; those without dynamically."""
    plain = path.with_suffix(".plain.onnx")
    if not any(node.op_type == "Conv" for node in model.graph.node):
        onnx.save(model, plain)
        quantize_dynamic(plain, path, weight_type=QuantType.QInt8)
    else:
        onnx.save(onnx.version_converter.convert_version(model, 17), plain)
        quant_pre_process(plain, plain, skip_symbolic_shape=True)
        quantize_static(
            plain, path, _Samples(data), quant_format=QuantFormat.QDQ, per_channel=True,
            activation_type=QuantType.QUInt8, weight_type=QuantType.QInt8,
        )  # fmt: skip
    plain.unlink()
