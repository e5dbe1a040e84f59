"""Operators that are rewritten as simpler ones run on kernels alone, and give what ONNX Runtime gives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from kernels.combinations import crossed
from kernels.one_operator import Array, assert_same, check, integers, model_of, on_kernels, outputs_of, random
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.types import Node
from support.tiers import halved


@pytest.mark.parametrize(
    ("shape", "k", "upper"), crossed(3, ((1, 1), (5, 9), (3, 7, 4), (2, 3, 1, 6)), (-9, -1, 0, 2, 9), (0, 1))
)
def test_triangles_of_any_shape(shape: Sequence[int], k: int, upper: int) -> None:
    """With a diagonal that is known, or given to the call; NaN outside the triangle goes away."""
    x = random(*shape)
    x[..., -1] = np.nan
    keep = np.triu if upper else np.tril
    expected = np.where(keep(np.ones(shape[-2:], bool), k), x, np.float32(0))
    for known in ((1,), ()):
        (found,) = outputs_of("Trilu", [x, np.array(k)], known, upper=upper)
        np.testing.assert_array_equal(found, expected)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["bool", "int8", "int64", "float16", "float64"])
def test_triangles_of_any_type(dtype: str) -> None:
    """Elements are only chosen, so every type has them."""
    x = np.ones((4, 6), dtype)
    (found,) = outputs_of("Trilu", [x], upper=0)
    np.testing.assert_array_equal(found, np.tril(x))


EQUATIONS: tuple[tuple[str, tuple[tuple[int, ...], ...]], ...] = (
    ("ij,jk->ik", ((3, 4), (4, 5))),
    ("ij,kj", ((3, 4), (5, 4))),
    ("bij,bjk->bik", ((2, 3, 4), (2, 4, 5))),
    ("...ij,...jk->...ik", ((2, 1, 3, 4), (5, 4, 6))),
    ("bhid,bhjd->bhij", ((2, 3, 5, 8), (2, 3, 4, 8))),
    ("bhij,bhjd->bihd", ((2, 3, 5, 4), (2, 3, 4, 8))),
    ("i,i->", ((7,), (7,))),
    ("bi,bi->b", ((3, 7), (3, 7))),
    ("i,j->ji", ((3,), (4,))),
    ("ij->ji", ((3, 4),)),
    ("ij->", ((3, 4),)),
    ("ii->i", ((4, 4),)),
    ("bii->b", ((3, 4, 4),)),
    ("iji->j", ((3, 5, 3),)),
    ("ij,jk,kl->il", ((3, 4), (4, 5), (5, 6))),
    ("ij,j,j->i", ((3, 4), (4,), (4,))),
    ("b...,b...->...b", ((3, 4, 2), (3, 4, 2))),
    ("ij,ij->ij", ((1, 4), (3, 4))),
    ("a,b,c->cab", ((2,), (3,), (4,))),
    ("bsid, bsjd -> bsij", ((2, 2, 3, 4), (2, 2, 5, 4))),
)


@pytest.mark.parametrize(("equation", "shapes"), EQUATIONS)
def test_any_equation_of_einsum(equation: str, shapes: Sequence[tuple[int, ...]]) -> None:
    """Products, sums, diagonals, ellipses, broadcasts; two operands or another number of them."""
    operands = [random(*shape, seed=number) for number, shape in enumerate(shapes)]
    (found,) = outputs_of("Einsum", operands, equation=equation)
    assert_same(found, np.asarray(np.einsum(equation, *operands)))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "uint64", "float64", "float16"])
def test_einsum_of_other_types(dtype: str) -> None:
    """Types without kernels of MatMul are multiplied and summed up; float16 is rounded once."""
    a, b = random(2, 3, 4, dtype=dtype), random(2, 4, 5, dtype=dtype, seed=1)
    (found,) = outputs_of("Einsum", [a, b], equation="bij,bjk->bik")
    wide = np.einsum("bij,bjk->bik", a.astype(np.float64), b.astype(np.float64))
    assert_same(found, wide.astype(dtype), 1e-12 if dtype == "float64" else 2e-5)


@pytest.mark.slow
@halved
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("dtype", ["int64", "int32", "float32"])
def test_one_hot_vectors(axis: int, dtype: str) -> None:
    """Negative indices count from the end; beyond the depth all is off; values may be given to the call."""
    indices = np.array([[0, 3, -1], [-4, 4, -5]], dtype)
    values = np.array([2.0, -3.0], np.float32)
    is_on = np.moveaxis((indices[..., None] % 4 == np.arange(4)) & (np.abs(indices + 0.5) < 4)[..., None], -1, axis)
    for known in ((1,), (1, 2)):
        (found,) = outputs_of("OneHot", [indices, np.array(4), values], known, axis=axis)
        np.testing.assert_array_equal(found, np.where(is_on, values[1], values[0]))


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_hardmax_takes_the_first_of_equal_elements(axis: int) -> None:
    """One element of each row is 1."""
    x = np.round(random(3, 5, 7))
    check("Hardmax", [x], axis=axis)


@pytest.mark.parametrize(("batch_axis", "dtype"), [(0, "float32"), (1, "float32"), (1, "int8")])
def test_sequences_are_reversed_up_to_their_length(batch_axis: int, dtype: str) -> None:
    """What lies behind a sequence stays."""
    x = random(5, 5, 3, dtype=dtype)
    lengths = np.array([1, 5, 3, 2, 4])
    (found,) = outputs_of("ReverseSequence", [x, lengths], batch_axis=batch_axis, time_axis=1 - batch_axis)
    expected = x.copy()
    for number, length in enumerate(lengths):
        part = (number, slice(length)) if batch_axis == 0 else (slice(length), number)
        expected[part] = np.flip(x[part], 0)
    np.testing.assert_array_equal(found, expected)


def test_a_diagonal_of_ones_is_a_constant() -> None:
    """Only the shape of EyeLike's input counts."""
    (found,) = outputs_of("EyeLike", [random(3, 5)], k=1, dtype=7)
    np.testing.assert_array_equal(found, np.eye(3, 5, 1, np.int64))


