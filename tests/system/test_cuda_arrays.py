"""Arrays on a GPU as inputs and outputs, on the driver in memory: copies, streams, lifetimes, what is refused."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.dtypes import numpy_dtype
from opbuild.errors import InputError, OutputError, RunError
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda.arrays import find
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support import device_models
from support.fake_driver import FakeDriver, problems_of
from support.gpu_arrays import GpuArray, new_stream

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
DRAW = np.random.default_rng(5)
SHAPE = (1, 6, 10)
LATE = 1 << 30


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models and their caches."""
    return tmp_path_factory.mktemp("cuda_arrays")


@pytest.fixture(params=[0, 3, LATE], ids=["at once", "three late", "as late as can be"])
def driver(folder: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[FakeDriver]:
    """A driver whose kernels are those of the cache, early or late; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    free = DeviceCost()
    monkeypatch.setattr(CLASS, "copy_cost", lambda: free)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: free)
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        fake.patience = request.param
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


late = pytest.mark.parametrize("driver", [LATE], indirect=True, ids=["as late as can be"])


def compiled(folder: Path, name: str = "moved", target: str | None = "cuda") -> Any:
    """Return a model's network."""
    path = folder / f"{name}.onnx"
    if not path.exists():
        onnx.save(getattr(device_models, name)(), path)
    return opbuild.compile(path, cache_path=folder / "cache", target=target)


def drawn(*shape: int) -> Any:
    """Return random numbers."""
    return DRAW.standard_normal(shape or SHAPE).astype(np.float32)


def output_of(network: Any) -> str:
    """Return the name of a network's only output."""
    return str(network.outputs[0].name)


def feeds_of(network: Any, array: Any) -> dict[str, Any]:
    """Return feeds of a network of one input."""
    return {network.inputs[0].name: array}


def zeros(driver: FakeDriver, network: Any, stream: int | None, **changes: Any) -> GpuArray:
    """Return an array on the GPU that a network's only output fits into."""
    (port,) = network.bound_outputs
    return GpuArray(driver, np.zeros(port.shape, port.dtype), stream, **changes)


# -- inputs ------------------------------------------------------------------------------------------------------------


def test_an_input_on_the_gpu_is_copied_there(folder: Path, driver: FakeDriver) -> None:
    """Call after call, launched and replayed, from two streams and from none: numbers are the CPU's.

    What comes out is an array there, too, which numpy copies.
    """
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    streams = [new_stream(driver), 1, None, new_stream(driver)]
    for stream in streams:
        x = GpuArray(driver, drawn(), stream)
        written = driver.called.count("cuMemcpyHtoDAsync_v2")
        np.testing.assert_allclose(network(x), on_cpu(x.contents), rtol=1e-4, atol=1e-5)
        assert driver.called.count("cuMemcpyHtoDAsync_v2") == written
        x.free()
        assert network(drawn()).shape == on_cpu(x.contents).shape
    assert driver.called.count("cuMemcpyDtoDAsync_v2") == 2 * len(streams)
    del network
    assert driver.cuStreamSynchronize(streams[0]) == driver.cuStreamSynchronize(streams[3]) == 0
    assert driver.cuStreamSynchronize(1) == 0
    assert driver.is_empty


def test_what_the_cpu_reads_is_copied_to_the_host(folder: Path, driver: FakeDriver) -> None:
    """A network whose first calls are the CPU's, and one in segments, take what lies on the GPU, too."""
    for name, shape in (("pooled", (2, 3, 16, 16)), ("in_segments", (4, 16))):
        network, on_cpu = compiled(folder, name), compiled(folder, name, None)
        x = GpuArray(driver, drawn(*shape), new_stream(driver))
        for found, wanted in zip(results(network, x), results(on_cpu, x.contents), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)


def results(network: Any, x: Any) -> list[Any]:
    """Return the results of a network as a list."""
    found = network(x)
    return list(found) if isinstance(found, tuple) else [found]


def test_a_network_of_which_nothing_is_the_gpus_takes_what_lies_there(
    folder: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its target says where arrays may lie, whatever its size."""
    monkeypatch.setattr(CLASS, "copy_cost", lambda: DeviceCost(1e12))
    on_cpu = compiled(folder, target=None)
    network = opbuild.compile(folder / "moved.onnx", cache_path=folder / "dear", target="cuda")
    x = GpuArray(driver, drawn(), new_stream(driver))
    wanted = on_cpu(x.contents)
    np.testing.assert_allclose(network(x), wanted, rtol=1e-4, atol=1e-5)
    out = zeros(driver, network, x.stream)
    network.run(feeds_of(network, x), out={output_of(network): out})
    np.testing.assert_allclose(out.seen(), wanted, rtol=1e-4, atol=1e-5)
    assert "cuLaunchKernel" not in driver.called


# -- outputs -----------------------------------------------------------------------------------------------------------


def test_what_lies_on_the_gpu_alone_is_never_awaited(folder: Path, driver: FakeDriver) -> None:
    """From the third call it is a copy, a graph and a copy; streams of both sides wait for each other on the GPU."""
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    x, out = GpuArray(driver, drawn(), new_stream(driver)), None
    for number in range(5):
        out = out or zeros(driver, network, new_stream(driver))
        x.put(values := drawn())
        before = len(driver.called)
        result = network.run(feeds_of(network, x), out={output_of(network): out})
        asked = driver.called[before:]
        x.put(drawn())  # the caller's next batch, while this one may not have begun
        assert result[output_of(network)] is out
        assert "cuStreamSynchronize" not in asked
        assert asked.count("cuMemcpyDtoDAsync_v2") == 2
        if number > 1:
            assert "cuGraphLaunch" in asked
            assert "cuLaunchKernel" not in asked
        np.testing.assert_allclose(out.seen(), on_cpu(values), rtol=1e-4, atol=1e-5)


def test_memory_goes_back_on_its_stream_behind_what_reads_it(folder: Path, driver: FakeDriver) -> None:
    """An input that is freed when the call returns, as by an allocator in the order of a stream, was read before."""
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    x = GpuArray(driver, drawn(), new_stream(driver))
    out = zeros(driver, network, new_stream(driver))
    network.run(feeds_of(network, x), out={output_of(network): out})
    x.free()
    assert driver.cuStreamSynchronize(x.stream) == 0
    assert x.address not in driver.memory
    np.testing.assert_allclose(out.seen(), on_cpu(x.contents), rtol=1e-4, atol=1e-5)


def test_arrays_of_no_stream_are_done_when_the_call_returns(folder: Path, driver: FakeDriver) -> None:
    """Nobody knows who reads them next."""
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    x, out = GpuArray(driver, drawn()), zeros(driver, network, None)
    network.run(feeds_of(network, x), out={output_of(network): out})
    np.testing.assert_allclose(out.seen(), on_cpu(x.contents), rtol=1e-4, atol=1e-5)


def test_an_output_may_lie_where_an_input_does(folder: Path, driver: FakeDriver) -> None:
    """Then it is written when all is computed."""
    network, on_cpu = compiled(folder, "perceptron"), compiled(folder, "perceptron", None)
    values = drawn(8, 16)
    x = GpuArray(driver, values, new_stream(driver))
    (port,) = network.bound_outputs
    out = GpuArray(driver, np.zeros(port.shape, port.dtype), x.stream, data=(x.address, False))
    network.run(feeds_of(network, x), out={output_of(network): out})
    assert driver.cuStreamSynchronize(x.stream) == 0
    found = driver.bytes_at(x.address, 4 * 8 * port.shape[1]).view(np.float32).reshape(port.shape)
    np.testing.assert_allclose(found, on_cpu(values), rtol=1e-4, atol=1e-5)


def test_host_and_gpu_go_together(folder: Path, driver: FakeDriver) -> None:
    """An input of the host's for an output on the GPU, the other way, and an output of each network in segments."""
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    values = drawn()
    wanted, out = on_cpu(values), zeros(driver, network, new_stream(driver))
    network.run(feeds_of(network, values), out={output_of(network): out})
    np.testing.assert_allclose(out.seen(), wanted, rtol=1e-4, atol=1e-5)
    target = np.zeros_like(wanted)
    x = GpuArray(driver, values, new_stream(driver))
    assert network.run(feeds_of(network, x), out={output_of(network): target})[output_of(network)] is target
    np.testing.assert_allclose(target, wanted, rtol=1e-4, atol=1e-5)
    segmented, on_cpu = compiled(folder, "in_segments"), compiled(folder, "in_segments", None)
    x = GpuArray(driver, drawn(4, 16), new_stream(driver))
    name, wanted = segmented.outputs[0].name, results(on_cpu, x.contents)[0]
    out = GpuArray(driver, np.zeros_like(wanted), x.stream)
    assert segmented.run(feeds_of(segmented, x), out={name: out})[name] is out
    np.testing.assert_allclose(out.seen(), wanted, rtol=1e-4, atol=1e-5)


# -- what is refused ---------------------------------------------------------------------------------------------------


@late
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strides": (240, 4, 24)}, "has strides of 240, 4, 24 bytes; make it contiguous"),
        ({"mask": object()}, "it has a mask"),
        ({"typestr": "<f8"}, "element type float64, the network needs float32"),
        ({"shape": (1, 6, 9)}, r"has shape \[1, 6, 9\], the network needs \[1, 6, 10\]"),
    ],
)
def test_an_input_that_does_not_fit_is_refused(
    changes: dict[str, Any], said: str, folder: Path, driver: FakeDriver
) -> None:
    """In words that name the input; nothing was asked for, and the network goes on."""
    network = compiled(folder)
    x = GpuArray(driver, drawn(), new_stream(driver), **changes)
    if "typestr" in changes:
        x.dtype = np.dtype("float64")
    with pytest.raises(InputError, match=said) as raised:
        network(x)
    assert f"input {network.inputs[0].name!r}" in str(raised.value)
    assert raised.value.hint
    assert "cuMemcpyDtoDAsync_v2" not in driver.called
    assert network(drawn()).size


