"""A cold build of a real network that is killed at a random moment costs nothing but the operators in flight."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support import networks
from support.comparison import relative_error
from support.fuzzing import CAMPAIGN
from support.processes import build_and_run, environment

_BUILD = "import sys, opbuild; opbuild.compile(sys.argv[1], cache_path=sys.argv[2])"


def finished(cache: Path) -> set[str]:
    """Return the operators whose commit mark, the ``.json``, is in the store."""
    return {path.stem for path in (cache / "rank_0" / "kernel_meta").glob("*.json")}


@pytest.mark.slow
def test_a_killed_cold_build_of_resnet50_goes_on_where_it_stopped(tmp_path: Path) -> None:
    """``kill -9`` at a random moment, once: the next run works and builds only the rest (F01, F03).

    ``make campaign`` kills it twenty times.
    """
    model = networks.light_path("resnet50")
    feeds = {"gpu_0/data_0": networks.light_input("resnet50")}
    chance = random.Random(20)
    interrupted = 0
    for attempt in range(20 if CAMPAIGN else 1):
        cache = tmp_path / str(attempt)
        process = subprocess.Popen(
            [sys.executable, "-c", _BUILD, str(model), str(cache)], env=environment(), start_new_session=True
        )
        time.sleep(chance.uniform(0.4, 2.0))
        interrupted += process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        before = finished(cache)
        after = build_and_run(model, cache, feeds)
        assert not before & {name for name, _, _ in after.built}
        assert relative_error(after.outputs[0], networks.expected_output("resnet50")) < 1e-3
    assert interrupted
