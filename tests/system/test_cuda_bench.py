"""``opbuild bench --target cuda``: what is measured on a GPU, and what is said where there is none."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.cli.bench import _table
from opbuild.cli.main import main
from opbuild.cli.tables import output_console
from opbuild.errors import OptionError, TargetError
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from opbuild.tuning.bench.gpu import OpbuildCall, is_installed, onnxruntime_on_gpu
from opbuild.tuning.bench.measure import Figures
from opbuild.tuning.bench.runtimes import BenchJob
from support import device_models
from support.fake_driver import FakeDriver, problems_of

pytestmark = pytest.mark.usefixtures("kept_objects")


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A perceptron's file, on a machine without a driver."""
    monkeypatch.setattr("opbuild.runtime.devices.cuda.driver.LIBRARY", "libof.no.driver")
    monkeypatch.setattr(CLASS, "_device", CudaDevice())
    onnx.save(device_models.perceptron(), tmp_path / "model.onnx")
    return str(tmp_path / "model.onnx")


def test_without_a_driver_it_is_an_error_of_one_line(model: str, capsys: pytest.CaptureFixture[str]) -> None:
    """With the exit code of other commands for a target that is not there, before anything is built."""
    assert main(["bench", model, "--target", "cuda"]) == TargetError.exit_code
    said = capsys.readouterr().err.splitlines()
    assert "there is no NVIDIA driver here" in said[0]
    assert all("there is no NVIDIA driver" not in line for line in said[1:])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--runtime", "mnn"], "--runtime is 'mnn', which is measured on the CPU alone"),
        (["--generate"], "texts are measured on the CPU"),
    ],
)
def test_what_is_not_measured_on_a_gpu_is_refused(
    options: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, driver or not."""
    assert main(["bench", model, "--target", "cuda", *options]) == OptionError.exit_code
    assert said in capsys.readouterr().err


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed")
def test_a_network_is_measured_where_its_inputs_and_outputs_lie(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the second call nothing is copied from the host or to it, and each call ends when all is done."""
    from support.gpu_kernels import StoredKernels

    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    x = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    with problems_of(FakeDriver(StoredKernels([tmp_path]))) as driver:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(driver))
        call = OpbuildCall(BenchJob(model, {"x": x}, 1, str(tmp_path / "cache"), "cuda"))
        first = call()
        for _ in range(3):
            before = len(driver.called)
            (out,) = call()
            asked = driver.called[before:]
            assert out is first[0]
            assert asked[-1] == "cuStreamSynchronize"
            assert not {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2", "cuMemAlloc_v2"} & {*asked}
        assert "cuGraphLaunch" in asked
        np.testing.assert_allclose(out, opbuild.compile(model, cache_path=tmp_path)(x), rtol=1e-4, atol=1e-5)
        counts = call.counts
        assert (counts["calls"], counts["cpu_calls"]) == (3, 0)
        weights = 4 * (16 * 32 + 32 + 32 * 24 + 24 + 24 * 10 + 10)
        assert weights <= counts["bytes"] <= driver.held


def test_onnx_runtime_for_cpus_is_not_measured_there(model: str) -> None:
    """It says which package has what is lacking."""
    assert is_installed("opbuild")
    assert not is_installed("mnn")
    assert not is_installed("onnxruntime")
    x = np.zeros((8, 16), np.float32)
    with pytest.raises(RuntimeError, match="has no CUDAExecutionProvider: pip install onnxruntime-gpu"):
        onnxruntime_on_gpu(BenchJob(model, {"x": x}, 1, "", "cuda"))


def test_the_table_has_columns_of_a_gpu_where_one_was_measured(capsys: pytest.CaptureFixture[str]) -> None:
    """Others leave them empty; on the CPU there are none."""
    own = Figures("opbuild", 1, seconds=[0.1], device={"calls": 73, "cpu_calls": 2, "bytes": 8_500_000})
    other = Figures("onnxruntime", 1, seconds=[0.1])
    for figures, shown in (([own, other], True), ([other], False)):
        output_console().print(_table(figures, ()))
        said = capsys.readouterr().out
        assert ("GPU calls" in said) is ("73" in said) is ("8.5" in said) is shown
