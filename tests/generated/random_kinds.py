"""Random networks of several inputs whose extents are open, and the sizes of very different kinds that they take."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import NamedTuple

import onnx
from onnx import TensorProto, helper

from generated.random_open import STEPS, WIDTH, OpenMaker, cut
from opbuild.runtime.binding import Shapes

EXTENTS = (1, 1, 2, 3, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 40)
"""One, and both sides of what decides: half a vector, a vector, a block of queries."""
CHANNELS = 16
SEQUENCE_STEPS = tuple(step for step in STEPS if step is not cut)
"""What does not end at a number, which is another network where there is less."""


class Kind(NamedTuple):
    """A random network.

    Attributes:
        model: The network, its inputs declared open.
        declared: The shapes of its inputs by name, -1 where they are open.
        size: Draws the shapes of the inputs.
    """

    model: onnx.ModelProto
    declared: Mapping[str, tuple[int, ...]]
    size: Callable[[random.Random], Shapes]


class KindMaker(OpenMaker):
    """Makes one network."""

    def kind(self) -> Kind:
        """Return a network of sequences, of two of them, or of images."""
        return self.random.choice((self._sequence, self._sequences, self._images, self._related))()

    def _sequence(self) -> Kind:
        value = self._steps("x", 4)
        return self._finished(value, {"x": (-1, -1, WIDTH)}, lambda r: ((_extent(r, 5), _extent(r), WIDTH),))

    def _sequences(self) -> Kind:
        """Return a network in which one sequence attends to another one, of any length, also as long."""
        one, other = self._steps("x", 2), self._steps("y", 1)
        scores = self.node("MatMul", one, self.node("Transpose", other, perm=[0, 2, 1]))
        mixed = self.node("MatMul", self.node("Softmax", scores, axis=-1), other)

        def size(r: random.Random) -> Shapes:
            batch, length = _extent(r, 5), _extent(r)
            return (batch, length, WIDTH), (batch, r.choice((length, _extent(r))), WIDTH)

        value = self.node("Add", mixed, one) if self.random.random() < 0.7 else mixed
        return self._finished(value, {"x": (-1, -1, WIDTH), "y": (-1, -1, WIDTH)}, size)

    def _images(self) -> Kind:
        """Return a network of images that are made smaller and as large again, beside what they were."""
        value, skips = "x", []
        for _ in range(self.random.randint(1, 2)):
            value = self._convolved(value, self._channels_of(value))
            skips.append(value)
            value = self.node("MaxPool", value, kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1)
        while skips:
            shape = self.node("Shape", skip := skips.pop())
            sizes = self.node("Concat", self.constant([1, CHANNELS]), self._part(shape, 2, 4), axis=0)
            sizes = self.node("Concat", self._part(shape, 0, 1), self._part(sizes, 1, 4), axis=0)
            mode = self.random.choice(("nearest", "linear"))
            value = self.node("Resize", value, "", "", sizes, mode=mode, coordinate_transformation_mode="half_pixel")
            joined = self.node("Concat", value, skip, axis=1)
            value = self._convolved(joined, 2 * CHANNELS)
        if self.random.random() < 0.3:
            value = self.node("GlobalAveragePool", value)
        return self._finished(value, {"x": (-1, 3, -1, -1)}, lambda r: (self._image(r),))

    def _related(self) -> Kind:
        """Return a network of two images, of which one is as large as the other one or twice as large."""
        factor = self.random.choice((1, 2))
        one, other = self._convolved("x", 3), self._convolved("y", 3)
        if factor == 2:
            other = self.node("MaxPool", other, kernel_shape=[2, 2], strides=[2, 2])
        value = self.node(self.random.choice(("Add", "Mul")), one, other)
        if self.random.random() < 0.5:
            value = self._convolved(self.node("Concat", value, one, axis=1), 2 * CHANNELS)

        def size(r: random.Random) -> Shapes:
            images, channels, height, width = self._image(r)
            return (images, channels, height, width), (images, channels, factor * height, factor * width)

        return self._finished(value, {"x": (-1, 3, -1, -1), "y": (-1, 3, -1, -1)}, size)

    def _steps(self, value: str, most: int) -> str:
        for _ in range(self.random.randint(1, most)):
            value = self.random.choice(SEQUENCE_STEPS)(self, value)
        return value

    def _channels_of(self, value: str) -> int:
        return 3 if value == "x" else CHANNELS

    def _part(self, value: str, start: int, end: int) -> str:
        return self.node("Slice", value, self.constant([start]), self.constant([end]))

    def _convolved(self, value: str, channels: int) -> str:
        taps = self.random.choice((1, 3))
        made = self.node("Conv", value, self.weights(CHANNELS, channels, taps, taps), pads=[taps // 2] * 4)
        return self.node("Relu", made)

    def _image(self, r: random.Random) -> tuple[int, int, int, int]:
        height = _extent(r)
        return r.choice((1, 1, 2, 3)), 3, height, r.choice((height, _extent(r)))

    def _finished(
        self, value: str, declared: Mapping[str, tuple[int, ...]], size: Callable[[random.Random], Shapes]
    ) -> Kind:
        return Kind(self.model_of(value, declared), declared, size)

    def model_of(self, value: str, declared: Mapping[str, tuple[int, ...]]) -> onnx.ModelProto:
        """Return a model whose result is a value."""
        self._nodes.append(helper.make_node("Identity", [value], ["result"], name="last"))
        inputs = [
            helper.make_tensor_value_info(
                name,
                TensorProto.FLOAT,
                [f"{name}{axis}" if extent == -1 else extent for axis, extent in enumerate(shape)],
            )
            for name, shape in declared.items()
        ]
        outputs = [helper.make_tensor_value_info("result", TensorProto.FLOAT, None)]
        graph = helper.make_graph(self._nodes, "kinds", inputs, outputs, self._constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def _extent(r: random.Random, most: int = len(EXTENTS)) -> int:
    return r.choice(EXTENTS[:most])


def make_kind(seed: int) -> Kind:
    """Return the random network of a seed."""
    return KindMaker(seed).kind()
