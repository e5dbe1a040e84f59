"""Turns: one process asks, those who wait learn how it ended, and nobody waits for the dead."""

from __future__ import annotations

import multiprocessing
import os
import threading
from pathlib import Path

import pytest

from opbuild.store.claims import ClaimFile, Flights

NAME = "fetch_x"


class Waiting:
    """A thread that waits for its turn.

    Args:
        folder: Where turns are taken.
        monkeypatch: Lets it say that it waits.
        patience: Its patience.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, patience: float = 600.0) -> None:
        self.said: list[str] = []
        waits = threading.Event()
        found = ClaimFile.said

        def said(file: ClaimFile) -> bytes:
            waits.set()
            return found(file)

        monkeypatch.setattr(ClaimFile, "said", said)

        def wait() -> None:
            with Flights(folder, patience).turn(NAME) as turn:
                self.said.append(turn.said)

        self._thread = threading.Thread(target=wait)
        self._thread.start()
        assert waits.wait(120)

    def end(self) -> str:
        """Wait for its turn; return what it was told."""
        self._thread.join()
        return self.said[0]


def test_who_waits_learns_how_it_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What came in between is a reason to wait on, and no end; afterwards nothing is left."""
    with Flights(tmp_path / "claims").turn(NAME) as turn:
        assert turn.said == ""
        other = Waiting(tmp_path / "claims", monkeypatch)
        turn.came()
        turn.came()
        turn.end("kept")
    assert other.end() == "kept"
    assert not list((tmp_path / "claims").iterdir())


def test_who_says_nothing_leaves_it_to_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that failed spares nobody to ask."""
    with Flights(tmp_path).turn(NAME) as turn:
        other = Waiting(tmp_path, monkeypatch)
        turn.came()
    assert other.end() == ""


def test_nobody_waits_for_long_for_one_that_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that was stopped, say: the other goes on while it still has the turn."""
    with Flights(tmp_path).turn(NAME):
        assert Waiting(tmp_path, monkeypatch, patience=0.0).end() == ""
    assert not list(tmp_path.iterdir())


def _die(folder: Path) -> None:
    with Flights(folder).turn(NAME) as turn:
        turn.came()
        os._exit(9)


def test_the_turn_of_one_that_died_is_the_next_ones(tmp_path: Path) -> None:
    """At once, and what it said is no end."""
    process = multiprocessing.get_context("fork").Process(target=_die, args=(tmp_path,))
    process.start()
    process.join()
    assert process.exitcode == 9
    assert [path.name for path in tmp_path.iterdir()] == [f"{NAME}.claim"]
    with Flights(tmp_path).turn(NAME) as turn:
        assert turn.said == ""
        assert turn._file is not None
    assert not list(tmp_path.iterdir())


def test_an_end_that_nobody_waited_for_is_not_believed(tmp_path: Path) -> None:
    """What one left who died while he ended may be long ago."""
    tmp_path.joinpath(f"{NAME}.claim").write_bytes(b"ended kept")
    with Flights(tmp_path).turn(NAME) as turn:
        assert turn.said == ""


def test_where_there_are_no_turns_everybody_asks(tmp_path: Path) -> None:
    """A folder that cannot be made, and a file that somebody else has linked."""
    (tmp_path / "file").write_text("")
    with Flights(tmp_path / "file" / "claims").turn(NAME) as turn:
        turn.came()
        assert turn.said == ""
    (tmp_path / f"{NAME}.claim").hardlink_to(tmp_path / "file")
    with Flights(tmp_path).turn(NAME) as turn:
        turn.end("kept")
    assert (tmp_path / "file").read_text() == ""
