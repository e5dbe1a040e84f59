"""The table of cache modes and debug settings: which operators are compiled, what is stored, which files appear."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from opbuild.builder.job import BuildResult
from opbuild.config import CACHE_MODES, Config
from opbuild.errors import CompileForbiddenError
from opbuild.events import Warned
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.stores import Stores, make_builder
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, Recorder, conv, needed

STORED = conv(op_types=("Conv", "Relu"))
NEW = conv(op_types=("ReduceSum",))
"""A network needs both, the first by ``node_0``, the second by ``node_1``; the store has the first."""

READABLE = {".stmt", ".ll"}
OBJECT = {".o", ".json"}
LOCATION = {"_loc.json"}
COMPUTE = {"_compute.json"}
LEVELS: dict[int, set[str]] = {
    1: OBJECT | READABLE | LOCATION,
    2: OBJECT | READABLE | LOCATION | {".s"},
    3: OBJECT,
    4: OBJECT | READABLE | COMPUTE,
}


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes:
        compiled: Operators compiled: ``S`` the stored one, ``N`` the new one.
        written: Operators whose entries were written.
        files: Suffixes of the debug files of each operator, by the same letters.
        cached: Whether anything in the cache folder may change at all.
    """

    compiled: str
    written: str
    files: dict[str, set[str]]
    cached: bool = True


MODES = {"enable": Row("N", "N", {}), "force": Row("SN", "SN", {}), "disable": Row("SN", "", {}, cached=False)}
"""What a mode does where nothing is debugged."""


def everything(files: set[str]) -> Row:
    """Return the row of settings that debug all operators: the cache is neither read nor written."""
    return Row("SN", "", {"S": files, "N": files} if files else {}, cached=False)


def table() -> list[Any]:
    """Return all rows: the cache mode, the level, the file of ``op_debug_config`` and what follows."""
    rows: list[tuple[str, int, str, Row]] = []
    for mode, plain in MODES.items():
        rows.append((mode, 0, "", plain))
        rows += [(mode, level, "", everything(files)) for level, files in LEVELS.items()]
        alone = {
            "oom": set[str](),
            "dump_bin": OBJECT,
            "dump_cce": READABLE,
            "dump_loc": LOCATION,
            "ccec_O0": set[str](),
            "ccec_g": {".s"},
            "check_flag": set[str](),
        }
        rows += [(mode, 0, f"op_debug_config={option}", everything(files)) for option, files in alone.items()]
        listing_new = Row(plain.compiled, plain.written.replace("N", ""), {"N": OBJECT}, plain.cached)
        rows.append((mode, 0, "op_debug_config=oom,dump_bin\nop_debug_list=OpType::ReduceSum", listing_new))
        listing_stored = Row("SN", plain.written.replace("S", ""), {"S": LOCATION}, plain.cached)
        rows.append((mode, 0, "op_debug_config=dump_loc,ccec_O0\nop_debug_list=node_0", listing_stored))
        rows.append((mode, 0, "op_debug_list=node_0,node_1", Row("SN", "", {}, plain.cached)))
        rows.append((mode, 0, "op_debug_config=dump_bin\nop_debug_list=other,OpType::MatMul", plain))
        both = Row("SN", "", {"S": OBJECT, "N": OBJECT | LOCATION}, cached=False)
        rows.append((mode, 3, "op_debug_config=dump_loc,oom\nop_debug_list=node_1", both))
    return [pytest.param(*row, id=f"{row[0]}-{row[1]}-{row[2].replace(chr(10), ' ')}") for row in rows]


def set_up_with_fake(config: Config, recorder: Recorder) -> Setup:
    """Return a setup whose compiler is the fake one."""
    return set_up(config, LEVEL, recorder, runs_elsewhere=True, compiler=FakeCompiler())


def build(config: Config, *descs: Any, recorder: Recorder | None = None) -> BuildResult:
    """Build operators as ``compile`` does: the stores, the mode and what is debugged follow from the settings."""
    setup = set_up_with_fake(config, recorder or Recorder())
    with make_builder(setup, Stores(setup)) as builder:
        return builder.build(needed(*descs), "net")


