"""The nominal peak of a processor, from what the system says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.platform.peak import gigahertz, nominal_gflops

CPUINFO = Path(__file__).parents[1] / "data" / "cpuinfo"


@pytest.mark.parametrize(
    ("processor", "lanes", "flops"),
    [
        ("haswell", 8, 2 * 2 * 8),
        ("skylake_x", 16, 2 * 2 * 16),
        ("sapphire_rapids", 16, 2 * 2 * 16),
        ("zen4", 16, 2 * 16),
        ("zen4", 8, 2 * 2 * 8),
        ("zen5", 16, 2 * 2 * 16),
    ],
)
def test_the_peak_is_two_units_of_all_lanes_but_for_those_of_half_the_width(
    tmp_path: Path, processor: str, lanes: int, flops: int
) -> None:
    """A product and an addition count two in each cycle of each core, as the makers' data sheets count."""
    frequency = tmp_path / "cpuinfo_max_freq"
    frequency.write_text("3000000\n")
    for threads in (1, 8):
        found = nominal_gflops(lanes, threads, CPUINFO / f"{processor}.txt", frequency)
        assert found == pytest.approx(flops * 3.0 * threads)


def test_the_clock_is_the_greatest_that_is_allowed_else_the_one_of_now(tmp_path: Path) -> None:
    """Virtual machines have no file of frequencies."""
    frequency, cpuinfo = tmp_path / "cpuinfo_max_freq", tmp_path / "cpuinfo"
    cpuinfo.write_text("vendor_id\t: AuthenticAMD\ncpu MHz\t\t: 2596.102\n")
    assert gigahertz(cpuinfo, frequency) == pytest.approx(2.596102)
    frequency.write_text("3710000\n")
    assert gigahertz(cpuinfo, frequency) == pytest.approx(3.71)
    frequency.write_text("unknown\n")
    assert gigahertz(cpuinfo, frequency) == pytest.approx(2.596102)


@pytest.mark.parametrize("text", [None, "", "processor\t: 0\nBogoMIPS\t: 50.00\n", "cpu MHz\t\t: unknown\n"])
def test_no_peak_is_known_where_the_system_names_no_clock(tmp_path: Path, text: str | None) -> None:
    """Arm's systems describe none; a share of a guess would be worse than none."""
    cpuinfo = tmp_path / "cpuinfo"
    if text is not None:
        cpuinfo.write_text(text)
    assert nominal_gflops(4, 2, cpuinfo, tmp_path / "none") is None
