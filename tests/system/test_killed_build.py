"""kill -9 of a build at a random moment: the next run needs no cleaning and builds only what was not finished."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pytest

from opbuild.config import Config
from support.samples import conv, disk_builder, needed

COUNT = 40
SCRIPT = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.samples import conv, disk_builder, needed
from opbuild.config import Config
with disk_builder(Config(cache_path=Path(sys.argv[1]), workers=2)) as builder:
    print("ready", flush=True)
    builder.build(needed(*(conv(tile, milliseconds=3) for tile in range({COUNT}))), "net")
"""


@pytest.mark.parametrize("seed", range(2))  # ``test_stop_points`` kills at every step; here processes are real
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_the_next_run_builds_only_what_was_not_finished(config: Config, seed: int, number: signal.Signals) -> None:
    """However a build was ended, finished operators are kept, and nothing has to be deleted (F03, F04, F18)."""
    wanted = needed(*(conv(tile, milliseconds=3) for tile in range(COUNT)))
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(config.cache_path)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None
    process.stdout.readline()
    time.sleep(random.Random(seed).uniform(0.05, 0.45))
    os.kill(process.pid, number)
    process.wait()
    process.stdout.close()
    finished = len(list(config.kernel_meta.glob("*.json")))
    with disk_builder(config) as builder:
        result = builder.build(wanted, "net")
    assert (result.reused, result.built) == (finished, COUNT - finished)
    assert result.warnings == ()
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        assert builder.build(wanted, "net").reused == COUNT


def test_what_a_killed_writer_left_is_removed_later(config: Config) -> None:
    """Private files of a dead writer do not pile up (F53)."""
    with disk_builder(config) as builder:
        builder.build(needed(conv(1)), "net")
        left = config.kernel_meta / ".publish-dead-0"
        left.write_bytes(b"half")
        os.utime(left, (time.time() - 7200, time.time() - 7200))
        builder.build(needed(conv(2)), "net")
    assert not left.exists()
