"""Convolutions on NVIDIA's GPUs: kernels interpreted beside numpy's float64. bfloat16 is tried as float16."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.lib.stride_tricks import as_strided

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from opbuild.families.conv import family as convs
from opbuild.families.conv.cuda import ALIGNED, OTHERS
from opbuild.families.fitting import Place
from opbuild.families.matmul.cuda import of_tile
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, HIGH_PRECISION, Dim, OpDesc, Operand
from opbuild.operations.expression import ACC, Expression, arg
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS
from support.compiled_kernels import MOST_REGISTERS, MOST_SHARED, usage
from support.cuda_kernels import guarded, is_untouched
from support.interpreter import interpret

Array = Any
Pair = tuple[int, int]

TOLERANCES = {"float16": 2e-3, "float32": 3e-6}
"""Of a sum of some 100 products of numbers of about 1, relative to 1 and the result."""

LAST, FIRST = (0, 2, 3, 1), (0, 1, 2, 3)
"""Axes of an image as they lie, outermost first: channels last, or first."""

FUSED: Expression = ("relu", ("add", ("add", ACC, arg(0)), arg(1)))
"""A bias for each channel and a residual, and ReLU."""


class Shape(NamedTuple):
    """A convolution; pairs are (x, y), paddings left, top, right, bottom."""

    x: tuple[int, int, int, int] = (2, 5, 9, 7)
    outputs: int = 7
    kernel: Pair = (3, 3)
    stride: Pair = (1, 1)
    dilation: Pair = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    groups: int = 1

    @property
    def out(self) -> tuple[int, int, int, int]:
        """The shape of the result."""
        (n, _, *size), before, after = self.x, self.pads[:2], self.pads[2:]
        w, h = (
            (size[1 - i] + before[i] + after[i] - self.dilation[i] * (self.kernel[i] - 1) - 1) // self.stride[i] + 1
            for i in (0, 1)
        )
        return n, self.outputs, h, w

    @property
    def is_depthwise(self) -> bool:
        """Whether each channel is a group."""
        return self.groups == self.x[1] == self.outputs

    def wanted(self, x: Array, w: Array) -> Array:
        """Return the sums in float64; ``w`` is ``(outputs, inputs, y, x)``."""
        n, c, *_ = self.x
        left, top, right, bottom = self.pads
        padded = np.pad(x.astype(float), ((0, 0), (0, 0), (top, bottom), (left, right)))
        padded = padded.reshape(n, self.groups, c // self.groups, *padded.shape[2:])
        weights = w.astype(float).reshape(self.groups, -1, *w.shape[1:])
        _, _, h, wide = self.out
        total = 0.0
        for j, i in np.ndindex(w.shape[2:]):
            y, x_ = j * self.dilation[1], i * self.dilation[0]
            rows = slice(y, y + (h - 1) * self.stride[1] + 1, self.stride[1])
            columns = slice(x_, x_ + (wide - 1) * self.stride[0] + 1, self.stride[0])
            total += np.einsum("ngcyx,goc->ngoyx", padded[..., rows, columns], weights[..., j, i])
        return total.reshape(self.out)


SHAPES = {
    "odd": Shape(),
    "3x3 padded": Shape((2, 16, 6, 5), 16, pads=(1, 1, 1, 1)),
    "strides": Shape((1, 16, 11, 9), 9, (3, 2), (2, 3), pads=(0, 1, 2, 0)),
    "dilations": Shape((1, 6, 12, 10), 5, (3, 2), (1, 2), (2, 3), (2, 1, 1, 3)),
    "first layer": Shape((1, 3, 15, 13), 20, (7, 7), (2, 2), pads=(3, 3, 3, 3)),
    "1x1": Shape((2, 33, 4, 5), 18, (1, 1)),
    "1x1 at every second": Shape((2, 32, 5, 7), 48, (1, 1), (2, 2)),
    "1x1 padded": Shape((1, 4, 3, 2), 3, (1, 1), (1, 1), (1, 1), (1, 0, 2, 1)),
    "wider than the image": Shape((1, 2, 3, 3), 4, (5, 5), (1, 1), (1, 1), (4, 4, 4, 4)),
    "one row": Shape((3, 8, 1, 30), 6, (4, 1), (3, 1), (2, 1), (1, 0, 2, 0)),
    "groups": Shape((2, 12, 5, 6), 8, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 4),
    "wide groups": Shape((1, 32, 5, 6), 64, (3, 3), (2, 2), (1, 1), (1, 1, 1, 1), 2),
    "a group has many outputs": Shape((1, 3, 5, 6), 12, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 3),
    "depthwise": Shape((2, 19, 7, 6), 19, (3, 3), (1, 1), (1, 1), (1, 1, 1, 1), 19),
    "depthwise, strides": Shape((1, 66, 7, 6), 66, (3, 2), (2, 3), (1, 2), (2, 0, 1, 3), 66),
    "depthwise, not padded": Shape((1, 16, 6, 7), 16, (3, 2), groups=16),
}


@pytest.fixture
def rng() -> np.random.Generator:
    """Return the source of numbers."""
    return np.random.default_rng(11)


def some(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, order: tuple[int, ...]) -> Array:
    """Return numbers that lie in an order."""
    array = guarded(shape, dtype, 0, order)[0]
    array[...] = rng.standard_normal(shape)
    return array


def in_groups(image: Array, groups: int) -> Array:
    """Return an image as kernels have it, outermost first: ``(N, H, W, groups, channels of one)``."""
    n, c, h, w = image.shape
    image_step, step, row, column = image.strides
    each = c // groups
    strides = (image_step, row, column, step * each, step if each > 1 else 0)
    return as_strided(image, (n, h, w, groups, each), strides)


def weights_of(shape: Shape, w: Array) -> Array:
    """Return weights as kernels have them: ``(groups, outputs of one, taps and inputs)``; by tap where depthwise."""
    groups = shape.groups
    if shape.is_depthwise:
        rows = guarded((w[0, 0].size, groups), w.dtype)[0]
        rows[...] = w.reshape(groups, -1).T
        return as_strided(rows, (groups, 1, len(rows)), (w.itemsize, 0, w.itemsize * groups))
    packed = guarded((groups, shape.outputs // groups, w[0].size), w.dtype)[0]
    packed[...] = w.transpose(0, 2, 3, 1).reshape(packed.shape)
    return packed


def place(array: Array) -> Place:
    """Return the place of an array."""
    dims = [(n, step // array.itemsize) for n, step in zip(array.shape, array.strides, strict=True)]
    return Place(0, tuple(reversed(dims)))


def described(shape: Shape, arrays: list[Array], epilogue: Expression, mode: str = HIGH_PERFORMANCE) -> OpDesc:
    """Return a CPU's descriptor; strides of 0 and 1 are known."""
    names = ["x", "w", *(f"e{number}" for number in range(len(arrays) - 3)), "out"]
    operands = [
        Operand(name, each.dtype.name, tuple(Dim(stride=s) if s in (0, 1) else Dim() for _, s in place(each).dims))
        for name, each in zip(names, arrays, strict=True)
    ]
    window = {
        "kernel": shape.kernel,
        "stride": shape.stride,
        "dilation": shape.dilation,
        "before": shape.pads[:2],
        "is_padded": any(shape.pads),
        "is_depthwise": shape.is_depthwise,
    }
    return convs.describe_plain(window, operands[:-1], operands[-1], epilogue, mode)


