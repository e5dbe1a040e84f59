"""F46: sources that changed compile nothing where what they define did not; what did change compiles alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from opbuild.builder.build import Builder, LowerLevel
from opbuild.builder.job import BuildResult
from opbuild.config import Config
from opbuild.errors import CompileForbiddenError
from opbuild.events import CompileFinished, CompileStarted, Taken
from opbuild.kernel.entry import UNCHANGED
from opbuild.kernel.interfaces import Store
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators, operators_in
from opbuild.store.pack import FamilySources, Object, Pack, pack_bytes
from opbuild.store.tiers import TieredStore
from support.edited_compiler import SOURCES, EditedCompiler
from support.fake_compiler import FakeCompiler, fake_object
from support.samples import IDENTITY, LEVEL, Recorder, conv, needed


@pytest.fixture(params=["disk", "memory"])
def store(request: pytest.FixtureRequest, config: Config) -> Store:
    """An empty store."""
    return operators_in(config.kernel_meta) if request.param == "disk" else Operators(Memory())


def build(
    store: Store, config: Config, monkeypatch: pytest.MonkeyPatch, sources: str, seen: Any = None, *tiles: int
) -> BuildResult:
    """Build two operators of sources, or those of some tiles."""
    edit(config, monkeypatch, sources)
    with Builder(store, EditedCompiler(), LEVEL, config, seen or Recorder()) as builder:
        return builder.build(needed(*map(conv, tiles or (1, 2))), "net")


def edit(config: Config, monkeypatch: pytest.MonkeyPatch, sources: str) -> None:
    """Let sources be others from now on, here and in compile servers."""
    folder = config.cache_folder / "sources"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / SOURCES).write_text(sources)
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(folder)


def reasons(result: BuildResult) -> list[str]:
    """Return why each operator is there."""
    return [job.reason.text for job in result.decisions]


def test_sources_that_define_the_same_compile_nothing(
    store: Store, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The objects are the very same, are noted under the new sources, and the next build finds them at once."""
    first = build(store, config, monkeypatch, "one,a")
    seen = Recorder()
    second = build(store, config, monkeypatch, "two,a", seen)
    assert (first.built, second.built, second.reused) == (2, 0, 2)
    assert reasons(second) == [UNCHANGED] * 2
    assert [e.object for e in first.entries.values()] == [e.object for e in second.entries.values()]
    assert [e.symbol for e in first.entries.values()] == [e.symbol for e in second.entries.values()]
    assert [e.milliseconds for e in first.entries.values()] == [e.milliseconds for e in second.entries.values()]
    assert (seen.of(CompileStarted), seen.of(CompileFinished)) == ([], [])
    assert {event.source for event in seen.of(Taken)} == {UNCHANGED}
    third = build(store, config, monkeypatch, "two,a")
    assert (third.built, reasons(third)) == (0, ["in the store"] * 2)


def test_an_entry_says_where_its_object_is_from(store: Store, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """``.info`` has the sources that were compiled and the reason; ``.json`` the digest of the pipeline of both."""
    (one,) = build(store, config, monkeypatch, "one,a", None, 1).entries.values()
    (two,) = build(store, config, monkeypatch, "two,a", None, 1).entries.values()
    assert "origin" not in one.info
    assert two.info["origin"] == {"sources": "one", "reason": UNCHANGED}
    assert two.info["key"]["components"]["sources"] == "two"
    assert one.pipeline == two.pipeline != ""
    assert one.record.keys() == two.record.keys()


def test_sources_that_define_something_else_are_compiled(
    store: Store, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What they defined before is found again however they are spelled then, also after something else was built."""
    seen = Recorder()
    assert build(store, config, monkeypatch, "one,a").built == 2
    assert build(store, config, monkeypatch, "two,b", seen).built == 2
    assert len(seen.of(CompileStarted)) == len(seen.of(CompileFinished)) == 2
    assert build(store, config, monkeypatch, "three,a").built == 0
    assert build(store, config, monkeypatch, "four,b").built == 0


def test_what_is_gone_is_compiled_after_all(config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store remembers a pipeline whose entry was removed or damaged, or has another one's: nothing of it is used."""
    store = operators_in(config.kernel_meta)
    build(store, config, monkeypatch, "one,a")
    first, second = store.names()
    store.blobs.delete(first + ".json", first + ".o", first + ".info")
    path = config.kernel_meta / f"{second}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "pipeline": "0" * 32}))
    again = build(store, config, monkeypatch, "two,a")
    assert again.built == 2
    assert build(store, config, monkeypatch, "three,a").built == 0


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b'{"operator": 1, "pipelines": 2}', None])
def test_damaged_origins_cost_a_compile(config: Config, monkeypatch: pytest.MonkeyPatch, content: bytes | None) -> None:
    """What is remembered is a hint: whatever is in its file, the build is right, and the file is written anew."""
    store = operators_in(config.kernel_meta)
    build(store, config, monkeypatch, "one,a", None, 1)
    (path,) = config.network_meta.glob("*.origins")
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(content)
    assert build(store, config, monkeypatch, "two,a", None, 1).built == 1
    if content is not None:
        assert build(store, config, monkeypatch, "three,a", None, 1).built == 0


