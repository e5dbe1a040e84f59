"""The target: detecting the host, spelling, parsing, and refusing what can not run here."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from opbuild.errors import TargetError
from opbuild.kernel import target as target_module
from opbuild.kernel.target import Target, detect_features, host_target, parse_target, runs_here

HASWELL = "sse4_1 avx f16c rdrand fma avx2"
SKYLAKE_X = f"{HASWELL} avx512f avx512cd avx512vl avx512bw avx512dq"
ICE_LAKE = f"{SKYLAKE_X} avx512ifma avx512_vnni"
ZEN_4 = f"{ICE_LAKE} avx512_bf16"
SAPPHIRE_RAPIDS = f"{ZEN_4} avx_vnni"


@pytest.mark.parametrize(
    ("vendor", "flags", "expected"),
    [
        ("GenuineIntel", "sse sse2", ""),
        ("GenuineIntel", HASWELL, "avx avx2 f16c fma sse41"),
        ("GenuineIntel", SKYLAKE_X, "avx avx2 avx512 avx512_skylake f16c fma sse41"),
        ("GenuineIntel", ICE_LAKE, "avx avx2 avx512 avx512_cannonlake avx512_skylake f16c fma sse41"),
        ("AuthenticAMD", ZEN_4, "avx avx2 avx512 avx512_cannonlake avx512_skylake avx512_zen4 f16c fma sse41"),
        (
            "GenuineIntel",
            SAPPHIRE_RAPIDS,
            "avx avx2 avx512 avx512_cannonlake avx512_sapphirerapids avx512_skylake avxvnni f16c fma sse41",
        ),
    ],
)
def test_features_follow_from_the_flags(vendor: str, flags: str, expected: str) -> None:
    """Known processors get the features that Halide knows them by."""
    text = f"vendor_id\t: {vendor}\nflags\t\t: {flags}\n"
    assert detect_features("x86-64", text) == tuple(expected.split())


def test_cores_of_two_kinds_give_what_all_have() -> None:
    """A thread may run on any core, so only instructions that each core has may be used."""
    text = f"flags\t: {SKYLAKE_X}\n\nflags\t: {HASWELL}\n"
    assert detect_features("x86-64", text) == ("avx", "avx2", "f16c", "fma", "sse41")


def test_arm_and_unknown_lists() -> None:
    """Arm's list has another name; a missing list gives the base instruction set."""
    assert detect_features("arm-64", "Features\t: fp asimd fphp asimdhp asimddp\n") == ("arm_dot_prod", "arm_fp16")
    assert detect_features("x86-64", "") == ()
    assert detect_features("riscv-64", "isa\t: rv64imafdc\n") == ()


@pytest.mark.parametrize("text", ["x86-64-linux", "x86-64-linux-avx-avx2-sse41", "arm-64-linux-arm_dot_prod"])
def test_a_target_reads_back_as_spelled(text: str) -> None:
    """Parsing what a target spells gives an equal target."""
    assert str(parse_target(text)) == text
    assert parse_target(text) == parse_target(str(parse_target(text)))


def test_the_order_of_features_does_not_matter() -> None:
    """Two spellings of one target are one target, so they have one key."""
    assert parse_target("x86-64-linux-sse41-avx") == parse_target("x86-64-linux-avx-sse41-avx")


@pytest.mark.parametrize(
    "text", ["", "x86", "x86-64", "vax-32-linux", "x86-64-windows", "x86-64-linux-", "x86-64-linux-A+"]
)
def test_what_is_no_target_is_refused(text: str) -> None:
    """A misspelt target is an error that quotes it."""
    with pytest.raises(TargetError, match="target"):
        parse_target(text)


def test_host_means_this_machine() -> None:
    """``host`` is this machine's target, and that runs here."""
    assert parse_target("host") == host_target()
    assert runs_here(host_target()) is None


def test_code_for_another_machine_is_refused_with_the_reason() -> None:
    """An object that needs an instruction which this machine lacks is refused before it dies with SIGILL (F38)."""
    host = host_target()
    reason = runs_here(Target(host.triple, (*host.features, "avx1024")))
    assert reason == "this machine lacks avx1024"
    assert "this machine is" in str(runs_here(Target("riscv-64-freebsd")))
    assert runs_here(Target(host.triple, ("no_runtime",))) is None


def test_no_cpuinfo_gives_the_base_instruction_set(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox without /proc still has a target."""

    def refuse(self: Path, **_: object) -> str:
        raise PermissionError(13, "denied")

    monkeypatch.setattr(Path, "read_text", refuse)
    assert target_module.host_target.__wrapped__().features == ()


def test_an_unknown_machine_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that nobody wrote code for is named."""
    monkeypatch.setattr(platform, "machine", lambda: "s390x")
    with pytest.raises(TargetError, match="s390x"):
        target_module.host_target.__wrapped__()
