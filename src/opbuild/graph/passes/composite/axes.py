"""Fourier transforms as products with constant matrices, and operators whose axis is given to the call.

A complex number is a last dimension of two. What an axis that is not known decides is computed along every axis, and
chosen.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.graph_builder import Value
from opbuild.graph.passes.composite import REWRITES
from opbuild.graph.passes.rewriter import KeptError, PassBuilder
from opbuild.graph.types import Array

MOST_MATRIX = 2**24
"""Elements of a transform's matrix at most: 64 MB of float32. What needs a larger one is computed by the host's FFT."""

LEAST_IN_STEPS, LEAST_STEP = 256, 8
"""Length from which on a transform is made in two steps, and the least length of a step."""


def matrix(length: int, given: int, parts: int, inverse: bool, onesided: bool) -> Array:
    """Return a transform as a matrix in float64: ``(given * parts, results * parts of a result)``.

    Of the elements given those beyond ``length`` are left out, those that lack are zeros; they have one part if they
    are real. ``onesided``: the half that the other one mirrors is left out, of the results or of what is inverted.
    """
    half = length // 2 + 1
    used = min(given, half if inverse and onesided else length)
    results = half if onesided and not inverse else length
    turns = np.outer(np.arange(used), np.arange(results)) % length
    angles = 2 * np.pi / length * turns
    real, imaginary = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    # (re + i im)(real + i imaginary): a row for each part given, a column for each part of the result.
    both = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 1)[:, :parts]
    if inverse:
        both /= length
    if inverse and onesided:
        mirrored = np.full(used, 2.0)
        mirrored[0] = 1
        if length % 2 == 0 and used == half:
            mirrored[-1] = 1
        both = (both * mirrored[:, None, None, None])[..., :1]
    whole = np.zeros((given, parts, results, both.shape[-1]))
    whole[:used] = both
    return whole.reshape(given * parts, -1)


def steps_of(length: int) -> tuple[int, int] | None:
    """Return the lengths of two steps that make a transform, the shorter one first; None if one step is better."""
    if length < LEAST_IN_STEPS:
        return None
    shorter = next(each for each in range(math.isqrt(length), 0, -1) if length % each == 0)
    return (shorter, length // shorter) if shorter >= LEAST_STEP else None


def turned_matrices(steps: tuple[int, int], columns: int, inverse: bool) -> Array:
    """Return the second step's matrices in float64, one for each result of the first step.

    They multiply by the powers that lie between the steps, too: ``(steps[0], steps[1] * 2, columns * 2)``.
    """
    length = steps[0] * steps[1]
    first, given, result = np.ogrid[: steps[0], : steps[1], :columns]
    angles = 2 * np.pi / length * ((given * first + given * result * steps[0]) % length)
    real, imaginary = np.cos(angles), np.sin(angles) * (1 if inverse else -1)
    both = np.stack([np.stack([real, imaginary], -1), np.stack([-imaginary, real], -1)], 2)
    return (both / length if inverse else both).reshape(steps[0], steps[1] * 2, columns * 2)


def _two_step_transform(
    of: PassBuilder, flat: str, shape: tuple[int, int, int], steps: tuple[int, int], inverse: bool
) -> Value:
    """Append a transform of rows in two steps (Cooley and Tukey, 1965); return its results, ``(rows, count * 2)``.

    Element ``a * steps[1] + b`` of a row is multiplied in the first step for its ``a``, in the second for its ``b``;
    result ``c + d * steps[0]`` is the first step's ``c`` and the second's ``d``. Rows are ``(rows, length * parts)``;
    ``shape`` has rows, parts, and results of a row, the first ones.
    """
    (rows, parts, count), (first, second) = shape, steps
    columns = -(-count // first)
    weights = matrix(first, first, parts, False, False).reshape(first, parts, first, 2)
    if inverse:  # the conjugate, whatever the parts
        weights = weights * np.array([1, -1])[:parts, None, None] * np.array([1, -1])
    apart = of.transpose(of.reshape(flat, (rows, first, second, parts)), (0, 2, 1, 3))
    known = of.constant(weights.reshape(first * parts, first * 2).astype(np.float32))
    found = of("MatMul", of.reshape(apart, (rows * second, first * parts)), known)
    turned = of.transpose(of.reshape(found, (rows, second, first, 2)), (2, 0, 1, 3))
    known = of.constant(turned_matrices(steps, columns, inverse).astype(np.float32))
    found = of("MatMul", of.reshape(turned, (first, rows, second * 2)), known)
    ordered = of.transpose(of.reshape(found, (first, rows, columns, 2)), (1, 2, 0, 3))
    results = of.reshape(ordered, (rows, columns * first * 2))
    return results if columns * first == count else of.slice(results, 1, 0, count * 2)


def transform(of: PassBuilder) -> None:
    """DFT along any axis but the last, which holds the parts of a number."""
    x = of.input(0)
    type_ = of.types[x]
    rank, parts = len(type_.shape), type_.shape[-1]
    lengths, axes = of.known_integers(1), of.known_integers(2)
    axis = (int(of.node.attrs["axis"]) if "axis" in of.node.attrs else axes[0] if axes else -2) % rank
    inverse, onesided = bool(of.attr("inverse", 0)), bool(of.attr("onesided", 0))
    given = type_.shape[axis]
    length = lengths[0] if lengths else 2 * (given - 1) if inverse and onesided else given
    result = of.types[of.outputs[0]].shape
    count, out_parts = result[axis], result[-1]
    is_cut = is_open((given,)) and given > length
    given = length if is_cut else given
    if type_.dtype != "float32" or not type_.size or length < 1 or axis == rank - 1:
        raise KeptError
    steps = steps_of(length) if given == length and out_parts == 2 else None
    if (4 * length * steps[1] if steps else given * parts * count * out_parts) > MOST_MATRIX:
        raise KeptError
    if is_cut:
        x = of.slice(x, axis, 0, length)
    order = (*(i for i in range(rank - 1) if i != axis), axis, rank - 1)
    is_last = axis == rank - 2
    rows = x if is_last else of.transpose(x, order)
    outer = [type_.shape[i] for i in order[:-2]]
    many = math.prod(outer)
    flat = of.reshape(rows, (many, given * parts))
    if steps:
        found = _two_step_transform(of, flat, (many, parts, count), steps, inverse)
    else:
        weights = matrix(length, given, parts, inverse, onesided)
        if weights.shape[1] != count * out_parts:
            raise KeptError
        found = of("MatMul", flat, of.constant(weights.astype(type_.dtype)))
    shaped = of.reshape(found, (*outer, count, out_parts), of.outputs[0] if is_last else "")
    if not is_last:
        of.transpose(shaped, np.argsort(order).tolist(), of.outputs[0])


@REWRITES.register("STFT")
def _short_time(of: PassBuilder) -> None:
    """STFT: overlapping frames, each multiplied by the window and transformed.

    A real signal may lack the last dimension, as exporters for ONNX Runtime leave it out.
    """
    signal = of.input(0)
    type_ = of.types[signal]
    if type_.dtype != "float32" or not type_.size or len(type_.shape) not in (2, 3):
        raise KeptError
    batch, extent, parts = (*type_.shape, 1)[:3]
    (step,) = of.known_integers(1) or (0,)
    given = of.known_integers(3)
    window = of.input(2) if of.has(2) else ""
    length = given[0] if given else of.types[window].shape[0] if window else extent
    onesided = bool(of.attr("onesided", 1))
    frames, count = of.types[of.outputs[0]].shape[1:3]
    if step < 1 or (window and of.types[window].shape != (length,)):
        raise KeptError
    weights = matrix(length, length, parts, False, onesided).astype(type_.dtype)
    if weights.size > MOST_MATRIX or weights.shape[1] != count * 2:
        raise KeptError
    starts = of.reshape(of("Mul", of.counted(0, frames), of.ints(step)), (frames, 1))
    places = of("Add", starts, of.integers(np.arange(length)))
    if len(type_.shape) == 2:
        signal = of.reshape(signal, (batch, extent, 1))
    parted = of("Gather", signal, places, axis=1)
    if window:
        parted = of("Mul", parted, of.reshape(window, (length, 1)))
    found = of("MatMul", of.reshape(parted, (batch * frames, length * parts)), of.constant(weights))
    of.reshape(found, of.types[of.outputs[0]].shape, of.outputs[0])


MOST_AXES = 4
"""Axes at most: each costs a computation of which all but one are thrown away."""


@REWRITES.register("CumProd", "CumSum")
def _running_operation(of: PassBuilder) -> None:
    """CumSum and CumProd."""
    axis = of.input(1)
    rank = len(of.input(0).shape)

    def along(x: str, number: int, output: str) -> str:
        return of(of.node.op_type, x, of.integers(number), output=output, **of.node.attrs)

    _for_each_axis(of, axis, rank, along)


@REWRITES.register("DFT")
def _transform(of: PassBuilder) -> None:
    """DFT; the last axis holds the parts of a number."""
    if not of.has(2) or of.input(2) in of.constants:
        transform(of)
        return
    x, result = of.input(0).type, of.types[of.outputs[0]]
    if x.dtype != "float32" or not x.size or result.shape[:-1] != x.shape[:-1] or of.has(1):
        raise KeptError

    def along(x: str, number: int, output: str) -> str:
        name = output or of.scope.fresh(f"{of.name}/DFT")
        of.types[name] = result
        inputs = (x, "", of.integers(number))
        transform(of.scope.at(of.node.with_(inputs=inputs, outputs=(name,))))
        return name

    _for_each_axis(of, of.input(2), len(x.shape) - 1, along)


def _for_each_axis(of: PassBuilder, axis: str, count: int, along: Callable[[str, int, str], str]) -> None:
    """Append the computation along each axis, and the choice of one by ``axis``; negative ones count back."""
    if axis in of.constants or not 1 <= count <= MOST_AXES:
        raise KeptError
    x = of.input(0)
    shape = of.types[x].shape
    rank = len(shape)
    place = of.reshape(axis, ())
    if of.types[place].dtype != "int64":
        place = of("Cast", place, to="int64")
    if count < rank:
        is_negative = of("Less", place, of.constant(0, "int64"))
        place = of("Where", is_negative, of("Add", place, of.integers(rank)), place)
        place = of.in_range(place, count)
    if count == 1:  # what nothing is chosen by would not be looked at
        along(of("Gather", of.reshape(x, (1, *shape)), place, axis=0), 0, of.outputs[0])
        return
    found = along(x, 0, "")
    for number in range(1, count):
        is_one = of("Equal", place, of.constant(np.array([number, number - rank], np.int64)))
        ends = [of("Gather", is_one, of.integers(index), axis=0) for index in (0, 1)]
        output = of.outputs[0] if number == count - 1 else ""
        found = of("Where", of("Or", *ends), along(x, number, ""), found, output=output)