@late
@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"strides": (4, 8, 8)}, "make it contiguous"),
        ({"shape": (7,)}, r"out has float32\[7\] for output"),
        ({"typestr": "<i4"}, r"out has int32.* for output"),
        ({"data": (64, True)}, "out has a read-only array"),
    ],
)
def test_an_output_that_does_not_fit_is_refused(
    changes: dict[str, Any], said: str, folder: Path, driver: FakeDriver
) -> None:
    """As arrays of numpy are."""
    network = compiled(folder)
    out = zeros(driver, network, new_stream(driver), **changes)
    with pytest.raises(OutputError, match=said):
        network.run(feeds_of(network, drawn()), out={output_of(network): out})


@late
def test_a_network_for_the_cpu_refuses_them(folder: Path, driver: FakeDriver) -> None:
    """As before: it knows no device."""
    network = compiled(folder, target=None)
    x = GpuArray(driver, drawn(), new_stream(driver))
    with pytest.raises(InputError, match="is a GpuArray, not an array"):
        network(x)
    with pytest.raises(OutputError, match="out has a value of GpuArray for output"):
        network.run(feeds_of(network, drawn()), out={output_of(network): x})


@late
@pytest.mark.parametrize(
    ("function", "code"),
    [
        ("cuEventCreate", 2),
        ("cuEventRecord", 400),
        ("cuStreamWaitEvent", 1),
        ("cuMemcpyDtoDAsync_v2", 1),
        ("cuLaunchKernel", 1),
    ],
)
def test_a_driver_that_fails_once_is_told_and_can_go_on(
    function: str, code: int, folder: Path, driver: FakeDriver
) -> None:
    """The error is the first one; no event is left, and the next call is right."""
    network, on_cpu = compiled(folder), compiled(folder, target=None)
    x = GpuArray(driver, drawn(), new_stream(driver))
    out = zeros(driver, network, new_stream(driver))
    for at in (1, 2) if function != "cuLaunchKernel" else (1,):  # later they are a graph
        driver.fail(function, code, at=at)
        with pytest.raises(RunError, match=rf"{function}: .*\({code}\)"):
            network.run(feeds_of(network, x), out={output_of(network): out})
        driver.heal()
        assert not driver.handles["event"]
        network.run(feeds_of(network, x), out={output_of(network): out})
        np.testing.assert_allclose(out.seen(), on_cpu(x.contents), rtol=1e-4, atol=1e-5)


