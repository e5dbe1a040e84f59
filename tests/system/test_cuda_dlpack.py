"""DLPack in and out of networks on a GPU, on the driver in memory: streams, lifetimes, what is refused."""

from __future__ import annotations

import gc
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError, OutputError
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import dlpack, several
from opbuild.runtime.devices.cuda.arrays import find
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support import device_models
from support.dlpack_arrays import READ_ONLY, DlpackArray, take, wait_for
from support.fake_driver import FakeDriver, problems_of
from support.gpu_arrays import GpuArray, new_stream

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
SHAPE = (1, 6, 10)


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models and their caches."""
    return tmp_path_factory.mktemp("cuda_dlpack")


@pytest.fixture
def driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver that does all as late as can be; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    monkeypatch.setattr(CLASS, "copy_cost", DeviceCost)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: DeviceCost())
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


def compiled(folder: Path, target: str | None = "cuda", name: str = "moved") -> Any:
    """Return a model's network."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        onnx.save(getattr(device_models, name)(), path)
    return opbuild.compile(path, cache_path=folder / "cache", target=target)


def drawn() -> Any:
    """Return random numbers."""
    return np.random.default_rng(5).standard_normal(SHAPE).astype(np.float32)


@pytest.mark.parametrize("versioned", [True, False])
def test_an_array_that_speaks_dlpack_alone_is_an_input(versioned: bool, folder: Path, driver: FakeDriver) -> None:
    """It is ready on the stream that it is asked for on, its deleter is called once, and it may be freed at once."""
    network, on_cpu = compiled(folder), compiled(folder, None)
    x = DlpackArray(GpuArray(driver, drawn(), new_stream(driver)), versioned=versioned)
    for number in range(3):
        x.array.put(x.array.contents + number)
        found = network(x)
        assert x.deleted == number + 1
        x.array.put(np.zeros(SHAPE, np.float32))
        np.testing.assert_allclose(found, on_cpu(x.array.contents + number), rtol=1e-4, atol=1e-5)
    assert x.streams == [CLASS.open().context.stream] * 3
    assert "cuMemcpyDtoDAsync_v2" in driver.called


