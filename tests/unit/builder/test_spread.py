"""Spreading compiles: whatever becomes of batches and workers, each operator is answered once, with the same bytes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opbuild.builder import spread
from opbuild.builder.build import Builder
from opbuild.builder.client import ServerEndedError
from opbuild.builder.spread import LARGEST_BATCH, SpreadServer, compile_batch, max_in_flight
from opbuild.config import Config
from opbuild.errors import CompileError
from opbuild.events import Warned
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from opbuild.target.level import BY_NAME
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, Recorder, conv, delivered, needed

FATES = (
    "done",
    "lost",
    "cancelled",
    "refused",
    "damaged",
    "garbage",
    "partial",
    "foreign",
    "failed",
    "silent",
    "closed",
)
"""What becomes of a task."""


def compiled(request: dict[str, Any]) -> bytes:
    """Return the object of a request, as the fake compiler makes it in any process."""
    return FakeCompiler().compile(
        OpDesc.from_components(request["desc"]), request["symbol"], BY_NAME[request["target"]]
    )


def requests(count: int) -> list[dict[str, Any]]:
    """Return requests as a build sends them."""
    components = [conv(tile).components() for tile in range(count)]
    return [
        {
            "id": number,
            "desc": desc,
            "symbol": f"k{number}__kernel0",
            "target": LEVEL.name,
            "sources": "",
            "timeout": 9.0,
            "known": [],
            "compiles": True,
        }
        for number, desc in enumerate(components)
    ]


class Fated(Executor):
    """An executor whose tasks end as a list says, one after the other; when it is used up, well.

    Args:
        fates: Of ``FATES``.
    """

    num_workers = 2

    def __init__(self, fates: list[str]) -> None:
        self.fates = list(fates)
        self.batches: list[list[int]] = []

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Take a task and let its fate befall it at once."""
        (task,) = args
        assert (function, kwargs) == (compile_batch, {})
        assert pickle.loads(pickle.dumps(task)) == task
        fate = self.fates.pop(0) if self.fates else "done"
        if fate == "closed":
            raise RuntimeError("cannot schedule new futures after shutdown")
        self.batches.append([request["id"] for request in task["requests"]])
        future = Future[Any]()
        if fate == "cancelled":
            future.cancel()
        elif fate == "lost":
            future.set_exception(ConnectionError("the worker died"))
        elif fate != "silent":
            future.set_result(self.answer(fate, task["requests"]))
        return future

    @staticmethod
    def answer(fate: str, asked: list[dict[str, Any]]) -> Any:
        """Return the answer of a worker."""
        if fate == "refused":
            return {"where": "process 7 on node9", "refused": "it has another fake"}
        if fate == "garbage":
            return [1, 2]
        answers = []
        for request in asked[: len(asked) // 2 if fate == "partial" else None]:
            header, files = delivered(request, compiled(request))
            if fate == "failed":
                header, files = {"kind": "failed", "id": request["id"], "step": "start", "text": "no memory"}, b""
            if fate == "foreign":
                header = header | {"id": request["id"] + 1000}
            answers.append([header, files, sha256(b"other" if fate == "damaged" else files)])
        return {"where": "process 7 on node9", "answers": answers}


class Here:
    """A compile server of this host that compiles in this process."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.ready: list[Any] = []

    def send(self, request: dict[str, Any]) -> None:
        """Compile at once."""
        self.asked.append(request["id"])
        self.ready.append(delivered(request, compiled(request)))

    def receive(self, timeout: float | None = None) -> list[Any]:
        """Return the messages that are ready."""
        ready, self.ready = self.ready, []
        return ready

    def close(self) -> None:
        """End nothing."""


def spread_over(executor: Executor, count: int) -> tuple[dict[int, list[bytes]], list[str], Here]:
    """Compile so many operators; return the objects of each, what was said, and what this host did."""
    here = Here()
    server = SpreadServer(executor, "module:Class", "digest", lambda: here)  # type: ignore[arg-type, return-value]
    objects: dict[int, list[bytes]] = {number: [] for number in range(count)}
    said = []
    for request in requests(count):
        server.send(request)
    while not all(objects.values()):
        for header, files in server.receive():
            if header["kind"] == "done":
                objects[header["id"]].append(files)
            elif header["kind"] == "note":
                said.append(header["text"])
    server.close()
    return objects, said, here


@pytest.mark.slow
@settings(max_examples=200)
@given(count=st.integers(1, 60), fates=st.lists(st.sampled_from(FATES), max_size=40))
def test_each_operator_is_answered_once_with_the_same_bytes_whatever_becomes_of_batches(
    count: int, fates: list[str]
) -> None:
    """Lost, refused, damaged, unanswered and misaddressed batches cost work, and never a wrong or missing object."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spread, "SILENCE", 0.002)
        objects, _, here = spread_over(Fated(fates), count)
    assert objects == {request["id"]: [compiled(request)] for request in requests(count)}
    assert len(here.asked) == len(set(here.asked))


def test_without_faults_this_host_compiles_nothing() -> None:
    """Every operator is sent out once, in batches of at most eight, as many as keep the workers busy."""
    executor = Fated([])
    _, said, here = spread_over(executor, 40)
    assert (here.asked, said) == ([], [])
    assert sorted(number for batch in executor.batches for number in batch) == list(range(40))
    assert max(map(len, executor.batches)) <= LARGEST_BATCH
    few = Fated([])
    spread_over(few, 3)
    assert sorted(map(len, few.batches)) == [1, 1, 1]


def test_a_lost_batch_goes_elsewhere_and_then_here() -> None:
    """The executor gets it twice; then this host compiles it, and nothing else."""
    executor = Fated(["lost", "lost"])
    _, said, here = spread_over(executor, 1)
    assert (executor.batches, here.asked) == ([[0], [0]], [0])
    assert said == ["operators were compiled again, since a worker was lost: ConnectionError: the worker died"]
    once = Fated(["lost"])
    assert spread_over(once, 1)[2].asked == []


def test_a_worker_that_refuses_is_named_with_its_reason() -> None:
    """Who reads it learns which worker has to be brought up to date."""
    _, said, _ = spread_over(Fated(["refused"]), 1)
    assert said == ["process 7 on node9 compiles nothing: it has another fake"]


def test_an_executor_that_takes_nothing_leaves_all_to_this_host() -> None:
    """It is asked once, and the reason is said once."""
    executor = Fated(["closed"])
    _, said, here = spread_over(executor, 20)
    assert (executor.batches, sorted(here.asked)) == ([], list(range(20)))
    assert [text.partition(":")[0] for text in said] == ["the executor takes no tasks, so this host compiles"]


def test_closing_wakes_who_waits() -> None:
    """A build that is given up ends, though no answer ever comes."""
    server = SpreadServer(Fated(["silent"]), "m:C", "d", Here)  # type: ignore[arg-type]
    server.send(requests(1)[0])
    server.receive()  # that it has begun
    server.close()
    with pytest.raises(ServerEndedError):
        server.receive()


def test_executors_that_say_their_size_are_kept_busy() -> None:
    """Python's own and mpi4py's are known by their attributes; of others eight workers are supposed."""
    with ThreadPoolExecutor(3) as pool:
        assert max_in_flight(pool) == 3 * max_in_flight(Fated([])) // 2
    assert max_in_flight(Executor()) == 4 * max_in_flight(Fated([]))


# -- with real workers -------------------------------------------------------------------------------------------------


def build(config: Config, executor: Executor | None, count: int = 12, **options: Any) -> tuple[Any, Recorder]:
    """Build operators with the fake compiler; return the result and the events."""
    seen = Recorder()
    with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config, seen, executor=executor) as builder:
        return builder.build(needed(*(conv(tile, **options) for tile in range(count))), "net"), seen


