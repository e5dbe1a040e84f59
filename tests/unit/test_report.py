"""The times of a build's steps add up to what it took."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from opbuild import report
from opbuild.report import Clock


def test_a_step_within_another_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operators are looked up while weights are packed; steps of one name are added up."""
    times = iter([0.0, 1.0, 3.0, 10.0, 20.0, 21.0])
    monkeypatch.setattr(report, "time", SimpleNamespace(perf_counter=lambda: next(times)))
    clock = Clock()
    with clock("pack"), clock("decide"):
        pass
    with clock("pack"):
        pass
    assert clock.steps == {"pack": 9000.0, "decide": 2000.0}
