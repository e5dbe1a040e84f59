"""``make bank``: what is faster at a level is written for it, beside what is there of other machines."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.config import TUNE_BANK
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.machine_class import shipped_database
from opbuild.store.tuning_database import TuningRecord, append_records, parse_database
from support.tuned_records import product, record

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

making = pytest.importorskip("shipped_bank", reason="the benchmarks' packages (extra bench) are not installed")

LEVEL = "x86-64-v3"


def found(rows: int, **about: object) -> TuningRecord:
    """Return the tuning record of products of so many rows."""
    question = product("panels", rows, 256, 256)
    return record(question, {"rows": 6}, {"rows": 8}, **{"level": LEVEL, **about})


def test_a_database_has_what_is_faster_at_its_level_and_what_other_machines_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is as the tables have it, of another level or of other sources is left out; a second run writes the same."""
    monkeypatch.setattr("opbuild.store.machine_class.SHIPPED", tmp_path)
    path, other = shipped_database(LEVEL), found(8, machine="another", system="elsewhere")
    before = [found(8), other, replace(other, sources="older", arguments="[]")]
    append_records(path, before, PRIVATE)
    now = found(16, after=7.0)
    as_it_was, higher, stale = found(24), found(32, level="x86-64-v4"), found(40, sources="older")
    as_it_was = replace(as_it_was, choice=as_it_was.default)
    append_records(tmp_path / "bank" / TUNE_BANK, [now, as_it_was, higher, stale], PRIVATE)
    for _ in range(2):
        making.written(LEVEL, tmp_path)
        assert list(parse_database(path.read_bytes(), PRIVATE).records) == [other, now]


def test_where_nothing_is_faster_no_database_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A start looks for a file only."""
    monkeypatch.setattr("opbuild.store.machine_class.SHIPPED", tmp_path)
    making.written(LEVEL, tmp_path)
    assert not shipped_database(LEVEL).exists()