@late
def test_a_freed_input_is_an_error_of_the_driver(folder: Path, driver: FakeDriver) -> None:
    """Memory that is nobody's is not read silently."""
    network = compiled(folder)
    x = GpuArray(driver, drawn())
    kept = driver.memory[x.address]  # else others would have it
    x.free()
    with pytest.raises(RunError, match="CUDA_ERROR_ILLEGAL_ADDRESS"):
        network(x)
    assert kept.nbytes


# -- the interface -----------------------------------------------------------------------------------------------------


def shown(**changes: Any) -> Any:
    """Return an object with the interface."""
    interface = {"shape": (2, 3), "typestr": "<f4", "data": (256, False), "version": 3, "stream": 7, **changes}
    return SimpleNamespace(__cuda_array_interface__=interface)


def test_the_interface_is_read_as_it_is_stated() -> None:
    """Version 3 has a stream, older ones are of the default one; torch's bfloat16 has no name; gaps of 1 are none."""
    found = find(shown(), 0)
    assert found is not None
    assert found[:3] == (256, (2, 3), np.dtype("float32"))
    assert (found.stream, found.nbytes, found.is_writeable) == (7, 24, True)
    assert find(object(), 0) is None
    for changes, stream in (({"stream": None}, None), ({"version": 2}, 1)):
        found = find(shown(**changes), 0)
        assert found is not None
        assert found.stream == stream
    found = find(shown(typestr="<V2", data=(256, True)), 0)
    assert found is not None
    assert found.dtype == numpy_dtype("bfloat16")
    assert not found.is_writeable
    for shape, strides in (((2, 3), (12, 4)), ((1, 3), (999, 4)), ((0, 3), (1, 1)), ((), ())):
        assert find(shown(shape=shape, strides=strides), 0) is not None
    with pytest.raises(ValueError, match="strides of 4, 8 bytes"):
        find(shown(strides=(4, 8)), 0)


def test_tensors_of_torch_are_in_the_order_of_its_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its interface tells none; one that needs a gradient is refused in torch's words, one of another GPU in ours."""

    class Tensor:
        device = "cuda:0"
        __cuda_array_interface__ = shown(version=2, stream=...).__cuda_array_interface__

        def __dlpack_device__(self) -> tuple[int, int]:
            return 2, 0

    class Trained(Tensor):
        @property
        def __cuda_array_interface__(self) -> Any:  # type: ignore[override]
            raise RuntimeError("use var.detach()")

    current = SimpleNamespace(cuda_stream=40)
    cuda = SimpleNamespace(current_stream=lambda device: current if device == "cuda:0" else None)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(Tensor=Tensor, cuda=cuda))  # type: ignore[arg-type]
    for handle, stream in ((40, 40), (0, 1)):
        current.cuda_stream = handle
        found = find(Tensor(), 0)
        assert found is not None
        assert found.stream == stream
    with pytest.raises(ValueError, match=r"use var\.detach"):
        find(Trained(), 0)
    with pytest.raises(ValueError, match="it lies on GPU 0, and networks run on GPU 1"):
        find(Tensor(), 1)
