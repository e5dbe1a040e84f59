"""Whether anybody writes to a file through a map: such writing changes it without a trace."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import numpy as np
import pytest

from opbuild.platform.digest import blake3_of
from opbuild.platform.files import writers
from opbuild.platform.files.mapping import KnownFile, digest_of, state_of
from opbuild.platform.files.writers import is_unwritten

EXT4, TMPFS, OVERLAY = 0xEF53, 0x01021994, 0x794C7630


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file on what passes for a disk, if the system grants leases at all."""
    path = tmp_path / "model.data"
    path.write_bytes(bytes(8192))
    monkeypatch.setattr(writers, "_file_system", lambda descriptor: EXT4)
    descriptor = os.open(path, os.O_RDONLY)
    refused = writers._refusal(descriptor)
    os.close(descriptor)
    if refused:
        pytest.skip(f"there are no leases here: {os.strerror(refused)}")
    return path


def map_and_close(path: Path) -> tuple[int, int]:
    """Map a file for writing as C programs do, which close it at once; return the address and the size."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    descriptor = os.open(path, os.O_RDWR)
    address = libc.mmap(None, ctypes.c_size_t(8192), 3, 1, descriptor, ctypes.c_long(0))
    os.close(descriptor)
    return address, 8192


def test_a_file_that_is_open_or_mapped_for_writing_is_noticed(path: Path) -> None:
    """F82: also where the file itself was closed since; readers and their maps do no harm."""
    assert is_unwritten(path)
    with path.open("rb"):
        readers = np.memmap(path, np.uint8, "r")
        assert is_unwritten(path)
    with path.open("r+b"):
        assert not is_unwritten(path)
    address, size = map_and_close(path)
    assert not is_unwritten(path)
    ctypes.CDLL(None).munmap(ctypes.c_void_p(address), ctypes.c_size_t(size))
    assert is_unwritten(path)
    assert readers[0] == 0


@pytest.mark.parametrize("kind", [TMPFS, OVERLAY, 0])
def test_where_writing_may_leave_no_trace_only_a_read_only_file_counts(
    path: Path, monkeypatch: pytest.MonkeyPatch, kind: int
) -> None:
    """F82: tmpfs moves no time for a page that was read first, and an overlay counts maps elsewhere."""
    monkeypatch.setattr(writers, "_file_system", lambda descriptor: kind)
    assert not is_unwritten(path)
    path.chmod(0o444)
    assert is_unwritten(path)


def test_another_users_file_counts_only_if_it_is_read_only(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leases on others' files are refused; its owner may have it mapped."""
    monkeypatch.setattr(writers, "_refusal", lambda descriptor: errno.EACCES)
    assert not is_unwritten(path)
    path.chmod(0o444)
    assert is_unwritten(path)


def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    """Opening it would let its writer in, and closing it would end him."""
    os.mkfifo(tmp_path / "pipe")
    assert not is_unwritten(tmp_path / "pipe")


def test_the_digest_of_a_file_that_is_mapped_for_writing_is_not_remembered(path: Path) -> None:
    """F82: what is stored through the map later gives the file no other time; once nobody maps it, it is remembered."""
    memo = path.with_suffix(".digest")
    mapped = np.memmap(path, np.uint8, "r+")
    mapped[:] = 1
    first = digest_of(path, memo, settled=-1)
    assert not first.lasts
    assert not memo.exists()
    mapped[:] = 2
    assert digest_of(path, memo, settled=-1).digest == blake3_of(bytes([2]) * 8192) != first.digest
    del mapped
    assert digest_of(path, memo, settled=-1).lasts
    assert memo.exists()
    mapped = np.memmap(path, np.uint8, "r+")
    mapped[:] = 3
    assert digest_of(path, memo, settled=-1).digest == blake3_of(bytes([3]) * 8192)
    assert not memo.exists()


def test_a_change_that_moves_no_time_is_noticed_at_the_end_of_a_build(path: Path) -> None:
    """F34, F82: what was read while somebody may have written is read again, and compared, before it is stored."""
    old = blake3_of(b"what it was")
    assert KnownFile(old, state_of(path), lasts=False).is_outdated(path)
    assert not KnownFile(old, state_of(path), lasts=True).is_outdated(path)
    assert not KnownFile(blake3_of(bytes(8192)), state_of(path), lasts=False).is_outdated(path)
