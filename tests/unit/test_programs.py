"""A model with open extents at sizes that it was not built for: bound by numbers, improved behind, stored."""

from __future__ import annotations

import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import onnx
import onnx.parser
import pytest

import opbuild
from opbuild.builder.client import server_environment
from opbuild.errors import BuildError
from opbuild.events import CompileStarted, Event, Warned
from opbuild.graph.types import Array
from opbuild.pipeline import segmented
from opbuild.platform.background import Background
from opbuild.programs import Programs
from opbuild.report import Clock
from opbuild.runtime import dynamic
from opbuild.runtime.network import Network
from opbuild.runtime.symbolic import numbers_of
from support import segment_networks
from support.forked import in_fork
from support.open_rows import check, is_by_numbers, model, noted_programs
from support.segment_networks import HEAD
from support.segments_runner import Tiers
from support.together import run_together
from support.until import until


@pytest.fixture
def made() -> Iterator[list[Programs]]:
    """What binds the sizes of the networks that a test compiles."""
    with noted_programs() as found:
        yield found


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store in which the network was built for 20 rows, and prepared for other sizes."""
    folder = tmp_path_factory.mktemp("store")
    check(opbuild.compile(model(), cache_path=folder, workers=2), 20)
    return folder


@pytest.mark.slow
def test_a_store_serves_new_sizes_where_nothing_can_be_compiled(store: Path) -> None:
    """The program and its kernels are stored: sizes that no process met need neither compiler nor model."""
    events: list[Event] = []
    network = opbuild.compile(model(), cache_path=store, forbid_compile=True, observer=events.append)
    for rows in (33, 20, 5, 100, 33, 12):
        check(network, rows)
    assert is_by_numbers(network, 33)
    assert not [event for event in events if isinstance(event, CompileStarted)]
    assert network.report.built == 0
    assert network.report.image


def test_without_its_program_the_kernels_of_any_size_serve_where_nothing_can_be_compiled(
    store: Path, tmp_path: Path
) -> None:
    """As those of a pack: the program is made of them, once, and further sizes are bound by numbers."""
    cache = shutil.copytree(store, tmp_path / "cache")
    for folder in cache.rglob("network_meta"):
        shutil.rmtree(folder)
    network = opbuild.compile(model(), cache_path=cache, forbid_compile=True)
    for rows in (33, 5, 100):
        check(network, rows)
    assert is_by_numbers(network, 5)
    assert (network.report.built, dict(network.report.host)) == (0, {})


@pytest.mark.slow
def test_a_size_that_is_asked_for_again_gets_the_kernels_that_suit_it(store: Path, made: list[Programs]) -> None:
    """The second call has the network built behind it; the binding is exchanged, and gives the same."""
    network = opbuild.compile(model(), cache_path=store, workers=2)
    check(network, 20)
    check(network, 3)
    replaced = [each.reason for each in network.report.operators if "in place of" in each.reason]
    assert is_by_numbers(network, 3)
    assert replaced
    check(network, 3)
    assert until(lambda: network._improver is None)
    check(network, 3)


@pytest.mark.slow
def test_after_the_first_size_of_a_cold_store_no_other_is_built(tmp_path: Path, made: list[Programs]) -> None:
    """What any size needs is built with the first one: also before anything behind that call is done."""
    network = opbuild.compile(model(), cache_path=tmp_path, workers=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Background, "start", lambda _: None)  # nothing is done behind calls
        check(network, 20)
        for rows in (33, 16, 100, 17):
            check(network, rows)
            assert is_by_numbers(network, rows), rows
            assert network.report.built == 0
    symbolic = made[0]._opened[0].record.symbolic
    assert symbolic is not None
    assert symbolic.variables


@pytest.mark.slow
def test_a_process_that_finds_a_program_reads_no_model(store: Path) -> None:
    """Neither its calls nor what is behind them load onnx or a compiler; new sizes are bound all the same."""
    code = (
        "import sys, numpy as np, opbuild\n"
        "net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2])\n"
        "for rows in (20, 33, 7):\n"
        "    net(np.ones((rows, 24), np.float32))\n"
        "    assert net.report.built == 0\n"
        "import threading\n"
        "for thread in threading.enumerate():\n"
        "    thread.name == 'opbuild-further' and thread.join(60)\n"
        "print([name for name in ('onnx', 'halide') if name in sys.modules])\n"
    )
    path = store / "model.onnx"
    path.write_bytes(model().SerializeToString(deterministic=True))
    command = [sys.executable, "-c", code, str(path), str(store)]
    ended = subprocess.run(command, capture_output=True, env=server_environment(), check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"[]\n", b"")


def test_a_process_loads_a_stored_program_when_a_size_needs_it(tmp_path: Path, made: list[Programs]) -> None:
    """Each takes as long to load as a network: a first call does not wait for those of sizes that may never come."""
    none = np.zeros((0, 24), np.float32)
    first = opbuild.compile(model(), cache_path=tmp_path, workers=2)
    check(first, 20)
    first(none)
    first.wait_until_stored()
    assert len(made[0]._opened) == 2
    for _ in range(2):
        network = opbuild.compile(model(), cache_path=tmp_path, forbid_compile=True)
        check(network, 20)
    assert [len(each._opened) for each in made[1:]] == [1, 1]
    network(none)
    made[1]._load_all()
    assert [len(each._opened) for each in made[1:]] == [2, 2]


def test_what_fails_behind_a_call_is_a_warning(
    store: Path, made: list[Programs], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody who calls gets an error of what was to be better; the size is served as before."""
    events: list[Event] = []
    network = opbuild.compile(model(), cache_path=store, observer=events.append)
    check(network, 20)

    def fail(*_: Any, **__: Any) -> Any:
        raise BuildError("no room")

    monkeypatch.setattr(made[0], "_lower", fail)
    for _ in range(3):
        check(network, 4)
    assert until(lambda: network._improver is None)
    assert [event for event in events if isinstance(event, Warned) and "no room" in event.message]
    assert is_by_numbers(network, 4)


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_sizes_that_decide_something_are_right(store: Path, rows: int, made: list[Programs]) -> None:
    """No rows, or one, are other programs: what was decided otherwise is not used for them."""
    network = opbuild.compile(model(), cache_path=store, workers=2)
    check(network, 20)
    if rows:
        check(network, rows)
    else:
        assert network(np.zeros((0, 24), np.float32)).shape == (0, 8)


