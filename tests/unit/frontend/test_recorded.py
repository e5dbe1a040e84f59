"""Recorded sizes: each that is bound is a line, once, whoever binds it; warming and packing take them from there."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import opbuild
from opbuild.cli.main import main
from opbuild.errors import OptionError
from opbuild.events import Event, Warned
from opbuild.frontend.models import recorded
from opbuild.frontend.models.memory import ModelMemory
from opbuild.frontend.models.recorded import SizeRecorder, read_recorded
from opbuild.frontend.models.source import ModelSource, open_model
from opbuild.platform.files.trust import PRIVATE
from support.processes import environment
from support.small_network import SmallNetwork, make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

_RECORD = """
import sys
from pathlib import Path
from opbuild.frontend.models.memory import ModelMemory
from opbuild.frontend.models.recorded import SizeRecorder
from opbuild.frontend.models.source import open_model
from opbuild.platform.files.trust import PRIVATE
source = open_model(sys.argv[1], ModelMemory(Path("none"), PRIVATE, reads=False, writes=False, keeps_times=False))
recorder = SizeRecorder(sys.argv[2])
for rows in range(1, 200):
    recorder.note(source, ((rows, 256),), lambda message, error: sys.exit(f"{message}: {error}"))
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network for any number of rows."""
    return make_small_network(tmp_path_factory.mktemp("small"))


@pytest.fixture
def source(small: SmallNetwork, tmp_path: Path) -> ModelSource:
    """Its model."""
    memory = ModelMemory(tmp_path / "none", PRIVATE, reads=False, writes=False, keeps_times=False)
    return open_model(small.path, memory)


def unexpected(message: str, error: BaseException) -> None:
    """Fail."""
    raise AssertionError(f"{message}: {error}")


def rows_in(path: Path) -> list[int]:
    """Return the number of rows of each line."""
    return [json.loads(line)["inputs"]["x"][0] for line in path.read_text().splitlines()]


def test_a_size_is_recorded_when_it_is_bound_and_not_when_it_is_called_again(
    small: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The line says the model's file, its digest and the shapes; another network of the process adds nothing."""
    path = tmp_path / "sizes.jsonl"
    monkeypatch.setenv("OPBUILD_RECORD_SHAPES", str(path))
    for _ in range(2):
        network = opbuild.compile(small.path, cache_path=tmp_path / "cache")
        assert network(small.x[:4]).shape == (4, 256)
        size = path.stat().st_size
        network(small.x[:4])
        assert path.stat().st_size == size
        network(small.x[:7])
    assert rows_in(path) == [4, 7]
    first, _ = read_recorded(path)
    assert (first.model, first.inputs) == (str(small.path), {"x": (4, 256)})
    assert first.is_of(small.path, "another version")
    assert first.is_of(Path("other.onnx"), first.digest)
    assert not first.is_of(Path("other.onnx"), "another version")


