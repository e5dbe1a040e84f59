"""What is told once in a process is, whichever thread tells it."""

from __future__ import annotations

import time
from typing import Any

import pytest

from opbuild import events
from opbuild.events import Warned, log_warnings, tell_of_environment
from opbuild.onnxruntime import logs
from support.together import run_together


class SlowSet(set[str]):
    """A set in which another thread may put something behind each look."""

    def __contains__(self, text: object) -> bool:
        found = super().__contains__(text)
        time.sleep(0.01)
        return found


def test_a_warning_is_logged_once(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """Several threads may meet the same at once."""
    monkeypatch.setattr(events, "_LOGGED", SlowSet())
    assert run_together(lambda _: log_warnings(Warned("the disk is full")), 4) == []
    assert caplog.messages == ["the disk is full"]


def test_a_warning_about_the_environment_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the process's."""
    told: list[Any] = []
    monkeypatch.setattr(events, "_TOLD", SlowSet())
    assert run_together(lambda _: tell_of_environment(["OPBUILD_FIRST is no word"], told.append), 4) == []
    assert told == [Warned("OPBUILD_FIRST is no word")]


def test_a_warning_of_onnx_runtimes_interface_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Several threads may make sessions with the same options."""
    monkeypatch.setattr(logs, "_SAID", SlowSet())
    with pytest.warns(Warning, match="is ignored") as shown:
        assert run_together(lambda _: logs.warn_once("an option is ignored"), 4) == []
    assert len(shown) == 1
