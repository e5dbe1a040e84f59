"""``opbuild tune`` and ``opbuild bank``: real candidates of a small network, kept, listed, carried and used."""

from __future__ import annotations

import json
import platform
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.platform.files.trust import make_trust
from opbuild.store.machine_class import read_measured
from opbuild.target.host import host_level
from opbuild.tuning import search, tuner
from opbuild.tuning.tuner import worth_building

pytestmark = pytest.mark.usefixtures("kept_objects")


def convolutions() -> onnx.ModelProto:
    """A 3 x 3 convolution, which Winograd's may serve, and a depthwise one."""
    random = np.random.default_rng(0)
    weights = random.standard_normal((16, 16, 3, 3)).astype(np.float32) / 12
    depthwise = random.standard_normal((16, 1, 3, 3)).astype(np.float32) / 3
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "w"], ["h"], name="dense", pads=[1, 1, 1, 1]),
            helper.make_node("Conv", ["h", "d"], ["y"], name="depthwise", pads=[1, 1, 1, 1], group=16),
        ],
        "convolutions",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 16, 20, 20))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(depthwise, "d")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    return model


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The network's file."""
    path = tmp_path_factory.mktemp("model") / "convolutions.onnx"
    onnx.save(convolutions(), path)
    return path


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try few candidates, and keep whichever is last measured: what is kept is then no matter of time."""
    monkeypatch.setattr(tuner, "MOST", 2)
    monkeypatch.setattr(search, "GAIN", float("inf"))


def outputs(model: Path, cache: Path) -> tuple[np.ndarray, opbuild.Report]:
    """Return the outputs of the network with one thread, and its report."""
    net = opbuild.compile(model, cache_path=cache, num_threads=1)
    x = np.random.default_rng(2).standard_normal((1, 16, 20, 20)).astype(np.float32)
    return net(x), net.report


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_what_tuning_finds_is_kept_listed_carried_and_used(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Candidates are built and compared with real kernels; results stay right whatever is chosen."""
    cache, other = tmp_path / "cache", tmp_path / "other"
    expected, before = outputs(model, cache)
    assert main(["tune", str(model), "--num_threads", "1", "--cache_path", str(cache)]) == 0
    said = capfd.readouterr().out
    assert "0 known before" in said
    assert f"the tuning database is {cache / 'tune_bank' / 'opbuild_bank.jsonl'}" in said
    assert "refused" not in said
    assert main(["tune", str(model), "--num_threads", "1", "--cache_path", str(cache)]) == 0
    assert "0 distinct calls measured" in capfd.readouterr().out

    assert main(["bank", "ls", "--json", "--cache_path", str(cache)]) == 0
    records = json.loads(capfd.readouterr().out)
    assert {each["family"] for each in records} >= {"winograd", "conv_depthwise"}
    assert {(each["state"], each["threads"], each["network"]) for each in records} == {("counts", 1, "convolutions")}
    assert all(each["machine"] for each in records)

    got, after = outputs(model, cache)
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-4)
    tuned = [each for each in records if each["choice"] != each["default"]]
    assert bool(after.tuned) == bool(tuned)
    assert not before.tuned
    assert after.built == 0, "candidates were built through the store"

    assert main(["bank", "export", str(tmp_path / "carried"), "--cache_path", str(cache)]) == 0
    assert main(["bank", "import", str(tmp_path / "carried"), "--cache_path", str(other)]) == 0
    assert f"{len(records)} records added" in capfd.readouterr().out
    with (tmp_path / "carried").open("ab") as file:
        file.write(b"nothing\nof a database\n")
    assert main(["bank", "import", str(tmp_path / "carried"), "--cache_path", str(other)]) == 0
    assert "0 records added; 2 lines damaged or not signed" in capfd.readouterr().out
    assert outputs(model, other)[1].tuned == after.tuned


@pytest.mark.slow
@pytest.mark.usefixtures("quick")
def test_a_lower_level_is_tuned_for_builds_at_that_level(
    model: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is measured with the class of the machine at that level; builds at the own level take nothing of it."""
    lower = next((each for each in host_level().lower() if each in worth_building(host_level())), None)
    if lower is None:
        pytest.skip("this machine has no lower level that is worth tuning")
    asked = ["tune", str(model), "--num_threads", "1", "--cache_path", str(tmp_path), "--operators", "conv"]
    assert main([*asked, "--target", lower.name]) == 0
    assert f"convolutions for {lower} on" in capfd.readouterr().out
    assert main(["bank", "ls", "--json", "--cache_path", str(tmp_path)]) == 0
    records = json.loads(capfd.readouterr().out)
    measured = read_measured(config := Config.from_environment(cache_path=tmp_path), make_trust(config))
    assert measured is not None
    assert {(each["level"], each["machine"], each["state"]) for each in records} == {
        (lower.name, measured.name(lower.name), "counts")
    }
    reports = [opbuild.compile(model, cache_path=tmp_path, num_threads=1, target=each).report for each in (lower, None)]
    tuned = [each for each in records if each["choice"] != each["default"]]
    assert [bool(each.tuned) for each in reports] == [bool(tuned), False]


def test_a_file_that_is_no_database_and_one_that_is_missing_are_said(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A file of lines that are none is an error, as a missing one is."""
    (tmp_path / "other").write_bytes(b"nothing\nof a database\n")
    assert main(["bank", "import", str(tmp_path / "other")]) == 2
    assert "is no tuning database" in capfd.readouterr().err
    for name in ("missing", "x" * 300):
        assert main(["bank", "import", str(tmp_path / name)]) == 2
        assert "there is no file" in capfd.readouterr().err
    assert main(["bank", "ls"]) == 0
    assert "0 records in" in capfd.readouterr().out


def test_wrong_arguments_of_tune_are_said_before_anything_is_measured(
    model: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """No model, and a budget that is no span of time."""
    assert main(["tune"]) == 2
    assert "the models are missing" in capfd.readouterr().err
    assert main(["tune", str(model), "--budget", "soon"]) == 2
    assert "--budget is 'soon'" in capfd.readouterr().err
    assert main(["tune", str(model), "--operators", "Cnov"]) == 2
    said = capfd.readouterr().err
    assert "--operators names 'Cnov', which is no operator type" in said
    assert "Conv" in said
    assert main(["tune", str(model), str(model.with_name("missing.onnx"))]) == 2
    assert "there is no file" in capfd.readouterr().err
    assert main(["tune", str(model), "--target", "x86-65"]) == 2
    assert "target is 'x86-65'" in capfd.readouterr().err
    other = "armv8-a" if platform.machine() == "x86_64" else "x86-64"
    assert main(["tune", str(model), "--target", other]) == 5
    assert "cannot run here" in capfd.readouterr().err


def test_a_measured_machine_is_shown_with_its_class(capfd: pytest.CaptureFixture[str]) -> None:
    """``opbuild env`` says that it was not measured; ``--measure`` does it, and later ones know it.

    The rate that it shows is the one after which the class is named, rounded there to a step of 1.41.
    """
    assert main(["env"]) == 0
    assert "not measured: opbuild env --measure" in capfd.readouterr().out
    assert main(["env", "--measure"]) == 0
    measured = capfd.readouterr().out
    assert main(["env"]) == 0
    assert capfd.readouterr().out == measured
    rounded, rate = re.search(r"(\d+)GF/L1-.*GFLOP/s of a core (\d+) at", measured).groups()  # type: ignore[union-attr]
    assert 0.8 < int(rounded) / int(rate) < 1.25
