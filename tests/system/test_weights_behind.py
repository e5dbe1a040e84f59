"""Large weights are stored behind the return of ``compile``, by whoever comes first: a thread, a look-up, the end."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.events import Event, Warned
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.runtime import weights as packing
from opbuild.store.weights import StoredWeights
from support.forked import in_fork
from support.mapped import mapped_at
from support.processes import environment

WIDTH, LAYERS = 512, 6
WEIGHTS = [
    np.random.default_rng(layer).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 16 for layer in range(LAYERS)
]
X = np.linspace(-1, 1, 4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)


def model(rows: int | str = 4) -> onnx.ModelProto:
    """Products with six matrices of 1 MB."""
    names = ["x", *(f"y{layer}" for layer in range(LAYERS))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]], name=f"product{n}") for n in range(LAYERS)],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (rows, WIDTH))],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(WEIGHTS)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])


def check(net: opbuild.Network, x: Any = X) -> None:
    """Call it and compare."""
    expected = x
    for each in WEIGHTS:
        expected = expected @ each
    np.testing.assert_allclose(net(x), expected, rtol=1e-3, atol=1e-3)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the operators of the model, and its file ``model.onnx``; no network."""
    folder = tmp_path_factory.mktemp("built")
    onnx.save(model(), folder / "model.onnx")
    opbuild.compile(folder / "model.onnx", cache_path=folder / "cache")
    BACKGROUND_WRITER.finish()
    networks = folder / "cache/rank_0/network_meta"
    shutil.rmtree(networks / "weights")
    for path in networks.glob("model_*"):
        path.unlink()
    return folder


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A folder with the operators of the model."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    return tmp_path / "cache"


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Until it is set nothing is stored."""
    may, put = threading.Event(), StoredWeights.put
    monkeypatch.setattr(StoredWeights, "put", lambda *given: may.wait(60) and put(*given))
    yield may
    may.set()
    BACKGROUND_WRITER.finish()


def stored(cache: Path) -> tuple[int, int]:
    """Return how many weights and networks are there."""
    networks = cache / "rank_0" / "network_meta"
    return len([*networks.glob("weights/*.bin")]), len([*networks.glob("model_*.json")])


@pytest.mark.slow
def test_a_network_is_called_while_nothing_of_it_is_stored(built: Path, cache: Path, held: threading.Event) -> None:
    """Then its memory becomes that of the files, and the next start packs nothing."""
    net = opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True)
    check(net)
    assert stored(cache) == (0, 0)
    held.set()
    BACKGROUND_WRITER.finish()
    assert stored(cache) == (LAYERS, 1)
    (runner,) = net.runners
    places = {mapped_at(each) for each in runner.constants if each.nbytes == WIDTH * WIDTH * 4}
    assert places == {str(each) for each in (cache / "rank_0/network_meta/weights").glob("*.bin")}
    check(net)
    again = opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True)
    assert again.report.image
    check(again)


def test_a_copy_of_the_weights_stays_memory_of_the_process(built: Path, cache: Path) -> None:
    """``copy_weights``: nobody can cut it."""
    net = opbuild.compile(built / "model.onnx", cache_path=cache, copy_weights=True)
    BACKGROUND_WRITER.finish()
    assert stored(cache) == (LAYERS, 1)
    assert {mapped_at(each) for each in net.runners[0].constants if each.nbytes == WIDTH * WIDTH * 4} == {""}
    check(net)


def test_the_same_model_waits_for_what_this_process_is_storing(built: Path, cache: Path, held: threading.Event) -> None:
    """It starts as it is stored, as if that had been done before."""
    opbuild.compile(built / "model.onnx", cache_path=cache)
    threading.Timer(0.2, held.set).start()
    net = opbuild.compile(built / "model.onnx", cache_path=cache)
    assert net.report.image
    check(net)


@pytest.mark.slow
def test_a_network_that_is_dropped_is_stored_all_the_same(built: Path, cache: Path, held: threading.Event) -> None:
    """Nobody has it any more when it is written."""
    opbuild.compile(built / "model.onnx", cache_path=cache)
    gc.collect()
    held.set()
    BACKGROUND_WRITER.finish()
    check(opbuild.compile(built / "model.onnx", cache_path=cache))
    assert stored(cache) == (LAYERS, 1)


def test_a_storage_that_refuses_is_one_warning(built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A full disk: the network runs, in memory of its own, and nothing is left behind."""

    def full(path: Path, data: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("opbuild.store.items.write_new", full)
    told = list[Event]()
    net = opbuild.compile(built / "model.onnx", cache_path=cache, observer=told.append)
    BACKGROUND_WRITER.finish()
    warned = [str(each) for each in told if isinstance(each, Warned)]
    assert len(warned) == 1
    assert "built but not stored" in warned[0]
    assert "No space left" in warned[0]
    check(net)
    assert stored(cache) == (0, 0)


def test_what_goes_wrong_in_any_other_way_is_told(built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error that no storage raises stops nothing either."""

    def broken(*_: Any) -> None:
        raise MemoryError("no more")

    monkeypatch.setattr(StoredWeights, "put", broken)
    told = list[Event]()
    net = opbuild.compile(built / "model.onnx", cache_path=cache, observer=told.append)
    BACKGROUND_WRITER.finish()
    assert len([each for each in told if "MemoryError: no more" in str(each)]) == 1
    assert stored(cache) == (0, 0)
    check(net)


def test_a_folder_that_was_removed_does_not_come_back(
    built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a temporary one is while weights wait; the network goes on, and nobody is told."""
    monkeypatch.setattr(BACKGROUND_WRITER, "_has_thread", True)  # which never has its turn
    told = list[Event]()
    net = opbuild.compile(built / "model.onnx", cache_path=cache, observer=told.append)
    shutil.rmtree(cache)
    net.wait_until_stored()
    check(net)
    assert not cache.exists()
    assert not [each for each in told if isinstance(each, Warned)]


def test_who_waits_until_it_is_stored_can_end_the_process(built: Path, cache: Path) -> None:
    """``os._exit`` ends it without anything that a program does at its end."""
    assert ran(built, cache, f"{COMPILING}.wait_until_stored(); os._exit(0)") == 0
    assert stored(cache) == (LAYERS, 1)


@pytest.mark.parametrize("limit", ["most", "least"])
def test_what_is_too_much_or_too_little_is_stored_before_the_return(
    built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Memory that waits is bounded, and no thread is started for little."""
    if limit == "most":
        monkeypatch.setattr(packing, "MOST_WAITING", 0)
    else:
        monkeypatch.setattr(packing, "LEAST_WAITING", 2**40)
    monkeypatch.setattr(BACKGROUND_WRITER, "add", None)
    check(opbuild.compile(built / "model.onnx", cache_path=cache))
    assert stored(cache) == (LAYERS, 1)


def test_a_fork_finds_all_stored_and_stores_nothing(built: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It neither hangs nor writes what its parent has written."""
    net = opbuild.compile(built / "model.onnx", cache_path=cache)

    def child() -> list[int]:
        monkeypatch.setattr(StoredWeights, "put", None)
        check(net)
        check(opbuild.compile(built / "model.onnx", cache_path=cache))
        return list(stored(cache))

    assert in_fork(child) == [LAYERS, 1]


def test_threads_that_build_the_same_at_once_all_get_it(built: Path, cache: Path) -> None:
    """Each may pack; what is stored is one network, that starts."""
    with ThreadPoolExecutor(4) as pool:
        nets = [*pool.map(lambda _: opbuild.compile(built / "model.onnx", cache_path=cache), range(8))]
    for net in nets:
        check(net)
    BACKGROUND_WRITER.finish()
    assert stored(cache) == (LAYERS, 1)
    assert opbuild.compile(built / "model.onnx", cache_path=cache).report.image


def test_a_program_is_stored_behind_its_network(cache: Path) -> None:
    """Sizes that come in another process are bound to it: nothing is compiled or packed for them."""
    opbuild.warm([model("rows").SerializeToString()], shapes={"x": (4, WIDTH)}, cache_path=cache)
    net = opbuild.compile(
        model("rows").SerializeToString(), input_shapes={"x": (4, WIDTH)}, cache_path=cache, forbid_compile=True
    )
    for rows in (4, 7, 33):
        check(net, np.linspace(-1, 1, rows * WIDTH, dtype=np.float32).reshape(rows, WIDTH))
    assert stored(cache)[0] == LAYERS


SLOWLY = """
import os, signal, sys, threading, time
import opbuild
from opbuild.store.weights import StoredWeights
put, calls = StoredWeights.put, []
def slowly(*given):
    time.sleep(0.05)
    {then}
    return put(*given)
StoredWeights.put = slowly
def build():
    opbuild.compile(sys.argv[1], cache_path=sys.argv[2], forbid_compile=True)
if __name__ == "__main__":
    {main}
"""


def ran(built: Path, cache: Path, main: str = "build()", then: str = "", **variables: str) -> int:
    """Build in another process that ends at once; return how it ended."""
    program = cache.parent / "program.py"
    program.write_text(SLOWLY.format(main=main, then=then), encoding="utf-8")
    command = [sys.executable, program, built / "model.onnx", cache]
    return subprocess.run(command, env=environment(**variables), check=False, timeout=120).returncode


CHILD = "import multiprocessing as m; p = m.get_context({!r}).Process(target=build); p.start(); p.join()"
THREAD = "threading.Thread(target=lambda: (time.sleep(0.3), build())).start()"


COMPILING = "opbuild.compile(sys.argv[1], cache_path=sys.argv[2])"


@pytest.mark.slow
@pytest.mark.parametrize("main", ["build()", THREAD, CHILD.format("fork"), CHILD.format("spawn")])
def test_a_program_that_ends_at_once_has_stored_everything(built: Path, cache: Path, main: str) -> None:
    """As it ends, a thread of it that outlives the main one, and a child of it."""
    assert ran(built, cache, main) == 0
    assert stored(cache) == (LAYERS, 1)
    net = opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True)
    assert net.report.image
    check(net)


@pytest.mark.slow
def test_what_is_stored_at_the_end_is_signed_and_shared(
    built: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a signing key, and a remote store in mode ``write``, which has the network before the program has ended."""
    shared = {"OPBUILD_SIGNING_KEY": "k" * 32, "OPBUILD_REMOTE": f"file://{tmp_path}/shared"}
    assert ran(built, cache, then="", main=COMPILING, **shared, OPBUILD_REMOTE_MODE="write") == 0
    for name, value in shared.items():
        monkeypatch.setenv(name, value)
    for folder in (cache, tmp_path / "other"):
        net = opbuild.compile(built / "model.onnx", cache_path=folder, forbid_compile=True)
        assert net.report.image
        check(net)


@pytest.mark.slow
@pytest.mark.parametrize("after", range(1, LAYERS + 1))
def test_a_process_killed_while_it_stores_has_stored_less(built: Path, cache: Path, after: int) -> None:
    """The next start is right, compiles nothing, and stores what is missing."""
    kill = f"calls.append(0); len(calls) < {after} or os.kill(os.getpid(), 9)"
    assert ran(built, cache, then=kill) == -signal.SIGKILL
    assert stored(cache)[1] == 0
    net = opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True)
    check(net)
    BACKGROUND_WRITER.finish()
    assert stored(cache) == (LAYERS, 1)
    assert opbuild.compile(built / "model.onnx", cache_path=cache).report.image


def test_an_interrupted_end_stores_less(built: Path, cache: Path) -> None:
    """Ctrl-C while a program waits at its end: it ends, and the next start is right."""
    main = "build(); threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()"
    ran(built, cache, main, then="time.sleep(0.2)")
    check(opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True))
    BACKGROUND_WRITER.finish()
    assert stored(cache) == (LAYERS, 1)
