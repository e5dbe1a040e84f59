"""Networks as ONNX Runtime's tools quantise them: weights are random, and ranges of activations follow from them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

Extents = dict[str, int]

ACTIVATIONS = {"QDQ": QuantType.QUInt8, "QDQ signed": QuantType.QInt8}
"""Types of activations whose ranges are in the model."""


class Quantised(NamedTuple):
    """A quantised network.

    Attributes:
        write: Returns the network of float32, with open extents; compared by identity.
        form: ``dynamic``, or one of ``ACTIVATIONS``.
        sizes: Its extents by name, the first those with which it is calibrated.
    """

    write: Callable[[], onnx.ModelProto]
    form: str
    sizes: tuple[Extents, ...]

    def model(self) -> onnx.ModelProto:
        """Return the model, with open extents; the same one each time."""
        return _quantised(self.write, self.form, tuple(self.sizes[0].items()))

    def at_sizes(self) -> Iterator[onnx.ModelProto]:
        """Yield the model at each size."""
        for size in self.sizes:
            model = onnx.ModelProto()
            model.CopyFrom(self.model())
            for value in model.graph.input:
                for dim in value.type.tensor_type.shape.dim:
                    if dim.dim_param:
                        dim.dim_value = size[dim.dim_param]
            yield model


@cache
def _quantised(
    write: Callable[[], onnx.ModelProto], form: str, extents: tuple[tuple[str, int], ...]
) -> onnx.ModelProto:
    logging.getLogger().setLevel(logging.ERROR)  # the tools advise the root logger's readers
    with TemporaryDirectory() as folder:
        plain, prepared, quantised = (Path(folder) / f"{name}.onnx" for name in ("plain", "prepared", "quantised"))
        onnx.save(with_weights(write()), plain)
        quant_pre_process(plain, prepared, skip_symbolic_shape=True)
        if form == "dynamic":
            quantize_dynamic(prepared, quantised, weight_type=QuantType.QInt8)
        else:
            reader = _Once(random_inputs(onnx.load(prepared), dict(extents)))
            quantize_static(prepared, quantised, reader, per_channel=True, activation_type=ACTIVATIONS[form])
        return onnx.load(quantised)


class _Once(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Inputs to calibrate with, once."""

    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self._rest = iter([feeds])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the data, then None."""
        return next(self._rest, None)


def random_inputs(model: onnx.ModelProto, extents: Mapping[str, int]) -> dict[str, np.ndarray]:
    """Return data for a model's inputs: normally distributed numbers, and ones."""
    draw, feeds = np.random.default_rng(0), {}
    for value in model.graph.input:
        kind = value.type.tensor_type
        dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
        shape = [extents[dim.dim_param] if dim.dim_param else dim.dim_value for dim in kind.shape.dim]
        is_float = np.issubdtype(dtype, np.floating)
        feeds[value.name] = (draw.standard_normal(shape) if is_float else np.ones(shape)).astype(dtype)
    return feeds


def with_weights(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a structure with random weights in place of constants of one number, which the tools take for none."""
    draw, nodes = np.random.default_rng(0), []
    known = {each.name: numpy_helper.to_array(each) for each in model.graph.initializer}
    for node in model.graph.node:
        shape = known.get(node.input[0]) if node.op_type == "ConstantOfShape" else None
        if shape is None or not node.attribute or node.attribute[0].t.data_type != onnx.TensorProto.FLOAT:
            nodes.append(node)
        elif len(shape) == 1:  # variances are among them
            known[node.output[0]] = draw.uniform(0.5, 1.0, shape).astype(np.float32)
        else:
            summed = math.prod(shape[1:]) if len(shape) > 2 else shape[0]
            known[node.output[0]] = (draw.standard_normal(shape) / summed**0.5).astype(np.float32)
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes, model.graph.name, model.graph.input, model.graph.output,
        [numpy_helper.from_array(value, name) for name, value in known.items() if name in used],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
