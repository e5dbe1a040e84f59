"""The crash test: killed at every step by which a build changes files, one after the other, a build needs no help.

The suite kills at a third of the steps, with each kind among them; ``make campaign`` at all.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from support import stopped_builds
from support.fuzzing import CAMPAIGN

EVERYTHING = bool(os.environ.get("OPBUILD_TEST_EVERYTHING"))
SCENARIOS = ("build", "offline model")
"""What each run of the tests does; all of them take a few minutes, and are run on demand."""


@pytest.fixture(scope="module")
def figures(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What the program says that kills builds."""
    chosen = ["--every"] if EVERYTHING else SCENARIOS if CAMPAIGN else ["--part", *SCENARIOS]
    command = [sys.executable, stopped_builds.__file__, "--json", *chosen]
    output = tmp_path_factory.mktemp("stopped") / "figures.json"
    with output.open("wb") as file:
        subprocess.run(command, stdout=file, check=False)
    said: list[dict[str, Any]] = json.loads(output.read_bytes().splitlines()[-1])
    return said


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_a_kill_at_any_step_needs_no_cleaning_and_loses_no_finished_operator(figures: list[dict[str, Any]]) -> None:
    """F03, F04, F10: right results, what was published stays, and after the next ageing nothing is left behind."""
    for each in figures:
        assert each["problems"] == [], each["scenario"]
        killed = sum(each["outcomes"].values())
        assert killed == each["points"] or not (EVERYTHING or CAMPAIGN)
        assert killed >= each["points"] / 3


@pytest.mark.slow
def test_every_write_and_rename_is_a_stop_point(figures: list[dict[str, Any]]) -> None:
    """F03: the steps of a build are those that its files need, each write also half-way; none escapes unseen."""
    (build,) = (each for each in figures if each["scenario"] == "build")
    kinds = build["kinds"]
    files = 3 * 2 + 4 + 2 + 3  # operators, image, weights, memos
    assert kinds["replace"] >= files
    assert kinds["open"] >= kinds["write"] >= files + 2  # op_cache.ini and counters are not renamed
    assert build["points"] >= build["steps"] + kinds["write"]
    (offline,) = (each for each in figures if each["scenario"] == "offline model")
    assert offline["kinds"]["fsync"] == 2
    for each in figures:
        assert each["scenario"] != "link" or each["kinds"]["start"] == 1


def test_a_change_that_is_no_step_is_noticed(tmp_path: Path) -> None:
    """The proof that nothing escapes fails where something does: a rename behind the watch's back, bytes of a map."""
    script = f"""
import mmap, os, sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.stop_points import Watch
root = Path(sys.argv[1])
rename, watch = os.rename, Watch([root], os.open(os.devnull, os.O_WRONLY), None)
watch.begin()
(root / "seen").write_bytes(b"seen")
os.replace(root / "seen", root / "renamed")
assert watch.escaped == [], watch.escaped
rename(root / "renamed", root / "escaped")
assert len(watch.escaped) == 1, watch.escaped
with open(root / "mapped", "xb+") as file:
    file.write(b"1234")
    os.posix_fallocate(file.fileno(), 0, 8)
os.replace(root / "mapped", root / "final")
assert len(watch.escaped) == 2, watch.escaped
"""
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
