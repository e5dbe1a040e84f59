"""Several processes that evict from one store at once."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

from opbuild.config import Config
from support.samples import conv, disk_builder, needed

SHRINKER = f"""
import sys
sys.path[:0] = {sys.path!r}
from opbuild.store.operators import operators_in
store = operators_in(sys.argv[1])
sys.stdin.readline()
for name in store.names():
    store.blobs.delete(name + '.json', name + '.o', name + '.info')
"""


@pytest.mark.slow
def test_eight_shrinkers_and_a_builder_do_not_disturb_each_other(config: Config) -> None:
    """Processes that remove the same files raise nothing, and a build meanwhile succeeds (F22, F52)."""
    wanted = needed(*(conv(tile) for tile in range(10)))
    with disk_builder(config) as builder:
        builder.build(wanted, "net")
        shrinkers = [
            subprocess.Popen(
                [sys.executable, "-c", SHRINKER, str(config.kernel_meta)], stdin=subprocess.PIPE, text=True
            )
            for _ in range(8)
        ]
        for shrinker in shrinkers:
            assert shrinker.stdin is not None
            shrinker.stdin.write("go\n")
            shrinker.stdin.flush()
        during = builder.build(wanted, "net")
        for shrinker in shrinkers:
            shrinker.communicate()
        assert [shrinker.returncode for shrinker in shrinkers] == [0] * 8
        assert len(during.entries) == 10
        builder.build(wanted, "net")
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        assert builder.build(wanted, "net").reused == 10
