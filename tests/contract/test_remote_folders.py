"""A folder on storage that others share, which stops to answer or is full."""

from __future__ import annotations

import json
import os
from pathlib import Path

from opbuild.kernel.reason import Reason
from opbuild.store.remote.retry import FAILURES
from support.full_disk import python_on_a_small_disk
from support.remote_servers import service

FULL = """
import json, sys
from opbuild.store.remote.address import parse_address
from opbuild.store.remote.service import Service
remote = Service(parse_address("remote", f"file://{sys.argv[1]}"), seconds=60.0)
written = remote.put([("a/small", b"abc")]), remote.put([("a/large", bytes(2**20))])
read = remote.get("a/large", 2**21), remote.get("a/small", 10).decode()
print(json.dumps([*written, *read, remote.names("a/")]))
"""


def test_a_disk_that_is_full_refuses_and_is_read_on(tmp_path: Path) -> None:
    """Nobody sees half an object; what was there is."""
    done = python_on_a_small_disk(["-c", FULL, str(tmp_path / "disk")], tmp_path / "disk", "200k")
    assert done.returncode == 0, done.stderr
    full, absent = ["refused", "it is full"], ["absent", "it has no such object"]
    written, refused, large, small, names = json.loads(done.stdout)
    assert (written, refused[:2], large[:2], small, names) == (None, full, absent, "abc", ["small"])


def test_storage_that_stops_to_answer_is_slow(tmp_path: Path) -> None:
    """As a mount whose server went away: who opens a file waits for ever, but no build does."""
    os.mkfifo(tmp_path / "x")
    remote = service(f"file://{tmp_path}", 0.25)
    assert {remote.get("x", 10) for _ in range(FAILURES)} == {Reason("slow", "no answer in time")}
    assert remote.reading.reason is not None
    with (tmp_path / "x").open("wb", 0):  # whoever still waits may go
        pass
