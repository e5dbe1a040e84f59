"""Random programs of several threads, behind locks that lag: the answers are right, no thread dies or waits for ever.

``OPBUILD_FUZZ=2000`` tries so many programs of each kind. A seed decides what each thread does and how often it lags,
not who goes first.
"""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import random
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from generated.random_segments import RandomSegments
from generated.test_random_segments import compare, expected
from opbuild import onnxruntime
from opbuild.builder import build, client
from opbuild.builder.build import Builder
from opbuild.builder.client import IdleServer
from opbuild.config import Config
from opbuild.events import Event, Warned
from opbuild.graph.types import TensorType
from opbuild.kernel.interfaces import Holder
from opbuild.kernel.opdesc import OpDesc
from opbuild.onnxruntime.status import Fail
from opbuild.pipeline.remote import Remote, service_at
from opbuild.platform.background import BACKGROUND_WRITER
from opbuild.platform.digest import sha256
from opbuild.platform.files.trust import PRIVATE
from opbuild.report import Report
from opbuild.runtime import network, weights
from opbuild.runtime.binding import Binding
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.executor import Executor
from opbuild.runtime.network import Network
from opbuild.store import ageing
from opbuild.store.claims import Flights, FolderClaims, sweep_claims
from opbuild.store.operators import operators_in
from opbuild.store.peers import claims_folder
from opbuild.store.remote.leases import FleetClaims
from opbuild.store.remote.operators import SingleFlight
from opbuild.store.tiers import TieredStore
from support.fake_compiler import FakeCompiler
from support.forked import forked
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.handmade import build as build_chain
from support.handmade import chain, expected_chain
from support.instant_server import InstantServer
from support.lagging import lagging_locks, random_lag
from support.open_rows import check, model
from support.preloaded import Preloaded
from support.samples import LEVEL, conv, needed
from support.segments_runner import Tiers
from support.until import until

PROGRAMS = CAMPAIGN or 4
STEPS = 8
SIZES = (0, 1, 2, 3, 5, 8, 16, 17, 33, 64, 100)
HANGS_AFTER = 40.0
"""Seconds after which the stacks of all threads are shown."""

RESTING = ("opbuild-idle", "opbuild-digest", "opbuild-hub", "opbuild-ranks")
"""Threads that wait for nothing that a program does."""

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def positives() -> onnx.ModelProto:
    """``2 * x[x > 0]`` of any number of values: what follows the graph break has as many as there are."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["twice"]),
        helper.make_node("Greater", ["x", "zero"], ["is_positive"]),
        helper.make_node("Compress", ["twice", "is_positive"], ["found"], axis=0),
        helper.make_node("Relu", ["found"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "positives",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["m"])],
        [helper.make_tensor("zero", TensorProto.FLOAT, [], [0.0])],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def check_positives(network: Any, size: int) -> None:
    """Call a network of that model and compare."""
    x = np.random.default_rng(size).uniform(-1, 1, size).astype(np.float32)
    np.testing.assert_allclose(network(x), 2 * x[x > 0], rtol=1e-6)


@pytest.fixture(scope="module")
def kernels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the kernels of both models, and the models."""
    folder = tmp_path_factory.mktemp("kernels")
    onnx.save(model(), folder / "rows.onnx")
    for rows in SIZES:
        check(opbuild.compile(model(), cache_path=folder / "store", workers=2, wait=True), rows)
        check_positives(opbuild.compile(positives(), cache_path=folder / "store", workers=2, wait=True), rows)
    return folder


class Heard:
    """What went wrong where nobody waits for it: in threads, in destructors, and in warnings of errors of Python's."""

    def __init__(self) -> None:
        self.faults: list[str] = []

    def __call__(self, event: Event) -> None:
        """Take note of a warning; what the cache folder lacks somebody has removed."""
        if isinstance(event, Warned) and any(f"{kind.__name__}: " in event.message for kind in FOREIGN):
            self.faults.append(event.message)

    def note(self, failure: Any) -> None:
        """Take note of what ended a thread, or could not be raised."""
        self.faults.append(f"{failure.exc_type.__name__}: {failure.exc_value} at {_places(failure.exc_traceback)}")


