"""The target that opbuild detects is the one that Halide itself would detect."""

from __future__ import annotations

import halide as hl

from opbuild.kernel.target import host_target, parse_target


def test_halide_detects_the_same_machine() -> None:
    """Triple and features are those of Halide, but for its tuning hints, which need nothing (F38, F45)."""
    parts = [part for part in str(hl.get_host_target()).split("-") if not part.startswith("tune_")]
    assert host_target() == parse_target("-".join(parts))


def test_halide_understands_the_spelling() -> None:
    """Halide parses the target and gives it back unchanged."""
    assert parse_target(str(hl.Target(str(host_target())))) == host_target()
