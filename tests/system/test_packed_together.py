"""Processes that start one network together pack and store each of its weights once; nobody waits for another."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.platform.background import BACKGROUND_WRITER
from support.processes import environment

WIDTH, LAYERS = 512, 16
NBYTES = WIDTH * WIDTH * 4
WEIGHTS = [
    np.random.default_rng(layer).standard_normal((WIDTH, WIDTH)).astype(np.float32) / 22 for layer in range(LAYERS)
]
X = np.linspace(-1, 1, 4 * WIDTH, dtype=np.float32).reshape(4, WIDTH)

STARTED = f"""
import errno, json, os, sys
import numpy as np
import opbuild
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.platform.files import shared_pages, writing
from opbuild.runtime import sharing, weights
from opbuild.store import claims, items
def say(**what):
    print(json.dumps(what), flush=True)
    return sys.stdin.readline()
def refuse(*_):
    raise OSError(errno.EROFS, os.strerror(errno.EROFS))
kept, find, put = [], weights.Packer.find, weights.Packer.put
def pack(self, array, reference):  # it has begun, and has not put it where anybody could find it
    kept.append(say(packs=len(kept)))
    return put(self, array, reference)
weights.Packer.put, weights.available_cores = pack, lambda: 1
sharing.LEAST_PATIENCE = float(sys.argv[5])
sharing.Sharing.packed = lambda *_: None  # how long it is waited is for the test to say
BACKGROUND_WRITER._begin = lambda: None  # what is left is stored when the test says so
if sys.argv[4] == "read-only":
    claims.open_meeting_file = writing.make_folder = writing.write_new = refuse
    items.make_folder = items.write_new = claims.make_folder = refuse
net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], forbid_compile=True)
np.save(sys.argv[3], net(np.linspace(-1, 1, {4 * WIDTH}, dtype=np.float32).reshape(4, {WIDTH})))
say(packed=len(kept))
net.wait_until_stored()
say(written=writing.written(), shared=open('/proc/self/maps').read().count(shared_pages.PREFIX))
"""


class Started:
    """A process that starts the network: it stops before each weight that it packed is kept, and goes on when told."""

    def __init__(self, built: Path, cache: Path, number: int, store: str, patience: float) -> None:
        self.results = cache.parent / f"{number}.npy"
        command = [sys.executable, "-c", STARTED, built / "model.onnx", cache, self.results, store, str(patience)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment()
        )
        self.said = self.listen()

    def listen(self) -> dict[str, int]:
        """Return where it is now."""
        assert self.process.stdout is not None
        said: dict[str, int] = json.loads(self.process.stdout.readline())
        return said

    def step(self) -> None:
        """Let it go on to the next weight, or to its end."""
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.said = self.listen()

    @property
    def packs(self) -> bool:
        """Whether it is still packing."""
        return "packs" in self.said

    def pack(self) -> int:
        """Let it pack alone until it has its answer; return how many weights it packed, and check the answer."""
        while self.packs:
            self.step()
        np.testing.assert_allclose(np.load(self.results), answer(), rtol=1e-3, atol=1e-3)
        return self.said["packed"]

    def written(self) -> int:
        """Let it store what is left; return the bytes that it has written. It has no page of another's then."""
        self.step()
        assert self.said["shared"] == 0
        return self.said["written"]


def answer() -> np.ndarray:
    """Return the network's answer to X."""
    expected = X
    for each in WEIGHTS:
        expected = expected @ each
    return expected


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with products with sixteen matrices of 1 MB, ``model.onnx``, and their kernels in ``cache``."""
    folder = tmp_path_factory.mktemp("built")
    names = ["x", *(f"y{layer}" for layer in range(LAYERS))]
    graph = helper.make_graph(
        [helper.make_node("MatMul", [names[n], f"w{n}"], [names[n + 1]], name=f"product{n}") for n in range(LAYERS)],
        "products",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, WIDTH))],
        [helper.make_tensor_value_info(names[-1], TensorProto.FLOAT, None)],
        [numpy_helper.from_array(each, f"w{n}") for n, each in enumerate(WEIGHTS)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), folder / "model.onnx")
    opbuild.compile(folder / "model.onnx", cache_path=folder / "cache")
    BACKGROUND_WRITER.finish()
    networks = folder / "cache/rank_0/network_meta"
    shutil.rmtree(networks / "weights")
    for path in networks.glob("model*"):
        path.unlink()
    return folder


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A store with the kernels alone."""
    shutil.copytree(built / "cache", tmp_path / "cache")
    return tmp_path / "cache"


