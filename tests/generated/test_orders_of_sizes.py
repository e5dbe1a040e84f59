"""What happens to a network of any size in any order: sizes asked for, what is built behind them, failures, processes.

``OPBUILD_FUZZ=200`` tries so many orders.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

import opbuild
from opbuild.builder.client import server_environment
from opbuild.errors import BuildError, CompileForbiddenError
from opbuild.events import Event, Warned
from opbuild.pipeline import symbolic_lowering
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.programs import Programs
from opbuild.runtime.dynamic import DynamicNetwork
from opbuild.runtime.stored_network import StoredNetworks
from support.fuzzing import CAMPAIGN, SEED
from support.open_rows import check, is_by_numbers, model
from support.tiers import few
from support.until import until

ORDERS, EXITS = CAMPAIGN or 4, CAMPAIGN // 10 or 2
EVENTS = 20
VECTOR = 16
SIZES = (0, 1, 2, 3, 5, 8, 11, 15, 16, 17, 20, 33, 64, 100)

PLACES: dict[str, tuple[Any, str]] = {
    "lowering": (symbolic_lowering.SymbolicShapes, "lower"),
    "checking": (DynamicNetwork, "__init__"),
    "storing": (StoredNetworks, "save"),
    "improving": (Programs, "_add_suiting"),
}
"""Where something may fail, and what does."""

ERRORS: tuple[Callable[[str], Exception], ...] = (BuildError, ValueError, MemoryError, OSError)

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has most kernels of the network, for other stores to begin with."""
    folder = tmp_path_factory.mktemp("kernels")
    check(opbuild.compile(model(), cache_path=folder, workers=2), 20)
    return folder


class Order:
    """One order of events, on one store.

    Args:
        seed: Decides it.
        store: A folder; what its processes leave is found by the next ones.
    """

    def __init__(self, seed: int, store: Path) -> None:
        self._chance = random.Random(seed)
        self._store = store
        self.told: list[Event] = []
        self.failed: list[tuple[str, Exception]] = []
        self.found: Counter[str] = Counter()
        self._begin()

    def run(self) -> None:
        """Let everything happen, and wait for what goes on behind."""
        for _ in range(EVENTS):
            happens = self._chance.choice([*["ask"] * 9, "wait", "fail", "process", "forbid"])
            getattr(self, f"_{happens}")()
        self._wait()

    def _begin(self, *, forbid: bool = False) -> None:
        self._forbids, self._asked = forbid, list[int]()
        self._network = opbuild.compile(
            model(), cache_path=self._store, workers=2, forbid_compile=forbid, observer=self.told.append
        )

    def _ask(self) -> None:
        again = self._asked and self._chance.random() < 0.4
        rows = self._chance.choice(self._asked if again else SIZES)
        try:
            check(self._network, rows)
        except CompileForbiddenError:
            assert self._forbids
            self.found["forbidden"] += 1
            return
        is_new = bool(self._asked) and rows not in self._asked
        self._asked.append(rows)
        if is_new and min(rows, self._asked[0]) >= VECTOR and not self.failed:  # one program is for all of these
            assert is_by_numbers(self._network, rows), rows
            self.found["at once"] += 1

    def _wait(self) -> None:
        assert until(lambda: self._network._improver is None)
        BACKGROUND_WRITER.finish()

    def _process(self) -> None:
        self._wait()
        self._begin()

    def _forbid(self) -> None:
        self._wait()
        self._begin(forbid=True)

    def _fail(self) -> None:
        """Let the next thing of a kind fail once."""
        place, error = self._chance.choice(sorted(PLACES)), self._chance.choice(ERRORS)("injected")
        owner, name = PLACES[place]
        whole = getattr(owner, name)

        def fail(*_: Any, **__: Any) -> Any:
            setattr(owner, name, whole)
            self.failed.append((place, error))
            raise error

        setattr(owner, name, fail)


@pytest.mark.slow
@pytest.mark.parametrize("seed", few(range(SEED, SEED + ORDERS), 4))
def test_in_any_order_calls_are_right_and_no_failure_is_lost(
    seed: int, kernels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each call gives what it must, whatever fails behind it; what fails there is told, and no thread dies of it."""
    if seed % 2:
        shutil.copytree(kernels, tmp_path / "store", ignore=shutil.ignore_patterns("network_meta"))
    died: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    for owner, name in PLACES.values():
        monkeypatch.setattr(owner, name, getattr(owner, name))  # put back at the end, whatever is left to fail
    order = Order(seed, tmp_path / "store")
    order.run()
    if CAMPAIGN:
        print(dict(order.found), order.failed)
    assert not died
    told = [event.message for event in order.told if isinstance(event, Warned)]
    for place, error in order.failed:
        if not isinstance(error, ValueError) or place in ("storing", "improving"):
            assert any("injected" in message for message in told), (place, error, told)


@pytest.mark.parametrize("seed", range(SEED, SEED + EXITS))
def test_a_process_may_end_at_any_time(seed: int, tmp_path: Path) -> None:
    """Whatever is built behind its calls: it ends with what its program says, says nothing, and leaves no process."""
    chance = random.Random(seed)
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    calls = "".join(
        f"net(np.ones(({chance.choice(SIZES[2:])}, 24), np.float32))\n" for _ in range(chance.randint(1, 4))
    )
    code = (
        "import sys, time, numpy as np, opbuild\n"
        "net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], workers=2)\n"
        f"{calls}{calls}time.sleep({chance.random() / 2})\n"
        f"{'sys.exit(3)' if chance.random() < 0.5 else 'raise SystemExit(3)'}\n"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "store")]
    ended = subprocess.run(command, capture_output=True, env=server_environment(), check=False, timeout=120)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, b"", b"")


def test_better_kernels_for_more_sizes_are_no_more_programs(tmp_path: Path) -> None:
    """A program that is for the same sizes takes the place of the one before, with the kernels of both."""
    for built in (True, False):
        network = opbuild.compile(model(), cache_path=tmp_path, workers=2)
        for rows in (*SIZES, 200, 500) * 2:
            check(network, rows)
            assert until(lambda: network._improver is None)  # noqa: B023  it is called at once
        assert bool(network.built) is built
        assert len([*tmp_path.rglob("rows_*.so")]) <= 2  # nothing is computed of no rows
