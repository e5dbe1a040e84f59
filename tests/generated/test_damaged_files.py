"""Whole sound files in others' places, files cut, changed and grown without end: right results, and repaired (F80)."""

from __future__ import annotations

import pytest

from support.campaign import count
from support.damaged_cache import Damage, World, in_child, walk
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import slow

WALKS = [(SEED, max(CAMPAIGN, 2000))] if CAMPAIGN else [(SEED, 4), slow(SEED + 1, 6)]
"""Where the seeds of a walk begin, and how many damages it has."""

pytestmark = [pytest.mark.timeout(7200)] if CAMPAIGN else []


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    """Networks that are easily taken for each other, built once."""
    made = World(tmp_path_factory.mktemp("world"))
    made.make()
    return made


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "least"), WALKS)
def test_damaged_files_give_right_results_and_are_repaired(world: World, seed: int, least: int) -> None:
    """F01, F80: whatever file stands in another's place; the second run starts all networks, ``verify`` sees it."""
    damages = walk(world, seed, least)["damages"]
    count("damaged files", {"right": damages})
    assert damages >= least


@pytest.mark.parametrize("pattern", ["*.model", "*.digest", "*.seen", "weights/*.json", "*.json", "*.so"])
def test_each_file_of_a_kind_in_the_next_ones_place_gives_right_results(world: World, pattern: str) -> None:
    """F80: a memo of weights copied over another's gave wrong numbers, a model's memo other names for its outputs."""
    network_meta = world.config.network_meta
    places = [str(path.relative_to(world.folder)) for path in sorted(network_meta.glob(pattern))]
    damages = [Damage("swap", place, other) for place, other in zip(places, places[1:] + places[:1], strict=True)]
    libraries = [] if pattern == "*.so" else sorted(network_meta.glob("*.so"))  # so that networks are made again
    damages += [Damage("delete", str(path.relative_to(world.folder))) for path in libraries]
    said = in_child(world, 0, lambda walker: walker.step(damages))
    assert [kind for kind, _ in said] == ["damages"], said
    assert len(places) > 2
