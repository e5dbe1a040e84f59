"""Digests of a model's files: taken once, for as long as the file is the very one that was read."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from opbuild.platform.digest import blake3_of, blake3_of_file
from opbuild.platform.files.mapping import digest_of, map_file


class Reader:
    """Takes digests of files that settle at once and that nobody writes to, and lists those that it reads."""

    def __init__(self, settled: int = -1) -> None:
        self.read: list[Path] = []
        self._settled = settled

    def __call__(self, path: Path, memo: Path) -> str:
        """Return the digest of a file."""
        return digest_of(path, memo, self._fast, is_unwritten=lambda _: True, settled=self._settled).digest

    def _fast(self, path: Path) -> str:
        self.read.append(path)
        return blake3_of_file(path)


@pytest.fixture
def reader() -> Reader:
    """What takes digests."""
    return Reader()


def test_a_file_that_nobody_touched_is_read_once(tmp_path: Path, reader: Reader) -> None:
    """The second start of a network does not read the model's hundred megabytes."""
    path, memo = tmp_path / "model.onnx", tmp_path / "meta" / "model.digest"
    path.write_bytes(b"weights")
    assert [reader(path, memo) for _ in range(3)] == [blake3_of(b"weights")] * 3
    assert reader.read == [path]


def test_a_file_with_other_bytes_under_the_old_time_stamp_is_read_again(tmp_path: Path, reader: Reader) -> None:
    """Bytes overwritten in place, with size and time of modification restored, are another model."""
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    reader(path, memo)
    stat = path.stat()
    path.write_bytes(b"WEIGHTS")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    if path.stat().st_ctime_ns == stat.st_ctime_ns:
        pytest.skip("both writes fell into one tick of this file system's clock")
    assert reader(path, memo) == blake3_of(b"WEIGHTS")
    assert len(reader.read) == 2


def test_a_file_that_has_only_just_changed_is_not_remembered(tmp_path: Path) -> None:
    """It might change again within the tick of the clock, and nothing would show it."""
    reader = Reader(settled=10**15)
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    assert [reader(path, memo) for _ in range(2)] == [blake3_of(b"weights")] * 2
    assert not memo.exists()
    assert len(reader.read) == 2


@pytest.mark.parametrize("damage", [b"", b"[]", b"{}", b'{"blake3": 1, "state": 2}', b"\xff\x00"])
def test_a_damaged_memo_costs_only_the_reading(tmp_path: Path, reader: Reader, damage: bytes) -> None:
    """Whatever is in the memo, the digest is the file's, and the memo is right again afterwards."""
    path, memo = tmp_path / "model.onnx", tmp_path / "model.digest"
    path.write_bytes(b"weights")
    memo.write_bytes(damage)
    assert [reader(path, memo) for _ in range(2)] == [blake3_of(b"weights")] * 2
    assert reader.read == [path]


def test_a_memo_that_cannot_be_written_costs_only_the_reading(tmp_path: Path, reader: Reader) -> None:
    """A folder that is a file holds no memo; the digest is taken all the same."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"weights")
    assert [reader(path, path / "model.digest") for _ in range(2)] == [blake3_of(b"weights")] * 2
    assert len(reader.read) == 2


def test_a_map_keeps_no_descriptor_and_goes_with_its_array(tmp_path: Path) -> None:
    """A network may have more weights than a process may have open files (1,024, often); each is a file."""
    path, open_files = tmp_path / "weight.bin", Path("/proc/self/fd")
    path.write_bytes(bytes(range(256)) * 256)
    before = len([*open_files.iterdir()])
    maps = [map_file(path, 2**16)[0] for _ in range(10)]
    part = maps[3][255:257]
    assert len([*open_files.iterdir()]) == before
    assert all((each == maps[0]).all() and not each.flags.writeable for each in maps)
    del maps
    gc.collect()
    assert part.tolist() == [255, 0]
    assert Path("/proc/self/maps").read_text().count(str(path)) == 1
    del part
    gc.collect()
    assert str(path) not in Path("/proc/self/maps").read_text()
