"""Digests of a model's files: taken once, for as long as the file is the very one that was read."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from opbuild.files import mapping as files
from opbuild.files.mapping import digest_of
from opbuild.platform.digest import fast


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Let files settle at once, let nobody write to them, and list those that are read."""
    read: list[Path] = []
    real = files.fast_file

    def counting(path: Path) -> str:
        read.append(path)
        return real(path)

    monkeypatch.setattr(files, "fast_file", counting)
    monkeypatch.setattr(files, "_SETTLED", -1)
    monkeypatch.setattr(files, "is_unwritten", lambda path: True)  # what the file system may not be able to tell
    return read


def test_a_file_that_nobody_touched_is_read_once(tmp_path: Path, counted: list[Path]) -> None:
    """The second start of a network does not read the model's hundred megabytes."""
    path, memo = tmp_path / "model.onnx", tmp_path / "meta" / "model.digest"
    path.write_bytes(b"weights")
    assert [digest_of(path, memo).digest for _ in range(3)] == [fast(b"weights")] * 3
    assert counted == [path]


def test_a_file_with_other_bytes_under_the_old_time_stamp_is_read_again(tmp_path: Path, counted: list[Path]) -> None:
    """Bytes overwritten in place, with size and time of modification restored, are another model."""
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    digest_of(path, memo)
    stat = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if path.stat().st_ctime_ns == stat.st_ctime_ns:
        pytest.skip("both writes fell into one tick of this file system's clock")
    assert digest_of(path, memo).digest == fast(b"WEIGHTS")
    assert len(counted) == 2


def test_a_file_that_has_only_just_changed_is_not_remembered(
    tmp_path: Path, counted: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It might change again within the tick of the clock, and nothing would show it."""
    monkeypatch.setattr(files, "_SETTLED", 10**15)
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    assert [digest_of(path, memo).digest for _ in range(2)] == [fast(b"weights")] * 2
    assert not memo.exists()
    assert len(counted) == 2


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"blake3": 1, "state": 2}', b"\xff\x00"])
def test_a_damaged_memo_costs_only_the_reading(tmp_path: Path, counted: list[Path], damage: bytes) -> None:
    """Whatever is in the memo, the digest is the file's, and the memo is right again afterwards."""
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    memo.write_bytes(damage)
    assert [digest_of(path, memo).digest for _ in range(2)] == [fast(b"weights")] * 2
    assert counted == [path]


def test_a_memo_that_can_not_be_written_costs_only_the_reading(tmp_path: Path, counted: list[Path]) -> None:
    """A folder that is a file holds no memo; the digest is taken all the same."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"weights")
    assert [digest_of(path, path / "model.digest").digest for _ in range(2)] == [fast(b"weights")] * 2
    assert len(counted) == 2
