"""The nominal peak of a processor, from what the system says of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from opbuild.platform.processor import gigahertz, nominal_gflops

CPUINFO = Path(__file__).parents[2] / "data" / "cpuinfo"


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


@pytest.mark.parametrize("text", [None, "", "unknown\n"])
def test_no_peak_is_known_where_the_system_names_no_greatest_clock(tmp_path: Path, text: str | None) -> None:
    """Virtual machines have no such file; a share of the clock that they report would exceed one."""
    frequency, cpuinfo = tmp_path / "cpuinfo_max_freq", tmp_path / "cpuinfo"
    cpuinfo.write_text("vendor_id\t: AuthenticAMD\ncpu MHz\t\t: 2596.102\n")
    if text is not None:
        frequency.write_text(text)
    assert gigahertz(frequency) is None
    assert nominal_gflops(4, 2, cpuinfo, frequency) is None
