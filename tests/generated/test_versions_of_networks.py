"""Whatever happens to a model's files, a network is of one version of them for its life, or says that they changed.

``OPBUILD_FUZZ=500`` tries so many orders of events.
"""

from __future__ import annotations

import random
import shutil
import traceback
from pathlib import Path

import pytest

from generated.random_versions import World, random_kind
from support.fuzzing import CAMPAIGN, check_seeds
from support.tiers import spans

EVENTS = 14

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(4, 2))
def test_a_network_is_of_one_version_of_its_model_or_says_that_it_changed(seeds: range, tmp_path: Path) -> None:
    """Renamed over, written to, written through a map, cut, removed, also while it is made or called."""

    def one(seed: int) -> tuple[str, str]:
        folder, draw = tmp_path / str(seed), random.Random(seed)
        folder.mkdir()
        world = World(folder, draw, random_kind(draw))
        try:
            for _ in range(EVENTS):
                world.step()
        except Exception:
            return "wrong", f"{world.kind}\n{world.done}\n{traceback.format_exc()}"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return "right", ""

    check_seeds("versions", one, seeds, processes=1)
