"""Several processes on one store: no mixture ever loads, and nobody waits for anybody."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import Config
from opbuild.kernel.interfaces import Found, Missing
from opbuild.store.operators import operators_in
from support.fake_compiler import fake_object
from support.samples import conv, disk_builder, key_of, needed

WRITER = f"""
import sys
sys.path[:0] = {sys.path!r}
from support.samples import conv, entry_of
from opbuild.store.operators import operators_in
store, me, rounds = operators_in(sys.argv[1]), sys.argv[2], int(sys.argv[3])
sys.stdin.readline()
for number in range(rounds):
    problem = store.publish(entry_of(conv(), code=(me * 40 + str(number)).encode(), milliseconds=number % 7)[1])
    assert problem is None, problem
"""

BUILDER = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from support.samples import conv, disk_builder, needed
from opbuild.config import Config
wanted = needed(*(conv(tile, milliseconds=5) for tile in range(12)))
config = Config(cache_path=Path(sys.argv[1]), workers=2)
sys.stdin.readline()
with disk_builder(config) as builder:
    result = builder.build(wanted, "net")
print(result.built, *(entry.sha256 for entry in result.entries.values()))
"""


def start(script: str, *arguments: object) -> subprocess.Popen[str]:
    """Start a process that waits for a line."""
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def release(*processes: subprocess.Popen[str]) -> None:
    """Let waiting processes go at once."""
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()


def finish(*processes: subprocess.Popen[str]) -> list[str]:
    """Wait for processes, check that they succeeded, and return what they printed."""
    printed = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes)
    return printed


@pytest.mark.slow
def test_no_mixture_of_two_writers_ever_loads(tmp_path: Path) -> None:
    """Two writers of one key with different bytes, 1,000 rounds: all that is found is whole (F11, F13, F16)."""
    store = operators_in(tmp_path)
    key = key_of(conv())
    whole = {
        (fake_object((me * 40 + str(number)).encode(), (key.symbol,)), number % 7)
        for me in "ab"
        for number in range(500)
    }
    writers = [start(WRITER, tmp_path, me, 500) for me in "ab"]
    release(*writers)
    found = 0
    while any(writer.poll() is None for writer in writers):
        answer = store.lookup(key)
        if isinstance(answer, Found):
            found += 1
            assert (answer.entry.object, answer.entry.milliseconds) in whole
        else:
            assert isinstance(answer, Missing)
            assert answer.reason.code in {"absent", "damaged", "incomplete"}
    finish(*writers)
    assert found > 0
    assert isinstance(store.lookup(key), (Found, Missing))
    assert len(list(tmp_path.iterdir())) == 3


def test_processes_that_build_the_same_network_agree(config: Config) -> None:
    """Four cold builds of one network at once: the same objects, no deadlock, and the store is complete (F17, F24)."""
    builders = [start(BUILDER, config.cache_path) for _ in range(4)]
    release(*builders)
    printed = finish(*builders)
    assert len({line.split(maxsplit=1)[1] for line in printed}) == 1
    wanted = needed(*(conv(tile, milliseconds=5) for tile in range(12)))
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        assert builder.build(wanted, "net").reused == 12
    assert len(list(config.kernel_meta.iterdir())) == 36


def test_force_in_one_process_never_breaks_another(config: Config) -> None:
    """While one process rebuilds everything, others that load find whole entries all the time (F21)."""
    wanted = needed(*(conv(tile) for tile in range(3)))
    with disk_builder(config) as builder:
        builder.build(wanted, "net")
    script = BUILDER.replace("disk_builder(config)", "disk_builder(config, force=True)").replace(", milliseconds=5", "")
    forcing = start(script.replace("range(12)", "range(3)"), config.cache_path)
    release(forcing)
    reused = 0
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        while forcing.poll() is None:
            reused += builder.build(wanted, "net").reused
    assert finish(forcing)[0].startswith("3 ")
    assert reused > 0
