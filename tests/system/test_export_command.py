"""``opbuild export`` and ``opbuild atc`` on models: what they write, show, check and leave alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.reference
import pytest
from onnx import TensorProto, helper

import opbuild
from opbuild.cli.main import main
from opbuild.target.host import host_level
from support import networks

pytestmark = pytest.mark.usefixtures("kept_objects")

CONV = "x:-1,3,8,8"


def save_model(path: Path, nodes: Sequence[onnx.NodeProto], shape: Sequence[int | str]) -> None:
    """Write a model with input ``x`` of a shape and output ``y``; ``w`` is a 3 x 3 kernel from 3 to 4 channels."""
    kernel = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [onnx.numpy_helper.from_array(kernel, "w")],
    )
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]), path)


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of models: ``mlp``, ``open`` (a convolution of any size) and ``bad`` (unknown operators)."""
    folder = tmp_path_factory.mktemp("models")
    onnx.save(networks.mlp(), folder / "mlp.onnx")
    conv = helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1])
    relu = helper.make_node("Relu", ["c"], ["y"], name="relu")
    save_model(folder / "open.onnx", [conv, relu], ["N", 3, "H", "W"])
    relu = helper.make_node("Relu", ["x"], ["a"], name="relu")
    unknown = [helper.make_node(f"Foo{i}", ["a"], ["b" if i else "y"], name=f"foo_{i}") for i in (1, 0)]
    save_model(folder / "bad.onnx", [relu, *unknown], [1, 3])
    return folder


