"""Sources edited where opbuild is installed, and a release that takes another's place: what is built again."""

from __future__ import annotations

import runpy
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.backend.halide import driver
from opbuild.platform.sources import MANIFEST
from support.kept_kernels import SOURCE
from support.processes import Outcome, build_and_run

ROOT = SOURCE.parent
SOFTMAX = driver.HalideCompiler.module_of("softmax")
LOWER = "opbuild.lowering.lower"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network of two operators of two families."""
    nodes = [helper.make_node("Softmax", ["x"], ["s"], axis=-1), helper.make_node("Sub", ["s", "x"], ["y"])]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [8, 32]) for name in "xy")
    graph = helper.make_graph(nodes, "two", [x], [y])
    path = tmp_path_factory.mktemp("model") / "two.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package as pip has it built, from a copy: building leaves files behind."""
    folder = tmp_path_factory.mktemp("release")
    copied = folder / "checkout"
    shutil.copytree(SOURCE, copied / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy2(ROOT / name, copied / name)
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", program, folder], cwd=copied, check=True, timeout=120, capture_output=True)
    assert not (copied / "src" / "opbuild" / MANIFEST).exists()
    return next(folder.glob("opbuild-*.whl"))


def unpack(wheel: Path, folder: Path) -> Path:
    """Install the release as installers do."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    assert not [*folder.rglob("__pycache__")]
    return folder


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """A release of one's own, to be edited."""
    return unpack(wheel, tmp_path / "site")


@pytest.fixture(scope="module")
def built(model: Path, wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache in which the release built the network."""
    folder = tmp_path_factory.mktemp("built")
    assert run(model, folder / "cache", unpack(wheel, folder / "site")) == (False, BOTH)
    return folder / "cache"


@pytest.fixture
def cache(built: Path, tmp_path: Path) -> Path:
    """A copy of that cache."""
    return Path(shutil.copytree(built, tmp_path / "cache"))


def run(model: Path, cache: Path, site: Path, **variables: str) -> tuple[bool, set[str]]:
    """Run the network; return whether it was started from its image, and the operators that were compiled."""
    feeds = {"x": np.linspace(-1, 1, 256, dtype=np.float32).reshape(8, 32)}
    outcome: Outcome = build_and_run(model, cache, feeds, PYTHONPATH=str(site), **variables)
    return outcome.image, {str(name).partition("_")[0] for name, *_ in outcome.built}


def source(site: Path, module: str) -> Path:
    """Return the file of a module."""
    return site.joinpath(*module.split(".")).with_suffix(".py")


def edit(path: Path, text: str) -> None:
    """Add a line to a source."""
    path.write_text(f"{path.read_text(encoding='utf-8')}\n{text}\n", encoding="utf-8")


BOTH = {"softmax", "sub"}

OTHERWISE = """
_before = schedule

def schedule(definition, desc, machine):
    _before(definition, desc, machine)
    definition.outputs[0].output_buffer().dim(0).set_estimate(0, 64)
"""
"""What is defined otherwise, and computes the same."""


@pytest.mark.slow
def test_what_is_edited_in_an_installed_release_is_not_looked_at(model: Path, installed: Path, cache: Path) -> None:
    """F46: nothing is built again and no file of the installation changes, not even where a source was edited."""
    for module in (SOFTMAX, LOWER):
        edit(source(installed, module), "# a comment")
    before = {path: path.read_bytes() for path in installed.rglob("*.*") if path.is_file()}
    assert run(model, cache, installed, OPBUILD_FORBID_COMPILE="1") == (True, set())
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.slow
def test_another_release_builds_again_what_its_code_changes(model: Path, installed: Path, cache: Path) -> None:
    """F29, F30, F46: of one version, with another comment, then with other code, then with another schedule."""
    write_manifest = runpy.run_path(str(ROOT / "setup.py"), run_name="setup")["write_manifest"]
    for module in (SOFTMAX, LOWER):
        edit(source(installed, module), "# a comment")
    write_manifest(installed / "opbuild")
    assert run(model, cache, installed) == (True, set())
    edit(source(installed, SOFTMAX), "ANOTHER = 1")
    write_manifest(installed / "opbuild")
    assert run(model, cache, installed, OPBUILD_FORBID_COMPILE="1") == (False, set())
    edit(source(installed, SOFTMAX), OTHERWISE)
    write_manifest(installed / "opbuild")
    assert run(model, cache, installed) == (False, {"softmax"})


@pytest.mark.slow
def test_without_its_manifest_a_release_is_a_checkout(model: Path, installed: Path, tmp_path: Path) -> None:
    """F30, F34: what is defined counts where sources are edited; another schedule builds its own operators alone."""
    cache = tmp_path / "own"
    (installed / "opbuild" / MANIFEST).unlink()
    assert run(model, cache, installed) == (False, BOTH)
    edit(source(installed, LOWER), "# a comment")
    assert run(model, cache, installed, OPBUILD_FORBID_COMPILE="1") == (False, set())
    edit(source(installed, SOFTMAX), "# a comment")
    assert run(model, cache, installed, OPBUILD_FORBID_COMPILE="1") == (False, set())
    edit(source(installed, SOFTMAX), OTHERWISE)
    assert run(model, cache, installed) == (False, {"softmax"})
