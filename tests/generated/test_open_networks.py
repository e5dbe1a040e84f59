"""Random networks with open extents, and with numbers from shapes and data, at many sizes and in two processes.

Each size gives what ONNX Runtime gives, and what the network gives that is built for that size alone; each kernel is
bound to extents that it is made for; and few sizes are lowered, or have kernels built. ``OPBUILD_FUZZ=200`` tries so
many networks.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import opbuild
from generated.random_sized import Array, Size, SizedMaker, sizes
from opbuild.errors import OpbuildError
from opbuild.lowering.lower import lower
from support.bound_kernels import checked, watched_bindings
from support.comparison import onnxruntime_outputs
from support.counted_functions import CountedFunction, counted
from support.forked import in_fork
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

SIZES, ALONE = (30, 5) if CAMPAIGN else (10, 2)
"""Sizes of a network, and those of them for which it is built alone too."""

MOST_LOWERED, MOST_BUILT = (12, 3) if CAMPAIGN else (5, 1)
"""Sizes of one structure at which nodes may be lowered, and at which kernels may be built, in the first process."""

MOST_LOWERED_AGAIN, MOST_BUILT_AGAIN = (6, 1) if CAMPAIGN else (3, 1)
"""The same in the second process, which finds what the first one stored; half of its sizes are new."""

SHARE = 0.6
"""Of the sizes that are drawn; others are refused, by ONNX Runtime too: a row of nothing, an empty batch."""

SECONDS = 600

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

Structure = tuple[bool, ...]


class Seen(NamedTuple):
    """What became of one size.

    Attributes:
        structure: Which branches were taken.
        lowered: Whether nodes were lowered for it.
        built: Whether the store has more kernels than before.
    """

    structure: Structure
    lowered: bool
    built: bool


def kernels(store: Path) -> int:
    """Return how many kernels a store has."""
    return sum(1 for _ in store.glob("rank_*/kernel_meta/*.json"))


def settle(store: Path, lowering: CountedFunction) -> None:
    """Wait until nothing goes on behind the calls."""
    seen: tuple[int, int] | None = None
    while (state := (kernels(store), lowering.count)) != seen:
        seen = state
        time.sleep(0.1)


def expected(model: onnx.ModelProto, feeds: dict[str, Array]) -> tuple[Array, ...] | None:
    """Return the outputs of ONNX Runtime; None if it refuses a size."""
    try:
        return onnxruntime_outputs(model, feeds, optimized=False)
    except Exception:
        return None


def compare(got: Iterable[Array], wanted: Iterable[Array], where: str) -> None:
    """Compare outputs; what decides is equal."""
    for one, other in zip(got, wanted, strict=True):
        assert (one.dtype, one.shape) == (other.dtype, other.shape), where
        most = 1e-4 * max(1.0, float(np.abs(other, dtype="f8").max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=0, atol=most, err_msg=where)


def called(seed: int, folder: Path, chosen: list[Size], alone: int) -> list[Any]:
    """Call a network at sizes in one process: what was seen of each, and of how many calls the kernels were checked."""
    maker = SizedMaker(seed)
    model = maker.model()
    store, found = folder / "open", []
    network = opbuild.compile(onnx.ModelProto.FromString(model.SerializeToString()), cache_path=store, workers=1)
    with counted(lower) as lowering, watched_bindings() as bound:
        for size in chosen:
            feeds = maker.feeds(size)
            wanted = expected(model, feeds)
            if wanted is None:
                continue
            where, before = f"network {seed}, {size}", (lowering.count, kernels(store))
            got = network.run(None, feeds)
            compare(got, wanted, where)
            after = lowering.count, kernels(store)
            structure = tuple(bool(each) for each in wanted[1:])
            found.append(Seen(structure, after[0] > before[0], after[1] > before[1]))
            if len(found) <= alone:
                compare(of_size_alone(model, feeds, folder), got, f"{where}, built alone")
        settle(store, lowering)
    legal = checked(bound, store)
    assert not legal.wrong, legal.wrong
    return [found, legal.known]


def of_size_alone(model: onnx.ModelProto, feeds: dict[str, Array], folder: Path) -> list[Array]:
    """Return the outputs of the network that is built for one size; its lowering is not counted."""
    shapes = {name: each.shape for name, each in feeds.items()}
    network = opbuild.compile(model.SerializeToString(), input_shapes=shapes, cache_path=folder / "alone", workers=1)
    return network.run(None, feeds)


def over(seen: list[Seen]) -> tuple[int, int]:
    """Return at how many sizes of the structure with most of them nodes were lowered, and kernels built."""
    lowered: Counter[Structure] = Counter()
    built: Counter[Structure] = Counter()
    met: defaultdict[Structure, int] = defaultdict(int)
    for structure, is_lowered, is_built in seen:
        met[structure] += 1
        lowered[structure] += is_lowered
        built[structure] += is_built and met[structure] > 2
    return max(lowered.values(), default=0), max(built.values(), default=0)


@pytest.mark.parametrize("seeds", spans(12, 2))
def test_sizes_are_right_in_any_order_and_bound_by_what_is_there(seeds: range, tmp_path: Path) -> None:
    """In two processes, the second with the store of the first."""
    counts: Counter[str] = Counter()
    figures: defaultdict[str, list[int]] = defaultdict(list)

    def one(seed: int) -> str | None:
        folder = tmp_path / str(seed)
        drawn = sizes(seed, SIZES + SIZES // 2)
        first, later = drawn[:SIZES], drawn[SIZES // 2 :]
        random.Random(seed).shuffle(later)
        try:
            cold = in_fork(lambda: called(seed, folder, first, ALONE), SECONDS)
            warm = in_fork(lambda: called(seed, folder, later, 0), SECONDS)
        except OpbuildError as error:
            raise AssertionError(f"network {seed}: {error}") from error
        for name, (found, known) in (("cold", cold), ("warm", warm)):
            lowered, built = over([Seen(tuple(structure), *rest) for structure, *rest in found])
            figures[f"{name} lowered"].append(lowered)
            figures[f"{name} built"].append(built)
            counts.update({"sizes": len(found), "calls that were checked": known, "drawn": SIZES})
        assert figures["cold lowered"][-1] <= MOST_LOWERED
        assert figures["cold built"][-1] <= MOST_BUILT
        assert figures["warm lowered"][-1] <= MOST_LOWERED_AGAIN
        assert figures["warm built"][-1] <= MOST_BUILT_AGAIN
        return None

    check_seeds("open networks in two processes", one, seeds, processes=0)
    if CAMPAIGN:
        print(dict(counts), {name: Counter(each).most_common() for name, each in figures.items()})
    assert counts["sizes"] > SHARE * counts["drawn"], counts
    assert counts["calls that were checked"] > counts["sizes"]
