"""kill -9 of a cold build of a real network, again and again, with the real compiler: ten times in the campaign."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

import opbuild
from support import networks
from support.fuzzing import CAMPAIGN

TIMES = 10 if CAMPAIGN else 4

SCRIPT = f"""
import sys
sys.path[:0] = {sys.path!r}
import opbuild
print("ready", flush=True)
opbuild.compile(sys.argv[1], cache_path=sys.argv[2])
"""


def finished(folder: Path) -> set[str]:
    """Return the names of the operators whose entries are complete."""
    return {path.stem for path in (folder / "rank_0" / "kernel_meta").glob("*.json")}


@pytest.mark.slow
def test_killed_builds_lose_only_what_was_under_way(tmp_path: Path) -> None:
    """After kills at random moments the build ends without cleaning, and builds only what none finished (F03)."""
    chance = random.Random(10)
    model = str(networks.light_path("squeezenet"))
    kept: set[str] = set()
    for _ in range(TIMES):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, model, str(tmp_path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(chance.uniform(0.2, 1.2))
        process.kill()
        process.wait()
        process.stdout.close()
        assert kept <= finished(tmp_path)
        kept = finished(tmp_path)
    report = opbuild.compile(model, cache_path=tmp_path).report
    if not report.image:  # else one of them was quick enough to finish everything
        assert {operator.name for operator in report.operators if operator.status == "reused"} == kept
    again = opbuild.compile(model, cache_path=tmp_path, forbid_compile=True).report
    assert again.built == 0
