"""``make demo``: it shows what it should, and it fails when something is wrong."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import onnx
import pytest

from opbuild.frontend.example_models import example_model

pytestmark = pytest.mark.usefixtures("kept_objects")

DEMO = Path(__file__).resolve().parents[2] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """Return the demo as a module."""
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["demo"] = module
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_the_demo_runs_and_shows_each_step(tmp_path: Path) -> None:
    """A script that leaves three files; ResNet-50 cold, again with nothing built, and with one layer changed."""
    command = [sys.executable, str(DEMO), "--folder", str(tmp_path / "demo")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "output: [ 1. 16. 81.]" in done.stdout
    for suffix in (".o", ".info", ".json"):
        assert f"_0{suffix} " in done.stdout
    for row in ("cold", "again", "3x3 -> 5x5", "from the pack"):
        assert row in done.stdout
    assert "operators to compile" in done.stderr


def test_the_demo_fails_when_a_step_does_not_do_what_it_shows(demo: ModuleType) -> None:
    """Nothing built cold, something built again, too much or nothing for one layer, a wrong output: each is found."""
    cold = demo.Step(process=2.0, ready=1.5, call=0.03, built=20, reused=0, operators=[], error=1e-7)
    again = replace(cold, built=0, reused=20)
    edited = replace(cold, built=2, reused=19)
    assert demo.network_problems(cold, again, edited) == []
    for wrong in (
        (replace(cold, built=0), again, edited),
        (cold, replace(again, built=1), edited),
        (cold, again, replace(edited, built=20)),
        (cold, again, replace(edited, built=0)),
        (cold, again, replace(edited, reused=0)),
        (replace(cold, error=0.01), again, edited),
        (cold, replace(again, error=float("nan")), edited),
        (cold, again, replace(edited, error=0.01)),
    ):
        assert len(demo.network_problems(*wrong))


def test_the_demo_fails_when_the_pack_is_not_enough(demo: ModuleType) -> None:
    """Operators that the release should bring and does not, and wrong results of those that it brings, are found."""
    packed = demo.Step(process=0.5, ready=0.2, call=0.03, built=0, reused=20, operators=[], error=1e-7)
    assert demo.pack_problems(packed) == []
    assert len(demo.pack_problems(replace(packed, built=1))) == 1
    assert len(demo.pack_problems(replace(packed, error=0.01))) == 1


@pytest.mark.slow
def test_the_changed_layer_is_one_convolution(demo: ModuleType, tmp_path: Path) -> None:
    """The copy is a valid model that differs from the original in one node and its weights' shape."""
    original = tmp_path / "resnet50.onnx"
    onnx.save(example_model("resnet50"), original)
    name = demo.widen_one_kernel(original, tmp_path / "changed.onnx")
    before, after = onnx.load(original).graph, onnx.load(tmp_path / "changed.onnx").graph
    onnx.checker.check_model(onnx.load(tmp_path / "changed.onnx"), full_check=True)
    changed = [(old, new) for old, new in zip(before.node, after.node, strict=True) if old != new]
    assert [new.name or new.output[0] for _, new in changed] == [name]
    weights = [list(new.dims) for old, new in zip(before.initializer, after.initializer, strict=True) if old != new]
    assert weights == [[64, 64, 5, 5]]
