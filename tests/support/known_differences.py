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
REDUCTIONS = (
    "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSum",
    "ReduceLogSumExp", "ReduceSumSquare", "ArgMax", "ArgMin",
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """A node, with the types and known values of its inputs.

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


def _default_threshold(seen: Seen) -> bool:
    names = [_text(name).lower() for name in seen.attrs.get("activations", ())]
    return "thresholdedrelu" in names and not seen.attrs.get("activation_alpha")


def _softplus(seen: Seen) -> bool:
    return "softplus" in [_text(name).lower() for name in seen.attrs.get("activations", ())]


def _no_terms(seen: Seen) -> bool:
    x = seen.shapes[0]
    return x is not None and x[0 if seen.attrs.get("transA") else -1] == 0


def _half_kept(seen: Seen) -> bool:
    return seen.attrs.get("keepdims", 1) not in (0, 1)


def _single(seen: Seen) -> bool:
    x, axes = seen.shapes[0], seen.attrs.get("axes") or (0, 2, 3)
    return x is not None and all(x[axis] == 1 for axis in axes)


def _sparse(seen: Seen) -> bool:
    """Return whether windows that leave out positions between them need no padding for SAME."""
    kernel = seen.attrs.get("kernel_shape") or (seen.shapes[1] or ())[2:]
    strides = seen.attrs.get("strides") or [1] * len(kernel)
    return _same(seen) and any(taps < stride for taps, stride in zip(kernel, strides, strict=True))


def _tied(seen: Seen) -> bool:
    """Return whether a Resize takes nearest elements by a place that ONNX Runtime rounds in an order of its own."""
    x, values = seen.shapes[0], [value for value in seen.values[1:] if value is not None and value.size]
    if _text(seen.attrs.get("mode", "nearest")) != "nearest" or x is None or not values:
        return not values
    if np.issubdtype(values[-1].dtype, np.integer):
        kinds = seen.attrs.get("coordinate_transformation_mode"), seen.attrs.get("nearest_mode")
        return _text(kinds[0]) == "half_pixel_symmetric" or _text(kinds[1]) == "round_prefer_ceil"
    return _text(seen.attrs.get("coordinate_transformation_mode", "")) == "half_pixel_symmetric" or any(
        factor != 1 and int(extent * factor) == extent for extent, factor in zip(x, values[-1], strict=False)
    )


def _without_positions(seen: Seen) -> bool:
    """Return whether windows may lie in the padding with all their taps."""
    kernel, dilated = seen.attrs.get("kernel_shape", ()), any(each != 1 for each in seen.attrs.get("dilations", ()))
    pads = seen.attrs.get("pads") or [0] * (2 * len(kernel))
    return bool(any(pads)) and (dilated or any(pad >= taps for pad, taps in zip(pads, [*kernel, *kernel], strict=True)))


def _mirrored_ties(seen: Seen) -> bool:
    """Return whether a GridSample takes nearest elements and mirrors what lies outside at pixels' edges."""
    mode, padding = (_text(seen.attrs.get(name, "")) for name in ("mode", "padding_mode"))
    return mode == "nearest" and padding == "reflection" and not seen.attrs.get("align_corners", 0)


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
        (*POOLS, "Conv", "ConvInteger", "QLinearConv"),
        "with auto_pad SAME a window that is smaller than its stride needs no padding; ONNX Runtime pads by a negative "
        "amount for SAME_UPPER, or refuses",
        _sparse,
    ),
    Difference(
        REDUCTIONS,
        "the text defines what a reduction of nothing gives (a mean is undefined: here 0 / 0); ONNX Runtime gives 0 "
        "for a mean, keeps an extent of 0 in tensors of rank 1, and refuses some element types",
        _empty,
    ),
    Difference(
        ("RNN", "GRU", "LSTM"),
        "activations without an alpha take the default of ONNX's operator of that name, for ThresholdedRelu 1; ONNX "
        "Runtime takes 0",
        _default_threshold,
    ),
    Difference(
        ("RNN", "GRU", "LSTM"),
        "Softplus of great values is the value; ONNX Runtime computes log(1 + e^x), which is infinite from 89 on",
        _softplus,
    ),
    Difference(
        ("Resize", "Upsample"),
        "which of two equally near elements is taken hangs on the order in which float32 rounds a place that is moved, "
        "or that a given size prefers the later one of; a result as large as the input is its copy in ONNX Runtime, "
        "whatever the factor",
        _tied,
    ),
    Difference(
        ("MaxPool",),
        "the greatest of a window without positions is minus infinity; ONNX Runtime gives the least finite number",
        _without_positions,
    ),
    Difference(
        ("GridSample",),
        "of two equally near elements torch, and opbuild, mirrors the place first and rounds then; ONNX Runtime rounds "
        "first",
        _mirrored_ties,
    ),
    Difference(
        ("MeanVarianceNormalization",),
        "of equal values the variance is 0 and the result 0, as the text's epsilon makes it; ONNX Runtime subtracts "
        "squares and gives NaN",
        _single,
    ),
    Difference(
        ("Gemm", "MatMul", "MatMulInteger"),
        "a sum of no terms is 0; ONNX Runtime leaves out the factor of Gemm's third operand, and of MatMul by a vector "
        "and of MatMulInteger returns what memory held",
        _no_terms,
    ),
    Difference(
        REDUCTIONS,
        "the text gives keepdims the meanings 0 and 1; here any other number keeps the dimension as 1 does, in ONNX "
        "Runtime none does",
        _half_kept,
    ),
)
"""Every known difference."""