def operands_of(shape: Shape, x: Array, w: Array, *others: Array) -> list[Array]:
    """Return the operands as kernels have them, of images."""
    given = in_groups(x, shape.groups)
    n, _, h, wide = shape.out
    rows = np.broadcast_to(given, (n * h * wide, *given.shape))
    return [rows, weights_of(shape, w), *(in_groups(each, shape.groups) for each in others)]


def run_as(desc: OpDesc, arrays: list[Array]) -> None:
    """Run a kernel of the device."""
    assert desc.problem([place(each).dims for each in arrays]) is None
    arrays[-1][...] = np.nan
    interpret(import_module("opbuild.families.conv.triton").define(desc), arrays)


def assert_close(found: Array, wanted: Array) -> None:
    """Compare with float64, NaN and infinities too."""
    tolerance = TOLERANCES[found.dtype.name]
    np.testing.assert_allclose(found.astype(float), wanted, rtol=tolerance, atol=tolerance * 8)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("order", [LAST, FIRST])
@pytest.mark.parametrize("name", SHAPES)
def test_a_convolution_is_right_however_images_lie(
    name: str, order: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    """The kernel without limits and the one that fits best, with a bias and a residual; canaries around the result."""
    shape = SHAPES[name]
    x, residual = some(rng, shape.x, dtype, order), some(rng, shape.out, dtype, order)
    w = some(rng, (shape.outputs, shape.x[1] // shape.groups, *shape.kernel[::-1]), dtype, FIRST)
    bias = some(rng, (shape.outputs,), "float32", (0,))
    out, memory = guarded(shape.out, dtype, 0, order)
    by_channel = np.broadcast_to(bias[:, np.newaxis, np.newaxis], shape.out)
    arrays = operands_of(shape, x, w, by_channel, residual, out)
    served = CLASS.kernel(described(shape, arrays, FUSED))
    wanted = np.maximum(shape.wanted(x, w) + by_channel + residual, 0)
    for desc in (served, CLASS.fit(served, [place(each) for each in arrays])):
        run_as(desc, arrays)
        assert_close(out, wanted)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("tiles", [ALIGNED, OTHERS])
@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("number", range(6))
def test_every_tile_is_right_beyond_its_edges(tiles: Any, dtype: str, number: int, rng: np.random.Generator) -> None:
    """One more row and column than a tile has, with more than one step along a sum."""
    chosen = tiles[np.dtype(dtype).itemsize]
    tile = chosen[number % len(chosen)]
    shape = Shape((1, 16, 1, tile.rows + 3), tile.columns + 1, (9, 1), pads=(4, 0, 2, 0))
    x, w = some(rng, shape.x, dtype, LAST), some(rng, (shape.outputs, 16, 1, 9), dtype, FIRST)
    out, memory = guarded(shape.out, dtype, 0, LAST)
    arrays = operands_of(shape, x, w, out)
    run_as(replace(CLASS.kernel(described(shape, arrays, ACC)), variant=of_tile(tile)), arrays)
    assert_close(out, shape.wanted(x, w))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("dtypes", [("float16", "float32"), ("float32", "float16")])
@pytest.mark.parametrize("name", ["odd", "depthwise"])
def test_operands_of_two_types_are_multiplied_in_float32(
    name: str, dtypes: tuple[str, str], rng: np.random.Generator
) -> None:
    """What has 16 bits becomes float32 as it is read."""
    shape = SHAPES[name]
    x = some(rng, shape.x, dtypes[0], LAST)
    w = some(rng, (shape.outputs, shape.x[1] // shape.groups, *shape.kernel[::-1]), dtypes[1], FIRST)
    out, memory = guarded(shape.out, "float32", 0, LAST)
    arrays = operands_of(shape, x, w, out)
    run_as(CLASS.fit(CLASS.kernel(described(shape, arrays, ACC)), [place(each) for each in arrays]), arrays)
    assert_close(out, shape.wanted(x, w))
    assert is_untouched(out, memory)


@pytest.mark.parametrize("name", ["3x3 padded", "depthwise"])
def test_nan_and_infinities_reach_those_outputs_alone_that_read_them(name: str, rng: np.random.Generator) -> None:
    """Padding is 0 and multiplies nothing else."""
    shape = SHAPES[name]
    x = some(rng, shape.x, "float32", LAST)
    w = some(rng, (shape.outputs, shape.x[1] // shape.groups, *shape.kernel[::-1]), "float32", FIRST)
    x[0, 1, 0, 0], x[-1, 2, -1, -1] = np.nan, np.inf
    out, _ = guarded(shape.out, "float32", 0, LAST)
    arrays = operands_of(shape, x, w, out)
    run_as(CLASS.fit(CLASS.kernel(described(shape, arrays, ACC)), [place(each) for each in arrays]), arrays)
    with np.errstate(invalid="ignore"):
        assert_close(out, shape.wanted(x, w))


def test_what_only_the_cpu_computes_is_left_to_it(rng: np.random.Generator) -> None:
    """Sums of sums, and values in channel blocks."""
    shape = SHAPES["odd"]
    x, w = some(rng, shape.x, "float32", LAST), some(rng, (7, 5, 3, 3), "float32", FIRST)
    arrays = operands_of(shape, x, w, guarded(shape.out, "float32", 0, LAST)[0])
    assert CLASS.kernel(described(shape, arrays, ACC, HIGH_PRECISION)) is None
    desc = described(shape, arrays, ACC)
    blocked = replace(desc.inputs[0], format="NC1HWC0")
    assert CLASS.kernel(replace(desc, inputs=(blocked, desc.inputs[1]))) is None


# -- the code ----------------------------------------------------------------------------------------------------------


class Gate(NamedTuple):
    """The limits of a kernel's code.

    Attributes:
        shape: The convolution, by which the variant is chosen.
        dtype: Element type.
        tile: Positions and channels of the tile that is.
        units: What multiplies: tensor cores by ``groups`` of warps, tensor cores by warps (``products``), or neither.
        registers: Registers that a thread may have.
        is_wide: Whether all copies to shared memory, or reads where there are none, and writes have 16 bytes.
    """

    shape: Shape
    dtype: str
    tile: tuple[int, int]
    units: str
    registers: int
    is_wide: bool = True


SAME = (1, 1, 1, 1)
GATES = {
    "large": Gate(Shape((32, 256, 56, 56), 256, pads=SAME), "bfloat16", (128, 256), "groups", 255),
    "medium": Gate(Shape((64, 128, 28, 28), 128, pads=SAME), "float16", (128, 128), "groups", 136),
    "64 channels": Gate(Shape((8, 64, 56, 56), 64, pads=SAME), "float16", (128, 64), "groups", 176),
    "1x1 at every second": Gate(Shape((8, 256, 28, 28), 512, (1, 1), (2, 2)), "float16", (128, 64), "groups", 168),
    "few positions": Gate(Shape((1, 512, 7, 7), 512, pads=SAME), "float16", (16, 64), "products", 80),
    # Channels are read one by one; twice the products of a step would spill 76 registers.
    "first layer": Gate(
        Shape((8, 3, 224, 224), 64, (7, 7), (2, 2), pads=(3, 3, 3, 3)), "float16", (128, 64), "groups", 96, False
    ),
    # IEEE's float32: tensor cores would drop digits.
    "float32": Gate(Shape((32, 256, 56, 56), 256, pads=SAME), "float32", (128, 128), "", 250),
    "depthwise float16": Gate(Shape((8, 96, 56, 56), 96, pads=SAME, groups=96), "float16", (16, 64), "", 56),
    "depthwise float32": Gate(Shape((8, 96, 56, 56), 96, (5, 5), (2, 2), groups=96), "float32", (16, 64), "", 72),
}


def unreal(shape: tuple[int, ...], dtype: str) -> Array:
    """Return an image with its channels last that has strides and no memory."""
    _, c, h, w = shape
    item = np.dtype("float16" if dtype == "bfloat16" else dtype).itemsize
    return as_strided(np.zeros(1, f"f{item}"), shape, [item * step for step in (h * w * c, 1, w * c, c)])


@pytest.mark.parametrize("name", GATES)
def test_the_code_of_a_convolution_is_what_its_tile_was_chosen_for(name: str) -> None:
    """Registers, no spills, shared memory, tensor cores and accesses of 16 bytes are within the table."""
    gate = GATES[name]
    shape, x = gate.shape, unreal(gate.shape.x, gate.dtype)
    w = np.zeros((shape.outputs, shape.x[1] // shape.groups, *shape.kernel[::-1]), x.dtype)
    arrays = operands_of(shape, x, w, np.broadcast_to(w[:1, :1, :1, :1], shape.out), unreal(shape.out, gate.dtype))
    arrays[2] = np.broadcast_to(np.zeros(shape.outputs, x.dtype).reshape(arrays[3].shape[3:]), arrays[3].shape)
    desc = described(shape, arrays, ("relu", ("add", ACC, arg(0))))
    sides = (tuple(replace(each, dtype=gate.dtype) for each in side) for side in (desc.inputs, desc.outputs))
    inputs, outputs = sides
    served = CLASS.kernel(replace(desc, inputs=inputs, outputs=outputs))
    best = CLASS.fit(served, [place(each) for each in arrays])
    assert (best.variant["rows"], best.variant["columns"]) == gate.tile
    used = usage(best)
    assert used.spills == 0, used
    assert used.registers <= min(gate.registers, MOST_REGISTERS), used
    assert used.shared <= MOST_SHARED
    assert "".join(unit for unit in ("groups", "products") if getattr(used, unit)) == gate.units, used
    if gate.is_wide:
        assert used.wide_copies == used.copies, used
        assert used.wide_copies or used.wide_loads >= used.loads - 1, used
        assert used.wide_stores == used.stores, used