def test_a_damaged_program_is_not_used(store: Path, tmp_path: Path) -> None:
    """What is not what was written is a miss: the size is built."""
    folder = tmp_path / "store"
    shutil.copytree(store, folder)
    for path in folder.rglob("*.json"):
        text = path.read_bytes()
        if b'"symbolic"' in text:
            path.write_bytes(text.replace(b'"zero"', b'"zerO"'))
    check(opbuild.compile(model(), cache_path=folder, workers=2), 50)


def test_a_process_ends_while_kernels_are_built_behind_it(tmp_path: Path) -> None:
    """Nothing keeps it from its end, and nothing is said."""
    path = tmp_path / "model.onnx"
    onnx.save(model(), path)
    code = (
        "import sys, numpy as np, opbuild\n"
        "net = opbuild.compile(sys.argv[1], cache_path=sys.argv[2], workers=1)\n"
        "net(np.ones((20, 24), np.float32))\n"
    )
    command = [sys.executable, "-c", code, str(path), str(tmp_path / "store")]
    ended = subprocess.run(command, capture_output=True, env=server_environment(), check=False, timeout=60)
    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")


def test_arrays_of_sizes_are_checked_before_anything_runs(store: Path, made: list[Programs]) -> None:
    """Views that would leave their buffers, were the numbers wrong, are refused: the size is built instead."""
    network = opbuild.compile(model(), cache_path=store, workers=2)
    check(network, 27)  # 20 may be stored as it is
    opened = made[0]._opened[0]
    numbers = numbers_of(opened.record, ((24, 24),))
    assert numbers is not None
    wrong: Array = numbers.copy()
    wrong[opened.record.buffers.size] -= 1
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dynamic, "numbers_of", lambda *_: wrong)
        assert opened.bind(((24, 24),), made[0]._kernels) is None
        patch.setattr(dynamic, "numbers_of", lambda *_: numbers)
        assert opened.bind(((24, 24),), made[0]._kernels) is not None


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_the_child_of_a_fork_waits_for_no_thread_of_its_parent(store: Path, made: list[Programs]) -> None:
    """Locks that threads of the parent have are open in the child."""
    network = opbuild.compile(model(), cache_path=store, workers=2)
    check(network, 20)
    with ThreadPoolExecutor(1) as other:
        for lock in (made[0]._making, made[0]._lock, made[0]._adding, network._lock):
            other.submit(lock.acquire).result()
        in_fork(lambda: check(network, 2))


