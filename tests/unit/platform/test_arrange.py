"""Numbers moved and scaled in one pass are those that numpy makes in two."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbuild.graph.constants import scaled
from opbuild.lowering import conv_weights
from opbuild.platform import arrange as module
from opbuild.platform.arrange import Array, arrange, interleaved

SPECIAL = np.array([np.inf, -np.inf, np.nan, 1e-44, -0.0, 3.4e38], np.float32)


def numbers(shape: tuple[int, ...], seed: int) -> Array:
    """Return numbers, some of them special."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(shape).astype(np.float32)
    return np.where(random.random(shape) < 0.1, random.choice(SPECIAL, shape), values)


def unaligned(array: Array) -> Array:
    """Return a copy that begins at an odd address."""
    memory = np.empty(array.nbytes + 1, np.uint8)
    memory[1:] = array.reshape(-1).view(np.uint8)
    return memory[1:].view(np.float32).reshape(array.shape)


@given(
    st.lists(st.integers(0, 7), min_size=0, max_size=5).flatmap(
        lambda shape: st.tuples(st.just(shape), st.permutations(range(len(shape))), st.permutations(range(len(shape))))
    ),
    st.lists(st.booleans(), min_size=5, max_size=5),
    st.booleans(),
    st.integers(0, 1000),
)
def test_any_loops_give_what_numpy_gives(
    orders: tuple[list[int], list[int], list[int]], same: list[bool], is_scaled: bool, seed: int
) -> None:
    """Extents of 0, 1 and no multiple of a vector, any order of loops and of either array, factors of any extents."""
    shape, loops, places = orders
    source = unaligned(numbers(tuple(shape), seed)).transpose(loops)
    out = np.zeros([source.shape[axis] for axis in places], np.float32).transpose(np.argsort(places))
    kept = [1 if one else extent for one, extent in zip(same, source.shape, strict=False)]
    factors = numbers(tuple(kept), seed + 1).astype(np.float64) if is_scaled else None
    with np.errstate(all="ignore"):
        arrange(source, out, factors)
        expected = scaled(source, factors)
    np.testing.assert_array_equal(out.view(np.uint32) & 0x7FFFFFFF, expected.view(np.uint32) & 0x7FFFFFFF)


@pytest.mark.parametrize("factors", [None, np.float64([[2.0], [0.1]])])
def test_a_machine_without_compiled_loops_packs_the_same(
    monkeypatch: pytest.MonkeyPatch, factors: Array | None
) -> None:
    """By numpy, bit for bit."""
    source, compiled, plain = numbers((2, 9), 1), np.zeros((9, 2), np.float32), np.zeros((9, 2), np.float32)
    with np.errstate(all="ignore"):
        arrange(source, compiled.T, factors)
        monkeypatch.setattr(module, "_library", lambda: None)
        arrange(source, plain.T, factors)
    assert compiled.tobytes() == plain.tobytes()


def test_arrays_that_do_not_fit_are_refused() -> None:
    """Nothing is read or written beyond them."""
    one = np.zeros((2, 3), np.float32)
    fixed = one.copy()
    fixed.flags.writeable = False
    for source, out, factors in (
        (one, one.T, None),
        (one, fixed, None),
        (one, one.astype(np.float64), None),
        (one.astype(np.int32), one, None),
        (one, one.copy(), one),
        (one, one.copy(), np.zeros(4)),
    ):
        with pytest.raises(ValueError, match=r"shape|factors"):
            arrange(source, out, factors)


def by_tiles(weights: Array, factors: Array | None = None) -> Array:
    """Return weights for Winograd's tiles."""
    return conv_weights.pack_winograd(weights, factors, tile=4)


@pytest.mark.parametrize("channels", [(16, 32), (40, 5), (1, 16)])
@pytest.mark.parametrize(
    "pack",
    [
        conv_weights.pack_direct,
        conv_weights.pack_first,
        conv_weights.pack_depthwise,
        conv_weights.pack_grouped,
        by_tiles,
    ],
)
def test_weights_scaled_on_the_way_are_scaled_weights(pack: Callable[..., Array], channels: tuple[int, int]) -> None:
    """Every layout, whole and incomplete blocks: bit for bit."""
    outputs, inputs = (channels[0], 1) if pack is conv_weights.pack_depthwise else channels
    weights = np.random.default_rng(2).standard_normal((outputs, inputs, 3, 3)).astype(np.float32)
    factors = np.random.default_rng(3).standard_normal((outputs, 1, 1, 1))
    assert pack(weights, factors).tobytes() == pack(scaled(weights, factors)).tobytes()
    assert pack(unaligned(weights), factors).tobytes() == pack(weights, factors).tobytes()


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]), st.integers(0, 9), st.integers(0, 1000))
def test_interleaved_numbers_lie_side_by_side(count: int, size: int, length: int, seed: int) -> None:
    """The first array's comes first, also of views with steps."""
    count = min(count, 8 // size)
    numbers = np.random.default_rng(seed).integers(0, 256**size, (2 * length, count)).astype(f"u{size}")
    found = interleaved([numbers[::2, place] for place in range(count)])
    np.testing.assert_array_equal(found.view(f"u{size}").reshape(length, count), numbers[::2])