FOREIGN = (AssertionError, AttributeError, IndexError, KeyError, RuntimeError, TypeError, ValueError)
"""Errors of Python's that are faults of opbuild where it warns of them."""


def _places(trace: Any) -> list[str]:
    places = []
    while trace is not None:
        places.append(f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}")
        trace = trace.tb_next
    return places


@contextlib.contextmanager
def watched(seed: int) -> Iterator[Heard]:
    """Let locks lag, hear what goes wrong, and show all stacks where nothing goes on."""
    heard = Heard()
    with pytest.MonkeyPatch.context() as patch, lagging_locks(random_lag(seed)):
        patch.setattr(threading, "excepthook", heard.note)
        patch.setattr(sys, "unraisablehook", heard.note)
        faulthandler.dump_traceback_later(HANGS_AFTER, file=sys.__stderr__)
        try:
            yield heard
            gc.collect()
        finally:
            faulthandler.cancel_dump_traceback_later()
    assert not heard.faults, heard.faults


def run_threads(works: list[Callable[[], object]]) -> None:
    """Do several things at once, each in a thread.

    Raises:
        BaseException: What the first one raised.
    """
    raised: list[BaseException] = []

    def run(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            raised.append(error)

    threads = [threading.Thread(target=run, args=(work,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]


class Shared:
    """What the threads of a program share: networks and a session on one store.

    Args:
        chance: Decides where its things come from.
        folder: Where its files are.
        heard: Told of what happens behind calls.
    """

    def __init__(self, chance: random.Random, folder: Path, heard: Heard) -> None:
        self._folder, self._heard = folder, heard
        self._store = folder / "store"
        self._remote = f"file://{folder}/remote" if chance.random() < 0.4 else None
        self._may_clear = chance.random() < 0.3
        self._segmented = self._compiled(positives())
        self._opened()
        self._again(chance)

    def run(self, seed: float) -> None:
        """Take random steps."""
        chance = random.Random(seed)
        steps = ["call"] * 5 + ["segments"] * 3 + ["asked"] * 3 + ["again", "look", "profile", "opened", "stopped"]
        steps += ["stored", "forked", "gone"] + ["cleared"] * self._may_clear
        for _ in range(STEPS):
            step = getattr(self, f"_{chance.choice(steps)}")
            step(chance)

    def check(self) -> None:
        """Call all at all sizes, and wait for what goes on behind."""
        for rows in SIZES:
            check(self._network, rows)
            check_positives(self._segmented, rows)
        assert until(lambda: not [name for name in _names_of_threads() if name not in RESTING]), _names_of_threads()
        BACKGROUND_WRITER.finish()

    def _compiled(self, of: Any) -> Any:
        return opbuild.compile(of, cache_path=self._store, workers=2, remote=self._remote, observer=self._heard)

    def _again(self, chance: random.Random) -> None:
        """Compile the model again, and let go of the network before."""
        self._network = self._compiled(chance.choice((model(), str(self._folder / "rows.onnx"))))

    def _opened(self, chance: random.Random | None = None) -> None:
        """Open another session, and let go of the one before."""
        options = onnxruntime.SessionOptions()
        options.enable_profiling, options.profile_file_prefix = True, str(self._folder / "profile")
        self._session = onnxruntime.InferenceSession(str(self._folder / "rows.onnx"), options)

    def _call(self, chance: random.Random) -> None:
        network = self._network
        for rows in chance.choices(SIZES, k=3):
            check(network, rows)

    def _segments(self, chance: random.Random) -> None:
        if chance.random() < 0.2:
            self._segmented = self._compiled(positives())
        network = self._segmented
        for size in chance.choices(SIZES, k=3):
            check_positives(network, size)
        assert network.report.network == "positives"

    def _asked(self, chance: random.Random) -> None:
        """Run, and run behind; end the profile meanwhile."""
        session, done = self._session, threading.Event()
        check(lambda x: session.run(None, {"x": x})[0], chance.choice(SIZES))
        told: list[Any] = []
        x = np.ones((chance.choice(SIZES), 24), np.float32)
        session.run_async(None, {"x": x}, lambda *said: (told.extend(said), done.set()), None)
        if chance.random() < 0.3:
            session.end_profiling()
        assert done.wait(HANGS_AFTER)
        assert told[2] == ""
        assert told[0][0].shape == (len(x), 8)

    def _stopped(self, chance: random.Random) -> None:
        """Stop calls that are under way."""
        options, session = onnxruntime.RunOptions(), self._session
        stopping = threading.Timer(chance.random() * 1e-3, setattr, (options, "terminate", True))
        stopping.start()
        with contextlib.suppress(Fail):
            for rows in chance.choices(SIZES, k=5):
                check(lambda x: session.run(None, {"x": x}, options)[0], rows)
        stopping.join()

    def _look(self, chance: random.Random) -> None:
        """Read what there is to read of a network and of the process."""
        network = self._network
        assert str(network.report)
        assert min(network.report.built, network.built) >= 0
        assert repr(network)
        assert len(network.runners) <= 1
        assert len(network.bound_outputs) <= 1
        assert opbuild.metrics()["warnings"] >= 0

    def _profile(self, chance: random.Random) -> None:
        assert self._network.profile([np.ones((chance.choice(SIZES[1:]), 24), np.float32)], runs=1)

    def _stored(self, chance: random.Random) -> None:
        self._network.wait_until_stored()

    def _forked(self, chance: random.Random) -> None:
        """Call in a fork, which has none of the other threads."""
        network, rows = self._network, chance.choice(SIZES)
        in_child(lambda: (check(network, rows), check(self._compiled(model()), rows)))

    def _gone(self, chance: random.Random) -> None:
        """Let go of what only cycles keep."""
        gc.collect()

    def _cleared(self, chance: random.Random) -> None:
        """Remove the networks that were stored, as somebody may at any time."""
        shutil.rmtree(Config(cache_path=self._store).network_meta, ignore_errors=True)


def in_child(work: Callable[[], object]) -> None:
    """Do something in a fork; where nothing goes on there its stack is shown, and it ends."""
    assert forked(lambda _: work(), HANGS_AFTER / 2)[0] == 0


def _names_of_threads() -> list[str]:
    """Return the names of opbuild's threads; those of other packages, such as tqdm's, stay."""
    return [each.name for each in threading.enumerate() if each.name.startswith("opbuild-")]


@pytest.mark.usefixtures("with_pack")
def test_networks_that_threads_share_are_right(kernels: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are called, made, dropped, looked at, stopped and forked while kernels come and weights are stored."""
    monkeypatch.setattr(weights, "SMALL", 256)
    monkeypatch.setattr(weights, "LEAST_WAITING", 1)
    monkeypatch.setenv("OPBUILD_REMOTE_MODE", "write")

    def check_program(seed: int) -> None:
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, watched(seed) as heard:
            folder = Path(name)
            left_out = shutil.ignore_patterns("network_meta" if chance.random() < 0.7 else "nothing")
            shutil.copytree(kernels, folder, ignore=left_out, dirs_exist_ok=True)
            monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(folder / "store"))
            shared = Shared(chance, folder, heard)
            run_threads([partial(shared.run, chance.random()) for _ in range(chance.randint(2, 4))])
            shared.check()

    check_seeds("threads over networks", check_program, PROGRAMS)


OPERATORS = [conv(number) for number in range(10)]


class Hosts:
    """What the threads of two hosts share: each host's store, and a remote one.

    Args:
        chance: Decides how they are set up.
        folder: Where all of it lies.
        heard: Told of what happens.
    """

    def __init__(self, chance: random.Random, folder: Path, heard: Heard) -> None:
        self._heard = heard
        self._url = f"file://{folder}/remote"
        self._configs = [Config(cache_path=folder / name, workers=2) for name in ("one", "other")]
        self._holders: dict[str, int] = {}

    def run(self, seed: float) -> None:
        """Take random steps on one of the hosts."""
        chance = random.Random(seed)
        config = chance.choice(self._configs)
        steps = ["built"] * 6 + ["sent", "removed", "swept", "cleared", "claimed", "forked"]
        for _ in range(STEPS):
            step = getattr(self, f"_{chance.choice(steps)}")
            step(chance, config)

    def check(self) -> None:
        """Build all on each host; nothing is left of who built what."""
        for config in self._configs:
            self._build(config, OPERATORS)
            assert self._remote().wait_for_uploads() is None
        assert until(lambda: not [name for name in _names_of_threads() if name not in RESTING]), _names_of_threads()
        for config in self._configs:
            sweep_claims(claims_folder(config))
            assert not claims_folder(config).exists()

    def _remote(self) -> Remote:
        return Remote(service_at(self._url), PRIVATE, self._heard.faults.append, writes=True)

    def _build(self, config: Config, descs: list[OpDesc]) -> None:
        own, remote, folder = operators_in(config.kernel_meta), self._remote(), claims_folder(config)
        store = TieredStore(own, [SingleFlight(own, remote.operators, Flights(folder))], remote.offer_operator)
        claims = FleetClaims(FolderClaims(folder), remote.claims, remote.after_uploads)
        with Builder(store, FakeCompiler(), LEVEL, config, self._heard, claims=claims) as builder:
            builder.warm_up()
            found = builder.build(needed(*descs), "net").entries
        for desc in descs:
            assert sha256(desc.canonical().encode()).encode() in found[desc].object

    def _built(self, chance: random.Random, config: Config) -> None:
        self._build(config, chance.sample(OPERATORS, chance.randint(1, 6)))

    def _sent(self, chance: random.Random, config: Config) -> None:
        assert self._remote().wait_for_uploads() is None

    def _removed(self, chance: random.Random, config: Config) -> None:
        """Remove an entry, as ageing does."""
        blobs = operators_in(config.kernel_meta).blobs
        for name in operators_in(config.kernel_meta).names()[:2]:
            blobs.delete(*(f"{name}{suffix}" for suffix in (".json", ".o", ".info")))

    def _swept(self, chance: random.Random, config: Config) -> None:
        sweep_claims(claims_folder(config))

    def _cleared(self, chance: random.Random, config: Config) -> None:
        ageing.clear(config.kernel_meta, config.network_meta)

    def _claimed(self, chance: random.Random, config: Config) -> None:
        """Claim something of the fleet; of all who do one has it at a time."""
        name = f"name{chance.randint(0, 1)}"
        claim = self._remote().claims.claim(name)
        if not isinstance(claim, Holder):
            self._holders[name] = self._holders.get(name, 0) + 1
            assert self._holders[name] == 1
            self._holders[name] = 0
            claim.release()

    def _forked(self, chance: random.Random, config: Config) -> None:
        """Build in a fork, which has none of the other threads."""
        descs = chance.sample(OPERATORS, 3)
        in_child(lambda: (self._build(config, descs), self._remote().wait_for_uploads()))


def test_builders_of_two_hosts_give_each_other_what_they_build(monkeypatch: pytest.MonkeyPatch, patient: None) -> None:
    """Operators are looked up, claimed, fetched, compiled, sent and removed at once: all get the right ones."""
    monkeypatch.setattr(client, "CompileServer", InstantServer)
    monkeypatch.setattr(build, "IDLE_SERVER", IdleServer(0.005))

    def check_program(seed: int) -> None:
        chance = random.Random(seed)
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name, watched(seed) as heard:
            hosts = Hosts(chance, Path(name), heard)
            run_threads([partial(hosts.run, chance.random()) for _ in range(chance.randint(2, 5))])
            hosts.check()

    check_seeds("threads over builders", check_program, PROGRAMS)


class Improving:
    """A binding of ``chain`` for one size that others may take the place of, a seed decides which.

    Args:
        chance: Decides.
        size: The size.
        turns: How many may follow each other.
    """

    def __init__(self, chance: random.Random, size: int, turns: int) -> None:
        self._chance, self._size, self._turns = chance, size, turns

    def binding(self) -> Binding:
        """Return the binding, with what improves it."""
        return Binding(executor_of(self._size), Report("chain"), self if self._turns else None)

    def bind(self) -> Binding | None:
        """Return a better one, or none."""
        time.sleep(self._chance.choice((0.0, 0.0, 1e-4, 1e-3)))
        if self._chance.random() < 0.3:
            return None
        return Improving(self._chance, self._size, self._turns - 1).binding()


@cache
def executor_of(size: int) -> Executor:
    """Return the executor of ``chain`` at a size."""
    return build_chain(chain(size)).executor


def test_bindings_are_exchanged_while_threads_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sizes come, and whatever takes their place: all are right, and no more than some stay bound."""
    monkeypatch.setattr(network, "MOST_KEPT", 6)
    for size in range(1, 13):
        executor_of(size)

    def check_program(seed: int) -> None:
        chance = random.Random(seed)
        net = Network(
            "chain",
            [Endpoint("x", TensorType("float32", (-1,)))],
            ["out"],
            lambda shapes: Improving(chance, shapes[0][0], chance.randint(0, 3)).binding(),
        )

        def call(number: float) -> None:
            own = random.Random(number)
            for _ in range(40):
                x = np.full(own.randint(1, 12), own.random(), np.float32)
                np.testing.assert_allclose(net(x), expected_chain(x), rtol=1e-5)
                assert net.built >= 0
                assert net.report.network == "chain"

        with watched(seed):
            run_threads([partial(call, chance.random()) for _ in range(chance.randint(2, 5))])
            assert until(lambda: not [name for name in _names_of_threads() if name not in RESTING])
        assert net._improver is None
        assert not net._to_improve
        assert len(net._bindings) <= 6

    check_seeds("threads over bindings", check_program, 5 * PROGRAMS)


def test_segments_are_exchanged_while_threads_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Random networks, segments of which get kernels of their own behind calls: all answers are ONNX Runtime's."""
    exchanged = 0

    def check_program(seed: int) -> None:
        nonlocal exchanged
        chance, drawn = random.Random(seed), RandomSegments(seed)
        calls = [(feeds, expected(drawn, feeds)) for feeds in map(drawn.feeds, range(6 * seed, 6 * seed + 6))]
        calls = [(feeds, wanted) for feeds, wanted in calls if wanted is not None]
        share, known = chance.choice((0.0, 0.3, 0.7)), dict[str, bool]()
        with monkeypatch.context() as patch, watched(seed) as heard:
            tiers = Tiers(patch, lambda digest: known.setdefault(digest, chance.random() < share))
            net = tiers.network(drawn.model)

            def call(number: float) -> None:
                own = random.Random(number)
                for feeds, wanted in own.choices(calls, k=STEPS) if calls else ():
                    compare(net.run(None, feeds), wanted, f"network {seed}")
                    assert net.report.pending >= 0

            run_threads([partial(call, chance.random()) for _ in range(chance.randint(2, 4))])
            assert until(lambda: not [name for name in _names_of_threads() if name not in RESTING])
            for _ in range(STEPS):
                for feeds, wanted in calls:
                    compare(net.run(None, feeds), wanted, f"network {seed}")
                assert until(lambda: net._improver is None)
            heard.faults += tiers.told
        assert not any(each.better for each in net._bindings.values())
        exchanged += bool(tiers.made)

    check_seeds("threads over segments", check_program, 2 * PROGRAMS, processes=0)
    assert exchanged


FIRST_USES = """
import sys, threading
import numpy as np
import opbuild
seed, store, *paths = sys.argv[1:]
sys.setswitchinterval(float(seed))
def use(path):
    network = opbuild.compile(path, cache_path=store, workers=1)
    for size in (3, 20):
        shape = (size, 24) if path.endswith("rows.onnx") else (size,)
        assert network(np.ones(shape, np.float32)).shape[0] == size
threads = [threading.Thread(target=use, args=(path,)) for path in paths]
for thread in threads: thread.start()
for thread in threads: thread.join()
"""


@pytest.mark.usefixtures("with_pack")
def test_what_is_loaded_when_it_is_first_needed_may_be_needed_by_several_threads(
    kernels: Path, tmp_path: Path, process: Preloaded
) -> None:
    """Threads of a fresh process compile different models: each module and table is there for all, and whole."""
    onnx.save(positives(), tmp_path / "positives.onnx")
    for number in range(PROGRAMS // 2):
        chance = random.Random(SEED + number)
        store = tmp_path / str(number)
        shutil.copytree(kernels / "store", store, ignore=shutil.ignore_patterns("network_meta"))
        paths = [kernels / "rows.onnx", tmp_path / "positives.onnx"] * 2
        chance.shuffle(paths)
        words = [FIRST_USES, str(chance.choice((1e-6, 1e-5, 1e-4))), str(store), *map(str, paths)]
        ended = process.run("-c", words, tmp_path, {**os.environ})
        assert (ended.code, ended.errors) == (0, "")
