"""Ranks of one host exchange data: all of them threads of one process here, with a real hub and real files."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.config import Config
from opbuild.errors import DTypeError, RankError, ShapeError
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import COLLECTIVES, Node, TensorType
from opbuild.ranks import world
from opbuild.ranks.collective import Collective, Line, combine, result_of
from opbuild.ranks.hub import GO, Hub, Meeting, connect
from opbuild.ranks.local import LocalTransport
from opbuild.ranks.world import Alone
from support.lagging import LaggingLock

SIZE = 4
SUM = Collective("AllReduce", "float32", (4,), "sum")


def on_all_ranks(folder: Path, work: Callable[[LocalTransport], Any], timeout: float = 120.0) -> list[Any]:
    """Return the result of each rank's ``work``, or the error that it raised."""
    results: list[Any] = [None] * SIZE

    def run(rank: int) -> None:
        config = Config(rank_id=rank, rank_size=SIZE, connect_timeout=timeout)
        try:
            transport = LocalTransport(config, folder)
            results[rank] = work(transport)
            transport.close()
        except RankError as error:
            results[rank] = error

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(SIZE)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """Return the folder of a job, deep below: the hub's socket must not mind."""
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    Hub(folder, SIZE)
    return folder


@pytest.mark.parametrize("dtype", ["float32", "float16", "int32", "uint8"])
def test_ranks_compute_together_what_numpy_computes_alone(job: Path, dtype: str) -> None:
    """Every operation, again and again with arrays that grow and shrink, gives each rank its result, equal bits."""
    shapes = [(4, 3), (8,), (400, 50), (4, 0), (4, 1), (1200, 70)]
    generator = np.random.default_rng(1)
    data = [[generator.integers(0, 9, shape).astype(dtype) for _ in range(SIZE)] for shape in shapes]

    def work(transport: LocalTransport) -> list[Any]:
        found = []
        for arrays in data:
            own = arrays[transport.rank]
            for kind, reduction, root in OPERATIONS:
                collective = Collective(kind, dtype, own.shape, reduction, root)
                found.append(transport.run(collective, own))
        return found

    found = on_all_ranks(job, work)
    for rank in range(SIZE):
        assert not isinstance(found[rank], RankError), found[rank]
        results = iter(found[rank])
        for arrays in data:
            for kind, reduction, root in OPERATIONS:
                wanted = expected(kind, reduction, root, rank, arrays)
                result = next(results)
                assert (result.dtype, result.shape) == (np.dtype(dtype), wanted.shape)
                np.testing.assert_array_equal(result, wanted)


OPERATIONS = [
    ("AllReduce", "sum", 0), ("AllReduce", "max", 0), ("AllReduce", "min", 0), ("AllReduce", "prod", 0),
    ("AllGather", "", 0), ("ReduceScatter", "sum", 0), ("Broadcast", "", 0), ("Broadcast", "", SIZE - 1),
]  # fmt: skip


def expected(kind: str, reduction: str, root: int, rank: int, arrays: list[np.ndarray]) -> np.ndarray:
    """Return a rank's result; small integers are exact in every type but the products of uint8, which wrap."""
    if kind == "AllGather":
        return np.concatenate(arrays)
    if kind == "Broadcast":
        return arrays[root]
    wide = np.stack([array.astype(np.int64) for array in arrays])
    reduced = {"sum": wide.sum(0), "max": wide.max(0), "min": wide.min(0), "prod": wide.prod(0)}[reduction]
    if kind == "ReduceScatter":
        rows = len(reduced) // SIZE
        reduced = reduced[rank * rows : (rank + 1) * rows]
    return reduced.astype(arrays[0].dtype)


DISAGREEMENTS = {
    "shape": Collective("AllReduce", "float32", (5,), "sum"),
    "dtype": Collective("AllReduce", "int32", (4,), "sum"),
    "reduction": Collective("AllReduce", "float32", (4,), "max"),
    "kind": Collective("AllGather", "float32", (4,)),
    "root": Collective("Broadcast", "float32", (4,), root=1),
}


@pytest.mark.parametrize("what", DISAGREEMENTS)
def test_ranks_that_do_different_things_learn_it_at_once(job: Path, what: str) -> None:
    """Every rank gets an error that names what differs and who does what, and the next operation works."""
    same = Collective("AllReduce", "float32", (4,), "sum")

    def work(transport: LocalTransport) -> Any:
        collective = DISAGREEMENTS[what] if transport.rank == 2 else same
        with pytest.raises(RankError) as caught:
            transport.run(collective, np.ones(collective.shape, collective.dtype))
        return str(caught.value), transport.run(same, np.ones(4, np.float32))[0]

    for message, after in on_all_ranks(job, work):
        assert f"rank 2: {DISAGREEMENTS[what]}" in message
        assert f"ranks 0, 1, 3: {same}" in message
        assert after == SIZE


@pytest.mark.slow
def test_a_rank_that_does_not_come_is_named(job: Path) -> None:
    """Rank 3 connects and then does nothing: after the limit the others name it."""
    done = threading.Event()

    def work(transport: LocalTransport) -> None:
        if transport.rank == 3:
            done.wait(60)
            return
        try:
            transport.run(Collective("AllReduce", "float32", (4,), "sum"), np.ones(4, np.float32))
        finally:
            done.set()

    results = on_all_ranks(job, work, timeout=1.0)
    assert any("rank 3" in str(result) and "no rank made progress for 1 s" in str(result) for result in results[:3])


def test_a_rank_without_a_launcher_says_so(tmp_path: Path) -> None:
    """A job's folder that a killed launcher left leads to an error, not to a wait."""
    with pytest.raises(RankError, match="opbuild launch"):
        LocalTransport(Config(rank_id=0, rank_size=2), tmp_path)


