"""Builds over a Dask cluster: the objects of a local build, each operator compiled once, also if a worker dies."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from opbuild.builder.build import Builder
from opbuild.builder.job import BuildResult
from opbuild.cli.executors import DaskExecutor, executor_named
from opbuild.config import Config
from opbuild.events import CompileFinished, CompileStarted, Event, Warned
from opbuild.kernel.interfaces import Compiler
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from support.crowded_compiler import CrowdedCompiler
from support.fuzzing import CAMPAIGN
from support.samples import LEVEL, Recorder, conv, needed

pytest.importorskip("distributed", reason="the extra [dask] is not installed")

TESTS = str(Path(__file__).resolve().parents[1])


@contextmanager
def cluster(workers: int) -> Iterator[Any]:
    """Start a scheduler and so many worker processes on this host, without a dashboard.

    Dask sets variables of its workers, as OMP_NUM_THREADS, here too and leaves them: other tests would inherit them.
    """
    from distributed import Client, LocalCluster

    place = {"PYTHONPATH": os.pathsep.join([TESTS, os.environ.get("PYTHONPATH", "")])}
    options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0", "env": place}
    with (
        mock.patch.dict(os.environ),
        LocalCluster(**options, silence_logs=50) as started,
        Client(started, set_as_default=False) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        yield client


@pytest.fixture(scope="module")
def two() -> Iterator[Any]:
    """A cluster of two workers."""
    with cluster(2) as client:
        yield client


def build(executor: Any, folder: Path, observer: Any, count: int = 24, **options: Any) -> BuildResult:
    """Build operators that note in a folder that they are compiled."""
    folder.mkdir(exist_ok=True)
    config = replace(Config.from_environment(), workers=2)
    with Builder(Operators(Memory()), CrowdedCompiler(), LEVEL, config, observer, executor=executor) as builder:
        wanted = needed(*(conv(tile, folder=str(folder), **options) for tile in range(count)))
        return builder.build(wanted, "net")


def compiled(folder: Path) -> int:
    """Return how many compiles the operators of ``build`` have noted."""
    return len((folder / "seen").read_text().split())


@pytest.mark.slow
def test_each_operator_is_compiled_once_by_the_workers(two: Any, tmp_path: Path) -> None:
    """Not one more than needed, none here, and the objects are those of a build without Dask."""
    seen = Recorder()
    spread = build(DaskExecutor(two), tmp_path / "ops", seen)
    assert compiled(tmp_path / "ops") == 24
    assert seen.of(Warned) == []
    alone = build(None, tmp_path / "ops", Recorder())
    assert [e.object for e in spread.entries.values()] == [e.object for e in alone.entries.values()]


@pytest.mark.slow
@pytest.mark.parametrize("workers", [2, 4] if CAMPAIGN else [3])
def test_a_worker_that_is_killed_in_the_middle_loses_only_what_it_had(workers: int, tmp_path: Path) -> None:
    """Its batches go to the others: the objects are the same, each operator is published once."""
    seen = Recorder()
    with cluster(workers) as client:
        pids = list(client.run(os.getpid).values())

        def kill(event: Event) -> None:
            seen(event)
            if len(seen.of(CompileFinished)) == 4 and pids:
                os.kill(pids.pop(), signal.SIGKILL)
                pids.clear()

        spread = build(DaskExecutor(client), tmp_path / "ops", kill, milliseconds=30)
    assert pids == []
    finished = [event.name for event in seen.of(CompileFinished)]
    assert len(finished) == len(set(finished)) == len(seen.of(CompileStarted)) == 24
    assert compiled(tmp_path / "ops") <= 24 + 16, "at most the two batches of the one that was killed twice"
    alone = build(None, tmp_path / "ops", Recorder(), milliseconds=30)
    assert [e.object for e in spread.entries.values()] == [e.object for e in alone.entries.values()]


def small() -> onnx.ModelProto:
    """Return a network of three kernels that differ."""
    graph = helper.make_graph(
        [
            helper.make_node("Exp", ["x"], ["a"]),
            helper.make_node("ReduceSum", ["a"], ["b"], keepdims=1),
            helper.make_node("Transpose", ["a"], ["c"], perm=[1, 0]),
            helper.make_node("Mul", ["c", "b"], ["y"]),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (24, 40))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


@pytest.mark.slow
def test_halides_objects_are_those_of_a_local_build(two: Any, tmp_path: Path) -> None:
    """Byte for byte, with the compiler that is used; all three files but for how long compiling took."""
    opbuild.compile(small(), cache_path=tmp_path / "spread", executor=DaskExecutor(two))
    opbuild.compile(small(), cache_path=tmp_path / "alone")
    folders = [tmp_path / name / "rank_0" / "kernel_meta" for name in ("spread", "alone")]
    names = [sorted(path.name for path in folder.glob("*.o")) for folder in folders]
    assert names[0] == names[1]
    assert len(names[0]) >= 3
    for name in names[0]:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()


def test_the_commands_name_opens_the_cluster(two: Any) -> None:
    """``--executor dask://host:port`` is this cluster, with as many workers as it has."""
    address = two.scheduler.address.removeprefix("tcp://")
    with executor_named(f"dask://{address}", 1) as executor:
        assert executor.num_workers == 2  # type: ignore[attr-defined]
        assert executor.submit(abs, -3).result(timeout=60) == 3


class Elsewhere(CrowdedCompiler):
    """The compiler of this host, which no worker has."""

    def version(self) -> str:
        """Return another release."""
        return "2.0"

    def files(self) -> tuple[Path, ...]:
        """Return another library."""
        return (Path(__file__),)


def test_workers_of_another_compiler_compile_nothing(two: Any, tmp_path: Path) -> None:
    """Each refuses, with its reason, and this host compiles all."""
    compiler: Compiler = Elsewhere()
    seen = Recorder()
    (tmp_path / "ops").mkdir()
    config = Config.from_environment()
    with Builder(Operators(Memory()), compiler, LEVEL, config, seen, executor=DaskExecutor(two)) as builder:
        result = builder.build(needed(conv(1, folder=str(tmp_path / "ops"))), "net")
    assert result.built == 1
    assert any("it has another fake, of release 1.0" in event.message for event in seen.of(Warned))
