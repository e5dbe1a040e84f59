"""Structures of convolutional networks and of ViT, as torch's exporters write them.

Batch normalisation is written out where a network was exported with it, and left out where it was folded: both give
the same operators once a graph is optimised.
"""

from __future__ import annotations

from itertools import pairwise

import onnx

from kernels.writer import Extent, Writer

Image = tuple[Extent, Extent, Extent]
"""Batch, height and width."""


class ImageWriter(Writer):
    """A writer that knows the parts of convolutional networks."""

    def image(self, size: Image, channels: int = 3) -> str:
        """Add the network's input."""
        return self.input("image", (size[0], channels, *size[1:]))

    def conv(
        self,
        x: str,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        stride: int = 1,
        groups: int = 1,
        pads: tuple[int, int, int, int] | None = None,
        bias: bool = True,
    ) -> str:
        """Add a convolution that keeps the extents, divided by the stride."""
        around = pads if pads is not None else (kernel // 2,) * 4
        weights = [self.weight(outputs, inputs // groups, kernel, kernel), *([self.weight(outputs)] if bias else [])]
        return self.add(
            "Conv", x, *weights, kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=around, group=groups,
            dilations=[1, 1],
        )  # fmt: skip

    def same_conv(
        self, x: str, inputs: int, outputs: int, kernel: int, *, stride: int, groups: int = 1, same: str = ""
    ) -> str:
        """Add a convolution without bias that may pad as TensorFlow does, unevenly where it has strides.

        Args:
            x: Its input.
            inputs: Channels.
            outputs: The same.
            kernel: Its size.
            stride: The same.
            groups: How many.
            same: "": it does not; ``pads``: by its attribute; ``node``: by a Pad before it, which each one has;
                ``auto``: as much as the extents, which may be open, ask for.
        """
        if same == "auto":
            weights = self.weight(outputs, inputs // groups, kernel, kernel)
            return self.add("Conv", x, weights, strides=[stride] * 2, group=groups, auto_pad="SAME_UPPER")
        low, more = kernel // 2 - stride + 1, kernel // 2
        around = (low, low, more, more) if same else (more,) * 4
        if same == "node":
            x = self.add("Pad", x, self.numbers([0, 0, *around[:2], 0, 0, *around[2:]]), self.number(0.0))
            around = (0,) * 4
        return self.conv(x, inputs, outputs, kernel, stride=stride, groups=groups, pads=around, bias=False)

    def norm(self, x: str, channels: int) -> str:
        """Add a batch normalisation."""
        return self.add("BatchNormalization", x, *(self.weight(channels, value=0.5) for _ in range(4)), epsilon=1e-5)

    def head(self, x: str, channels: int, classes: int = 1000) -> str:
        """Add the mean of each channel and a linear layer."""
        flat = self.add("Flatten", self.add("GlobalAveragePool", x), axis=1)
        return self.add("Gemm", flat, self.weight(classes, channels), self.weight(classes), transB=1)

    def silu(self, x: str) -> str:
        """Add ``x * sigmoid(x)``."""
        return self.add("Mul", x, self.add("Sigmoid", x))

    def relu6(self, x: str) -> str:
        """Add a Relu that ends at 6."""
        return self.add("Clip", x, self.number(0.0), self.number(6.0))

    def layer_norm(self, x: str, channels: int, epsilon: float, *, whole: bool) -> str:
        """Add a layer normalisation over the last axis, as one operator or written out."""
        scale, bias = self.weight(channels, value=0.5), self.weight(channels)
        if whole:
            return self.add("LayerNormalization", x, scale, bias, axis=-1, epsilon=epsilon)
        centred = self.add("Sub", x, self.mean(x, -1))
        variance = self.mean(self.add("Pow", centred, self.number(2.0)), -1)
        deviation = self.add("Sqrt", self.add("Add", variance, self.number(epsilon)))
        return self.add("Add", self.add("Mul", self.add("Div", centred, deviation), scale), bias)

    def gelu(self, x: str, *, whole: bool) -> str:
        """Add a Gelu, as one operator or written out."""
        if whole:
            return self.add("Gelu", x)
        erf = self.add("Erf", self.add("Div", x, self.number(2**0.5)))
        return self.add("Mul", self.add("Mul", x, self.add("Add", erf, self.number(1.0))), self.number(0.5))

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        """Add a linear layer over the last axis."""
        return self.add("Add", self.add("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs))


def resnet(size: Image, depths: tuple[int, ...] = (2, 2, 2, 2), *, wide: bool = True) -> onnx.ModelProto:
    """Return a ResNet; ``wide``: of bottlenecks, as ResNet-50, else as ResNet-18. Further blocks bring no kernels."""
    to = ImageWriter()
    x = to.add("Relu", to.norm(to.conv(to.image(size), 3, 64, 7, stride=2, bias=False), 64))
    x = to.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    inputs = 64
    for stage, depth in enumerate(depths):
        channels = 64 * 2**stage
        outputs = 4 * channels if wide else channels
        for block in range(depth):
            stride = 2 if stage and not block else 1
            short = x if inputs == outputs else to.norm(
                to.conv(x, inputs, outputs, 1, stride=stride, bias=False), outputs
            )  # fmt: skip
            if wide:
                x = to.add("Relu", to.norm(to.conv(x, inputs, channels, 1, bias=False), channels))
                x = to.add("Relu", to.norm(to.conv(x, channels, channels, 3, stride=stride, bias=False), channels))
                x = to.norm(to.conv(x, channels, outputs, 1, bias=False), outputs)
            else:
                x = to.add("Relu", to.norm(to.conv(x, inputs, channels, 3, stride=stride, bias=False), channels))
                x = to.norm(to.conv(x, channels, channels, 3, bias=False), channels)
            x, inputs = to.add("Relu", to.add("Add", x, short)), outputs
    return to.model(to.head(x, inputs))


def _inverted(to: ImageWriter, x: str, shape: tuple[int, int, int], wider: int, stride: int, same: str) -> str:
    """Add an inverted residual block with Relu6."""
    inputs, outputs, kernel = shape
    wide = inputs * wider
    y = x if wider == 1 else to.relu6(to.norm(to.conv(x, inputs, wide, 1, bias=False), wide))
    y = to.relu6(to.norm(to.same_conv(y, wide, wide, kernel, stride=stride, groups=wide, same=same), wide))
    y = to.norm(to.conv(y, wide, outputs, 1, bias=False), outputs)
    return to.add("Add", x, y) if stride == 1 and inputs == outputs else y


def mobilenet_v2(size: Image, *, same: str = "") -> onnx.ModelProto:
    """Return MobileNet-v2; ``same`` as ``ImageWriter.same_conv`` has it, for Hugging Face's."""
    to = ImageWriter()
    x = to.relu6(to.norm(to.same_conv(to.image(size), 3, 32, 3, stride=2, same=same), 32))
    inputs = 32
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2), (6, 64, 2, 2), (6, 96, 2, 1), (6, 160, 2, 2), (6, 320, 1, 1))
    for wider, outputs, depth, stride in plan:
        for block in range(depth):
            x = _inverted(to, x, (inputs, outputs, 3), wider, stride if not block else 1, same)
            inputs = outputs
    x = to.relu6(to.norm(to.conv(x, 320, 1280, 1, bias=False), 1280))
    return to.model(to.head(x, 1280))


def _squeeze_3(to: ImageWriter, x: str, channels: int) -> str:
    """Add squeeze-and-excite as MobileNet-v3 has it: a fourth of the channels, a multiple of 8."""
    few = max(8, int(channels / 4 + 4) // 8 * 8)
    squeezed = to.add("Relu", to.conv(to.add("GlobalAveragePool", x), channels, few, 1))
    return to.add("Mul", to.add("HardSigmoid", to.conv(squeezed, few, channels, 1), alpha=1 / 6), x)


def mobilenet_v3(size: Image) -> onnx.ModelProto:
    """Return MobileNet-v3-large as torchvision's is exported."""
    to = ImageWriter()

    def layer(x: str, inputs: int, outputs: int, kernel: int, act: str, stride: int = 1, groups: int = 1) -> str:
        y = to.norm(to.conv(x, inputs, outputs, kernel, stride=stride, groups=groups, bias=False), outputs)
        return to.add(act, y) if act else y

    x = layer(to.image(size), 3, 16, 3, "HardSwish", 2)
    inputs = 16
    plan = (
        (3, 16, 16, False, "Relu", 1), (3, 64, 24, False, "Relu", 2), (3, 72, 24, False, "Relu", 1),
        (5, 72, 40, True, "Relu", 2), (5, 120, 40, True, "Relu", 1), (5, 120, 40, True, "Relu", 1),
        (3, 240, 80, False, "HardSwish", 2), (3, 200, 80, False, "HardSwish", 1), (3, 184, 80, False, "HardSwish", 1),
        (3, 184, 80, False, "HardSwish", 1), (3, 480, 112, True, "HardSwish", 1), (3, 672, 112, True, "HardSwish", 1),
        (5, 672, 160, True, "HardSwish", 2), (5, 960, 160, True, "HardSwish", 1), (5, 960, 160, True, "HardSwish", 1),
    )  # fmt: skip
    for kernel, wide, outputs, squeezes, act, stride in plan:
        y = x if wide == inputs else layer(x, inputs, wide, 1, act)
        y = layer(y, wide, wide, kernel, act, stride, wide)
        y = layer(_squeeze_3(to, y, wide) if squeezes else y, wide, outputs, 1, "")
        x = to.add("Add", y, x) if stride == 1 and inputs == outputs else y
        inputs = outputs
    x = to.add("GlobalAveragePool", layer(x, 160, 960, 1, "HardSwish"))
    y = to.add("Gemm", to.add("Flatten", x, axis=1), to.weight(1280, 960), to.weight(1280), transB=1)
    return to.model(to.add("Gemm", to.add("HardSwish", y), to.weight(1000, 1280), to.weight(1000), transB=1))


def efficientnet(size: Image, *, same: str = "") -> onnx.ModelProto:
    """Return EfficientNet-B0.

    Args:
        size: The image's.
        same: As ``ImageWriter.same_conv`` has it, for Hugging Face's.
    """
    to = ImageWriter()
    x = to.silu(to.norm(to.same_conv(to.image(size), 3, 32, 3, stride=2, same=same), 32))
    inputs = 32
    plan = (
        (1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 2, 2, 3), (6, 112, 2, 1, 5), (6, 192, 2, 2, 5),
        (6, 320, 1, 1, 3),
    )  # fmt: skip
    for wider, outputs, depth, stride, kernel in plan:
        for block in range(depth):
            step, wide = (stride if not block else 1), inputs * wider
            y = x if wider == 1 else to.silu(to.norm(to.conv(x, inputs, wide, 1, bias=False), wide))
            y = to.silu(to.norm(to.same_conv(y, wide, wide, kernel, stride=step, groups=wide, same=same), wide))
            few = max(1, inputs // 4)
            mean = to.add("GlobalAveragePool", y) if not same else to.mean(y, 2, 3)
            squeezed = to.silu(to.conv(mean, wide, few, 1))
            y = to.add("Mul", y, to.add("Sigmoid", to.conv(squeezed, few, wide, 1)))
            y = to.norm(to.conv(y, wide, outputs, 1, bias=False), outputs)
            x = to.add("Add", y, x) if step == 1 and inputs == outputs else y
            inputs = outputs
    x = to.silu(to.norm(to.conv(x, 320, 1280, 1, bias=False), 1280))
    if same:  # its mean is a window larger than every image
        x = to.add("AveragePool", x, kernel_shape=[1280] * 2, strides=[1280] * 2, ceil_mode=1, count_include_pad=1)
        flat = to.add("Reshape", x, to.shape(size[0], 1280))
        return to.model(to.add("Gemm", flat, to.weight(1000, 1280), to.weight(1000), transB=1))
    return to.model(to.head(x, 1280))


def convnext(size: Image, *, whole: bool, depths: tuple[int, ...] = (2, 2, 2, 2)) -> onnx.ModelProto:
    """Return ConvNeXt-tiny; ``whole``: Gelu and layer normalisation are operators, else written out."""
    to = ImageWriter(20 if whole else 17)

    def norm_of_image(x: str, channels: int) -> str:
        last = to.layer_norm(to.add("Transpose", x, perm=[0, 2, 3, 1]), channels, 1e-6, whole=whole)
        return to.add("Transpose", last, perm=[0, 3, 1, 2])

    channels = (96, 192, 384, 768)
    x = norm_of_image(to.conv(to.image(size), 3, 96, 4, stride=4, pads=(0,) * 4), 96)
    for stage, width in enumerate(channels):
        if stage:
            before = channels[stage - 1]
            x = to.conv(norm_of_image(x, before), before, width, 2, stride=2, pads=(0,) * 4)
        for _ in range(depths[stage]):
            y = to.add("Transpose", to.conv(x, width, width, 7, groups=width), perm=[0, 2, 3, 1])
            y = to.layer_norm(y, width, 1e-6, whole=whole)
            y = to.linear(to.gelu(to.linear(y, width, 4 * width), whole=whole), 4 * width, width)
            scaled = to.add("Mul", to.weight(width), y)
            x = to.add("Add", x, to.add("Transpose", scaled, perm=[0, 3, 1, 2]))
    mean = to.mean(x, -2, -1, keep=False)
    y = to.layer_norm(mean, 768, 1e-12, whole=whole)
    return to.model(to.add("Gemm", y, to.weight(1000, 768), to.weight(1000), transB=1))


def unet(size: Image, *, resized: bool = False, classes: int = 2) -> onnx.ModelProto:
    """Return a U-Net; ``resized``: images are enlarged by Resize and not by transposed convolutions."""
    to = ImageWriter()
    widths = (64, 128, 256, 512, 1024)

    def double(x: str, inputs: int, outputs: int) -> str:
        x = to.add("Relu", to.norm(to.conv(x, inputs, outputs, 3, bias=False), outputs))
        return to.add("Relu", to.norm(to.conv(x, outputs, outputs, 3, bias=False), outputs))

    x = double(to.image(size), 3, 64)
    kept = [x]
    for inputs, outputs in pairwise(widths):
        x = double(to.add("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), inputs, outputs)
        kept.append(x)
    kept.pop()
    for outputs, inputs in reversed(list(pairwise(widths))):
        if resized:
            scales = to.numbers([1, 1, 2, 2], "float32")
            larger = to.add(
                "Resize", x, "", scales, mode="linear", coordinate_transformation_mode="align_corners",
                cubic_coeff_a=-0.75, nearest_mode="floor",
            )  # fmt: skip
            x = to.conv(larger, inputs, outputs, 1)
        else:
            weights = to.weight(inputs, outputs, 2, 2), to.weight(outputs)
            x = to.add("ConvTranspose", x, *weights, kernel_shape=[2, 2], strides=[2, 2], pads=[0] * 4)
        x = double(to.add("Concat", kept.pop(), x, axis=1), inputs, outputs)
    return to.model(to.conv(x, 64, classes, 1))