@pytest.mark.parametrize(("p", "axis"), [(1, 0), (2, 1), (2, -1)])
def test_lengths_become_one(p: int, axis: int) -> None:
    """A row of zeros stays one."""
    x = random(4, 5, 6)
    x[1], x[:, 2], x[..., 3] = 0, 0, 0
    with np.errstate(invalid="ignore"):
        length = np.linalg.norm(x.astype(np.float64), p, axis, keepdims=True)
        expected = np.where(length == 0, 0, x / length).astype(np.float32)
    (found,) = outputs_of("LpNormalization", [x], p=p, axis=axis)
    assert_same(found, expected)


@halved
@pytest.mark.parametrize("p", [1, 2, 3])
@pytest.mark.parametrize("shape", [(2, 3, 5), (2, 3, 4, 5), (1, 2, 3, 4, 5)])
def test_global_pools_by_any_norm(p: int, shape: Sequence[int]) -> None:
    """Over one spatial dimension or more."""
    check("GlobalLpPool", [random(*shape)], p=p)


@halved
@pytest.mark.parametrize("training", [0, 1])
@pytest.mark.parametrize("shape", [(4, 3), (2, 3, 5), (2, 3, 4, 5)])
def test_batch_normalization_by_statistics_that_are_computed(shape: Sequence[int], training: int) -> None:
    """Of the batch in training, which has new running statistics too; given to the call otherwise."""
    x, (scale, bias, mean) = random(*shape), random(3, 3, seed=1)
    variance = np.abs(random(3, seed=2)) + 0.5
    options: dict[str, Any] = {"outputs": 3 if training else 1, "momentum": 0.7}
    if training:
        options["training_mode"] = 1
    found = outputs_of("BatchNormalization", [x, scale, bias, mean, variance], **options)
    axes = tuple(axis for axis in range(x.ndim) if axis != 1)
    wide = x.astype(np.float64)
    own = (wide.mean(axes), wide.var(axes)) if training else (mean, variance)
    column = (-1, *(1 for _ in shape[2:]))
    norm = (wide - own[0].reshape(column)) / np.sqrt(own[1].reshape(column) + 1e-5)
    assert_same(found[0], (norm * scale.reshape(column) + bias.reshape(column)).astype(np.float32))
    for got, before, now in zip(found[1:], (mean, variance), own, strict=False):
        assert_same(got, (0.7 * before + 0.3 * now).astype(np.float32))


