"""What is known of this machine besides its level: caches, cores, and when waking threads pays."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from opbuild.cli import env
from opbuild.config import available_cores
from opbuild.target.host import host_level, host_machine, machine_with_caches
from opbuild.target.level import LEVELS
from opbuild.target.machine import KIB, WAKING, Machine

MACHINE = Machine.of(LEVELS[0])
Described = tuple[str, str, str]
NATIVE = Path(__file__).parents[3] / "src" / "opbuild" / "native"


def caches(folder: Path, *described: Described) -> Path:
    """Describe caches as sysfs does: type, level and size of each."""
    for number, texts in enumerate(described):
        index = folder / f"index{number}"
        index.mkdir(parents=True)
        for name, text in zip(("type", "level", "size"), texts, strict=True):
            (index / name).write_text(f"{text}\n", encoding="utf-8")
    return folder


def test_caches_are_those_of_the_system(tmp_path: Path) -> None:
    """A core's data caches of two levels; instructions and the third level are none of them."""
    folder = caches(
        tmp_path,
        ("Data", "1", "48K"),
        ("Instruction", "1", "64K"),
        ("Unified", "2", "2048K"),
        ("Unified", "3", "32768K"),
    )
    machine = machine_with_caches(MACHINE, folder, 3)
    assert (machine.l1, machine.l2, machine.cores) == (48 * KIB, 2048 * KIB, 3)
    assert (machine.lanes, machine.registers, machine.waking) == (MACHINE.lanes, MACHINE.registers, MACHINE.waking)


@pytest.mark.parametrize(
    "described",
    [
        (),
        (("", "", ""),),
        (("Data", "1", "many"), ("Unified", "2", "-5K")),
        (("Data", "1", "0K"), ("Unified", "2", "0K")),
        (("Data", "1", "99999999999999999999K"), ("Unified", "2", "999999999K")),
        (("Data", "one", "32K"), ("Unified", "22", "512K")),
        (("Dat\u00e9", "1", "32K"),),
        (("Data", "1", "\u0663\u0662K"),),
    ],
)
def test_what_is_no_size_of_a_cache_is_not_believed(
    tmp_path: Path, described: tuple[tuple[str, str, str], ...]
) -> None:
    """Absent, empty, nonsense or huge: what the level says counts, and nothing fails."""
    machine = machine_with_caches(MACHINE, caches(tmp_path, *described), 1)
    assert machine == MACHINE
    assert machine_with_caches(MACHINE, tmp_path / "absent", 1) == MACHINE


def test_a_file_that_cannot_be_read_leaves_what_was_read_before(tmp_path: Path) -> None:
    """One cache without its size, behind one that has all."""
    folder = caches(tmp_path, ("Data", "1", "64K"), ("Unified", "2", "512K"))
    (folder / "index1" / "size").unlink()
    (folder / "index1" / "size").mkdir()
    assert machine_with_caches(MACHINE, folder, 1).l1 == 64 * KIB
    assert machine_with_caches(MACHINE, folder, 1).l2 == MACHINE.l2


def test_this_machine_has_its_levels_registers_and_its_own_cores() -> None:
    """Code is made for the level, whatever the host adds."""
    machine, level = host_machine(), Machine.of(host_level())
    assert (machine.lanes, machine.registers, machine.waking) == (level.lanes, level.registers, level.waking)
    assert machine.cores == available_cores()


def test_env_shows_the_level_and_what_the_next_one_wants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags that are missing are those of the next level, whatever else the machine has or lacks."""
    v3 = LEVELS[2]
    monkeypatch.setattr(env, "host_level", lambda: v3)
    monkeypatch.setattr(env, "host_flags", lambda: v3.flags | {"avx512f", "avx512cd", "avx512_bf16"})
    assert env.level_text() == "x86-64-v3 (not x86-64-v4: this machine lacks avx512bw, avx512dq, avx512vl)"
    monkeypatch.setattr(env, "host_level", lambda: LEVELS[4])
    assert env.level_text() == "x86-64-v4-bf16, the highest of its architecture"


def test_env_shows_what_decides_on_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cores, registers, caches, and from how much work on threads are woken."""
    monkeypatch.setattr(
        env, "host_machine", lambda: Machine(lanes=8, registers=16, l1=48 * KIB, l2=2048 * KIB, cores=4)
    )
    assert env.machine_text() == (
        "4 cores, 16 vector registers of 8 float32, L1 48.0 KiB, L2 2.0 MiB; threads are woken for 2.5 us of work"
    )


def test_threads_are_woken_from_one_number_on() -> None:
    """A call is divided if its work is worth waking anybody, else it is one task."""
    machine = host_machine()
    assert machine.tasks(machine.waking, 8) == 8
    assert machine.tasks(machine.waking - 1, 8) == 1
    assert machine.tasks(10**9, 1) == 1


def test_the_reader_in_c_wakes_threads_for_the_same_work() -> None:
    """It reads files without Python, so it has the number a second time."""
    (found,) = re.findall(r"enum \{ WAKING = (\d+) \}", (NATIVE / "opbuild_om.c").read_text(encoding="utf-8"))
    assert int(found) == WAKING
