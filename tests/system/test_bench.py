"""``opbuild bench``: a model in real runtimes, and what is said where one of them cannot run it."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from opbuild.cli.main import main
from support.decoders import PARTS, fixed, genai, optimum
from support.small_network import SmallNetwork

pytestmark = pytest.mark.usefixtures("kept_objects")

QUICK = ["--rounds", "2", "--seconds", "1", "--num_threads", "1", "--output", "figures.json"]
BOTH = ["--runtime", "onnxruntime", "--runtime", "opbuild"]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPBUILD_PACK", "1")
    return tmp_path


@pytest.mark.slow
def test_a_model_is_measured_beside_onnx_runtime(
    folder: Path, small_network: SmallNetwork, capfd: pytest.CaptureFixture[str]
) -> None:
    """Starts, latency with and without gaps, memory and the difference of the outputs; the store is left alone."""
    (folder / "small.onnx").write_bytes(small_network.path.read_bytes())
    assert main(["bench", "small.onnx", "--shape", "x:8,256", *BOTH, "--gap", "5", *QUICK]) == 0
    own, other = json.loads((folder / "figures.json").read_text())["figures"]
    assert (own["runtime"], own["failure"], other["runtime"], other["failure"]) == ("opbuild", "", "onnxruntime", "")
    for each in (own, other):
        assert len(each["seconds"]) == len(each["with_gaps"]["5"]) == 2
        assert min(each["first"], each["again"], each["memory"], *each["seconds"]) > 0
    assert own["error"] < 1e-5
    assert other["error"] is None
    said = capfd.readouterr().out
    assert "1 thread: opbuild takes" in said
    assert "reference" in said


def saved(path: Path, op_type: str, kind: int, domain: str = "", **attributes: object) -> str:
    """Write a model of one node with two inputs, and return its path."""
    node = helper.make_node(op_type, ["x", "w"], ["y"], domain=domain, **attributes)
    ports = [helper.make_tensor_value_info(name, kind, [1, 1, 4, 4]) for name in "xwy"]
    opsets = [helper.make_opsetid("", 17), *([helper.make_opsetid(domain, 1)] if domain else [])]
    model = helper.make_model(helper.make_graph([node], "g", ports[:2], ports[2:]), opset_imports=opsets)
    model.ir_version = 8
    onnx.save(model, path)
    return path.name


@pytest.mark.slow
def test_a_runtime_that_cannot_run_a_model_has_its_reason_in_the_table(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """ONNX Runtime has no convolution of float64; opbuild is measured all the same."""
    name = saved(folder / "wide.onnx", "Conv", TensorProto.DOUBLE, auto_pad="SAME_UPPER")
    assert main(["bench", name, *BOTH, *QUICK]) == 0
    own, other = json.loads((folder / "figures.json").read_text())["figures"]
    assert "Conv" in other["failure"]
    assert (own["failure"], own["error"], len(own["seconds"])) == ("", None, 2)
    assert "Could not find an implementation for Conv" in " ".join(capfd.readouterr().out.split())


def test_a_model_that_no_runtime_can_run_is_an_error_with_all_reasons(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """An operator of a domain that nobody knows."""
    name = saved(folder / "unknown.onnx", "Mystery", TensorProto.FLOAT, "mine")
    assert main(["bench", name, *BOTH, *QUICK]) == 6
    said = " ".join(capfd.readouterr().err.split())
    assert "no runtime can run 'unknown.onnx': opbuild: " in said
    assert "; onnxruntime: " in said


@pytest.mark.parametrize(
    ("runtime", "installation"),
    [
        ("openvino", "pip install openvino"),
        ("torch", "pip install torch --index-url https://download.pytorch.org/whl/cpu && pip install onnx2torch"),
    ],
)
def test_a_runtime_that_is_not_installed_is_refused_by_name(
    runtime: str, installation: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Before anything is measured, with what to install."""
    monkeypatch.setattr("opbuild.tuning.bench.runtimes.find_spec", lambda name: None)
    (folder / "x.onnx").touch()
    assert main(["bench", "x.onnx", "--runtime", runtime]) == 2
    assert f"install it: {installation}" in " ".join(capfd.readouterr().err.split())


@pytest.mark.slow
def test_texts_of_a_decoder_are_measured_beside_onnx_runtime(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Both generate the same tokens; what is told is of prompts and of tokens behind them."""
    path = optimum(folder)
    words = ["--generate", "--prompt", "9", "--tokens", "5", "--rounds", "2", "--num_threads", "1"]
    assert main(["bench", path.name, *BOTH, *words, "--output", "figures.json"]) == 0
    record = json.loads((folder / "figures.json").read_text())
    own, other = record["figures"]
    assert (record["prompt"], record["tokens"], own["same"], other["same"]) == (9, 5, 6, None)
    for each in (own, other):
        assert len(each["seconds"]) == len(each["prompts"]) == 2
        assert 0 < each["first"] < each["text"]
        assert min(each["again"], each["memory"], *each["seconds"], *each["prompts"]) > 0
    said = capfd.readouterr().out
    assert "next tokens/s" in said
    assert "1 thread: opbuild takes" in said


@pytest.mark.slow
def test_texts_with_caches_of_a_fixed_length_are_measured(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """As a file declares them, or as ``--shape`` says of open ones; what they have no room for is refused."""
    words = ["--generate", "--prompt", "9", "--tokens", "5", "--rounds", "1", "--num_threads", "1"]
    (folder / "open").mkdir()
    declared, opened = fixed(folder, 14), genai(folder / "open")
    sizes = ";".join(f"past_key_values.{part}:1,2,20,16" for part in PARTS)
    for path, more in ((declared, []), (opened, ["--shape", sizes])):
        assert main(["bench", str(path), *BOTH, *words, *more, "--output", "figures.json"]) == 0
        own, other = json.loads((folder / "figures.json").read_text())["figures"]
        assert (own["failure"], other["failure"], own["same"]) == ("", "", 6)
    capfd.readouterr()
    words[words.index("9")] = "10"
    assert main(["bench", str(declared), *BOTH, *words]) == 2
    said = " ".join(capfd.readouterr().err.split())
    assert "--prompt 10 and --tokens 5 are 15 tokens, and the caches of 'model.onnx' have room for 14" in said


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--generate", "--gap", "5"], "--gap is for calls, not texts"),
        (["--tokens", "5"], "--tokens is for texts, with --generate"),
        (["--generate", "--runtime", "mnn"], "--runtime is 'mnn'"),
        (["--generate"], "'small.onnx' has 1 input that no exporter of decoders gives: x: float32"),
    ],
    ids=["gap", "tokens", "runtime", "model"],
)
def test_what_generates_no_text_is_refused(
    words: list[str],
    message: str,
    folder: Path,
    small_network: SmallNetwork,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before anything is measured."""
    monkeypatch.setattr("opbuild.tuning.bench.runtimes.find_spec", lambda name: "there")
    (folder / "small.onnx").write_bytes(small_network.path.read_bytes())
    assert main(["bench", "small.onnx", *words]) == 2
    assert message in " ".join(capfd.readouterr().err.split())
