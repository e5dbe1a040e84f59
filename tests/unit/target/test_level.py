"""Levels: which a machine has, how users name them, and which code runs where."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from opbuild.errors import OptionError, TargetError
from opbuild.target import host
from opbuild.target.host import (
    BUILDABLE,
    compared,
    flags_in,
    host_level,
    host_problem,
    needed_of_machine,
    parse_level,
    resolve_level,
)
from opbuild.target.level import LEVELS, Level, best_level
from support.samples import conv, key_of

X86, ARM = "x86-64-linux", "arm-64-linux"
_CPUINFO = Path(__file__).parents[2] / "data" / "cpuinfo"
CPUS = {
    "haswell": "x86-64-v3",
    "skylake_x": "x86-64-v4",
    "sapphire_rapids": "x86-64-v4-bf16",
    "zen4": "x86-64-v4-bf16",
    "zen5": "x86-64-v4-bf16",
}
"""What each processor's ``/proc/cpuinfo`` under Linux 6.8 lists, and the level that follows."""
FLAGS = sorted({flag for level in LEVELS for flag in level.flags} | {"sse4a", "avx512_fp16", "avx_vnni", "amx_tile"})


@pytest.fixture(autouse=True)
def asked_anew() -> Iterator[None]:
    """What is known of this machine is not remembered from one test to the next."""
    known = (host.host_level, host.host_flags)
    for each in known:
        each.cache_clear()
    yield
    for each in known:
        each.cache_clear()


def level_of(name: str) -> Level:
    """Return the level of a machine with this processor."""
    return best_level(X86, flags_in((_CPUINFO / f"{name}.txt").read_text(encoding="ascii")))


def test_five_processors_have_three_levels_and_equal_keys_within_each() -> None:
    """Machines of a level share operators, whoever made them; with -s they are shown."""
    keys: dict[str, set[str]] = {}
    for name, expected in CPUS.items():
        level = level_of(name)
        key = key_of(conv(), level)
        print(f"\n{name:<16} {level.name:<16} {key.stem}", end="")
        assert level.name == expected
        keys.setdefault(level.name, set()).add(key.sha256)
    assert [len(each) for each in keys.values()] == [1, 1, 1]
    assert len(set().union(*keys.values())) == 3


@given(st.sets(st.sampled_from(FLAGS)))
def test_a_machine_has_every_flag_of_its_level(flags: set[str]) -> None:
    """Whatever a hypervisor leaves out, code never uses what the machine's list lacks (F45)."""
    for triple in {level.triple for level in LEVELS}:
        level = best_level(triple, frozenset(flags))
        assert level.triple == triple
        assert level.flags <= flags


@given(st.sets(st.sampled_from(FLAGS)), st.sets(st.sampled_from(FLAGS)))
def test_a_machine_with_more_flags_has_no_lower_level(flags: set[str], more: set[str]) -> None:
    """What runs on a machine runs on one that has more."""
    for triple in {level.triple for level in LEVELS}:
        assert best_level(triple, frozenset(flags)).runs_on(best_level(triple, frozenset(flags | more)))


def test_levels_of_an_architecture_are_a_chain() -> None:
    """Each runs on the next, and neighbours are what ``lower`` and ``higher`` say."""
    for triple in {level.triple for level in LEVELS}:
        chain = [level for level in LEVELS if level.triple == triple]
        for index, level in enumerate(chain):
            assert level.lower() == tuple(reversed(chain[:index]))
            assert level.higher() == (chain[index + 1] if index + 1 < len(chain) else None)
            assert [each.runs_on(level) for each in LEVELS] == [each in chain[: index + 1] for each in LEVELS]


def test_cores_of_two_kinds_give_what_all_have() -> None:
    """A thread may run on any core, so only instructions that each core has may be used."""
    haswell, zen4 = ((_CPUINFO / f"{name}.txt").read_text(encoding="ascii") for name in ("haswell", "zen4"))
    assert best_level(X86, flags_in(f"{zen4}\n{haswell}")).name == "x86-64-v3"
    arm = "Features\t: fp asimd fphp asimdhp asimddp\n\nFeatures\t: fp asimd\n"
    assert best_level(ARM, flags_in(arm)).name == "armv8-a"


def test_arm_and_unknown_lists() -> None:
    """Arm's list has another name; a missing list gives the base instruction set."""
    features = "Features\t: fp asimd fphp asimdhp asimddp\n"
    assert best_level(ARM, flags_in(features)).name == "armv8.2-a-dotprod"
    assert best_level(X86, flags_in("")).name == "x86-64"
    assert best_level("riscv-64-linux", flags_in("isa\t: rv64imafdc\n")).name == "rv64gc"