def spectrum(x: Array, length: int, axis: int, inverse: int, onesided: int) -> Array:
    """Return the result of DFT, by numpy in float64."""
    values = x[..., 0].astype(np.float64) + (1j * x[..., 1] if x.shape[-1] == 2 else 0)
    if inverse and onesided:
        return np.fft.irfft(values, length, axis)[..., None].astype(x.dtype)
    found = (np.fft.ifft if inverse else np.fft.fft)(values, length, axis)
    if onesided:
        found = found.take(range(length // 2 + 1), axis)
    return np.stack([found.real, found.imag], -1).astype(x.dtype)


@pytest.mark.parametrize(
    ("axis", "length", "way"),
    crossed(3, (1, 2, -2), (None, 6, 12, 9), ((1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (2, 1, 1))),
)
def test_fourier_transforms_of_any_length(axis: int, length: int | None, way: tuple[int, int, int]) -> None:
    """Real and complex, both ways, whole or one half, cut or filled up with zeros."""
    parts, inverse, onesided = way
    x = random(2, 9, 8, parts)
    given = x.shape[axis]
    count = length or (2 * (given - 1) if inverse and onesided else given)
    inputs = [x, None if length is None else np.array(length), np.array(axis)]
    known = (2,) if length is None else (1, 2)
    (found,) = outputs_of("DFT", inputs, known, inverse=inverse, onesided=onesided)
    assert_same(found, spectrum(x, count, axis % 4 if axis < 0 else axis, inverse, onesided))


@halved
@pytest.mark.parametrize(("length", "axis"), [(256, 1), (300, 1), (288, 2), (257, 1)])
@pytest.mark.parametrize("way", [(1, 0, 0), (1, 0, 1), (2, 0, 0), (2, 1, 0), (1, 1, 0)])
def test_long_fourier_transforms_are_made_in_two_steps(length: int, axis: int, way: tuple[int, int, int]) -> None:
    """Of any two factors, equal or not, in the middle of a value or not; a prime length takes one step."""
    parts, inverse, onesided = way
    x = random(*((2, length) if axis == 1 else (2, 3, length)), parts)
    (found,) = outputs_of("DFT", [x, None, np.array(axis)], (2,), inverse=inverse, onesided=onesided)
    assert_same(found, spectrum(x, length, axis, inverse, onesided))


def test_what_is_not_finite_reaches_all_of_its_own_transform() -> None:
    """And nothing of another row's."""
    x = random(3, 256, 1)
    x[1, 7] = np.nan
    (found,) = outputs_of("DFT", [x, None, np.array(1)], (2,))
    assert np.isnan(found[1]).all()
    assert_same(found[::2], spectrum(x[::2], 256, 1, 0, 0))


@halved
@pytest.mark.parametrize("onesided", [0, 1])
@pytest.mark.parametrize("window", ["none", "known", "given"])
@pytest.mark.parametrize("has_parts", [True, False])
def test_short_time_fourier_transforms(onesided: int, window: str, has_parts: bool) -> None:
    """Frames overlap; the window may be given to the call; a real signal's last dimension may be left out."""
    signal, shape = random(2, 50, 1), np.abs(random(16, seed=1))
    inputs = [signal if has_parts else signal[..., 0], np.array(7), None if window == "none" else shape, np.array(16)]
    known = (1, 2, 3) if window == "known" else (1, 3)
    (found,) = outputs_of("STFT", inputs, known, onesided=onesided)
    frames = np.stack([signal[:, start : start + 16, 0] for start in range(0, 35, 7)], 1)
    whole = np.fft.fft(frames if window == "none" else frames * shape)
    whole = whole[..., :9] if onesided else whole
    assert_same(found, np.stack([whole.real, whole.imag], -1).astype(np.float32))


@halved
@pytest.mark.parametrize("aligned", [0, 1])
@pytest.mark.parametrize(
    ("size", "dtype"),
    [((2, 3, 4, 5), "float32"), ((2, 1, 3, 4, 2), "float32"), ((1, 1, 2, 3), "float64")],
)
def test_grids_of_affine_maps(size: Sequence[int], dtype: str, aligned: int) -> None:
    """In two and in three dimensions, also of float64."""
    rank = len(size) - 2
    matrices = random(size[0], rank, rank + 1).astype(dtype)
    check("AffineGrid", [matrices, np.array(size)], (1,), align_corners=aligned)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("image", "block", "attrs"),
    [
        ((5, 5), (1, 5), {}),
        ((5, 5), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((6, 7), (2, 3), {"dilations": [2, 1]}),
        ((4, 4, 3), (2, 2, 2), {}),
    ],
)
def test_windows_put_back_are_summed_up(image: Sequence[int], block: Sequence[int], attrs: dict[str, Any]) -> None:
    """With strides that leave gaps, padding that is cut off, dilations; in two and three dimensions."""
    rank = len(image)
    pads, strides = attrs.get("pads", [0] * 2 * rank), attrs.get("strides", [1] * rank)
    dilations = attrs.get("dilations", [1] * rank)
    counts = [
        (image[i] + pads[i] + pads[rank + i] - dilations[i] * (block[i] - 1) - 1) // strides[i] + 1 for i in range(rank)
    ]
    x = random(2, 3 * int(np.prod(block)), int(np.prod(counts)))
    check("Col2Im", [x, np.array(image), np.array(block)], (1, 2), **attrs)


@pytest.mark.slow
@halved
@pytest.mark.parametrize("known", [(), (1, 2)])
@pytest.mark.parametrize(
    ("shape", "weights", "attrs"),
    [
        ((2, 4, 5, 6), (4, 3, 3, 2), {"strides": [2, 3], "pads": [1, 0, 1, 0], "output_padding": [1, 2]}),
        ((1, 4, 7), (4, 2, 3), {"group": 2, "strides": [2], "dilations": [2], "pads": [1, 1]}),
        ((1, 2, 3, 4, 2), (2, 3, 2, 3, 1), {"strides": [1, 2, 2], "auto_pad": "SAME_UPPER"}),
        ((2, 3, 4, 4), (3, 2, 2, 2), {"strides": [3, 3], "output_shape": [13, 12]}),
    ],
)
def test_transposed_convolutions_in_double_precision(
    shape: Sequence[int], weights: Sequence[int], attrs: dict[str, Any], known: Sequence[int]
) -> None:
    """A product for each window, put back; with groups, gaps, and outputs that no window reaches."""
    channels = weights[1] * attrs.get("group", 1)
    inputs = [random(*each, seed=n, dtype="float64") for n, each in enumerate((shape, weights, (channels,)))]
    (found,) = outputs_of("ConvTranspose", inputs, known, **attrs)
    kept = {name: tuple(value) if isinstance(value, list) else value for name, value in attrs.items()}
    (expected,) = evaluate(Node("ConvTranspose", ("x", "w", "b"), ("y",), kept), inputs, 22)
    assert_same(found, expected, 1e-12)
    (alone,) = outputs_of("ConvTranspose", inputs[:2], known[:1], **attrs)
    assert_same(alone, expected - inputs[2].reshape(-1, *(1 for _ in shape[2:])), 1e-12)


@pytest.mark.parametrize("target", [(4, 9), (9, 4), (8, 7), (3, 10)])
def test_centres_are_cropped_and_padded(target: Sequence[int]) -> None:
    """Odd differences included."""
    check("CenterCropPad", [random(8, 7), np.array(target)], (1,))
    check("CenterCropPad", [random(2, 8, 7), np.array(target[:1])], (1,), axes=[1])


def test_the_mask_of_dropout_at_inference_is_all_true() -> None:
    """What is not dropped stays."""
    x = random(3, 4)
    model, feeds = model_of("Dropout", [x], outputs=2)
    found, mask = on_kernels(model, feeds)
    np.testing.assert_array_equal(found, x)
    assert mask.dtype == bool
    assert mask.all()


def test_what_has_nothing_in_it_stays_with_the_host_or_is_nothing() -> None:
    """Triangles and one-hot vectors of empty values have the right shapes."""
    assert outputs_of("Trilu", [random(0, 3)])[0].shape == (0, 3)
    assert outputs_of("OneHot", [integers(0, low=0, high=1), np.array(3), random(2)], (1,))[0].shape == (0, 3)


@pytest.mark.parametrize("attrs", [{"strides": [2, 2]}, {"strides": [2, 1], "pads": [0, 1, 0, 1]}])
def test_elements_go_back_to_where_a_pool_took_them(attrs: dict[str, Any]) -> None:
    """Zeros between them; a larger output has more behind."""
    x, pads = random(2, 3, 3, 4), attrs.get("pads", [0] * 4)
    whole = [(x.shape[2 + i] - 1) * attrs["strides"][i] + 2 - pads[i] - pads[2 + i] for i in range(2)]
    indices = np.random.default_rng(0).permutation(2 * 3 * whole[0] * whole[1])[: x.size].reshape(x.shape)
    check("MaxUnpool", [x, indices], kernel_shape=[2, 2], **attrs)
    target = np.array([2, 3, whole[0] + 2, whole[1] + 1])
    (found,) = outputs_of("MaxUnpool", [x, indices, target], (2,), kernel_shape=[2, 2], **attrs)
    expected = np.zeros((2, 3, *whole), np.float32)
    expected.reshape(-1)[indices.reshape(-1)] = x.reshape(-1)
    np.testing.assert_array_equal(found[:, :, : whole[0], : whole[1]], expected)
    assert np.count_nonzero(found) == np.count_nonzero(expected)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["linear", "circular"])
def test_rows_are_written_into_a_cache(mode: str) -> None:
    """From a place of its own in each batch; what would lie behind the end is left out, or goes to the front."""
    cache, update, first = random(3, 2, 6, 5), random(3, 2, 3, 5, seed=1), np.array([0, 2, 4])
    expected = cache.copy()
    for batch, start in enumerate(first):
        for step in range(3):
            if mode == "circular" or start + step < 6:
                expected[batch, :, (start + step) % 6] = update[batch, :, step]
    (found,) = outputs_of("TensorScatter", [cache, update, first], opset=24, mode=mode)
    np.testing.assert_array_equal(found, expected)
    (found,) = outputs_of("TensorScatter", [cache, update], opset=24, mode=mode)
    np.testing.assert_array_equal(found, np.concatenate([update, cache[:, :, 3:]], 2))


@pytest.mark.slow
@halved
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("biased", [True, False])
def test_layer_normalization_gives_its_statistics(axis: int, biased: bool) -> None:
    """The mean and the inverse deviation, for training and for what exporters write."""
    x = random(3, 4, 6) + 3
    shape = x.shape[axis:] if axis >= 0 else x.shape[-1:]
    inputs = [x, random(*shape, seed=1), *([random(*shape, seed=2)] if biased else [])]
    check("LayerNormalization", inputs, outputs=3, axis=axis)


@halved
@pytest.mark.parametrize("name", ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"])
@pytest.mark.parametrize("noop", [0, 1])
def test_reductions_over_an_empty_list_of_axes(name: str, noop: int) -> None:
    """Given to the call: over all axes, or over none, where each element stands for itself."""
    x = np.abs(random(3, 4)) + np.float32(0.5)
    (found,) = outputs_of(f"Reduce{name}", [x, np.zeros(0, np.int64)], noop_with_empty_axes=noop)
    wide = x.astype(np.float64)[..., None] if noop else x.astype(np.float64).reshape(1, 1, -1)
    expected = {
        "L1": np.abs(wide).sum(-1), "L2": np.sqrt((wide**2).sum(-1)), "LogSum": np.log(wide.sum(-1)),
        "LogSumExp": np.log(np.exp(wide).sum(-1)), "Max": wide.max(-1), "Mean": wide.mean(-1), "Min": wide.min(-1),
        "Prod": wide.prod(-1), "Sum": wide.sum(-1), "SumSquare": (wide**2).sum(-1),
    }[name]  # fmt: skip
    assert_same(found, expected.astype(np.float32))


@pytest.mark.slow
@pytest.mark.parametrize("op_type", ["GlobalAveragePool", "GlobalMaxPool"])
def test_global_pools_in_three_dimensions_and_in_double_precision(op_type: str) -> None:
    """Reductions over all positions."""
    check(op_type, [random(2, 3, 4, 5, 6)])
    x = random(2, 3, 4, 5, dtype="float64")
    (found,) = outputs_of(op_type, [x])
    reduce = np.max if op_type == "GlobalMaxPool" else np.mean
    assert_same(found, np.asarray(reduce(x, (2, 3), keepdims=True)), 1e-12)


@pytest.mark.slow
@halved
@pytest.mark.parametrize(
    ("weights", "attrs"),
    [
        ((4, 6, 3, 3), {"pads": [1, 1, 1, 1]}),
        ((4, 3, 2, 3), {"strides": [2, 1], "group": 2, "offset_group": 3, "dilations": [1, 2]}),
    ],
)
@pytest.mark.parametrize("masked", [True, False])
def test_convolutions_at_places_that_are_moved(weights: Sequence[int], attrs: dict[str, Any], masked: bool) -> None:
    """By offsets for each output, with groups of their own; with a bias and a mask, or without."""
    x, parts = random(2, 6, 5, 6), attrs.get("offset_group", 1)
    taps, pads = weights[2] * weights[3], attrs.get("pads", [0] * 4)
    strides, dilations = attrs.get("strides", [1, 1]), attrs.get("dilations", [1, 1])
    out = [
        (x.shape[2 + i] + pads[i] + pads[2 + i] - (weights[2 + i] - 1) * dilations[i] - 1) // strides[i] + 1
        for i in range(2)
    ]
    inputs: list[Array | None] = [x, random(*weights, seed=1), random(2, parts * taps * 2, *out, seed=2)]
    if masked:
        inputs += [random(weights[0], seed=3), random(2, parts * taps, *out, seed=4)]
    (found,) = outputs_of("DeformConv", inputs, (1,), opset=22, **attrs)
    names = tuple(f"x{number}" for number in range(len(inputs)))
    expected = evaluate(Node("DeformConv", names, ("y",), attrs, "node"), inputs, 22)[0]
    assert_same(found, expected, 1e-4)


@pytest.mark.slow
@halved
@pytest.mark.parametrize("axis", [0, 1, 2, -1, -3])
@pytest.mark.parametrize("op_type", ["CumSum", "CumProd"])
def test_running_sums_along_an_axis_that_is_given_to_the_call(op_type: str, axis: int) -> None:
    """One kernel call for each axis, of which one is chosen."""
    x = random(3, 4, 5)
    for dtype in ("int32", "int64"):
        (found,) = outputs_of(op_type, [x, np.array(axis, dtype)], opset=26 if op_type == "CumProd" else 14, reverse=1)
        accumulate = np.add.accumulate if op_type == "CumSum" else np.multiply.accumulate
        assert_same(found, np.flip(accumulate(np.flip(x, axis), axis, dtype=x.dtype), axis))


@pytest.mark.slow
@pytest.mark.parametrize("axis", [0, 1, -2, -3])
def test_a_fourier_transform_along_an_axis_that_is_given_to_the_call(axis: int) -> None:
    """Its length is the extent, whichever axis it is."""
    x = random(4, 6, 1)
    (found,) = outputs_of("DFT", [x, None, np.array(axis)])
    assert_same(found, spectrum(x, x.shape[axis], axis % 3, 0, 0))
