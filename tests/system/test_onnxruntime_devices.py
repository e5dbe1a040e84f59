"""Execution providers for devices: a session runs where the first of its providers is, if there is such a device."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild.onnxruntime as ort
from opbuild.errors import TargetError
from opbuild.onnxruntime.environment import CPU, CUDA
from opbuild.target import devices
from support import device_models, fake_device

pytestmark = pytest.mark.usefixtures("kept_objects")
DEVICE = fake_device.CLASS.open()
FEEDS = {"x": np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)}


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions keep what they build in a folder of the test's."""
    monkeypatch.setenv("OPBUILD_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A class of devices stands for that of NVIDIA's GPUs."""
    with monkeypatch.context() as patched:
        patched.setitem(devices._PATHS, "cuda", devices._PATHS[fake_device.NAME])
        patched.setitem(devices._LOADED, "cuda", Cuda())
        yield


class Cuda(type(fake_device.CLASS)):  # type: ignore[misc]  # whatever class it is
    """The fake device by another name of its class: code is for the fake one."""

    reason: str | None = None

    def require(self) -> None:
        """Refuse for the reason that the test gives."""
        if self.reason:
            raise TargetError(self.reason)


@pytest.fixture
def model(tmp_path: Path) -> str:
    """A perceptron's file."""
    onnx.save(device_models.perceptron(), tmp_path / "perceptron.onnx")
    return str(tmp_path / "perceptron.onnx")


def launched(session: Any) -> list[str]:
    """Return the kernels that a run calls on the device."""
    DEVICE.launched.clear()
    session.run(None, FEEDS)
    return [each.split("_")[0] for each in DEVICE.launched]


def test_without_a_gpu_its_provider_is_passed_over(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in ONNX Runtime there is a warning, and the session is the processor's, by its own word, too."""
    monkeypatch.setitem(devices._PATHS, "cuda", "nowhere:CLASS")
    monkeypatch.setitem(devices._LOADED, "cuda", cuda := Cuda())
    cuda.reason = "libcuda.so.1 is not there"
    assert ort.get_available_providers() == [CPU]
    assert ort.get_all_providers() == [CUDA, CPU]
    assert ort.get_device() == "CPU"
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        session = ort.InferenceSession(model, providers=[CUDA, CPU])
    assert session.get_providers() == [CPU]
    assert not launched(session)


def test_a_session_runs_on_the_gpu_where_its_provider_comes_first(model: str, gpu: None) -> None:
    """Its outputs are the processor's; where that is named first, all is the processor's."""
    assert ort.get_available_providers() == [CUDA, CPU]
    assert ort.get_device() == "GPU"
    plain = ort.InferenceSession(model)
    assert plain.get_providers() == [CPU]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = ort.InferenceSession(model, providers=[CUDA, CPU])
    assert session.get_providers() == [CUDA, CPU]
    assert launched(session) == ["matmul"] * 3
    np.testing.assert_allclose(session.run(None, FEEDS)[0], plain.run(None, FEEDS)[0], rtol=1e-4, atol=1e-5)
    assert not launched(plain)
    assert not launched(ort.InferenceSession(model, providers=[CPU, CUDA]))


def test_a_session_goes_from_one_to_the_other(model: str, gpu: None) -> None:
    """``set_providers`` builds it again for the provider that comes first now."""
    session = ort.InferenceSession(model)
    session.set_providers([CUDA])
    assert session.get_providers() == [CUDA, CPU]
    assert launched(session) == ["matmul"] * 3
    session.set_providers([CPU])
    assert not launched(session)