def test_no_cpuinfo_gives_the_base_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox without /proc still has a level."""

    def refuse(self: Path, **_: object) -> str:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(host.Path, "read_text", refuse)
    assert host_level().flags == frozenset()


def test_an_unknown_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that nobody wrote code for is named."""
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(TargetError, match="s390x"):
        host_level()


@pytest.mark.parametrize("level", LEVELS, ids=str)
def test_a_level_is_called_by_its_name(level: Level) -> None:
    """What is shown is what may be given."""
    assert parse_level(str(level)) is level


@pytest.mark.parametrize(
    ("text", "level"),
    [
        ("x86-64-linux", "x86-64"),
        ("x86-64-linux-sse41", "x86-64-v2"),
        ("x86-64-linux-avx", "x86-64-v2"),
        ("x86-64-linux-fma-f16c", "x86-64-v2"),
        ("x86-64-linux-avx2", "x86-64-v3"),
        ("x86-64-linux-avx-avx2-f16c-fma-sse41", "x86-64-v3"),
        ("x86-64-linux-sse41-fma-avx2-avx", "x86-64-v3"),
        ("x86-64-linux-avx-avx2-avxvnni-f16c-fma-sse41", "x86-64-v3"),
        ("x86-64-linux-avx512", "x86-64-v3"),
        ("x86-64-linux-avx-avx2-avx512-avx512_skylake-f16c-fma-sse41", "x86-64-v4"),
        ("x86-64-linux-avx512_cannonlake", "x86-64-v4"),
        ("x86-64-linux-avx512_zen4", "x86-64-v4-bf16"),
        ("x86-64-linux-avx512_zen5", "x86-64-v4-bf16"),
        ("x86-64-linux-avx512_sapphirerapids", "x86-64-v4-bf16"),
        ("arm-64-linux", "armv8-a"),
        ("arm-64-linux-arm_dot_prod", "armv8-a"),
        ("arm-64-linux-arm_dot_prod-arm_fp16", "armv8.2-a-dotprod"),
        ("riscv-64-linux", "rv64gc"),
    ],
)
def test_a_list_of_features_means_the_highest_level_that_uses_no_others(text: str, level: str) -> None:
    """As scripts, caches and files of older releases have it."""
    assert str(parse_level(text)) == level


def test_host_means_this_machine() -> None:
    """``host`` is this machine's level, and that runs here."""
    assert parse_level("host") == resolve_level("host") == host_level()
    assert host_problem(host_level()) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x86",
        "x86-64-v5",
        "X86-64-V3",
        "vax-32-linux",
        "x86-64-windows",
        "x86-64-linux-",
        "x86-64-linux-strict_float",
    ],
)
def test_what_names_no_level_is_refused_with_those_that_there_are(text: str) -> None:
    """A misspelt level is an error that quotes it."""
    with pytest.raises(TargetError) as caught:
        parse_level(text)
    assert repr(text) in caught.value.message
    assert BUILDABLE in caught.value.hint
    with pytest.raises(OptionError):
        resolve_level(text)


def test_code_for_another_machine_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that needs an instruction which this machine lacks is refused before it dies with SIGILL (F38)."""
    flags = level_of("haswell").flags
    monkeypatch.setattr(host, "host_flags", lambda: flags)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    lacks = "it lacks avx512bw, avx512cd, avx512dq, avx512f, avx512vl"
    assert host_problem(parse_level("x86-64-v4")) == f"it is for x86-64-v4, this machine is x86-64-v3: {lacks}"
    assert host_problem(parse_level("armv8-a")) == "it is for armv8-a, this machine is x86-64-v3"
    assert all(host_problem(level) is None for level in host_level().lower())


def test_a_level_is_compared_with_the_one_that_could_have_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which the machine has, or which was asked for, and why it does not serve."""
    flags = level_of("skylake_x").flags
    monkeypatch.setattr(host, "host_flags", lambda: flags)
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    v2, v3, v4 = (parse_level(f"x86-64-v{number}") for number in (2, 3, 4))
    assert compared(v4) == "x86-64-v4"
    assert compared(v3) == "x86-64-v3 (this machine has x86-64-v4)"
    assert compared(v3, v4, "compiling is forbidden") == (
        "x86-64-v3 (this machine has x86-64-v4; compiling is forbidden)"
    )
    assert compared(v2, v3, "why") == "x86-64-v2 (x86-64-v3 was asked for; why)"


def test_what_a_level_needs_is_what_the_system_calls_it() -> None:
    """A reader without opbuild's tables compares ``uname -m`` and words of ``/proc/cpuinfo``."""
    for level in LEVELS:
        machine, *flags = needed_of_machine(level)
        assert machine in ("x86_64", "aarch64", "riscv64")
        assert set(flags) == level.flags