def test_the_hub_answers_when_all_have_arrived() -> None:
    """The last rank's line brings the answer; what a fast rank says early waits for its turn."""
    meeting = Meeting(2)
    assert meeting.arrive(0, "a") == ""
    assert meeting.arrive(0, "b") == ""
    assert meeting.arrive(1, "a") == GO
    assert "rank 1: c" in meeting.arrive(1, "c")


@pytest.mark.parametrize(
    "said", [b"9" * 5000 + b"\n", b"\xd9\xa3\n", b"x" * 100_000, b"\n" * 9], ids=["digits", "arabic", "long", "empty"]
)
def test_whoever_says_no_rank_is_let_go_and_the_others_meet(job: Path, said: bytes) -> None:
    """A number of 5,000 digits, one in other digits: the hub says what is wrong with it and serves those who come."""
    with connect(job) as stranger:
        stranger.settimeout(60)
        stranger.sendall(said)
        assert stranger.recv(1 << 12).startswith(b"lost ")
    assert on_all_ranks(job, lambda transport: transport.run(SUM, np.ones(4, np.float32))[0]) == [SIZE] * SIZE


def test_a_rank_that_says_what_no_rank_says_is_named_to_the_others(job: Path) -> None:
    """They do not wait for their time-out, and those who come later neither."""

    def work(transport: LocalTransport) -> None:
        if transport.rank == 3:
            transport._link.sendall(b"9" * 100_000)
        with contextlib.closing(transport):
            transport.run(SUM, np.ones(4, np.float32))

    for result in on_all_ranks(job, work, timeout=1e6):
        assert "rank 3 said a line" in str(result)
    with pytest.raises(RankError, match="rank 3 said a line"):
        LocalTransport(Config(rank_id=0, rank_size=SIZE, connect_timeout=1e6), job)


def test_a_hub_that_fails_tells_all_and_takes_nobody_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends with a reason, which the launcher reads: nobody waits for what no longer answers."""

    def fail(*_: object) -> str:
        raise RuntimeError("no luck")

    hub = Hub(tmp_path, 2)
    monkeypatch.setattr(hub, "_take", fail)
    for _ in range(2):
        with pytest.raises(RankError, match=r"cannot meet any more: RuntimeError: no luck|does not reach its launcher"):
            LocalTransport(Config(rank_id=0, rank_size=2, connect_timeout=1e6), tmp_path)
    assert "RuntimeError: no luck" in hub.problem


def test_float16_is_summed_in_float32_and_rounded_once() -> None:
    """2048 + 1 + 1 + 1 + 1 is 2052; step by step in float16 it would stay 2048."""
    arrays = [np.array([value], np.float16) for value in (2048, 1, 1, 1, 1)]
    assert combine(Collective("AllReduce", "float16", (1,), "sum"), arrays, 0) == [2052]


def infer(kind: str, dtype: str, *shape: int) -> TensorType:
    """Return the type of an operation's result on two ranks."""
    return infer_node(Node(kind, ("x",), ("y",), {"ranks": 2}, "n", COLLECTIVES), [TensorType(dtype, shape)], [None])[0]


def test_the_results_types_are_known_before_they_run() -> None:
    """AllGather multiplies the first extent, ReduceScatter divides it, the others keep it."""
    assert infer("AllReduce", "float32", 3, 5) == TensorType("float32", (3, 5))
    assert infer("Broadcast", "bool", 3) == TensorType("bool", (3,))
    assert infer("AllGather", "int32", 3, 5) == TensorType("int32", (6, 5))
    assert infer("ReduceScatter", "float16", 4, 5) == TensorType("float16", (2, 5))
    with pytest.raises(ShapeError, match="3 rows cannot be divided among 2 ranks"):
        infer("ReduceScatter", "float16", 3, 5)
    with pytest.raises(DTypeError, match="bool is not reduced"):
        infer("AllReduce", "bool", 3)


class Waiting(Alone):
    """The transport of one rank that has an operation wait, and refuses those behind its end.

    Args:
        may: What each operation of elements waits for.
    """

    serves_threads = True

    def __init__(self, may: threading.Event) -> None:
        self._may, self.begun, self._is_closed = may, list[str](), False

    def run(self, collective: Collective, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return the array, in time."""
        if self._is_closed:
            raise RankError("the ranks are gone")
        self._may.wait(60)
        self.begun.append(collective.kind)
        return array.copy()

    def close(self) -> None:
        """Refuse all that comes."""
        self._is_closed = True


def test_an_operation_behind_the_end_of_a_line_is_done_behind_those_that_had_begun() -> None:
    """Its thread has ended or is about to: nobody would do it."""
    may = threading.Event()
    transport = Waiting(may)
    line, array = Line(transport), np.ones(4, np.float32)
    first = line.start(SUM, array)
    line.close()
    threading.Timer(0.05, may.set).start()
    second = line.start(Collective("Barrier"), array)
    assert np.array_equal(second.result(10), array)
    assert transport.begun == ["AllReduce", "Barrier"]
    assert first.done()
    transport.close()
    with pytest.raises(RankError, match="the ranks are gone"):
        result_of(line.start(SUM, array))


def test_who_comes_while_the_ranks_are_let_go_of_gets_no_line_of_theirs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the line of those that come next, too."""
    made = world._World()
    made.transport, left = Alone(), [world.disconnect]
    monkeypatch.setattr(world, "_WORLD", made)
    monkeypatch.setattr(made, "lock", LaggingLock(lag=lambda: left.pop()() if left else None))
    with pytest.raises(RankError, match="not connected"):
        world.run("Barrier", np.zeros(0, np.uint8))
    assert made.line is None