def test_two_programs_that_are_made_at_once_are_both_kept() -> None:
    """One by a call at a new size, the other behind another call: each has its own place, here and in the store."""
    kept: list[int] = []
    network = SimpleNamespace(record=None, constants=SimpleNamespace(arrays=()), followed_by=lambda _: network)
    network.built = SimpleNamespace(symbols={}, code=b"", operators={})
    networks = SimpleNamespace(dynamic_key=lambda _, number: number)

    def keep(number: int, *_: Any) -> None:
        time.sleep(0.01)
        kept.append(number)

    session = SimpleNamespace(
        stores=SimpleNamespace(packer=lambda _: None, networks=networks), build=lambda *_: [network], keep=keep
    )
    programs = Programs(cast("Any", session), cast("Any", SimpleNamespace(forget=lambda: None)), is_open=True)
    programs._dynamic = lambda *_: SimpleNamespace(is_for_sizes_of=lambda _: False, bind=lambda *_: 1)  # type: ignore[method-assign,assignment,return-value]
    programs._kernels = programs._modules = programs._add = lambda *_: None  # type: ignore[method-assign,assignment]
    lowered: Any = SimpleNamespace(graphs=[SimpleNamespace(follows=None)])

    def add(_: int) -> None:
        programs._add_program(cast("Any", session), cast("Any", None), lowered, (), Clock())

    assert run_together(add, 3) == []
    assert (sorted(kept), len(programs._opened)) == ([0, 1, 2], 3)


def test_a_report_is_of_the_binding_that_was_asked_for() -> None:
    """Another thread may ask for one of another binding meanwhile."""
    decision = SimpleNamespace(calls="own", replaced=frozenset())
    reported = iter([(("own", frozenset()), ("of own",)), (("other", frozenset()), ("of other",))])

    class Changing(Programs):
        @property
        def _reported(self) -> Any:
            return next(reported)

        @_reported.setter
        def _reported(self, _: Any) -> None:
            pass

    programs = Changing(cast("Any", None), cast("Any", SimpleNamespace()), is_open=True)
    assert programs._operators(cast("Any", None), cast("Any", decision), {}) == ("of own",)


POSITIVES = """g (float[n] x) => (float[m] y) <float zero = {0}> {
    t = Add(x, x)  p = Greater(t, zero)  f = Compress <axis = 0> (t, p)  y = Relu(f)
}"""


def check_positives(network: Network, size: int) -> None:
    """Call a network of that model, and compare."""
    x = np.random.default_rng(size).integers(-4, 5, size).astype(np.float32)
    np.testing.assert_array_equal(network(x), 2 * x[x > 0])


def test_calls_wait_for_no_segment_that_was_made_behind_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments are bound anew with kernels of their own, those of other sizes of one rank too, and exchanged."""
    go_on = threading.Event()
    tiers = Tiers(monkeypatch, make=lambda: go_on.wait(60))
    network = tiers.network(onnx.parser.parse_model(HEAD + POSITIVES))
    for size in (7, 9, 7):
        check_positives(network, size)
    assert network.report.pending
    waited = [*tiers.waited]
    go_on.set()
    for size in (7, 9, 7, 9):
        assert until(lambda: network._improver is None)
        check_positives(network, size)
    assert (tiers.waited, tiers.told, network.report.pending) == (waited, [], 0)
    assert not any(each.better for each in network._bindings.values())
    check_positives(network, 11)  # of another number of positive ones, too: by numbers
    assert network.report.pending == 0


def test_a_segment_that_is_met_while_others_are_made_is_made_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call that met it is repeated with those before it."""
    begun, go_on = threading.Event(), threading.Event()
    tiers = Tiers(monkeypatch, make=lambda: (begun.set(), go_on.wait(60)))
    network, x = tiers.network(segment_networks.network("branches")), np.ones((3, 4), np.float32)
    calls = [network(x, np.float32(-9)), network(x, np.float32(-9))]
    assert begun.wait(60)
    calls.append(network(x, np.float32(9)))
    waited = [*tiers.waited]
    go_on.set()
    assert until(lambda: network._improver is None)
    again = [network(x, np.float32(t)) for t in (-9, -9, 9)]
    assert (tiers.waited, tiers.told, network.report.pending) == (waited, [], 0)
    for one, other in zip(calls, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_segments_whose_kernels_cannot_be_made_keep_what_they_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """That is told, and the calls go on."""

    def fail() -> None:
        raise BuildError("the compiler was killed")

    tiers = Tiers(monkeypatch, make=fail)
    network = tiers.network(onnx.parser.parse_model(HEAD + POSITIVES))
    for _ in range(4):
        check_positives(network, 7)
        assert until(lambda: network._improver is None)
    assert network.report.pending
    assert ["keeps its first kernels" in each for each in tiers.told] == [True]


def test_the_calls_that_are_repeated_have_the_values_that_they_had(monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller may write to his arrays at once; of large ones the latest alone are kept."""
    monkeypatch.setattr(segmented, "MOST_BYTES", 64)
    segments = segmented.Segments(*cast("tuple[Any, Any, Any]", (None, None, None)))
    x = np.zeros(12, np.float32)
    for number in range(3):
        x[...] = number
        segments.repeat_later((x.shape,), [x, [x]])
    x[...] = 9
    ((shapes, (first, (second,))),) = segments.calls_to_repeat()
    assert shapes == ((12,),)
    assert {*first, *second} == {2}
    assert not [*segments.calls_to_repeat()]