@pytest.fixture
def folder(tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder, with the home folder in it; models are in ``models``, a link."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    for name in ("ASCEND_CACHE_PATH", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    work = tmp_path / "work"
    work.mkdir()
    (tmp_path / "models").symlink_to(models)
    monkeypatch.chdir(work)
    return work


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Run a command; return its exit code, what it printed, and what it said on the standard error."""
    code = main([*arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_a_model_becomes_a_file_that_runs(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is named after the model; it gives the reference's outputs; a second build reuses every operator."""
    code, shown, said = run(capsys, "export", "--model=../models/mlp.onnx")
    assert code == 0, said
    assert shown.startswith("mlp.om: ")
    assert "operators built, 0 reused" in shown
    assert "operators to compile" in said
    x = np.random.default_rng(1).standard_normal((4, 64)).astype(np.float32)
    (expected,) = onnx.reference.ReferenceEvaluator(networks.mlp()).run(None, {"x": x})
    np.testing.assert_allclose(opbuild.load("mlp.om")(x), expected, rtol=1e-4, atol=1e-5)
    assert list((folder.parent / "home" / ".cache" / "opbuild" / "rank_0" / "kernel_meta").glob("*.o"))
    code, shown, _ = run(capsys, "export", "--model=../models/mlp.onnx", "--output=second.om", "--explain")
    assert code == 0
    assert "second.om: " in shown
    assert " 0 operators built" in shown
    assert shown.count(" reused ") >= 2
    assert sorted(path.name for path in folder.iterdir()) == ["mlp.om", "second.om"]


def test_atc_builds_with_atcs_words_and_leaves_no_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Exactly ATC's two lines, the file, and nothing in the cache folder."""
    code, shown, said = run(
        capsys, "atc", "--model=../models/mlp.onnx", "--framework=5", "--output=m", "--soc_version=host"
    )
    assert (code, said) == (0, "")
    assert shown.splitlines() == [
        "ATC start working now, please wait for a moment.",
        "ATC run success, welcome to the next use.",
    ]
    assert [path.name for path in folder.iterdir()] == ["m.om"]
    assert not list((folder.parent / "home").rglob("*.o"))


@pytest.mark.slow
@pytest.mark.parametrize("shape", ["x:2,3,8,8", "x:1~4,3,8~16,8~16"])
def test_a_dry_run_says_what_the_build_then_does_and_writes_nothing(
    folder: Path, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dry run names the operators that the build compiles, with the reason; before that no file appears."""
    arguments = ["export", "--model=../models/open.onnx", f"--shape={shape}"]
    code, shown, said = run(capsys, *arguments, "--dry-run")
    assert (code, said) == (0, "")
    assert "nothing was built or written" in shown
    assert not list(folder.iterdir())
    assert not (folder.parent / "home").exists()
    planned = {line.split()[0] for line in shown.splitlines() if " build " in line and "_" in line.split()[0]}
    assert planned
    assert run(capsys, *arguments)[0] == 0
    assert {path.stem for path in (folder.parent / "home").rglob("*.o") if "runtime" not in path.name} >= planned
    _, shown, _ = run(capsys, *arguments, "--dry-run")
    assert f" 0 operators to build, {len(planned)} to reuse" in shown


def test_batch_sizes_share_one_file(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """``--dynamic_batch_size`` makes one file that serves each size, and mode 6 lists them."""
    arguments = [f"--shape={CONV}", "--dynamic_batch_size=1,4", "--output=v"]
    assert run(capsys, "export", "--model=../models/open.onnx", *arguments)[0] == 0
    network = opbuild.load("v.om")
    for size in (1, 4):
        assert network(np.zeros((size, 3, 8, 8), np.float32)).shape == (size, 4, 8, 8)
    code, shown, _ = run(capsys, "export", "--mode=6", "--om=v.om")
    assert code == 0
    assert "x:1,3,8,8" in shown
    assert "x:4,3,8,8" in shown


def test_an_offline_model_is_shown_and_written_as_json(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Mode 6 shows ranges, level and operators; mode 1 writes the same as JSON, and an ONNX model's nodes too."""
    shape = "x:-1,3,8~16,8"
    assert run(capsys, "export", "--model=../models/open.onnx", f"--shape={shape}", "--output=r")[0] == 0
    code, shown, _ = run(capsys, "export", "--mode=6", "--om=r.om")
    assert code == 0
    for text in (shape, "x float32", "conv_relu_", host_level().name):
        assert text in shown
    assert run(capsys, "export", "--mode=1", "--om=r.om", "--json=om.json")[0] == 0
    content = json.loads((folder / "om.json").read_text())
    assert (content["build"]["ranges"], content["outputs"]) == (shape, ["y"])
    assert content["build"]["operators"]
    assert run(capsys, "atc", "--mode=1", "--om=../models/open.onnx", "--framework=5", "--json=m.json")[0] == 0
    content = json.loads((folder / "m.json").read_text())
    assert content["inputs"] == [{"name": "x", "type": "float", "shape": ["N", 3, "H", "W"]}]
    assert content["constants"] == [{"name": "w", "type": "float", "shape": [4, 3, 3, 3]}]
    assert content["nodes"][0]["attributes"] == {"pads": [1, 1, 1, 1]}
    assert run(capsys, "export", "--mode=6", "--om=../models/open.onnx")[0] == 2


def test_a_check_names_every_operator_without_a_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, not the first; the report has ATC's form; nothing is built."""
    code, shown, said = run(capsys, "export", "--mode=3", "--model=../models/bad.onnx")
    assert code == 3
    for name in ("foo_1", "foo_0"):
        assert f"{name}: Foo" in shown
        assert f"{name} (Foo" in said
    report = json.loads((folder / "check_result.json").read_text())
    assert {key: report[key] for key in ("name", "result", "total", "pass", "fail")} == {
        "name": "bad", "result": "failed", "total": 3, "pass": 1, "fail": 2,
    }  # fmt: skip
    assert [op["result"] for op in report["op"]] == ["success", "failed", "failed"]
    assert report["op"][1]["cause"][0]["code"] == 1
    arguments = ["--mode=3", "--model=../models/open.onnx", "--framework=5", f"--input_shape={CONV}"]
    code, shown, _ = run(capsys, "atc", *arguments, "--check_report=ok.json")
    assert code == 0
    assert "2 operators: 2 can be built, 0 can not" in shown
    assert json.loads((folder / "ok.json").read_text())["result"] == "success"
    assert sorted(path.name for path in folder.iterdir()) == ["check_result.json", "ok.json"]
    assert not list((folder.parent / "home").rglob("*.o"))


def test_an_operator_that_numpy_evaluates_is_a_remark(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It has no kernel, and the file can have it all the same: the check names it and passes."""
    save_model(folder / "host.onnx", [helper.make_node("Det", ["x"], ["y"], name="volume")], [3, 3])
    code, shown, _ = run(capsys, "export", "--mode=3", "--model=host.onnx")
    assert code == 0
    assert shown.startswith("volume: Det: ")
    assert "numpy evaluates it" in shown
    (operator,) = json.loads((folder / "check_result.json").read_text())["op"]
    assert (operator["result"], operator["cause"][0]["code"]) == ("success", 0)


@pytest.mark.parametrize("shape", ["x:-1,4", "x:2,4"])
def test_a_check_and_a_dry_run_refuse_what_the_build_refuses(
    folder: Path, shape: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An operator that needs onnx to run: the check lists it, with ranges too, and neither build nor dry run begins."""
    known = {"s": np.array([-1, 1, 2, 2]), "r": np.zeros((1, 4), np.float32), "b": np.array([0])}
    regions = [
        *(helper.make_node("Constant", [], [n], value=onnx.numpy_helper.from_array(v)) for n, v in known.items()),
        helper.make_node("Reshape", ["x", "s"], ["i"], name="image"),
        helper.make_node("RoiAlign", ["i", "r", "b"], ["a"], name="regions"),
        helper.make_node("Relu", ["a"], ["y"], name="relu"),
    ]
    save_model(folder / "foreign.onnx", regions, ["n", 4])
    arguments = ["export", "--model=foreign.onnx", f"--shape={shape}"]
    code, shown, _ = run(capsys, *arguments, "--mode=3")
    assert code == 3
    assert "regions: RoiAlign: " in shown
    report = json.loads((folder / "check_result.json").read_text())
    assert [op["result"] for op in report["op"]].count("failed") == 1
    for more in ([], ["--dry_run"]):
        code, _, said = run(capsys, *arguments, *more)
        assert code == 3
        assert "RoiAlign" in said
        assert "regions" in said


def test_float32_gives_an_operator_of_float64_a_kernel(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It runs on the host, in an offline model too, and the command says so; computed in float32 it has a kernel."""
    cast = helper.make_node("Cast", ["x"], ["d"], to=TensorProto.DOUBLE)
    lrn = helper.make_node("LRN", ["d"], ["c"], name="wide", size=3)
    save_model(folder / "wide.onnx", [cast, lrn, helper.make_node("Cast", ["c"], ["y"], to=1)], [1, 3, 8, 8])
    code, shown, said = run(capsys, "export", "--model=wide.onnx", "--dry_run")
    assert code == 0
    assert "falls back to numpy: 1 x LRN" in shown + said
    code, shown, said = run(capsys, "export", "--model=wide.onnx", "--dry_run", "--precision_mode=force_fp32")
    assert code == 0
    assert "numpy" not in shown + said


def test_control_flow_can_be_bound_for_ranges(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A check of a file for any size finds nothing that it could not have."""
    branch = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"])], "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, None)]
    )
    flag = helper.make_node("Constant", [], ["f"], value=onnx.numpy_helper.from_array(np.array(True)))
    choice = helper.make_node("If", ["f"], ["y"], name="if_y", then_branch=branch, else_branch=branch)
    save_model(folder / "flow.onnx", [flag, choice], ["n", 4])
    code, shown, said = run(capsys, "export", "--mode=3", "--model=flow.onnx", "--shape=x:-1,4")
    assert code == 0, shown + said


@pytest.mark.parametrize("log", ["debug", "info", "warning", "error", "null"])
def test_the_level_of_the_log_decides_what_is_printed(
    folder: Path, log: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """From each operator to nothing at all; an error is shown at any level."""
    _, shown, said = run(capsys, "export", "--model=../models/mlp.onnx", f"--log={log}")
    assert ("compiled matmul" in said, "why" in shown) == (log == "debug",) * 2
    assert ("to compile" in said, "mlp.om: " in shown) == (log in ("debug", "info"),) * 2
    if log not in ("debug", "info"):
        assert (shown, said) == ("", "")
    code, _, said = run(capsys, "export", "--model=../models/open.onnx", f"--log={log}")
    assert code == 3
    assert "'x' has an open shape" in said
    assert "--shape" in said


@pytest.mark.parametrize("text", ["op_debug_config=oom,fast\n", "op_debug_config\n", "op_debug_config=\n"])
def test_a_wrong_file_of_debugging_is_named_and_nothing_is_written(
    folder: Path, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The message names the file and what it has, the hint what it may have."""
    (folder / "debug.cfg").write_text(text)
    code, shown, said = run(capsys, "export", "--model=../models/mlp.onnx", "--op_debug_config=debug.cfg")
    assert (code, shown) == (2, "")
    line, hint = said.splitlines()
    assert "debug.cfg" in line
    assert "op_debug_config" in line
    assert hint.startswith("  hint: ")
    assert [path.name for path in folder.iterdir()] == ["debug.cfg"]
    assert not (folder.parent / "home").exists()


def test_the_program_itself_ends_with_the_exit_code(folder: Path) -> None:
    """In a process of its own: ATC's block on the standard output, exit code 2, no traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "opbuild", "atc", "--model=x.onnx", "--framework=5"],
        env=dict(os.environ), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (2, "")
    assert done.stdout.splitlines()[-1].startswith("        Solution: give the path of")
    assert done.stdout.splitlines()[-2] == "E10410: there is no file 'x.onnx'"
