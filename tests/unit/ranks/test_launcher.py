"""The parts of ``opbuild launch``: lines with their rank, a rank's environment, the job's folder."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from opbuild.errors import RankError
from opbuild.ranks import launcher as job_folder
from opbuild.ranks.launcher import LONGEST, JobFolder, PrefixedLines, rank_environment


@pytest.fixture
def pipe():
    """Return a pipe's two ends; what is written is read without waiting."""
    read, write = os.pipe()
    os.set_blocking(read, False)
    yield read, write
    os.close(read)
    os.close(write)


def test_each_line_gets_its_rank_and_is_written_whole(pipe: tuple[int, int]) -> None:
    """However a rank's output arrives in pieces, lines come out whole; an unfinished one comes at the end."""
    lines = PrefixedLines(2, pipe[1])
    lines.feed(b"one\ntw")
    assert os.read(pipe[0], 1 << 16) == b"[rank 2] one\n"
    with pytest.raises(BlockingIOError):
        os.read(pipe[0], 1 << 16)
    lines.feed(b"o\n\nthr\xff")
    lines.finish()
    assert os.read(pipe[0], 1 << 16) == b"[rank 2] two\n[rank 2] \n[rank 2] thr\xff\n"
    assert lines.last == ["one", "two", "", "thr\ufffd"]


def test_a_line_without_end_is_not_kept_for_ever() -> None:
    """What grows beyond a limit is written in parts."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    lines = PrefixedLines(0, nothing)
    lines.feed(b"x" * (LONGEST + 1))
    assert len(lines.last) == 1
    os.close(nothing)


def environment(rank: int = 1, size: int = 4, cores: int = 16, **inherited: str) -> dict[str, str]:
    """Return a rank's environment."""
    return rank_environment(inherited, rank, size, Path("/job"), cores)


def test_a_rank_knows_its_place() -> None:
    """Rank, size, device and the job's folder; what an MPI around the launcher said is gone."""
    found = environment(rank=3, KEPT="x", PMI_RANK="0", PMI_SIZE="1", OMPI_COMM_WORLD_RANK="0", RANK_ID="9")
    place = {name: found[name] for name in ("RANK_ID", "RANK_SIZE", "DEVICE_ID", "OPBUILD_JOB_DIR", "KEPT")}
    assert place == {"RANK_ID": "3", "RANK_SIZE": "4", "DEVICE_ID": "3", "OPBUILD_JOB_DIR": "/job", "KEPT": "x"}
    assert not any(name.startswith(("PMI_", "OMPI_")) for name in found)


@pytest.mark.parametrize(
    ("given", "threads", "workers"),
    [
        ({}, "4", "4"),
        ({"OPBUILD_NUM_THREADS": "7"}, "7", "4"),
        ({"OMP_NUM_THREADS": "3"}, "3", "4"),
        ({"OMP_NUM_THREADS": "many"}, "4", "4"),
        ({"MS_BUILD_PROCESS_NUM": "2"}, "4", "2"),
    ],
)
def test_cores_are_divided_over_the_ranks(given: dict[str, str], threads: str, workers: str) -> None:
    """4 ranks on 16 cores have 4 threads and 4 workers each, unless variables say otherwise (F65)."""
    found = environment(**given)
    assert (found["OPBUILD_NUM_THREADS"], found["MS_BUILD_PROCESS_NUM"]) == (threads, workers)
    assert environment(size=8, cores=2)["OPBUILD_NUM_THREADS"] == "1"


def test_folders_stay_where_the_launcher_is() -> None:
    """A relative path means the same for a rank that works in a folder of its own."""
    found = environment(MS_COMPILER_CACHE_PATH="cache", PYTHONPATH="src:/lib", ASCEND_WORK_PATH="")
    assert found["MS_COMPILER_CACHE_PATH"] == str(Path.cwd() / "cache")
    assert found["PYTHONPATH"] == f"{Path.cwd() / 'src'}:/lib"


def test_the_folder_of_a_killed_job_goes_with_a_later_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is private; one whose maker lives, or is young, stays; an old one without a maker is removed (F53).

    So is one whose removal was interrupted; but no folder that only has a similar name.
    """
    monkeypatch.setattr(job_folder.tempfile, "gettempdir", lambda: str(tmp_path))
    living, dead, young = JobFolder(), JobFolder(), JobFolder()
    for left in (dead, young):
        os.close(left._lock)  # as when its maker is killed
    (dead.path / "progress").mkdir()
    interrupted = tmp_path / f"{job_folder.PREFIX}12345678{job_folder.GONE}"
    others = [tmp_path / f"{job_folder.PREFIX}{name}" for name in ("results", "87654321")]
    long_ago = time.time() - 10 * job_folder.YOUNG
    for folder in (interrupted, *others):
        folder.mkdir()
    for old in (living.path, dead.path, interrupted, *others):
        os.utime(old, (long_ago, long_ago))
    assert living.path.stat().st_mode & 0o777 == 0o700
    last = JobFolder()
    assert [each.path.exists() for each in (living, dead, young, last)] == [True, False, True, True]
    assert not interrupted.exists()
    assert all(folder.is_dir() for folder in others)
    for folder in others:
        folder.rmdir()
    for each in (living, last):
        each.remove()
    assert [path.name for path in tmp_path.iterdir()] == [young.path.name]


def test_a_job_without_a_place_for_its_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names what to set."""
    monkeypatch.setattr(job_folder.tempfile, "gettempdir", lambda: str(tmp_path / "missing"))
    with pytest.raises(RankError, match="TMPDIR"):
        JobFolder()
