"""What all tests share: the flag that rewrites golden files, and a fresh cache folder."""

from __future__ import annotations

import gc
import itertools
import json
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import hypothesis
import numpy as np
import pytest

from opbuild import events
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.config import Config
from opbuild.graph import user_operators
from opbuild.runtime.reused import MemoryRequest, ReusedMemory
from support import kept_kernels
from support.campaign import Campaign
from support.fuzzing import CAMPAIGN
from support.order import place
from support.preloaded import Preloaded, preloaded
from support.remote_servers import patient, servers
from support.unnoticed import check_said, checking_processes, set_checking

__all__ = ["patient", "servers"]

if TYPE_CHECKING:
    from support.small_network import SmallNetwork

hypothesis.settings.register_profile("without clock", deadline=None)  # a busy machine is no failure
hypothesis.settings.load_profile("without clock")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # in a job in the background; tests interrupt what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)


_NUMBERS = itertools.count()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Fail a test in which a process that has the test's standard error says that something ended unnoticed."""
    report = yield
    if report.passed:
        try:
            check_said(*(said for title, said in report.sections if title == f"Captured stderr {call.when}"))
        except AssertionError as error:
            report.outcome, report.longrepr = "failed", str(error)
    return report


@pytest.fixture(scope="session", autouse=True)
def _heard_processes() -> Iterator[None]:
    """Fail a test whose processes say that something ended unnoticed."""
    with checking_processes():
        yield


@pytest.fixture(scope="session", autouse=True)
def _session_store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keep what fixtures of modules and the processes that they start build away from the user's own store."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("store")
        patch.setenv("XDG_CACHE_HOME", str(folder))
        patch.delenv("MS_COMPILER_CACHE_PATH", raising=False)
        patch.delenv("OPBUILD_CACHE", raising=False)
        patch.setenv("ASCEND_CACHE_PATH", str(folder / "ascend"))
        patch.setenv("OPBUILD_SHIPPED_BANK", "0")  # what was measured on one machine changes no test
        patch.setenv("OPBUILD_PACK", "0")  # tests count what is compiled; those of the pack switch it on
        patch.setenv("OPBUILD_FIRST", "wait")  # that an operator is missing is an error; tests of what else computes it
        yield folder


@pytest.fixture(autouse=True)
def user_store(_session_store: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give each test a store of its own where it names none; return its folder, which is made when it is used."""
    caches = _session_store / str(next(_NUMBERS))
    monkeypatch.setenv("XDG_CACHE_HOME", str(caches))
    monkeypatch.setenv("ASCEND_CACHE_PATH", str(caches / "ascend"))
    return caches / "opbuild"


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return one store for real networks, as a user has: what a test of any process built, another's finds."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "shared_store"


@pytest.fixture
def with_pack(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take kernels from the package's pack, as users do: those of the same sources, which are what compiling makes."""
    monkeypatch.setenv("OPBUILD_PACK", "1")


@pytest.fixture(scope="module")
def kept_objects() -> Iterator[None]:
    """Let a module's builds, also those of processes that it starts, take objects that tests compiled before.

    A campaign's compile them.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HalideCompiler, "import_string", HalideCompiler.import_string)  # and restore it
        kept_kernels.take_in_builds()
        patch.setenv("PYTHONPATH", kept_kernels.search_path(), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def few_objects() -> Iterator[None]:
    """Let collections look only at what a module's tests make; of what all tests are they would take half a second."""
    gc.collect()
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture(scope="session")
def process() -> Iterator[Preloaded]:
    """A process in whose forks programs begin at once; their builds take kept objects."""
    with preloaded(kept_kernels.taking_path()) as started:
        yield started


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--update-golden``."""
    parser.addoption("--update-golden", action="store_true", help="write golden files instead of comparing with them")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with fast tests, and with the folders whose files take longest."""
    items.sort(key=lambda item: (_is_slow(item), place(item.nodeid)))
    for item in filter(_is_slow, items):
        for name in ("PytestUnhandledThreadExceptionWarning", "PytestUnraisableExceptionWarning"):
            item.add_marker(pytest.mark.filterwarnings(f"default::pytest.{name}"))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Return the scheduler of a run of whole files, which stops behind fast tests if some failed."""
    from support.two_parts import TwoParts

    return TwoParts(config, log) if config.getvalue("dist") == "loadfile" else None


def _is_slow(item: pytest.Item) -> bool:
    return item.get_closest_marker("slow") is not None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let threads and processes of slow tests end as they may: many interrupt, kill and starve them on purpose."""
    set_checking(on=not _is_slow(item))


def pytest_configure(config: pytest.Config) -> None:
    """Count what a campaign tries."""
    if CAMPAIGN:
        config.pluginmanager.register(Campaign())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep no more kernels than have room, when all processes of the tests are done."""
    if not hasattr(session.config, "workerinput"):
        kept_kernels.forget_the_oldest()


@pytest.fixture(autouse=True)
def _told_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tell each test what is told once in a process, whatever was told or silenced before it."""
    logging.disable(logging.NOTSET)
    monkeypatch.setattr(events, "_LOGGED", set())
    monkeypatch.setattr(events, "_TOLD", set())
    if (notices := sys.modules.get("opbuild.onnxruntime.logs")) is not None:
        monkeypatch.setattr(notices, "_SAID", set())
    if (remote := sys.modules.get("opbuild.pipeline.remote")) is not None:
        remote.service_at.cache_clear()  # what was told of a store, and that it failed


@pytest.fixture(autouse=True)
def _operators_of_users() -> Iterator[None]:
    """Forget the operators that a test registers: the keys of all stored networks have them."""
    with mock.patch.dict(user_operators._REGISTERED):
        yield


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, Any], None]:
    """Compare a JSON value with ``tests/golden/<name>.json``, or write it there with ``--update-golden``."""

    def compare(name: str, value: Any) -> None:
        path = Path(__file__).parent / "golden" / f"{name}.json"
        if request.config.getoption("--update-golden"):
            path.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")
        assert json.loads(path.read_text(encoding="utf-8")) == value

    return compare


@pytest.fixture(autouse=True)
def _patterned_outputs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fill each new output with a pattern that no result is: an element that nothing writes is noticed (F81)."""
    take = ReusedMemory.take

    def patterned(memory: ReusedMemory, wanted: Sequence[MemoryRequest]) -> list[Any]:
        arrays = take(memory, wanted)
        for each in arrays:
            each.reshape(-1).view(np.uint8)[:] = 0xD5
        return arrays

    monkeypatch.setattr(ReusedMemory, "take", patterned)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Settings for a build with two workers into a fresh folder."""
    return Config(cache_path=tmp_path / "cache", workers=2, compile_timeout=60.0)


@pytest.fixture(scope="session")
def small_network(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network of two operators, built once for all tests."""
    from support.small_network import make_small_network

    return make_small_network(tmp_path_factory.mktemp("small"))
