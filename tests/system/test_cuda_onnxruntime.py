"""ONNX Runtime's values and bindings on a GPU, on the driver in memory: nothing is dropped in silence."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild.onnxruntime as ort
from opbuild.onnxruntime.environment import CPU, CUDA
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support import device_models
from support.fake_driver import FakeDriver, problems_of
from support.gpu_arrays import GpuArray

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
X = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
HOST_COPIES = {"cuMemcpyHtoDAsync_v2", "cuMemcpyDtoHAsync_v2"}


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models and their caches."""
    return tmp_path_factory.mktemp("cuda_onnxruntime")


@pytest.fixture
def driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver that does all as late as can be; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    monkeypatch.setenv("OPBUILD_CACHE", str(folder / "cache"))
    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


def session(folder: Path, *providers: str) -> Any:
    """Return a session of a perceptron."""
    path = folder / "perceptron.onnx"
    if not path.exists():
        onnx.save(device_models.perceptron(), path)
    return ort.InferenceSession(str(path), providers=list(providers or (CUDA, CPU)))


def wanted(folder: Path) -> Any:
    """Return the result of the processor."""
    return session(folder, CPU).run(None, {"x": X})[0]


def test_a_value_on_the_gpu_is_what_it_says(driver: FakeDriver) -> None:
    """Made of an array or of nothing, updated, copied back; its memory is the GPU's."""
    value = ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert (value.device_name(), value.shape(), value.data_type()) == ("cuda", [8, 16], "tensor(float)")
    assert value.is_tensor()
    assert value.tensor_size_in_bytes() == X.nbytes
    assert driver.bytes_at(value.data_ptr(), X.nbytes).size == X.nbytes
    assert value.__dlpack_device__() == (2, 0)
    np.testing.assert_array_equal(value.numpy(), X)
    empty = ort.OrtValue.ortvalue_from_shape_and_type([8, 16], np.float32, "cuda", 0)
    for source in (X + 1, value):
        empty.update_inplace(source)
        np.testing.assert_array_equal(np.asarray(empty), np.asarray(source))
    back = ort.OrtValue.ortvalue_from_numpy(np.zeros_like(X))
    back.update_inplace(value)
    np.testing.assert_array_equal(back.numpy(), X)
    with pytest.raises(RuntimeError, match="cannot be updated"):
        empty.update_inplace(X[:2])
    assert ort.OrtDevice.make("cuda", 0).device_type() == ort.OrtDevice.cuda()


def test_memory_on_the_gpu_is_bound(folder: Path, driver: FakeDriver) -> None:
    """Addresses of the program's own and values: from the third run nothing goes through the host's memory."""
    own, binding = session(folder), None
    expected = wanted(folder)
    x, y = GpuArray(driver, X, 1), GpuArray(driver, np.zeros_like(expected), 1)
    for _ in range(4):
        binding = own.io_binding()
        binding.bind_input("x", "cuda", 0, np.float32, X.shape, x.address)
        binding.bind_output(own.get_outputs()[0].name, "cuda", 0, np.float32, expected.shape, y.address)
        before = len(driver.called)
        own.run_with_iobinding(binding)
        asked = driver.called[before:]
    assert not HOST_COPIES & {*asked}
    assert "cuGraphLaunch" in asked
    np.testing.assert_allclose(y.seen(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(binding.copy_outputs_to_cpu()[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("given", ["cpu", "cuda"])
@pytest.mark.parametrize("asked", ["cpu", "cuda"])
def test_outputs_lie_where_they_are_asked_for(given: str, asked: str, folder: Path, driver: FakeDriver) -> None:
    """Whatever device inputs are on; without bindings they are arrays."""
    own, expected = session(folder), wanted(folder)
    value = ort.OrtValue.ortvalue_from_numpy(X, given, 0)
    binding = own.io_binding()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output(own.get_outputs()[0].name, asked)
    own.run_with_iobinding(binding)
    (found,) = binding.get_outputs()
    assert found.device_name() == asked
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-5)
    for (array,) in (own.run(None, {"x": value}), [own.run_with_ort_values(None, {"x": value})[0].value]):
        assert type(array) is np.ndarray
        np.testing.assert_allclose(array, expected, rtol=1e-4, atol=1e-5)


def test_a_value_on_the_gpu_takes_an_output(folder: Path, driver: FakeDriver) -> None:
    """It is that value's memory; one of another shape is refused."""
    own, expected = session(folder), wanted(folder)
    target = ort.OrtValue.ortvalue_from_shape_and_type(expected.shape, np.float32, "cuda", 0)
    binding = own.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_ortvalue_output(own.get_outputs()[0].name, target)
    own.run_with_iobinding(binding)
    assert binding.get_outputs()[0] is target
    np.testing.assert_allclose(target.numpy(), expected, rtol=1e-4, atol=1e-5)
    wrong = ort.OrtValue.ortvalue_from_shape_and_type([3], np.float32, "cuda", 0)
    binding.bind_ortvalue_output(own.get_outputs()[0].name, wrong)
    with pytest.raises(RuntimeError, match="out has "):
        own.run_with_iobinding(binding)


def test_what_is_not_served_is_refused(folder: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second GPU, a session of the processor, and any GPU where networks run on none."""
    plain = session(folder, CPU)
    name = plain.get_outputs()[0].name
    with pytest.raises(RuntimeError, match="device_id is 1"):
        ort.OrtValue.ortvalue_from_numpy(X, "cuda", 1)
    with pytest.raises(RuntimeError, match="memory on a GPU is for CUDAExecutionProvider"):
        plain.io_binding().bind_input("x", "cuda", 0, np.float32, X.shape, 64)
    with pytest.raises(RuntimeError, match="memory on a GPU is for CUDAExecutionProvider"):
        plain.io_binding().bind_output(name, "cuda")
    with pytest.raises(Exception, match="cannot be read as an array"):
        plain.run(None, {"x": ort.OrtValue.ortvalue_from_numpy(X, "cuda", 0)})
    monkeypatch.setattr(CLASS, "_device", CudaDevice(FakeDriver(lambda *_: None, None)))  # type: ignore[arg-type,return-value]
    for device in ("cuda", "dml"):
        with pytest.raises(RuntimeError, match="Can't allocate memory on the device"):
            ort.OrtValue.ortvalue_from_numpy(X, device, 0)
    with pytest.raises(RuntimeError, match="Unsupported device type: tpu"):
        ort.OrtValue.ortvalue_from_shape_and_type([1], np.float32, "tpu")
