"""Single operators at typical shapes, as parts of networks that nobody listed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from typing import Any

import onnx

from kernels.vision import ImageWriter
from kernels.writer import INT64, Writer

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


WINDOWS = ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1), (7, 1), (7, 2))
DEPTHWISE = ((3, 1), (3, 2), (5, 1), (5, 2), (7, 1))
POOLS = ((2, 2), (3, 1), (3, 2), (5, 1))
"""Kernel sizes and strides."""

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
    ("{}", _moved, (("Transpose", "Concat", "Gather"),)),
)
"""Names, what writes a structure, and the values of each of its arguments."""


def single_operators() -> dict[str, Structure]:
    """Return structures of single operators by name."""
    return {
        name.format(*arguments): partial(write, *arguments)
        for name, write, values in _GROUPS
        for arguments in product(*values)
    }