@contextmanager
def started(
    built: Path, cache: Path, count: int, store: str = "", patience: float = 1e9
) -> Iterator[Sequence[Started]]:
    """Give so many processes, each of which has begun with a weight; end those that are left.

    Each waits for so many seconds for what another packs.
    """
    processes = [Started(built, cache, number, store, patience) for number in range(count)]
    try:
        yield processes
    finally:
        for each in processes:
            each.process.kill()
            each.process.communicate()


def in_turn(processes: Sequence[Started]) -> list[int]:
    """Let processes pack half of the weights, one each in turn, and the rest together; return how many each packed."""
    for _ in range(LAYERS // 2 // len(processes)):
        for each in processes:
            each.step()
    with ThreadPoolExecutor() as threads:
        return [*threads.map(Started.pack, processes)]


def is_stored(cache: Path, built: Path) -> bool:
    """Return whether each weight is there once and nobody packs any, and the next start finds the network."""
    networks = cache / "rank_0" / "network_meta"
    assert len([*networks.glob("weights/*.bin")]) == LAYERS
    assert not [*cache.glob(".opbuild_claims/weights_*")]
    return opbuild.compile(built / "model.onnx", cache_path=cache, forbid_compile=True).report.image


@pytest.mark.parametrize("count", [2, 3])
def test_processes_that_start_together_pack_and_write_each_weight_once(built: Path, cache: Path, count: int) -> None:
    """Also those that were packed before one met another, and those that are under way at the end."""
    with started(built, cache, count) as processes:
        packed = in_turn(processes)
        assert sum(packed) == LAYERS
        assert max(packed) < LAYERS
        written = sum(each.written() for each in processes)
        assert LAYERS * NBYTES < written < (LAYERS + 1) * NBYTES
    assert is_stored(cache, built)


def test_what_a_killed_process_packed_is_packed_by_the_other(built: Path, cache: Path) -> None:
    """It had begun with some and given some, which outlive it; all of them are right in the end, and stored."""
    with started(built, cache, 2) as (killed, other):
        for _ in range(LAYERS // 4):
            killed.step()
            other.step()
        killed.process.kill()
        killed.process.wait()
        assert other.pack() < LAYERS
        other.written()
    assert is_stored(cache, built)


def test_nobody_waits_long_for_a_stopped_process(built: Path, cache: Path) -> None:
    """What it gave is taken, what it had begun is packed; when it goes on it takes or finds what the other has."""
    with started(built, cache, 2, patience=0.1) as (stopped, other):
        for _ in range(2):
            stopped.step()
            other.step()
        stopped.process.send_signal(signal.SIGSTOP)
        assert LAYERS - 3 < other.pack() < LAYERS
        written = other.written()
        stopped.process.send_signal(signal.SIGCONT)
        assert stopped.pack() < 4
        assert written + stopped.written() < (LAYERS + 1) * NBYTES
    assert is_stored(cache, built)


def test_who_is_alone_stores_nothing_before_the_answer(built: Path, cache: Path) -> None:
    """Who comes when all is packed packs it, too, and writes nothing that the first has written meanwhile."""
    with started(built, cache, 1, patience=0.1) as (first,):
        assert first.pack() == LAYERS
        assert not [*cache.glob("rank_0/network_meta/weights/*.bin")]
        with started(built, cache, 1, patience=0.1) as (second,):
            for _ in range(3):
                second.step()
            written = first.written()
            assert second.pack() <= 4
            assert written + second.written() < (LAYERS + 1) * NBYTES
    assert is_stored(cache, built)


def test_without_a_store_each_packs_all(built: Path, cache: Path) -> None:
    """Where nothing can be written nobody can tell another, and both answer."""
    with started(built, cache, 2, "read-only") as processes:
        assert in_turn(processes) == [LAYERS, LAYERS]
        for each in processes:
            each.step()
    assert not [*cache.glob("rank_0/network_meta/weights/*")]
