"""Packing: the kernels that models need in one file; of what the release's pack has only with a word."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.errors import InvalidModelError, OptionError
from opbuild.offline import packing
from opbuild.offline.packing import pack_models
from opbuild.offline.wheel import WheelName
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.archive import read_archive
from opbuild.store.model_packs import GROUP, INSTALLED, KIND, PackArchive, opened
from opbuild.store.pack import Pack
from opbuild.target.host import host_level
from support.small_network import SHAPE, SmallNetwork, make_small_network

pytestmark = pytest.mark.usefixtures("kept_objects")

LEVEL = host_level().name


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> SmallNetwork:
    """A network of two operators, for any number of rows."""
    return make_small_network(tmp_path_factory.mktemp("small"))


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Config:
    """Settings of builds that share a cache."""
    return Config(cache_path=tmp_path_factory.mktemp("cache"), remote_mode="off")


@pytest.fixture
def unreleased(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A release whose pack has nothing."""
    monkeypatch.setattr(packing, "Pack", lambda level: Pack(level, tmp_path / "none"))


def counts(path: Path) -> dict[str, int]:
    """Return the number of kernels of each family that a model pack has for this machine."""
    archive = opened(path, "it", PRIVATE)
    assert archive.problem is None
    return {file.family: len(file) for each in archive.packs(LEVEL) for file in each.files()}


@pytest.mark.usefixtures("unreleased")
def test_a_pack_has_what_models_need_at_the_sizes_that_are_named_and_at_any(
    small: SmallNetwork, config: Config, tmp_path: Path
) -> None:
    """The same models give the same bytes; what was compiled for the first is not compiled for the second."""
    first, second = tmp_path / "first.pack", tmp_path / "second.pack"
    made = pack_models([small.path], first, config, [{"x": SHAPE}])
    (packed,) = made.targets
    assert (packed.target, packed.released) == (LEVEL, 0)
    assert sum(counts(first).values()) == len(packed.jobs) > 2
    again = pack_models([small.path], second, config, [{"x": SHAPE}])
    assert again.targets[0].built == 0
    assert first.read_bytes() == second.read_bytes()
    assert made.nbytes == len(first.read_bytes())
    assert read_archive(first, KIND).about["models"] == [small.path.name]


def test_what_the_release_has_is_left_out_unless_all_is_asked_for(
    small: SmallNetwork, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A release's pack that is a model pack of the same model has all of it."""
    all_, rest = tmp_path / "all.pack", tmp_path / "rest.pack"
    first = pack_models([small.path], all_, config, [{"x": SHAPE}], with_released=True)
    count = len(first.targets[0].jobs)
    archive = opened(all_, "it", PRIVATE)
    monkeypatch.setattr(packing, "Pack", lambda level: archive.packs(level)[0])
    made = pack_models([small.path], rest, config, [{"x": SHAPE}])
    assert [(len(each.jobs), each.released) for each in made.targets] == [(0, count)]
    assert counts(rest) == {}
    made = pack_models([small.path], rest, config, [{"x": SHAPE}], with_released=True)
    assert [(len(each.jobs), each.released) for each in made.targets] == [(count, 0)]
    assert rest.read_bytes() == all_.read_bytes()


def test_a_wheel_brings_the_pack_and_says_where_it_is(tmp_path: Path) -> None:
    """Its names, its record and its entry point are those that installers and opbuild read."""
    path = tmp_path / "my_models-1.0-py2.py3-none-any.whl"
    path.write_bytes(WheelName.parse(path.name).content(b"pack", "a.onnx"))
    with zipfile.ZipFile(path) as wheel:
        assert wheel.testzip() is None
        files = {name: wheel.read(name).decode() for name in wheel.namelist()}
    assert files[f"my_models/{INSTALLED}"] == "pack"
    assert files["my_models-1.0.dist-info/entry_points.txt"] == f"[{GROUP}]\nmy_models = my_models\n"
    assert "Tag: py2-none-any\nTag: py3-none-any\n" in files["my_models-1.0.dist-info/WHEEL"]
    recorded = [line.split(",")[0] for line in files["my_models-1.0.dist-info/RECORD"].splitlines()]
    assert recorded == list(files)


@pytest.mark.parametrize(
    "name", ["my-models.whl", "my_models-1.0.whl", "1-1.0-py3-none-any.whl", "a-b-py3-none-any.whl"]
)
def test_a_name_that_no_wheel_has_is_refused_before_anything_is_built(
    small: SmallNetwork, config: Config, tmp_path: Path, name: str
) -> None:
    """The error says which names wheels have."""
    with pytest.raises(OptionError, match="no name of a wheel"):
        pack_models([small.path], tmp_path / name, config)


def test_a_model_at_fault_leaves_no_file(config: Config, tmp_path: Path) -> None:
    """A pack is whole or not there."""
    bad = tmp_path / "bad.onnx"
    bad.write_bytes(b"\x08\x07\x3a\x00")
    with pytest.raises(InvalidModelError):
        pack_models([bad], tmp_path / "my.pack", config)
    assert not (tmp_path / "my.pack").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "the models are missing"),
        (["MODEL"], "the file to write is missing"),
        (["MODEL", "-o", "MODEL"], "it is the model"),
        (["MODEL", "-o", "nowhere/my.pack"], "there is no folder"),
        (["MODEL", "-o", "my.pack", "--shape", "x:8,256;y:1"], "no input of any model"),
        (["MODEL", "-o", "my.pack"], "has an open shape"),
        (["MODEL", "-o", "my.pack", "--target", "x87"], "--target has 'x87'"),
        (["--show", "MODEL"], "is not a model pack"),
        (["--show", "nothing"], "cannot be read"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], said: str, small: SmallNetwork, capsys: pytest.CaptureFixture[str]
) -> None:
    """An error is one line and a hint, and no pack is written."""
    given = [str(small.path) if each == "MODEL" else each for each in arguments]
    assert main(["pack", *given]) in (2, 3)
    assert said in capsys.readouterr().err


@pytest.mark.usefixtures("unreleased")
def test_the_command_says_what_is_inside(
    small: SmallNetwork, config: Config, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And so does ``--show`` of the file."""
    path = tmp_path / "my.pack"
    arguments = ["--shape", "x:8,256", "--shape", "x:3,256", "--cache_path", str(config.cache_path)]
    assert main(["pack", str(small.path), "-o", str(path), *arguments]) == 0
    count = sum(counts(path).values())
    assert f"{LEVEL}: {count} kernels" in capsys.readouterr().out
    assert main(["pack", "--show", str(path)]) == 0
    said = capsys.readouterr().out
    assert f"of {small.path.name}" in said
    assert f"{LEVEL}: {count} kernels, by halide" in said
    assert main(["pack", "--show", str(path), "--json"]) == 0
    assert f'"{LEVEL}"' in capsys.readouterr().out


def test_a_pack_of_nothing_has_no_levels() -> None:
    """It is whole all the same."""
    assert PackArchive(Path("x"), "x", {}, {}).targets() == []
