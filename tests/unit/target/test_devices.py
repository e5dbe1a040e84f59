"""Classes of devices: they are registered by name, and nothing of one is loaded before it is asked for."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from opbuild.target.devices import device_class, is_known, register
from opbuild.target.level import BY_NAME, CPU, Target, target_named


def test_a_class_is_loaded_when_it_is_first_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To register one costs nothing, and another one of its name takes its place."""
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("opbuild.target.devices._PATHS", {})
    (tmp_path / "late_device.py").write_text("ONE, OTHER = 'one', 'other'\n")
    register("late", "late_device:ONE")
    assert is_known("late")
    assert "late_device" not in sys.modules
    assert device_class("late") == "one"
    register("late", "late_device:OTHER")
    assert device_class("late") == "other"


def test_the_hosts_own_cannot_be_replaced() -> None:
    """The CPU is what everything else is copied from."""
    with pytest.raises(ValueError, match="'cpu' is the host's own"):
        register(CPU, "any:THING")
    assert not is_known(CPU)
    with pytest.raises(LookupError):
        device_class("nobody's")


def test_targets_are_named_as_keys_hold_them() -> None:
    """CPUs by their levels alone, as before there were others."""
    assert [target_named(each.name) for each in BY_NAME.values()] == [*BY_NAME.values()]
    other = Target("cuda", "sm_90a")
    assert (other.name, target_named(other.name)) == ("cuda:sm_90a", other)
    with pytest.raises(LookupError):
        target_named("sm_90a")
