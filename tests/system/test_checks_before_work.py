"""What is wrong with a command line or a call is found before the first operator is compiled."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.errors import OpbuildError
from support.replayed import ReplayServer
from support.small_network import SHAPE, SmallNetwork

pytestmark = pytest.mark.usefixtures("kept_objects")

RUN = ["run", "small.onnx", "--runs", "1", "--shape", "x:64,256"]
GIVEN = ["run", "small.onnx", "--runs", "1"]
COMPILE = ["compile", "small.onnx", "--shape", "x:64,256"]
EXPORT = ["export", "--model=small.onnx", "--shape", "x:64,256"]
ATC = ["atc", "--model=small.onnx", "--framework=5", "--soc_version=host", "--input_shape", "x:64,256"]

Fault = tuple[list[str], int, str]

INPUTS: dict[str, Fault] = {
    "another name": (["--input", "z=x.npy"], 4, "no input 'z'"),
    "another type": (["--input", "x=double.npy"], 4, "float64"),
    "another rank": (["--input", "x=flat.npy"], 4, "[16384]"),
    "another extent": (["--input", "x=narrow.npy"], 4, "[64,255]"),
    "no file": (["--input", "x=nothing.npy"], 2, "nothing.npy"),
    "a folder": (["--input", "x=folder"], 2, "folder"),
    "no array": (["--input", "x=small.onnx"], 2, "small.onnx"),
}
SHAPES: dict[str, Fault] = {
    "a shape for no input": (["--shape", "z:1,3"], 3, "'z'"),
    "a shape of another rank": (["--shape", "x:1,2,3"], 3, "2 dimensions"),
}
PLACES: dict[str, tuple[str, str]] = {
    "no folder above": ("nowhere/deep/out", "no folder"),
    "a file above": ("x.npy/out", "x.npy"),
    "read-only": ("locked/out", "'locked' cannot be written"),
    "the name is too long": ("a" * 400, "too long"),
}


def _outputs() -> Iterator[tuple[str, list[str], int, str]]:
    for what, (place, said) in PLACES.items():
        yield f"export, {what}", [*EXPORT, f"--output={place}"], 2, said
        yield f"atc, {what}", [*ATC, f"--output={place}"], 2, said
        if what != "no folder above":  # it is made
            yield f"run, {what}", [*RUN, "--output_dir", place], 2, said
    for what, (place, said) in PLACES.items():
        yield f"json, {what}", ["export", "--mode=1", "--model=small.onnx", f"--json={place}"], 2, said
        yield f"check, {what}", ["export", "--mode=3", "--model=small.onnx", f"--check_report={place}"], 2, said
    yield "export, a folder in the way", [*EXPORT, "--output=taken"], 2, "folder"


def _cases() -> Iterator[tuple[str, list[str], int, str]]:
    for what, (options, code, said) in INPUTS.items():
        yield f"run, {what}", [*GIVEN, *options], code, said
    for what, (options, code, said) in SHAPES.items():
        for command in (GIVEN, ["compile", "small.onnx"], EXPORT[:2], ["explain", "small.onnx"]):
            yield f"{command[0]}, {what}", [*command, *options], code, said
    yield "run, data and a shape that differ", [*RUN, "--input", "x=other.npy"], 4, "[32,256]"
    yield from _outputs()


CASES = {name: rest for name, *rest in _cases()}


class Compiles:
    """Counts what is sent to a compile server."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        send = ReplayServer.send

        def counted(server: ReplayServer, header: dict[str, Any]) -> None:
            self.count += 1
            send(server, header)

        monkeypatch.setattr(ReplayServer, "send", counted)


@pytest.fixture
def folder(small_network: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the small network and data for it, right and wrong; nothing of it is built."""
    (tmp_path / "small.onnx").write_bytes(small_network.path.read_bytes())
    for name, shape in (("x", SHAPE), ("flat", (64 * 256,)), ("narrow", (64, 255)), ("other", (32, 256))):
        np.save(tmp_path / f"{name}.npy", np.ones(shape, np.float32))
    np.save(tmp_path / "double.npy", np.ones(SHAPE))
    (tmp_path / "folder").mkdir()
    (tmp_path / "taken.om").mkdir()
    (tmp_path / "locked").mkdir()
    access = os.access

    def refusing(path: Any, mode: int) -> bool:  # as a read-only file system, also for who may do anything
        return Path(path).name != "locked" and access(path, mode)

    monkeypatch.setattr(os, "access", refusing)
    for name in ("MS_COMPILER_CACHE_PATH", "ASCEND_CACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def compiles(small_network: SmallNetwork, monkeypatch: pytest.MonkeyPatch) -> Iterator[Compiles]:
    """Counts compiles, which are answered at once."""
    with small_network.replayed():
        yield Compiles(monkeypatch)


@pytest.mark.parametrize("command", [RUN, [*GIVEN, "--input", "x=x.npy"], COMPILE, EXPORT, [*ATC, "--output=o"]])
def test_a_right_command_compiles(folder: Path, compiles: Compiles, command: list[str]) -> None:
    """What the faults are put into works without them, and is counted."""
    assert main(command) == 0
    assert compiles.count >= 2  # what serves further sizes is compiled behind it


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_before_anything_is_compiled(
    folder: Path, compiles: Compiles, capfd: pytest.CaptureFixture[str], name: str
) -> None:
    """Wrong names, shapes, types and files of inputs, and outputs that cannot be written, cost no compile.

    Each was found after the network had been built: after half a minute.
    """
    command, code, said = CASES[name]
    assert main(command) == code
    captured = capfd.readouterr()
    assert said in captured.err + captured.out
    assert "Traceback" not in captured.err
    assert compiles.count == 0


@pytest.mark.parametrize("output", ["nowhere/out", "x.npy/out", "locked/out", "taken"])
def test_build_offline_refuses_an_output_before_anything_is_compiled(
    folder: Path, compiles: Compiles, output: str
) -> None:
    """The same from Python."""
    with pytest.raises(OpbuildError, match=r"^output is "):
        opbuild.export("small.onnx", output, input_shapes={"x": SHAPE})
    assert compiles.count == 0
    assert not [path for path in folder.iterdir() if path.name.startswith("tmp")]
