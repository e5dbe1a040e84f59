"""Kernels that tests keep are those that would be compiled, and whatever decides them is in their names."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.sources import SourceFiles
from opbuild.store.pack import Pack, PackFile
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS, Level
from support import kept_kernels
from support.fuzzing import CAMPAIGN
from support.kept_kernels import FOLDER, KeptCompiler, forget_the_oldest, keep, kept, name_of, take_in_builds
from support.processes import environment

CONV, SOFTMAX = (OpDesc(op_types=("X",), family=family, inputs=(), outputs=()) for family in ("conv", "softmax"))


def other_way(desc: OpDesc, symbol: str, level: Level) -> bytes:
    """Compile in a way of a test's own."""
    return HalideCompiler.compile(desc, symbol, level)


def test_whatever_decides_a_kernel_is_in_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is computed, the level, the way, the family's sources, and the compiler."""
    names = {name_of(CONV, LEVELS[0], HalideCompiler.compile), name_of(SOFTMAX, LEVELS[0], HalideCompiler.compile)}
    names |= {name_of(CONV, LEVELS[1], HalideCompiler.compile), name_of(CONV, LEVELS[0], other_way)}
    compiler = kept_kernels._compiler()
    for place, value in (
        ("_sources", lambda _: "edited"),
        ("_compiler", lambda: replace(compiler, digest="another")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kept_kernels, place, value)
            names.add(name_of(CONV, LEVELS[0], HalideCompiler.compile))
    assert len(names) == 6
    assert name_of(CONV, LEVELS[0], HalideCompiler.compile) in names


def test_sources_are_digested_as_the_product_digests_them() -> None:
    """What tests take for unchanged is what a user's cache takes for unchanged."""
    assert kept_kernels._sources(CONV.family) == HalideCompiler().sources_digest(CONV)


def test_only_what_is_whole_is_taken(tmp_path: Path) -> None:
    """Not what was cut or changed, nor what is not there."""
    path = tmp_path / "kernel.o"
    assert kept(path) is None
    keep(path, b"object\ncode")
    assert kept(path) == b"object\ncode"
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[1:], b"", whole.replace(b"code", b"core")):
        path.write_bytes(damaged)
        assert kept(path) is None


def test_what_the_package_brings_is_not_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the symbol that it has there, by the same sources and the same compiler."""
    level = host_level()
    file = Pack(level.name).file("softmax")
    assert isinstance(file, PackFile)
    desc = OpDesc.from_components(file.descriptors()[0])
    entry = kept_kernels.shipped(kept_kernels.key_of(desc, level))
    assert entry is not None
    monkeypatch.setattr(kept_kernels, "FOLDER", tmp_path)

    def defined(*_: object) -> None:
        raise AssertionError("it is compiled")

    with monkeypatch.context() as patch:
        patch.setattr(HalideCompiler, "define", defined)
        pipeline = kept_kernels.KeptPipeline(desc, level)
        assert (pipeline.digest, pipeline.compile(entry.symbol).data) == (entry.pipeline, entry.object)
        with pytest.raises(AssertionError, match="it is compiled"):
            pipeline.compile("another_symbol")
    for place, value in (
        ("_sources", lambda _: "edited"),
        ("_compiler", lambda: replace(file.compiler, digest="another")),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(kept_kernels, place, value)
            assert kept_kernels.shipped(kept_kernels.key_of(desc, level)) is None


def test_nothing_is_kept_once_a_source_was_edited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process has loaded the sources as they were."""
    source = tmp_path / "package" / "module.py"
    source.parent.mkdir()
    source.write_text("one = 1\n")
    monkeypatch.setattr(kept_kernels, "_AS_STARTED", SourceFiles(source.parent))
    source.write_text("one = 11\n")
    keep(tmp_path / "kernel.o", b"object")
    assert kept(tmp_path / "kernel.o") is None


def test_what_was_not_used_for_longest_is_forgotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the folder has no more than so many bytes."""
    monkeypatch.setattr(kept_kernels, "FOLDER", tmp_path)
    for age, name in enumerate(("new", "used", "old")):
        (tmp_path / name).write_bytes(b"0" * 10)
        os.utime(tmp_path / name, (1e9 - age, 1e9 - age))
    forget_the_oldest(25)
    assert {path.name for path in tmp_path.iterdir()} == {"new", "used"}


def test_they_lie_where_no_test_looks(user_store: Path) -> None:
    """A test's own folders hide nothing behind kept kernels, and hold none."""
    assert not user_store.is_relative_to(FOLDER.parent)
    assert not FOLDER.is_relative_to(user_store.parent)


NAMED = "from opbuild.backend.halide.driver import HalideCompiler; print(HalideCompiler.import_string)"


def compiler_of_a_process() -> str:
    """Return the compiler that servers of a process load which a test starts now."""
    command = [sys.executable, "-c", NAMED]
    return subprocess.run(command, env=environment(), check=True, capture_output=True, text=True).stdout.strip()


def test_processes_that_a_test_starts_compile_unless_it_takes_kept_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of the tests is in a process; with the fixture its servers load another compiler, in no campaign."""
    own = HalideCompiler.import_string
    assert compiler_of_a_process() == own == "opbuild.backend.halide.driver:HalideCompiler"
    monkeypatch.setattr(HalideCompiler, "import_string", own)
    take_in_builds()
    assert compiler_of_a_process() == HalideCompiler.import_string
    assert (HalideCompiler.import_string == KeptCompiler.import_string) is not bool(CAMPAIGN)
