"""Slots: all processes of a host share so many compiles at once, and nobody waits for the dead."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.builder import server as server_module
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.platform.slots import LOW, UNLIMITED, URGENT, Slots
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from support.crowded_compiler import CrowdedCompiler
from support.samples import LEVEL, conv, needed
from support.until import until


def taken(slots: Slots) -> list[int]:
    """Take all slots that there are."""
    found = []
    while (slot := slots.take()) is not None:
        found.append(slot)
    return found


def test_two_processes_share_the_slots_of_a_host(tmp_path: Path) -> None:
    """What one has the other cannot take, until it is given back."""
    first, second = Slots(URGENT, 2, tmp_path / "s"), Slots(URGENT, 2, tmp_path / "s")
    one = first.take()
    assert one is not None
    assert len(taken(second)) == 1
    assert first.take() is None
    first.give(one)
    assert len(taken(second)) == 1


def test_who_allows_less_takes_only_the_lower_slots(tmp_path: Path) -> None:
    """Together they run as many as the one that allows most, which leaves the lower ones to the other."""
    large, small = Slots(URGENT, 4, tmp_path / "s"), Slots(URGENT, 1, tmp_path / "s")
    for _ in range(3):
        large.take()
    assert len(taken(small)) == 1
    assert taken(large) == []


def test_what_nobody_waits_for_has_slots_of_its_own(tmp_path: Path) -> None:
    """A compile in the background never takes the place of one that somebody waits for."""
    assert len(taken(Slots(LOW, 1, tmp_path / "s"))) == 1
    assert len(taken(Slots(URGENT, 2, tmp_path / "s"))) == 2


def test_a_slot_ends_with_its_process(tmp_path: Path) -> None:
    """However that ends: there is nothing to clean up, and no time to wait."""
    code = (
        "import sys, time; from pathlib import Path; from opbuild.platform.slots import *\n"
        f"slots = Slots(URGENT, 2, Path({str(tmp_path / 's')!r})); slots.take(); slots.take()\n"
        "print('taken', flush=True); time.sleep(60)"
    )
    holder = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    assert holder.stdout.readline() == "taken\n"
    slots = Slots(URGENT, 2, tmp_path / "s")
    assert slots.take() is None
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    holder.stdout.close()
    assert until(lambda: slots.take() is not None)


def test_a_folder_that_others_can_write_to_holds_nobody_back(tmp_path: Path) -> None:
    """Nor does a file in its place, or a symbolic link: this process counts its own compiles then."""
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    link, file = tmp_path / "link", tmp_path / "file"
    link.symlink_to(tmp_path)
    file.touch()
    for folder in (shared, link, file, tmp_path / "no" / "parent"):
        assert Slots(URGENT, 1, folder).take() == UNLIMITED


def test_the_usual_folder_is_the_users_alone() -> None:
    """It is in the temporary folder, under the user's number, closed to others."""
    Slots(URGENT, 1)
    folder = Path(tempfile.gettempdir()) / f"opbuild-slots-{os.geteuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_builds_that_run_together_compile_no_more_at_once_than_one_alone(
    config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Four compile servers with two workers each, as of four ranks: never more than two compiles."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    two = replace(config, workers=2)
    failed: list[BaseException] = []

    def build(number: int) -> None:
        wanted = needed(*(conv(100 * number + tile, folder=str(tmp_path)) for tile in range(8)))
        try:
            with Builder(Operators(Memory()), CrowdedCompiler(), LEVEL, two) as builder:
                assert builder.build(wanted, "net").built == 8
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=build, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    seen = (tmp_path / "seen").read_text().split()
    assert (len(seen), max(seen)) == (32, "2")


def test_a_holder_that_was_stopped_holds_up_nobody_for_ever(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A server whose workers are idle for a while goes on without a slot."""
    others = Slots(URGENT, 1, tmp_path / "s")
    others.take()
    server = server_module.ServerLoop.__new__(server_module.ServerLoop)
    server.slots, server._children, server._crowded = Slots(URGENT, 1, tmp_path / "s"), {}, 0.0
    now = 100.0
    monkeypatch.setattr(server_module.time, "monotonic", lambda: now)
    assert server._slot() is None
    now += server_module._SLOT_SECONDS - 0.1
    assert server._slot() is None
    now += 0.2
    assert server._slot() == UNLIMITED
