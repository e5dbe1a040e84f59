"""Levels as Halide knows them: this machine's is one that Halide itself would make code for, and each is understood."""

from __future__ import annotations

import halide as hl
import pytest

from opbuild.backend.halide.emission import halide_target
from opbuild.backend.halide.target import spelled
from opbuild.target.host import host_level, parse_level
from opbuild.target.level import LEVELS, Level


def test_halide_detects_the_same_machine() -> None:
    """The features that Halide detects here, but for its tuning hints, mean this machine's level (F38, F45)."""
    parts = [part for part in str(hl.get_host_target()).split("-") if not part.startswith("tune_")]
    assert host_level() == parse_level("-".join(parts))


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_halide_understands_a_level_and_a_user_its_spelling_of_it(level: Level) -> None:
    """Halide takes a level's features and adds none, and what it shows means no higher level."""
    shown = str(halide_target(spelled(level)))
    assert shown.split("-")[3:] == list(spelled(level).features)
    assert parse_level(shown).runs_on(level)
