"""Whole networks for a GPU beside torch: what ``prepare.py`` makes, ``gpu_field.py`` runs, on a driver in memory."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from support.fake_driver import GPU

sys.path.append(str(GPU))

import gpu_field

from opbuild.cli.main import main
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
    pytest.mark.skipif(find_spec("torch") is None, reason="torch, which writes the networks, is not installed"),
]
STAND_IN = """
import sys
from pathlib import Path
sys.path[:0] = [{root!r}, {tests!r}]
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support.fake_driver import FakeDriver
from support.gpu_kernels import StoredKernels
def Library():
    CLASS.copy_cost = DeviceCost
    CLASS.kernel_cost = lambda family: DeviceCost()
    return FakeDriver(StoredKernels([Path({store!r})]))
"""


@pytest.mark.slow
def test_a_run_takes_what_was_prepared_and_compiles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Models, pack and weights fit each other; results agree with torch's, and a step that fails is told."""
    import prepare

    def run(command: list[Any], **_: Any) -> subprocess.CompletedProcess[str]:
        assert command[1:3] == ["-m", "opbuild"]
        return subprocess.CompletedProcess(command, main([str(each) for each in command[3:]]))

    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda family: DeviceCost())
    monkeypatch.setattr(prepare.subprocess, "run", run)  # in this process, where all goes to the GPU
    monkeypatch.setattr(prepare, "fetch_packages", lambda folder: None)
    name, prepared, out = "product of 16", tmp_path / "prepared", tmp_path / "out"
    given = ["--small", "--networks", name, "BERT", "--dtypes", "fp16", "--folder", str(prepared)]
    assert prepare.main(given) == 0  # inputs of other ranks, together
    monkeypatch.undo()
    assert not [*prepared.glob("*.weights")]
    driver = tmp_path / "driver.py"
    tests = Path(__file__).parents[2]
    driver.write_text(STAND_IN.format(root=str(tests.parent), tests=str(tests), store=str(prepared / "store")))
    steps = ["machine", f"opbuild {name} fp16", f"eager {name} fp16", "opbuild GPT-2 fp16"]
    given = ["--small", "--device", "cpu", "--driver", str(driver), "--folder", str(prepared), "--out", str(out)]
    assert gpu_field.main([*given, "--steps", *steps]) == 1
    said = capsys.readouterr().out
    found = [json.loads(line) for line in (out / gpu_field.RESULTS).read_text().splitlines()]
    assert [each["step"] for each in found] == [steps[0], steps[1], steps[1], steps[2], steps[3]], said
    for each in found[1:3]:
        assert each["right"], said
        assert each["built"] == 0
    assert "GPT-2-fp16.onnx" in found[-1]["failed"]
    assert "torch 2" in said
