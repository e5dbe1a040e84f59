"""Where ONNX Runtime and the standard's text differ, and opbuild follows the text.

A comparison with ONNX Runtime asks ``known_difference`` about a model whose results differ; the same list, in prose, is
in ``docs/concepts/operators.md``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper, shape_inference

Shape = tuple[int, ...]

FLOATS = (onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE, onnx.TensorProto.FLOAT16)
POOLS = ("MaxPool", "AveragePool", "LpPool")


@dataclass(frozen=True)
class Seen:
    """A node with what is known of its inputs.

    Attributes:
        node: The node.
        attrs: Its attributes.
        shapes: The shape of each input; None where it is absent or unknown.
        dtypes: The element type of each input, by ONNX's number; 0 where it is absent or unknown.
        values: The value of each input that is a constant.
    """

    node: onnx.NodeProto
    attrs: Mapping[str, Any]
    shapes: Sequence[Shape | None]
    dtypes: Sequence[int]
    values: Sequence[np.ndarray[Any, Any] | None] = field(default=())

    def each_axis(self, name: str, default: int) -> list[int]:
        """Return an attribute with one integer for each spatial dimension of the first input."""
        count = len(self.shapes[0] or (0, 0)) - 2
        return list(self.attrs.get(name) or [default] * count)


@dataclass(frozen=True)
class Difference:
    """One known difference: why, and the nodes that show it."""

    op_types: tuple[str, ...]
    reason: str
    applies: Callable[[Seen], bool]


def known_difference(model: onnx.ModelProto, feeds: Mapping[str, Any] | None = None) -> str | None:
    """Return why ONNX Runtime may differ from the standard's text on a model, None if nothing is known.

    Args:
        model: The model. Shapes that it does not state are inferred.
        feeds: Values of its inputs, where it does not state their shapes.
    """
    for seen in _nodes(model, feeds or {}):
        for difference in DIFFERENCES:
            if seen.node.op_type in difference.op_types and not seen.node.domain and difference.applies(seen):
                return f"{seen.node.op_type} node {seen.node.name!r}: {difference.reason}"
    return None


def _nodes(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> Iterator[Seen]:
    model = _with_shapes(model, feeds)
    graph = model.graph
    types = {value.name: value.type.tensor_type for value in (*graph.input, *graph.value_info, *graph.output)}
    shapes = {name: _shape(each) for name, each in types.items() if each.HasField("shape")}
    dtypes = {name: each.elem_type for name, each in types.items()}
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    shapes.update((name, value.shape) for name, value in values.items())
    dtypes.update((name, onnx.helper.np_dtype_to_tensor_dtype(value.dtype)) for name, value in values.items())
    for node in graph.node:
        yield Seen(
            node,
            {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute},
            [shapes.get(name) for name in node.input],
            [dtypes.get(name, 0) for name in node.input],
            [values.get(name) for name in node.input],
        )


def _with_shapes(model: onnx.ModelProto, feeds: Mapping[str, Any]) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value in changed.graph.input:
        if value.name in feeds:
            array = np.asarray(feeds[value.name])
            number = onnx.helper.np_dtype_to_tensor_dtype(array.dtype)
            value.CopyFrom(onnx.helper.make_tensor_value_info(value.name, number, array.shape))
    try:
        return shape_inference.infer_shapes(changed, data_prop=True)
    except Exception:
        return changed


def _shape(kind: onnx.TypeProto.Tensor) -> Shape | None:
    extents = tuple(dim.dim_value if dim.HasField("dim_value") else -1 for dim in kind.shape.dim)
    return None if -1 in extents else extents


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _same(seen: Seen) -> bool:
    return _text(seen.attrs.get("auto_pad", "NOTSET")).startswith("SAME")


def _same_dilated(seen: Seen) -> bool:
    return _same(seen) and any(dilation != 1 for dilation in seen.attrs.get("dilations", ()))


def _narrow_transposed(seen: Seen) -> bool:
    """Return whether input extent times stride is more than the kernel reaches, so that the padding is negative."""
    x, w = seen.shapes[0], seen.shapes[1]
    if not _same(seen) or seen.attrs.get("output_shape") or x is None or w is None:
        return False
    parts = zip(
        x[2:],
        w[2:],
        seen.each_axis("strides", 1),
        seen.each_axis("dilations", 1),
        seen.each_axis("output_padding", 0),
        strict=True,
    )
    return any(stride * (size - 1) + extra + (taps - 1) * dilation + 1 < size * stride
               for size, taps, stride, dilation, extra in parts)  # fmt: skip


def _empty(seen: Seen) -> bool:
    return seen.shapes[0] is not None and 0 in seen.shapes[0]


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        (*POOLS, "Conv", "ConvInteger", "QLinearConv"),
        "with auto_pad SAME the text pads for the dilated window; ONNX Runtime's pools pad for the window without "
        "dilation, and its convolutions refuse",
        _same_dilated,
    ),
    Difference(
        ("ConvTranspose",),
        "with auto_pad SAME the text gives input extent times stride; ONNX Runtime less where that needs negative "
        "padding",
        _narrow_transposed,
    ),
    Difference(
        ("ReduceMean",),
        "the mean of nothing is undefined in the text; here it is NaN as 0 / 0 is, in ONNX Runtime 0",
        _empty,
    ),
    Difference(
        ("ReduceMax", "ReduceMin", "ArgMax", "ArgMin"),
        "the text defines the greatest and least of nothing; ONNX Runtime refuses some element types",
        _empty,
    ),
)
"""Every known difference."""