def test_an_array_that_speaks_dlpack_alone_is_written(folder: Path, driver: FakeDriver) -> None:
    """Behind what its library asked for, and done when the call returns: nobody says who reads it."""
    network, on_cpu = compiled(folder), compiled(folder, None)
    wanted = on_cpu(drawn())
    out = DlpackArray(GpuArray(driver, np.zeros_like(wanted), new_stream(driver)))
    out.array.put(np.ones_like(wanted))
    result = network.run({network.inputs[0].name: drawn()}, out={network.outputs[0].name: out})
    assert result[network.outputs[0].name] is out
    assert out.deleted == 1
    found = driver.bytes_at(out.array.address, wanted.nbytes).view(np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("version", [None, (1, 0), (1, 3), (0, 8)])
def test_outputs_of_inputs_on_the_gpu_stay_there(version: Any, folder: Path, driver: FakeDriver) -> None:
    """Others take them by either protocol; a stream that is named waits for them, and their memory goes back once."""
    network, on_cpu = compiled(folder), compiled(folder, None)
    x, stream = GpuArray(driver, drawn(), new_stream(driver)), new_stream(driver)
    wanted = on_cpu(x.contents)
    network(x)  # a call leaves its arguments' memory, weights and kernels
    gc.collect()
    driver.cuStreamSynchronize(x.stream)
    held = driver.held
    asked = len(driver.called)
    y = network(x)
    assert "cuStreamSynchronize" not in driver.called[asked:]
    assert (y.shape, y.dtype, y.__dlpack_device__()) == (wanted.shape, wanted.dtype, (2, 0))
    shown = find(y, 0)
    assert shown is not None
    assert shown.stream == CLASS.open().context.stream
    options: Any = {} if version is None else {"max_version": version}
    got = take(y.__dlpack__(stream=stream, **options))
    assert (got.device, tuple(got.shape), got.kind) == ((2, 0), wanted.shape, (2, 32))
    assert driver.cuStreamSynchronize(stream) == 0
    found = driver.bytes_at(got.address, wanted.nbytes).view(np.float32).reshape(wanted.shape)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    del y, shown
    assert driver.held == held + wanted.nbytes
    got.release()
    assert driver.held == held


def test_a_capsule_that_nobody_takes_leaves_nothing(folder: Path, driver: FakeDriver) -> None:
    """Its memory goes back with it; asked for without a stream, or for the host, it is what the protocol says."""
    network = compiled(folder)
    y = network(GpuArray(driver, drawn(), new_stream(driver)))
    held = driver.held
    for stream in (-1, None, 1, 2):
        del_ = y.__dlpack__(stream=stream)
        del del_
    np.testing.assert_array_equal(np.from_dlpack(_OnHost(y)), np.asarray(y))
    np.testing.assert_array_equal(np.asarray(y, np.float64), np.asarray(y).astype(np.float64))
    for options in ({"stream": 0}, {"copy": True}, {"dl_device": (2, 1)}, {"dl_device": (1, 0), "copy": False}):
        with pytest.raises(BufferError):
            y.__dlpack__(**options)
    with pytest.raises(ValueError, match="without a copy"):
        y.__array__(copy=False)
    nbytes = np.asarray(y).nbytes
    del y
    assert driver.held == held - nbytes


class _OnHost:
    """An array on the GPU as it is given to who asks for it in the host's memory."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self._array.__dlpack__(**{**options, "dl_device": (1, 0), "copy": None})

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


def test_an_output_is_the_next_input(folder: Path, driver: FakeDriver) -> None:
    """No stream waits for itself, and nothing is awaited; networks in segments give such outputs, too."""
    network, on_cpu = compiled(folder, name="perceptron"), compiled(folder, None, "perceptron")
    x = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    first = network(GpuArray(driver, x, new_stream(driver)))
    np.testing.assert_allclose(first, on_cpu(x), rtol=1e-4, atol=1e-5)
    y = GpuArray(driver, x, CLASS.open().context.stream)
    before = len(driver.called)
    assert network(y).shape == first.shape
    assert "cuEventRecord" not in driver.called[before:]
    network, on_cpu = compiled(folder, name="in_segments"), compiled(folder, None, "in_segments")
    x = np.random.default_rng(1).standard_normal((4, 16)).astype(np.float32)
    found = network(GpuArray(driver, x, new_stream(driver)))
    assert found.__dlpack_device__() == (2, 0)
    np.testing.assert_allclose(found, on_cpu(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"device": (2, 1)}, "it lies on GPU 1, and networks run on GPU 0"),
        ({"strides": (60, 1, 6)}, "has strides of 240, 4, 24 bytes; make it contiguous"),
        ({"code": 2, "bits": 64}, "element type float64, the network needs float32"),
        ({"code": 5, "bits": 96}, "its element type is none that arrays have"),
        ({"lanes": 4}, "its element type is none that arrays have"),
        ({"device": (10, 0)}, "cannot be read as an array"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    changes: dict[str, Any], said: str, folder: Path, driver: FakeDriver
) -> None:
    """In words that name the input; its capsule is let go of, and the network goes on."""
    network = compiled(folder)
    x = DlpackArray(GpuArray(driver, drawn(), new_stream(driver)), **changes)
    del x.dtype  # what it says itself is not asked
    assert re.search(said, message := refusal(network, x))
    assert f"input {network.inputs[0].name!r}" in message
    gc.collect()
    assert x.deleted == (0 if "device" in changes or "none that" in said else len(x.streams))
    assert network(drawn()).size


def refusal(network: Any, x: Any) -> str:
    """Return the text of the error by which a network refuses an input; the error itself is gone then."""
    try:
        network(x)
    except InputError as error:
        return str(error)
    raise AssertionError("it was taken")


def test_what_says_no_is_quoted(folder: Path, driver: FakeDriver) -> None:
    """A library that gives no capsule, gives something else, or one that was taken."""
    network, used = compiled(folder), DlpackArray(GpuArray(driver, drawn(), 1)).__dlpack__()
    take(used)

    class Refusing(DlpackArray):
        def __dlpack__(self, **_: Any) -> Any:
            raise BufferError("it is donated")

    class Nowhere(DlpackArray):
        def __dlpack_device__(self) -> tuple[int, int]:
            raise BufferError("it is on no device")

    class Odd(DlpackArray):
        answer: Any = 7

        def __dlpack__(self, **_: Any) -> Any:
            return self.answer

    cases = (
        (Refusing, None, "it is donated"), (Nowhere, None, "on no device"),
        (Odd, 7, "gave no capsule"), (Odd, used, "gave no"),
    )  # fmt: skip
    for kind, answer, said in cases:
        x = kind(GpuArray(driver, drawn(), 1))
        x.answer = answer
        with pytest.raises(InputError, match=said):
            network(x)


@pytest.mark.parametrize("changes", [{"flags": READ_ONLY}, {"versioned": False}])
def test_an_output_that_may_be_read_alone_is_refused(changes: dict[str, Any], folder: Path, driver: FakeDriver) -> None:
    """Capsules of before versions do not say whether they may be written to, as immutable arrays of jax may not."""
    network = compiled(folder)
    wanted = network(drawn())
    out = DlpackArray(GpuArray(driver, wanted, new_stream(driver)), **changes)
    with pytest.raises(OutputError, match="out has a read-only array"):
        network.run({network.inputs[0].name: drawn()}, out={network.outputs[0].name: out})
    assert out.deleted == 1


def test_a_network_for_the_cpu_takes_what_numpy_takes(folder: Path, driver: FakeDriver) -> None:
    """An array of the host's that speaks DLPack alone; one on a GPU is refused by its name."""
    network, x = compiled(folder, None), drawn()

    class Host:
        def __dlpack__(self, **options: Any) -> Any:
            return x.__dlpack__(**options)

        def __dlpack_device__(self) -> tuple[int, int]:
            return 1, 0

    np.testing.assert_array_equal(network(Host()), network(x))
    for_gpus = compiled(folder)
    np.testing.assert_array_equal(for_gpus(Host()), for_gpus(x))
    with pytest.raises(InputError, match=r"input '.*' cannot be read as an array: "):
        network(DlpackArray(GpuArray(driver, x, new_stream(driver))))


@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn", "bool", "int64", "float16", "uint8"])
def test_each_element_type_goes_out_and_in(name: str, driver: FakeDriver) -> None:
    """Those that numpy's capsules lack, too; a scalar, and an array without elements."""
    device = CLASS.open()
    for shape in ((2, 3), (), (0, 4)):
        made = device.make(shape, numpy_dtype(name))
        got = find(_ByDlpack(made), 0)
        assert got is not None
        assert (got.shape, got.dtype.name, got.stream) == (shape, name, None)
        assert got.address == made.__cuda_array_interface__["data"][0]
        again = find(made, 0)
        if name != "float8_e4m3fn":  # which the array interface has no name for
            assert again is not None
            assert again.dtype.name == name


class _ByDlpack:
    """An array of ours without its array interface."""

    def __init__(self, array: Any) -> None:
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def test_numpy_before_versions_is_asked_without_one(monkeypatch: pytest.MonkeyPatch, driver: FakeDriver) -> None:
    """As 1.26, whose capsules have none."""
    monkeypatch.setattr(dlpack, "VERSION", None)
    x = DlpackArray(GpuArray(driver, drawn(), new_stream(driver)), versioned=False)
    wait_for(driver, x.array.stream, 1)
    found = find(x, 0)
    assert found is not None
    assert found.address == x.array.address
    assert take(CLASS.open().make((2,), np.dtype("int32")).__dlpack__(max_version=(1, 0))).shape == [2]