def test_without_the_setting_nothing_is_recorded(
    small: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No recorder is made."""
    monkeypatch.setattr(recorded, "recorder", lambda place: unexpected(place, OSError()))
    opbuild.compile(small.path, cache_path=tmp_path / "cache")(small.x[:4])


def test_many_processes_and_threads_write_whole_lines(small: SmallNetwork, source: ModelSource, tmp_path: Path) -> None:
    """Each size is there; processes that begin together may have written one twice, threads of one do not."""
    path = tmp_path / "sizes.jsonl"
    command = [sys.executable, "-c", _RECORD, str(small.path), str(path)]
    others = [subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) for _ in range(2)]
    assert [(each.communicate()[1], each.returncode) for each in others] == [("", 0)] * 2
    assert set(rows_in(path)) == set(range(1, 200))
    before = path.read_bytes()
    mine = SizeRecorder(str(path))
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rows: mine.note(source, ((rows % 400 + 1, 256),), unexpected), range(1600)))
    assert path.read_bytes().startswith(before)
    assert sorted(rows_in(path)[before.count(b"\n") :]) == list(range(200, 401))


def test_sizes_of_a_model_are_bounded(source: ModelSource, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Texts of every length do not fill a disk."""
    monkeypatch.setattr(recorded, "MOST_SIZES", 10)
    for _ in range(2):  # a second process reads what is there
        recorder = SizeRecorder(str(tmp_path / "sizes.jsonl"))
        for rows in range(30):
            recorder.note(source, ((rows, 256),), unexpected)
    assert rows_in(tmp_path / "sizes.jsonl") == list(range(10))


def test_in_a_folder_each_host_has_a_file(source: ModelSource, tmp_path: Path) -> None:
    """A storage of several hosts need not append for all; who reads takes them together."""
    folder = tmp_path / "sizes"
    SizeRecorder(f"{folder}/").note(source, ((3, 256),), unexpected)
    SizeRecorder(str(folder)).note(source, ((4, 256),), unexpected)
    (file,) = folder.iterdir()
    file.with_name("other.jsonl").write_text(file.read_text().replace("[3,", "[5,"))
    assert sorted(each.inputs["x"][0] for each in read_recorded(folder)) == [3, 4, 5]


def test_what_cannot_be_written_is_one_warning(
    small: SmallNetwork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The network runs."""
    monkeypatch.setenv("OPBUILD_RECORD_SHAPES", str(tmp_path / "absent" / "sizes.jsonl"))
    told = list[Event]()
    network = opbuild.compile(small.path, cache_path=tmp_path / "cache", observer=told.append)
    network(small.x[:4])
    network(small.x[:5])
    warnings = [str(each) for each in told if isinstance(each, Warned)]
    assert ["are not recorded" in text for text in warnings] == [True]


@pytest.mark.parametrize(
    "line",
    [
        b"", b"{", b"[]", b"1", b'{"model":"a"}', b'{"model":"a","digest":"d","inputs":[]}',
        b'{"model":"a","digest":"d","inputs":{"x":[-1]}}', b'{"model":"a","digest":"d","inputs":{"x":[1e99]}}',
        b'{"model":"a","digest":"d","inputs":{"x":"1,2"}}', b"\xff\xfe",
    ],
)  # fmt: skip
def test_a_line_that_is_none_is_left_out(tmp_path: Path, line: bytes) -> None:
    """It may be cut, or anybody's; the others count."""
    path = tmp_path / "sizes.jsonl"
    path.write_bytes(line + b"\n")
    with pytest.raises(OptionError, match="no recorded sizes"):
        read_recorded(path)
    with path.open("ab") as file:
        file.write(b'{"model":"","digest":"d","inputs":{"x":[2]}}\n')
    assert [each.inputs for each in read_recorded(path)] == [{"x": (2,)}]


def test_warming_takes_models_and_sizes_from_a_record(
    small: SmallNetwork, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where compiling is forbidden these sizes start as they are stored; a model that is named has its own alone."""
    path = tmp_path / "sizes.jsonl"
    line = {"model": str(small.path), "digest": "of another version", "inputs": {"x": [6, 256]}}
    other = {"model": "/models/other.onnx", "digest": "d", "inputs": {"x": [9, 256]}}
    path.write_text(f"{json.dumps(line)}\n")
    cache = tmp_path / "cache"
    assert main(["warm", "--recorded", str(path), "--cache_path", str(cache)]) == 0
    network = opbuild.compile(small.path, input_shapes={"x": (6, 256)}, cache_path=cache, forbid_compile=True)
    assert network.report.image
    np.testing.assert_allclose(network(small.x[:6]), small.y[:6], rtol=1e-5)
    path.write_text(f"{json.dumps(line)}\n{json.dumps(other)}\n")
    capsys.readouterr()
    arguments = ["--shape", "x:5,256", "--cache_path", str(cache)]
    assert main(["warm", str(small.path), "--recorded", str(path), *arguments]) == 0
    assert "2 networks warm" in capsys.readouterr().out
    assert main(["pack", str(small.path), "--recorded", str(path), "-o", str(tmp_path / "my.pack"), *arguments]) == 0


@pytest.mark.parametrize("command", [["warm"], ["pack", "-o", "my.pack"], ["tune"]])
def test_a_record_that_cannot_be_read_is_an_error(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says which file."""
    assert main([*command, "--recorded", str(tmp_path / "absent")]) == 2
    assert f"'{tmp_path / 'absent'}' cannot be read" in capsys.readouterr().err
