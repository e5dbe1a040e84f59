"""The compile server and onnx are loaded before a model's file is read, but only where it surely must be built."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.frontend.models import memory as model_memory
from opbuild.frontend.models.source import is_not_cached, open_model
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.stores import Stores
from opbuild.platform.files.private import publish
from opbuild.report import Clock
from opbuild.session import Session
from support.small_network import SmallNetwork


def begins(model: Path, cache: Path) -> tuple[bool, bool]:
    """Return whether a start prepares for compiling before it reads the model, and whether the model was known."""
    memory = Stores(set_up(Config(cache_path=cache), None, None)).models
    return is_not_cached(model, memory), open_model(model, memory).was_built


def test_what_was_never_built_is_prepared_for(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Nothing of its name is there."""
    assert begins(small_network.path, tmp_path) == (True, False)


def test_what_was_built_needs_nothing(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Neither the file itself, nor a copy of it elsewhere, nor a file whose digest was not remembered yet."""
    with small_network.replayed():
        small_network.build(tmp_path)
    assert begins(small_network.path, tmp_path) == (False, True)
    copy = tmp_path / "elsewhere" / small_network.path.name
    copy.parent.mkdir()
    shutil.copy(small_network.path, copy)
    assert begins(copy, tmp_path) == (False, True)
    (memo,) = (tmp_path / "rank_0" / "network_meta").glob("*.digest")
    memo.unlink()
    assert begins(small_network.path, tmp_path) == (False, True)


def test_an_edited_file_is_prepared_for(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Its digest was remembered for another state; so is any file where everything is compiled again."""
    model = tmp_path / small_network.path.name
    shutil.copy(small_network.path, model)
    with small_network.replayed():
        small_network.build(tmp_path)
    (memo,) = (tmp_path / "rank_0" / "network_meta").glob("*.digest")
    shutil.copy(memo, Stores(set_up(Config(cache_path=tmp_path), None, None)).models.digest_file(model))
    os.utime(model, (0, 0))
    assert begins(model, tmp_path)[0]
    forcing = Config(cache_path=tmp_path, op_compiler_cache_mode="force")
    assert is_not_cached(small_network.path, Stores(set_up(forcing, None, None)).models)


def test_opening_a_model_starts_nothing(small_network: SmallNetwork, tmp_path: Path) -> None:
    """Neither a process nor a thread: what begins early is begun by who builds, not by who reads."""
    threads, processes = set(threading.enumerate()), set(children())
    stores = Stores(set_up(Config(cache_path=tmp_path), None, None))
    source = open_model(small_network.path, stores.models)
    assert source.declaration.name == "small"
    assert threads.issuperset(threading.enumerate())  # those of other tests may end meanwhile
    assert processes.issuperset(children())


def test_a_segment_is_read_while_another_thread_lets_go_of_the_model(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a size at which the model is whole nothing more of it is needed: the thread of another size had none then."""
    source = open_model(small_network.path, Stores(set_up(Config(cache_path=tmp_path), None, None)).models)
    remainder: Any = object()
    monkeypatch.setattr(source, "_load", lambda: SimpleNamespace(go_on=lambda given, _: given))
    monkeypatch.setattr(type(source), "_loaded", property(lambda _: None, lambda *_: None), raising=False)
    assert source.go_on(remainder, Clock()) is remainder


def new_session(cache: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Session, list[str]]:
    """Return a session without a pack, and what becomes of its builders."""
    said: list[str] = []
    monkeypatch.setattr(Builder, "warm_up", lambda _: said.append(threading.current_thread().name))
    monkeypatch.setattr(Builder, "close", lambda _: said.append("closed"))
    return Session(set_up(Config(cache_path=cache, uses_pack=False), None, None)), said


def test_what_begins_early_begins_beside_the_reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is read meanwhile; its builder is the caller's, once."""
    session, said = new_session(tmp_path, monkeypatch)
    with session.preparing(None):
        session.prepare()
        session.prepare()
        first = session.builder()
        assert session.builder() is not first
    assert said == ["opbuild-import"]


def test_a_builder_that_nobody_needs_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that cannot be read leaves no compile server behind."""
    session, said = new_session(tmp_path, monkeypatch)
    with session.preparing(None):
        session.prepare()
        threads = [each for each in threading.enumerate() if each.name == "opbuild-import"]
        for each in threads:
            each.join()
    assert said == ["opbuild-import", "closed"]


def test_what_fails_early_is_raised_where_it_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model that needs no builder is none the worse for it."""
    setup = set_up(Config(cache_path=tmp_path, uses_pack=False), None, None)

    def fail(_: object) -> None:
        raise BuildError("no process is left")

    monkeypatch.setattr(Builder, "warm_up", fail)
    session = Session(setup)
    with session.preparing(None):
        session.prepare()
        with pytest.raises(BuildError, match="no process is left"):
            session.builder()
    with session.preparing(None):
        session.prepare()


def test_what_was_planned_goes_when_it_is_built(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It refers to the model's weights: in a cycle, they would stay until Python looks for cycles."""
    planned: list[weakref.ref[object]] = []
    plan = Session.plan

    def noting(*arguments: Any) -> Any:
        found = plan(*arguments)
        planned.append(weakref.ref(found))
        return found

    monkeypatch.setattr(Session, "plan", noting)
    gc.disable()
    try:
        with small_network.replayed():
            small_network.build(tmp_path)
        assert [each() for each in planned] == [None]
    finally:
        gc.enable()


def children() -> list[str]:
    """Return the ids of this process's children."""
    return Path(f"/proc/self/task/{threading.get_native_id()}/children").read_text().split()


def test_a_digest_that_another_version_remembered_is_taken_anew(
    small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A version that takes digests otherwise reads a file that another one has remembered, and does not refuse it."""
    model = tmp_path / small_network.path.name
    shutil.copy(small_network.path, model)
    os.utime(model, (0, 0))
    memory = Stores(set_up(Config(cache_path=tmp_path), None, None)).models
    with monkeypatch.context() as before:
        before.setattr(model_memory, "FORM", model_memory.FORM - 1)
        publish(memory.digest_file(model), b"what an older version wrote")
    assert not memory.digest_file(model).exists()
    assert open_model(model, memory).declaration.name == "small"