def test_where_compiling_is_forbidden_it_is_taken(
    store: Store, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is compiled for it; what would have to be is named alone."""
    build(store, config, monkeypatch, "one,a", None, 1)
    forbidden = replace(config, forbid_compile=True)
    with pytest.raises(CompileForbiddenError, match=r"1 operator would have to be compiled") as error:
        build(store, forbidden, monkeypatch, "two,a")
    assert "node_1" in str(error.value)
    assert build(store, forbidden, monkeypatch, "two,a", None, 1).built == 0
    with pytest.raises(CompileForbiddenError, match=r"\[changed\]"):
        build(store, forbidden, monkeypatch, "three,b", None, 1)


@pytest.mark.parametrize("own", [(), (1,), (1, 2)])
def test_a_lower_levels_operator_is_found_by_its_pipeline_too(
    config: Config, monkeypatch: pytest.MonkeyPatch, own: tuple[int, ...]
) -> None:
    """Where compiling is forbidden; the level's own go before it, by whatever they are found, and nothing is compiled.

    It is noted under the new sources there, so that the next look finds it at once.
    """
    store, lower_store = operators_in(config.kernel_meta), operators_in(config.cache_folder / "lower" / "kernel_meta")
    lower = LowerLevel(LEVEL.lower()[0], lower_store, Operators(Memory()), "v3")

    def asked(sources: str, *tiles: int) -> list[str]:
        edit(config, monkeypatch, sources)
        forbidden = replace(config, forbid_compile=True)
        with Builder(store, EditedCompiler(), LEVEL, forbidden, Recorder(), lower=lambda: [lower]) as builder:
            jobs = builder.found(needed(*map(conv, tiles)))
            result = builder.build(needed(*map(conv, tiles)), "net")
        assert jobs is not None
        borrowed = [tile not in own for tile in tiles]
        assert [each.is_borrowed for each in jobs] == [each.is_borrowed for each in result.decisions] == borrowed
        assert (result.built, result.certain) == (0, not any(borrowed))
        return [str(job.reason) for job in jobs]

    edit(config, monkeypatch, "one,a")
    with Builder(lower_store, EditedCompiler(), lower.level, config, Recorder()) as builder:
        builder.build(needed(conv(1), conv(2)), "net")
    if own:
        build(store, config, monkeypatch, "one,a", None, *own)
    ending = ["" if tile in own else ", for level v3" for tile in (1, 2)]
    assert asked("one,a", 1, 2) == [f"in the store{each}" for each in ending]
    assert asked("two,a", 1, 2) == [f"{UNCHANGED}{each}" for each in ending]
    assert asked("two,a", 1, 2) == [f"in the store{each}" for each in ending]
    with pytest.raises(CompileForbiddenError, match="2 operators would have to be compiled"):
        asked("three,b", 1, 2)


def test_a_forced_build_compiles(store: Store, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for a rebuild gets one."""
    build(store, config, monkeypatch, "one,a")
    edit(config, monkeypatch, "two,a")
    with Builder(store, EditedCompiler(), LEVEL, config, Recorder(), force=True) as builder:
        assert builder.build(needed(conv(1), conv(2)), "net").built == 2


def packed(folder: Path, descs: Sequence[OpDesc], defined: str) -> Pack:
    """Return a pack whose objects were compiled from what sources defined."""
    objects = []
    for desc in descs:
        key = make_key(desc, LEVEL, IDENTITY, "code")
        digest = (defined + FakeCompiler().define(desc, LEVEL).digest)[:32]
        objects.append(Object(desc.components(), key.operator, digest, fake_object(b"packed", (key.symbol,))))
    path = folder / LEVEL.name / "conv.pack"
    path.parent.mkdir(parents=True)
    path.write_bytes(pack_bytes(LEVEL.name, "conv", IDENTITY, FamilySources("code", "text"), objects))
    return Pack(LEVEL.name, folder)


@pytest.mark.parametrize(("defined", "built"), [("a", 1), ("b", 2)])
def test_the_pack_serves_edited_sources(
    tmp_path: Path, config: Config, monkeypatch: pytest.MonkeyPatch, defined: str, built: int
) -> None:
    """A checkout whose families were edited takes from the pack what they still define, and keeps that as its own."""
    near = operators_in(config.kernel_meta)
    store = TieredStore(near, [packed(tmp_path / "packs", [conv(1)], defined)])
    result = build(store, config, monkeypatch, "edited,a")
    assert result.built == built
    assert len(near.names()) == 2
    assert reasons(build(store, config, monkeypatch, "edited,a")) == ["in the store"] * 2