def test_a_build_over_an_executor_has_the_objects_of_one_without(config: Config) -> None:
    """Byte for byte, each operator compiled once, and the observer is told of each."""
    with ThreadPoolExecutor(2) as pool:
        spread_out, seen = build(config, pool)
    alone, seen_alone = build(config, None)
    assert [entry.object for entry in spread_out.entries.values()] == [e.object for e in alone.entries.values()]
    kinds = sorted(type(event).__name__ for event in seen.events)
    assert kinds == sorted(type(event).__name__ for event in seen_alone.events)


def test_an_operator_that_fails_everywhere_is_this_hosts_error(config: Config) -> None:
    """The others are built, and the error is the one that a build without an executor ends with."""
    with ThreadPoolExecutor(1) as pool, pytest.raises(CompileError, match="this operator cannot be compiled"):
        build(config, pool, 1, fake="raise")


def request_of(builder: Builder, **changes: Any) -> dict[str, Any]:
    """Return a batch of one operator, changed."""
    key = builder.key(conv(1))
    request = {
        "id": 0, "desc": conv(1).components(), "symbol": key.symbol, "target": LEVEL.name,
        "sources": key.components["sources"], "timeout": 60.0, "debug": (),
        "known": [], "compiles": True,
    }  # fmt: skip
    digest = builder.identity().digest
    batch = {"compiler": FakeCompiler.import_string, "digest": digest, "requests": [request]}
    request |= {name: value for name, value in changes.items() if name in request}
    return batch | {name: value for name, value in changes.items() if name in batch}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"digest": "0" * 64}, "it has another fake, of release 1.0"),
        ({"sources": "0" * 64}, "it has other sources of opbuild"),
        ({"compiler": "no.such.module:Compiler"}, "ModuleNotFoundError"),
        ({"compiler": "support.fake_compiler:NoSuch"}, "AttributeError"),
        ({"desc": {}}, "Error"),
        ({"requests": 7}, "TypeError"),
    ],
)
def test_a_worker_refuses_what_it_would_compile_otherwise(config: Config, changes: dict[str, Any], why: str) -> None:
    """Another compiler, other sources, or a batch that it cannot read: it says so, and compiles nothing."""
    with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config) as builder:
        answer = compile_batch(request_of(builder, **changes))
    assert why in answer["refused"]
    assert "answers" not in answer


def test_a_worker_answers_with_digests(config: Config) -> None:
    """What is compiled comes with the SHA-256 of its bytes."""
    with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config) as builder:
        answer = compile_batch(request_of(builder))
    ((header, files, digest),) = answer["answers"]
    assert (header["kind"], digest) == ("done", sha256(files))


def test_refused_everywhere_a_build_is_this_hosts(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """With nothing but workers of another compiler the objects are the same, and the reason is told once."""
    monkeypatch.setattr("opbuild.builder.spread._digest", lambda state: "other")
    with ThreadPoolExecutor(1) as pool:
        spread_out, seen = build(config, pool, 3)
    assert spread_out.built == 3
    warned = [event.message for event in seen.of(Warned)]
    assert len(warned) == 1
    assert "has another fake" in warned[0]