def state(folder: Path) -> dict[str, tuple[int, int]]:
    """Return each file below a folder with what changes when it is replaced."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.stat().st_mtime_ns) for path in files}


@pytest.fixture
def settings(tmp_path: Path) -> Config:
    """Settings over a store that has one operator; debug files go to ``work``."""
    config = Config(cache_path=tmp_path / "cache", debug_folder=tmp_path / "work" / "kernel_meta", workers=2)
    build(config, STORED)
    return config


def check(result: BuildResult, config: Config, before: dict[str, tuple[int, int]], row: Row) -> None:
    """Compare a build, the store and the debug files with a row."""
    letters = {STORED: "S", NEW: "N"}
    compiled = [decision for decision in result.decisions if decision.outcome == "built"]
    assert "".join(letters[decision.desc] for decision in compiled) == row.compiled
    after = state(config.kernel_meta)
    changed = {name for name, value in after.items() if before.get(name) != value}
    stored = {letters[d.desc]: d.name for d in result.decisions if f"{d.name}.json" in changed}
    assert set(stored) == set(row.written)
    assert changed == {name + suffix for name in stored.values() for suffix in (".o", ".info", ".json")}
    names = {letters[decision.desc]: decision.name for decision in result.decisions}
    expected = {names[letter] + suffix for letter, suffixes in row.files.items() for suffix in suffixes}
    assert set(state(config.debug_folder)) == expected


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "level", "text", "row"), table())
def test_modes_and_debug_settings_follow_the_table(
    mode: str, level: int, text: str, row: Row, settings: Config, tmp_path: Path
) -> None:
    """Every pair of a cache mode and a debug setting compiles, stores and writes exactly what the table says."""
    file = tmp_path / "debug.cfg"
    file.write_text(text)
    before, whole = state(settings.kernel_meta), state(settings.cache_path)
    result = build(
        replace(settings, op_compiler_cache_mode=mode, op_debug_level=level, op_debug_config=file if text else None),
        STORED, NEW,
    )  # fmt: skip
    check(result, settings, before, row)
    assert set(state(settings.kernel_meta)) >= set(before)
    assert row.cached or state(settings.cache_path) == whole


def test_the_table_has_every_mode() -> None:
    """A mode that is added needs its rows."""
    assert set(MODES) == set(CACHE_MODES)


MINDSPORE = {
    "": MODES["enable"],
    "0": MODES["disable"],
    "1": everything(LEVELS[1]),
    "2": everything(LEVELS[2]),
    "3": MODES["enable"],
    "4": everything(LEVELS[4]),
    "7": MODES["enable"],
}


@pytest.mark.parametrize("level", MINDSPORE)
def test_levels_of_mindspore_programs_follow_the_table(level: str, settings: Config) -> None:
    """``MS_COMPILER_OP_LEVEL`` 3 is ordinary caching, 0 leaves nothing and deletes nothing; a bad one warns."""
    before = state(settings.kernel_meta)
    environ = {"MS_COMPILER_CACHE_PATH": str(settings.cache_path), "MS_COMPILER_OP_LEVEL": level, "DEVICE_ID": "0"}
    environ["ASCEND_WORK_PATH"] = str(settings.debug_folder.parent)
    config = Config.from_environment(mindspore=True, workers=2, environ=environ)
    check(build(config, STORED, NEW), config, before, MINDSPORE[level])
    assert bool(config.warnings) == (level == "7")
    assert set(before) <= set(state(settings.kernel_meta))


def test_debug_files_say_what_they_are_about(settings: Config) -> None:
    """``_loc.json`` names the kernel, its nodes and where its stages are; ``.json`` is the record of that object."""
    result = build(replace(settings, op_debug_level=1), STORED, NEW)
    decision = result.decisions[1]
    folder = settings.debug_folder
    location = json.loads((folder / f"{decision.name}_loc.json").read_text())
    assert location["kernelName"] == result.entries[NEW].symbol
    assert location["nodes"] == ["node_1"]
    assert location["op_types"] == ["ReduceSum"]
    assert location["stages"] == {"y": [1]}
    assert [argument["name"] for argument in location["arguments"]] == ["x", "w", "y"]
    assert (folder / f"{decision.name}.o").read_bytes() == result.entries[NEW].object
    assert json.loads((folder / f"{decision.name}.json").read_text()) == result.entries[NEW].record
    assert decision.reason.text == "it is debugged: dump_bin, dump_cce, dump_loc"


def test_debug_dir_takes_the_files(settings: Config, tmp_path: Path) -> None:
    """An existing folder that is named gets them instead of ``kernel_meta``."""
    folder = tmp_path / "named"
    folder.mkdir()
    build(replace(settings, op_debug_level=3, debug_dir=folder), NEW)
    assert {Path(name).suffix for name in state(folder)} == OBJECT
    assert not settings.debug_folder.exists()


def test_files_that_cannot_be_written_are_a_warning(settings: Config) -> None:
    """The build goes on; the warning names a file and the folder."""
    settings.debug_folder.parent.mkdir(exist_ok=True)
    settings.debug_folder.write_text("a file")
    recorder = Recorder()
    result = build(replace(settings, op_debug_level=3), NEW, recorder=recorder)
    assert list(result.entries) == [NEW]
    (warning,) = recorder.of(Warned)
    assert "are not written" in warning.message
    assert str(settings.debug_folder) in warning.message


def test_a_list_that_names_what_is_not_there_is_a_warning(settings: Config, tmp_path: Path) -> None:
    """Each name that no operator of the network has is told."""
    file = tmp_path / "debug.cfg"
    file.write_text("op_debug_config=oom\nop_debug_list=node_1,node_9,OpType::MatMul")
    recorder = Recorder()
    build(replace(settings, op_debug_config=file), STORED, NEW, recorder=recorder)
    (warning,) = recorder.of(Warned)
    assert warning.message == "op_debug_list names node_9, OpType::MatMul, which no operator of net has"


def test_debugging_is_refused_where_compiling_is_forbidden(settings: Config) -> None:
    """The error says that the stored operator had to be compiled because it is debugged."""
    with pytest.raises(CompileForbiddenError, match=r"it is debugged: dump_bin \[debugged\]"):
        build(replace(settings, op_debug_level=3, forbid_compile=True), STORED)
