"""Random calls of what refuses indices (``index_checks.c``), under the address and undefined-behaviour sanitizers.

The suite tries some; with ``OPBUILD_FUZZ=1000`` in the environment a thousand times so many.
"""

from __future__ import annotations

from pathlib import Path

from generated.sanitized import NATIVE, compiled, run
from support.fuzzing import CAMPAIGN, SEED

PROGRAM = Path(__file__).with_name("index_checks.c")


def test_indices_are_refused_as_one_after_the_other_would_be(tmp_path: Path) -> None:
    """Any number of them, in groups, of 32 and 64 bits, among many tasks: nothing behind the last is read."""
    sources = [PROGRAM, NATIVE / "support" / "indices.c"]
    program = compiled(tmp_path / "checks", sources, '-DSOURCE_DIGEST="test"')
    assert run(program, str(SEED), str(1000 * CAMPAIGN or 100_000)) == ""
