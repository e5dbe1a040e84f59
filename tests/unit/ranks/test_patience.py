"""Waiting for other ranks, on a clock that the tests turn: only time without progress counts."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.errors import RankError
from opbuild.events import BuildFinished, BuildStarted, CompileFinished, CompileStarted, Taken, Waiting
from opbuild.ranks.progress import NOT_WAITING, Patience, RankProgress, Snapshot, read_snapshot

RUNS = Snapshot()
BUILDS = Snapshot(state="building", network="net", compiling=("conv_relu",), done=3, to_compile=12, changes=7)
HERE = Snapshot(waiting=4)


def patience(rank: int = 0, size: int = 2, limit: float = 2.0, compile_timeout: float = 300.0) -> Patience:
    """Return the patience of a rank that has just arrived at operation 4."""
    return Patience(rank, size, "AllReduce(sum) of float32[4]", 4, limit, "HCCL_CONNECT_TIMEOUT", compile_timeout, 0.0)


def looks(waiting: Patience, until: float, ranks: dict[int, Snapshot | None], step: float = 0.25) -> list[str]:
    """Look every quarter of a second and return what was said."""
    said = []
    for count in range(1, int(until / step) + 1):
        said += [f"{count * step:g}: {line}" for line in waiting.look(count * step, ranks)]
    return said


def test_a_rank_that_compiles_keeps_the_others_waiting_beyond_the_limit() -> None:
    """With a limit of 2 s a compile of 100 s is waited for, with a line at least every 10 s that names it (F63)."""
    said = looks(patience(), 100.0, {1: BUILDS})
    assert said[0] == "3: waiting for rank 1, which builds conv_relu (for 3 s; 3 of 12 operators done)"
    times = [float(line.partition(":")[0]) for line in said]
    assert max(b - a for a, b in zip([0.0, *times], [*times, 100.0], strict=True)) <= 10.0


def test_a_compile_that_exceeds_its_own_limit_is_no_progress() -> None:
    """A compile counts for as long as one may take; then the clock runs."""
    waiting = patience(compile_timeout=50.0)
    looks(waiting, 51.0, {1: BUILDS})
    with pytest.raises(RankError, match="conv_relu"):
        looks(waiting, 300.0, {1: BUILDS})


@pytest.mark.parametrize("said", [None, RUNS, replace(BUILDS, compiling=())], ids=["silent", "runs", "between"])
def test_a_rank_that_hangs_is_named_after_the_limit(said: Snapshot | None) -> None:
    """That the rank's process exists is no progress: after 2 s the error names it and the variable."""
    waiting = patience()
    looks(waiting, 1.75, {1: said})
    with pytest.raises(RankError, match=r"no rank made progress for 2 s .*missing is rank 1") as caught:
        looks(waiting, 2.5, {1: said})
    assert "HCCL_CONNECT_TIMEOUT" in caught.value.hint


def test_progress_of_any_rank_counts() -> None:
    """While rank 2 finishes operators, rank 1, which does nothing, is not given up."""
    waiting = patience(size=3)
    for second in range(60):
        waiting.look(float(second), {1: RUNS, 2: replace(RUNS, changes=second)})


def test_a_rank_that_ended_is_named_at_once() -> None:
    """Nobody waits for a rank that ended before it arrived; one that arrived and ended is no failure."""
    patience(size=3).look(0.25, {1: replace(HERE, state="ended"), 2: HERE})
    with pytest.raises(RankError, match="rank 2 ended before it reached AllReduce"):
        patience(size=3).look(0.25, {1: HERE, 2: replace(RUNS, state="ended")})


def test_time_in_which_a_rank_was_stopped_itself_does_not_count() -> None:
    """A machine that slept for an hour between two looks has not kept this rank waiting."""
    waiting = patience()
    waiting.look(0.25, {1: RUNS})
    waiting.look(3600.0, {1: RUNS})


def test_one_of_those_who_wait_speaks() -> None:
    """Of ranks 0, 1 and 3, which wait for rank 2, rank 0 says so."""
    ranks: dict[int, Snapshot | None] = {0: HERE, 1: HERE, 2: BUILDS, 3: HERE}
    assert looks(patience(0, 4), 20.0, ranks)
    assert not looks(patience(1, 4), 20.0, ranks)
    assert not looks(patience(3, 4), 20.0, ranks)


def test_without_a_limit_nobody_gives_up() -> None:
    """HCCL_EXEC_TIMEOUT=0 waits for ever."""
    looks(patience(limit=math.inf), 5000.0, {1: RUNS}, 1.0)


def test_ranks_that_are_all_there_are_not_waited_for_without_end() -> None:
    """If every rank arrived and the operation does not end, the error says that."""
    with pytest.raises(RankError, match="although all ranks reached it"):
        looks(patience(), 3.0, {1: HERE})


def test_what_a_rank_says_of_itself_follows_its_build(tmp_path: Path) -> None:
    """Events of a build become one small file, replaced at each; a wait for another process is told and no progress."""
    progress = RankProgress(tmp_path, 3)

    def after(event: object) -> Snapshot:
        progress.observe(event)  # type: ignore[arg-type]
        found = read_snapshot(tmp_path, 3)
        assert found is not None
        return found

    assert after(BuildStarted("net", 5, 3)).state == "building"
    assert after(CompileStarted("conv", "new")).compiling == ("conv",)
    assert after(CompileStarted("add", "new")).compiling == ("conv", "add")
    compiled = after(CompileFinished("conv", 5.0, 1, 3))
    assert (compiled.compiling, compiled.done, compiled.to_compile) == (("add",), 1, 3)
    waiting = after(Waiting("pool", "rank 1", 5.0))
    assert (waiting.changes, waiting.doing) == (compiled.changes, "waits for rank 1 to build pool")
    taken = after(Taken("pool", "rank 1", 2, 3))
    assert (taken.changes > waiting.changes, taken.awaited) == (True, "")
    assert after(BuildFinished("net", 2, 3, 0.1)).doing == "runs, and built net last"
    progress.say(waiting=7)
    assert read_snapshot(tmp_path, 3).waiting == 7  # type: ignore[union-attr]
    progress.say(waiting=NOT_WAITING)
    progress.say(state="ended")
    assert read_snapshot(tmp_path, 3).state == "ended"  # type: ignore[union-attr]
    assert [path.name for path in (tmp_path / "progress").iterdir()] == ["3.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"state": "x"}', b"\xff", json.dumps("x").encode()])
def test_a_file_of_progress_that_is_no_such_file_says_nothing(tmp_path: Path, content: bytes) -> None:
    """Whatever stands there, the rank counts as silent."""
    (tmp_path / "progress").mkdir()
    (tmp_path / "progress" / "1.json").write_bytes(content)
    assert read_snapshot(tmp_path, 1) is None


def test_progress_that_cannot_be_written_is_no_failure(tmp_path: Path) -> None:
    """A job's folder may be gone when its last rank builds."""
    RankProgress(tmp_path / "gone" / "far", 0).observe(BuildStarted("net", 1, 1))
