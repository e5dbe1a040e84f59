"""Single operators at typical shapes, as parts of networks that nobody listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import onnx

from kernels.vision import ImageWriter
from kernels.writer import BOOL, FLOAT, INT8, INT32, INT64, UINT8, Writer

UNARY = (
    "Abs", "Ceil", "Cos", "Elu", "Erf", "Exp", "Floor", "HardSigmoid", "HardSwish", "LeakyRelu", "Log", "Mish", "Neg",
    "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Sin", "Softplus", "Softsign", "Sqrt", "Tanh",
)  # fmt: skip
BINARY = ("Add", "Sub", "Mul", "Div", "Pow", "Max", "Min")
REDUCED = ("ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL2")
ACTIVATIONS = ("Relu", "Sigmoid", "Tanh", "HardSwish", "LeakyRelu")

Structure = Callable[[], Iterator[onnx.ModelProto]]
SHAPES = ((1, 64, 56, 56), (8, 128, 28, 28), (1, 3, 224, 224))
ROWS = ((1, 128, 768), (8, 16, 384), (32, 64, 1024))


def _unary(op_type: str) -> Iterator[onnx.ModelProto]:
    for shape in SHAPES:
        to = Writer(opset=20)
        yield to.model(to.add(op_type, to.input("x", shape)))


def _binary(op_type: str, broadcast: bool) -> Iterator[onnx.ModelProto]:
    for shape in SHAPES:
        to = Writer()
        other = (1, shape[1], 1, 1) if broadcast else shape
        yield to.model(to.add(op_type, to.input("x", shape), to.input("y", other)))


def _reduced(op_type: str, axis: int) -> Iterator[onnx.ModelProto]:
    for shape in ROWS:
        to = Writer(opset=18)
        yield to.model(to.add(op_type, to.input("x", shape), to.numbers([axis])))


def _rows(op_type: str) -> Iterator[onnx.ModelProto]:
    for shape in ROWS:
        to = Writer(opset=20)
        yield to.model(to.add(op_type, to.input("x", shape), axis=-1))


def _linear(activation: str, bias: bool) -> Iterator[onnx.ModelProto]:
    for rows, outputs in product((1, 4, 16, 64, 256), (2, 10, 100, 1024)):
        to = Writer()
        weights = [to.weight(512, outputs), *([to.weight(outputs)] if bias else [])]
        y = to.add("Gemm", to.input("x", (rows, 512)), *weights)
        yield to.model(to.add(activation, y) if activation else y)


def _product(batch: tuple[int, ...]) -> Iterator[onnx.ModelProto]:
    for size in (1, 16, 64, 200):
        to = Writer()
        yield to.model(to.add("MatMul", to.input("x", (*batch, size, 64)), to.input("y", (*batch, 64, size))))


def _turned_product(right: str) -> Iterator[onnx.ModelProto]:
    """Yield a product whose left operand lies transposed, or both."""
    for rows, depth, columns in ((4, 96, 16), (16, 64, 64), (197, 64, 384), (3136, 64, 64)):
        to = Writer()
        x = to.add("Transpose", to.input("x", (1, depth, rows)), perm=[0, 2, 1])
        if right == "constant":
            y = to.weight(depth, columns)
        elif right == "transposed":
            y = to.add("Transpose", to.input("y", (1, columns, depth)), perm=[0, 2, 1])
        else:
            y = to.input("y", (1, depth, columns))
        yield to.model(to.add("MatMul", x, y))


def _conv(window: tuple[int, int], activation: str, added: bool = False) -> Iterator[onnx.ModelProto]:
    kernel, stride = window
    for batch, channels, extent in ((1, 64, 56), (8, 32, 28), (1, 256, 14), (1, 16, 112)):
        to = ImageWriter()
        x = to.input("x", (batch, channels, extent, extent))
        y = to.conv(x, channels, channels, kernel, stride=stride)
        if added:
            y = to.add("Add", y, to.conv(x, channels, channels, kernel, stride=stride))
        y = to.silu(y) if activation == "Silu" else to.add(activation, y) if activation else y
        yield to.model(y)


def _depthwise(window: tuple[int, int], activation: str) -> Iterator[onnx.ModelProto]:
    kernel, stride = window
    for batch, channels, extent in ((1, 64, 56), (8, 32, 28), (1, 256, 14)):
        to = ImageWriter()
        x = to.input("x", (batch, channels, extent, extent))
        y = to.conv(x, channels, channels, kernel, stride=stride, groups=channels)
        y = to.silu(y) if activation == "Silu" else to.add(activation, y) if activation else y
        yield to.model(y)


def _pool(op_type: str, window: tuple[int, int]) -> Iterator[onnx.ModelProto]:
    kernel, stride = window
    for batch, channels, extent in ((1, 64, 56), (8, 32, 28), (1, 256, 14)):
        to = ImageWriter()
        conv = to.conv(to.input("x", (batch, channels, extent, extent)), channels, channels, 1)
        pads = [(kernel - 1) // 2] * 4
        pooled = to.add(op_type, conv, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=pads)
        yield to.model(to.conv(pooled, channels, channels, 1))


def _uneven_pool(op_type: str, window: tuple[int, ...]) -> Iterator[onnx.ModelProto]:
    """Yield pools of windows beside one another: of rows, or of images whose last windows are no whole ones."""
    for channels, extent in ((64, 75), (256, 32)):
        to = Writer()
        options = {"kernel_shape": window, "strides": window, "ceil_mode": int(len(window) == 2)}
        yield to.model(to.add(op_type, to.input("x", (1, channels, *(extent,) * len(window))), **options))


def _byte_pool(window: tuple[int, int], dtype: int) -> Iterator[onnx.ModelProto]:
    kernel, stride = window
    for channels, extent in ((64, 56), (128, 28)):
        to = Writer()
        pads = [(kernel - 1) // 2] * 4
        x = to.input("x", (1, channels, extent, extent), dtype)
        options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2}
        yield to.model(to.add("MaxPool", x, pads=pads, **options), to.add("MaxPool", x, **options), dtype=dtype)


def _moved(op_type: str) -> Iterator[onnx.ModelProto]:
    for batch, seq, width in ROWS:
        to = Writer()
        x = to.input("x", (batch, seq, width))
        if op_type == "Transpose":
            yield to.model(to.add("Transpose", x, perm=[0, 2, 1]))
        elif op_type == "Concat":
            yield to.model(to.add("Concat", x, to.input("y", (batch, seq, width)), axis=1))
        else:
            yield to.model(to.add("Gather", to.weight(1000, width), to.input("i", (batch, seq), INT64)))


def _recurrent(op_type: str, direction: str) -> Iterator[onnx.ModelProto]:
    gates, directions = {"LSTM": 4, "GRU": 3, "RNN": 1}[op_type], 1 + (direction == "bidirectional")
    for steps, batch, inputs, hidden in ((20, 1, 128, 256), (40, 8, 256, 256), (20, 32, 128, 256), (100, 1, 512, 512)):
        to = Writer()
        rows = gates * hidden
        shapes = ((directions, rows, inputs), (directions, rows, hidden), (directions, 2 * rows))
        x = to.input("x", (steps, batch, inputs))
        yield to.model(
            to.add(op_type, x, *(to.weight(*shape) for shape in shapes), hidden_size=hidden, direction=direction)
        )


def _integer_recurrent(direction: str, greatest: int) -> Iterator[onnx.ModelProto]:
    directions = 1 + (direction == "bidirectional")
    for steps, batch, inputs, hidden in ((100, 1, 40, 64), (20, 1, 128, 256), (40, 8, 256, 256), (20, 32, 128, 256)):
        to = Writer()
        x, rows = to.input("x", (steps, batch, inputs)), 4 * hidden
        weights = (to.weight(directions, depth, rows, value=greatest, dtype="int8") for depth in (inputs, hidden))
        parts = (
            part for _ in range(2) for part in (to.weight(directions), to.weight(directions, value=0, dtype="int8"))
        )
        own = (*weights, to.weight(directions, 2 * rows), "", "", "", "", *parts)
        attrs = {"hidden_size": hidden, "direction": direction}
        yield to.model(to.add("DynamicQuantizeLSTM", x, *own, domain="com.microsoft", **attrs))


def _integer_product(right: str, zero_point: bool) -> Iterator[onnx.ModelProto]:
    """Yield a product of bytes; kernels for AVX2 differ by how many sums of two weights are large."""
    for rows, (depth, columns) in product((1, 4, 16, 64, 256), ((64, 256), (512, 16), (768, 768))):
        to = Writer()
        batch = () if right in LARGE_WEIGHTS else (12,)
        if right in LARGE_WEIGHTS:
            weights = np.ones((depth, columns), np.int8)
            weights[: LARGE_WEIGHTS[right]] = 127
            y = to.numbers(weights, "int8")
        else:
            y = to.input("y", (*batch, depth, columns), INT8)
        zero = (to.input("z", (), UINT8),) if zero_point else ()
        yield to.model(to.add("MatMulInteger", to.input("x", (*batch, rows, depth), UINT8), y, *zero), dtype=INT32)


def _integer_conv(
    window: tuple[int, int], depthwise: bool, zero_point: bool, greatest: int
) -> Iterator[onnx.ModelProto]:
    """Yield a convolution of bytes; kernels for AVX2 differ by the greatest weight."""
    kernel, stride = window
    for batch, channels, extent in ((1, 64, 56), (8, 32, 28), (1, 256, 16), (1, 3, 224)):
        to = Writer()
        around = kernel // 2 if stride < kernel or kernel == 1 else 0
        own, groups = (1, channels) if depthwise else (channels, 1)
        weight = to.weight(channels if depthwise else 64, own, kernel, kernel, value=greatest, dtype="int8")
        options = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [around] * 4, "group": groups}
        x = to.input("x", (batch, channels, extent, extent), UINT8)
        zero = (to.input("z", (), UINT8),) if zero_point else ()
        yield to.model(to.add("ConvInteger", x, weight, *zero, **options), dtype=INT32)


def _image_conv(window: tuple[int, int]) -> Iterator[onnx.ModelProto]:
    """Yield a convolution of an image of three channels, or one, whose window is a patch if it moves by its extent."""
    kernel, stride = window
    for channels, extent in ((3, 224), (3, 512), (1, 128)):
        to = ImageWriter()
        pads = (0 if stride == kernel else kernel // 2,) * 4
        x = to.input("x", (1, channels, extent, extent))
        yield to.model(to.conv(x, channels, 64, kernel, stride=stride, pads=pads))


def _patches(kernel: int) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((64, 56), (128, 32)):
        to = ImageWriter()
        x = to.input("x", (1, channels, extent, extent))
        yield to.model(to.conv(x, channels, 64, kernel, stride=kernel, pads=(0,) * 4))


def _rows_conv(window: tuple[int, int], groups: bool) -> Iterator[onnx.ModelProto]:
    """Yield a convolution of rows, as networks of audio have."""
    for channels, extent in ((80, 300), (512, 1500), (256, 100)):
        to = Writer()
        own = 1 if groups else channels
        weights = to.weight(channels, own, window[0]), to.weight(channels)
        x = to.input("x", (1, channels, extent))
        yield to.model(to.add("Conv", x, *weights, **_row_window(window, channels if groups else 1)))


def _integer_rows_conv(
    window: tuple[int, int], groups: bool, zero_point: bool, greatest: int
) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((64, 16), (512, 200)):
        to = Writer()
        shape = (channels, 1, window[0]) if groups else (64, channels, window[0])
        zero = (to.input("z", (), UINT8),) if zero_point else ()
        x, weight = to.input("x", (1, channels, extent), UINT8), to.weight(*shape, value=greatest, dtype="int8")
        options = _row_window(window, channels if groups else 1)
        yield to.model(to.add("ConvInteger", x, weight, *zero, **options), dtype=INT32)


def _row_window(window: tuple[int, int], groups: int) -> dict[str, Any]:
    kernel, stride = window
    around = kernel // 2 if stride == 1 else 0
    return {"kernel_shape": [kernel], "strides": [stride], "pads": [around] * 2, "group": groups}


def _gathered(op_type: str, dtype: int, axis: int) -> Iterator[onnx.ModelProto]:
    for rows, count, width in ((100, 40, 1), (100, 1, 4), (500, 16, 16), (1000, 128, 768)):
        to = Writer()
        data = to.input("x", (rows, width) if axis == 0 else (4, rows, width), dtype)
        if op_type == "GatherND":
            y = to.add("GatherND", data, to.input("i", (count, 1 + axis), INT64))
        elif op_type == "GatherElements":
            shape = (count, width) if axis == 0 else (4, count, width)
            y = to.add("GatherElements", data, to.input("i", shape, INT64), axis=axis)
        else:
            y = to.add("Gather", data, to.input("i", (count,), INT64), axis=axis)
        yield to.model(y, dtype=dtype)


def _scattered(op_type: str, dtype: int) -> Iterator[onnx.ModelProto]:
    for rows, count, width in ((100, 40, 1), (100, 16, 64), (1000, 128, 768)):
        to = Writer()
        data, updates = to.input("x", (rows, width), dtype), to.input("u", (count, width), dtype)
        places = to.input("i", (count, 1) if op_type == "ScatterND" else (count, width), INT64)
        yield to.model(to.add(op_type, data, places, updates), dtype=dtype)


def _best(op_type: str, dtype: int) -> Iterator[onnx.ModelProto]:
    """Yield the places or the values of the greatest or least numbers."""
    for shape, axis in product(((1, 128), (8, 1000), (4, 64, 300)), (-1, 0)):
        to = Writer(opset=18)
        x = to.input("x", shape, dtype)
        if op_type == "TopK":
            _, places = to.several(2, "TopK", x, to.numbers([1 if shape[axis] < 8 else 5]), axis=axis)
            yield to.model(places, dtype=INT64)
        else:
            yield to.model(to.add(op_type, x, axis=axis), dtype=INT64)


def _summed(reverse: bool, dtype: int) -> Iterator[onnx.ModelProto]:
    for shape in ((1, 128), (8, 16, 64)):
        for axis in (0, -1):
            to = Writer()
            y = to.add("CumSum", to.input("x", shape, dtype), to.numbers(axis), reverse=int(reverse))
            yield to.model(y, dtype=dtype)


def _counted(op_type: str, dtype: int, axis: int) -> Iterator[onnx.ModelProto]:
    for shape in ((1, 128), (8, 16, 64)):
        to = Writer(opset=18)
        yield to.model(to.add(op_type, to.input("x", shape, dtype), to.numbers([axis])), dtype=dtype)


def _strided(op_type: str) -> Iterator[onnx.ModelProto]:
    """Yield a reduction of channels of what lies with the channels last."""
    for shape in ((1, 56, 56, 64), (1, 4, 8, 8, 32)):
        to = Writer(opset=18)
        order = [0, len(shape) - 1, *range(1, len(shape) - 1)]
        for axis in (1, -1):
            x = to.add("Transpose", to.input(f"x{axis}", shape), perm=order)
            yield to.model(to.add(op_type, x, to.numbers([axis])))


def _resized(mode: str, places: str, scale: float) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((64, 28), (3, 64), (16, 7)):
        to = Writer(opset=19)
        scales = to.numbers([1.0, 1.0, scale, scale], "float32")
        options = {"mode": mode, "coordinate_transformation_mode": places, "nearest_mode": "floor"}
        yield to.model(to.add("Resize", to.input("x", (1, channels, extent, extent)), "", scales, **options))


def _sampled(mode: str, padding: str, aligned: bool) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((8, 20), (64, 40)):
        to = Writer(opset=20)
        x, grid = to.input("x", (1, channels, extent, extent)), to.input("g", (1, 100, 4, 2))
        yield to.model(to.add("GridSample", x, grid, mode=mode, padding_mode=padding, align_corners=int(aligned)))


def _quantized(shape: tuple[int, ...]) -> Iterator[onnx.ModelProto]:
    to = Writer()
    y, scale, zero = to.several(3, "DynamicQuantizeLinear", to.input("x", shape))
    yield to.model(to.add("DequantizeLinear", y, scale, zero))


def _layer_normalized() -> Iterator[onnx.ModelProto]:
    for shape in ((1, 64, 32), (4, 768)):
        to = Writer(opset=17)
        yield to.model(to.add("LayerNormalization", to.input("x", shape), to.weight(shape[-1]), axis=-1))


def _transposed_conv(kernel: int) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((48, 37), (256, 16)):
        to = Writer()
        weights = to.weight(channels, channels, kernel, kernel), to.weight(channels)
        options = {"kernel_shape": [kernel] * 2, "strides": [kernel] * 2}
        yield to.model(to.add("ConvTranspose", to.input("x", (1, channels, extent, extent)), *weights, **options))


def _normalized(op_type: str) -> Iterator[onnx.ModelProto]:
    for channels, extent in ((32, 56), (320, 16), (512, 8)):
        to = Writer(opset=21)
        x = to.input("x", (1, channels, extent, extent))
        groups = {"num_groups": 32} if op_type == "GroupNormalization" else {}
        yield to.model(to.add(op_type, x, to.weight(channels), to.weight(channels), epsilon=1e-5, **groups))


WINDOWS = ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1), (7, 1), (7, 2))
DEPTHWISE = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1))
POOLS = ((2, 2), (3, 1), (3, 2), (5, 1), (9, 1), (13, 1), (2, 1), (1, 2))
INTEGER_WINDOWS = (
    (1, 1),
    (1, 2),
    (2, 2),
    (3, 1),
    (3, 2),
    (4, 4),
    (5, 1),
    (5, 2),
    (7, 1),
    (7, 2),
    (8, 8),
    (14, 14),
    (16, 16),
)
LARGE_WEIGHTS = {"constant": 0, "constant with large sums": 2, "constant of large sums": 64}
"""Rows of 127 in constants of 64 rows and more; others are of ones."""

GREATEST = (1, 127)
"""The weights of convolutions of bytes."""

INTEGER_ROWS = ((1, 1), (2, 2), (3, 1), (3, 2), (5, 1), (10, 5))
LONG_ROWS = ((3, 1), (5, 1), (9, 1), (31, 1))
ROW_WINDOWS = ((1, 1), (2, 2), (3, 1), (3, 2), (5, 1), (7, 1), (8, 8), (9, 1), (10, 5), (15, 1), (31, 1))
IMAGE_WINDOWS = (
    (1, 1), (2, 2), (3, 1), (3, 2), (4, 2), (4, 4), (5, 1), (5, 2), (6, 2), (7, 1), (7, 2), (7, 4), (8, 8), (14, 14),
    (16, 16), (18, 18), (32, 32),
)  # fmt: skip
"""Extents of windows and strides."""

MOVED = (FLOAT, INT64, BOOL, UINT8)

_GROUPS: tuple[tuple[str, Callable[..., Iterator[onnx.ModelProto]], tuple[tuple[Any, ...], ...]], ...] = (
    ("{}", _unary, (UNARY,)),
    ("{}, broadcast {}", _binary, (BINARY, (False, True))),
    ("{} of axis {}", _reduced, (REDUCED, (-1, 1))),
    ("{}", _rows, (("Softmax", "LogSoftmax"),)),
    ("Gemm {}, bias {}", _linear, (("", *ACTIVATIONS), (False, True))),
    ("MatMul {}", _product, (((), (4,), (1, 12)),)),
    ("Conv {} {}", _conv, (WINDOWS, ("", "Relu", "Silu", "LeakyRelu", "HardSwish"))),
    ("Conv {} {}, added {}", _conv, (WINDOWS[2:4], ("", "Relu"), (True,))),
    ("depthwise {} {}", _depthwise, (DEPTHWISE, ("", "Relu", "Silu", "HardSwish"))),
    ("{} {}", _pool, (("MaxPool", "AveragePool"), POOLS)),
    ("{} {}", _recurrent, (("LSTM", "GRU", "RNN"), ("forward", "bidirectional"))),
    ("DynamicQuantizeLSTM {}, weights of {}", _integer_recurrent, (("forward", "bidirectional"), (127, 63))),
    ("{}", _moved, (("Transpose", "Concat", "Gather"),)),
    ("MaxPool of bytes {} {}", _byte_pool, (POOLS, (UINT8, INT8))),
    ("MatMul of a transposed matrix by {}", _turned_product, (("constant", "input", "transposed"),)),
    ("MatMulInteger by {}, zero point {}", _integer_product, ((*LARGE_WEIGHTS, "input"), (False, True))),
    (
        "ConvInteger {}, depthwise {}, zero point read {}, weights of {}",
        _integer_conv,
        (INTEGER_WINDOWS, (False, True), (False, True), GREATEST),
    ),
    ("Conv of an image {}", _image_conv, (IMAGE_WINDOWS,)),
    ("Conv of patches {}", _patches, ((2, 4, 8, 16),)),
    ("Conv of rows {}, depthwise {}", _rows_conv, (ROW_WINDOWS, (False, True))),
    (
        "ConvInteger of rows {}, depthwise {}, zero point {}, weights of {}",
        _integer_rows_conv,
        (INTEGER_ROWS, (False,), (False, True), GREATEST),
    ),
    (
        "ConvInteger of rows {}, depthwise {}, zero point {}, weights of {}",
        _integer_rows_conv,
        (LONG_ROWS, (True,), (False, True), GREATEST),
    ),
    ("depthwise {} {}", _depthwise, (((1, 2),), ("",))),
    ("{} of windows {}", _uneven_pool, (("MaxPool", "AveragePool"), ((2,), (3,), (2, 2), (3, 2), (3, 3)))),
    ("LayerNormalization without bias", _layer_normalized, ()),
    ("ConvTranspose {}", _transposed_conv, ((2, 4),)),
    ("{} of type {}, axis {}", _gathered, (("Gather", "GatherND", "GatherElements"), MOVED, (0, 1))),
    ("{} of type {}", _scattered, (("ScatterND", "ScatterElements"), MOVED)),
    ("{} of type {}", _best, (("ArgMax", "ArgMin", "TopK"), (FLOAT, INT64, INT32))),
    ("CumSum, reverse {}, type {}", _summed, ((False, True), (FLOAT, INT64, INT32))),
    ("{} of type {}, axis {}", _counted, (("ReduceSum", "ReduceMax", "ReduceMin"), (INT64, INT32), (-1, 0))),
    ("{} of strided rows", _strided, (REDUCED,)),
    ("Resize {} {} {}", _resized, (("nearest", "linear", "cubic"), ("asymmetric", "half_pixel"), (2.0, 0.5))),
    ("GridSample {} {} {}", _sampled, (("linear", "nearest"), ("zeros", "border"), (False, True))),
    ("DynamicQuantizeLinear {}", _quantized, (((16, 768), (1, 64, 56, 56)),)),
    ("{}", _normalized, (("InstanceNormalization", "GroupNormalization"),)),
)
"""Names, what writes a structure, and the values of each of its arguments."""


def single_operators() -> dict[str, Structure]:
    """Return structures of single operators by name."""
    return {
        name.format(*arguments): partial(write, *arguments)
        for name, write, values in _GROUPS
        for arguments in product(*values)
    }
