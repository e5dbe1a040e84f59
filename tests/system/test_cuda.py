"""Networks on a GPU that is not there: a driver in memory, kernels by Triton's interpreter on the packed parameters."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import opbuild
from opbuild.errors import BuildError, RunError, TargetError
from opbuild.platform.finalizers import WeakValues
from opbuild.runtime.devices import several
from opbuild.runtime.devices.cuda import driver as cuda_driver
from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.target.cuda import CLASS
from opbuild.target.devices import DeviceCost
from support import device_models
from support.fake_driver import FakeDriver, problems_of
from support.tiers import slow

pytestmark = [
    pytest.mark.usefixtures("kept_objects"),
    pytest.mark.skipif(find_spec("triton") is None, reason="Triton, which compiles for GPUs, is not installed"),
]
TARGET = "cuda"
DRAW = np.random.default_rng(3)
FEEDS: dict[str, tuple[Any, ...]] = {
    "moved": (DRAW.standard_normal((1, 6, 10)).astype(np.float32),),
    "perceptron": (DRAW.standard_normal((8, 16)).astype(np.float32),),
    "mini_lm": (np.arange(9)[np.newaxis] * 7, np.array([[1] * 7 + [0] * 2])),
    "convolutional": (DRAW.standard_normal((2, 3, 16, 16)).astype(np.float32),),
    "pooled": (DRAW.standard_normal((2, 3, 16, 16)).astype(np.float32),),
    "in_segments": (DRAW.standard_normal((4, 16)).astype(np.float32),),
}
FAMILIES = {
    "moved": {"copy", "elementwise"},
    "perceptron": {"matmul"},
    "mini_lm": {"attention", "elementwise", "gather", "layer_norm", "matmul"},
    "convolutional": {"conv", "elementwise", "matmul", "reduce", "softmax", "window"},
    "pooled": {"elementwise", "reduce", "softmax", "window"},
    "in_segments": {"matmul", "reduce"},
}
"""The families of each network whose kernels run on the GPU, at least, of those that have kernels for it."""


@pytest.fixture(scope="module")
def folder(kept_objects: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for models and their caches, in which what one test compiled the next ones have."""
    return tmp_path_factory.mktemp("cuda")


@pytest.fixture
def driver(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDriver]:
    """A driver whose kernels are those of the cache; all that the GPU can compute goes there."""
    from support.gpu_kernels import StoredKernels

    free = DeviceCost()
    monkeypatch.setattr(CLASS, "copy_cost", lambda: free)
    monkeypatch.setattr(CLASS, "kernel_cost", lambda _: free)
    monkeypatch.setattr(several, "_UPLOADED", WeakValues[Any, Any]())
    with problems_of(FakeDriver(StoredKernels([folder]))) as fake:
        monkeypatch.setattr(CLASS, "_device", CudaDevice(fake))
        yield fake


def write(folder: Path, name: str, *args: Any) -> Path:
    """Write a model into a folder, unless it is there, and return its path."""
    path = folder / f"{name}{'_'.join(map(str, args))}.onnx"
    if not path.exists():
        onnx.save(getattr(device_models, name)(*args), path)
    return path


def compiled(path: Path, *, target: str | None = TARGET, stored: bool = False) -> Any:
    """Return a model's network."""
    return opbuild.compile(path, cache_path=path.parent / "cache", target=target, forbid_compile=stored)


def outputs(network: Any, feeds: tuple[Any, ...]) -> list[Any]:
    """Return the outputs of a network, as a list."""
    found = network(*feeds)
    return list(found) if isinstance(found, tuple) else [found]


def assert_alike(one: list[Any], other: list[Any]) -> None:
    """Compare the outputs of two networks."""
    for left, right in zip(one, other, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5)


def families_of(network: Any) -> set[str]:
    """Return the families whose kernels a network has on the GPU."""
    found = set()
    for runner in network.runners:
        kinds = zip(runner.record.steps.kinds, runner.record.devices_of_kinds, strict=True)
        found |= {runner.record.notes["kernels"][kind.symbol][0] for kind, device in kinds if device == TARGET}
    return found


def served(families: set[str]) -> set[str]:
    """Return the families that have kernels for GPUs."""
    return {each for each in families if find_spec(f"opbuild.families.{each}.cuda") is not None}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", [slow(name) if name in ("mini_lm", "convolutional") else name for name in FEEDS])
def test_networks_run_on_the_gpu_cold_and_from_the_store(name: str, folder: Path, driver: FakeDriver) -> None:
    """Launched, recorded and replayed, at once and as late as can be: numbers are the CPU's, call after call."""
    path, feeds = write(folder, name), FEEDS[name]
    wanted = outputs(compiled(path, target=None), feeds)
    cold = compiled(path)
    assert families_of(cold) >= served(FAMILIES[name])
    for late in (0, 3, 1 << 30):
        driver.patience = late
        assert_alike(outputs(cold, feeds), wanted)
    del cold
    stored = compiled(path, stored=True)
    assert stored.report.image
    assert stored.report.level.endswith("with cuda:sm_90a")
    assert_alike(outputs(stored, feeds), wanted)
    del stored
    assert driver.is_empty


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("name", "size"), [("residual", (21, 18)), ("mobile", (14, 15))])
def test_convolutions_run_in_float32_and_float16_and_at_any_batch(
    name: str, size: tuple[int, int], folder: Path, driver: FakeDriver
) -> None:
    """Strides, groups, depthwise ones, residuals, pools and gates: numbers are the CPU's, as far as types tell them."""
    for args, dtype, tolerance in (((), "float32", 1e-4), (("n",), "float32", 1e-4), ((name,), "float16", 4e-3)):
        path = write(folder, name if dtype == "float32" else "in_half", *args)
        feeds = (DRAW.standard_normal((2, 3, *size)).astype(dtype),)
        on_gpu = compiled(path)
        (found,), (wanted,) = outputs(on_gpu, feeds), outputs(compiled(path, target=None), feeds)
        assert found.dtype == wanted.dtype == dtype
        assert np.abs(found.astype(float) - wanted).max() <= tolerance * np.abs(wanted.astype(float)).max()
        assert families_of(on_gpu) >= {"conv", "matmul", "window", "reduce"}
    del on_gpu
    assert driver.is_empty


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_convolution_that_stays_on_the_cpu_reads_what_the_gpu_s_wrote(
    folder: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Images with their channels last are brought into its blocks, and its result is read by the next ones."""
    serve = CLASS.kernel
    monkeypatch.setattr(CLASS, "kernel", lambda desc: None if desc.attrs.get("is_depthwise") else serve(desc))
    path, feeds = write(folder, "mobile", 3), (DRAW.standard_normal((3, 3, 14, 15)).astype(np.float32),)
    mixed = compiled(path)
    assert mixed.report.stayed
    assert "conv" in families_of(mixed)
    assert_alike(outputs(mixed, feeds), outputs(compiled(path, target=None), feeds))


def test_what_follows_each_other_is_one_launch_from_the_third_call(folder: Path, driver: FakeDriver) -> None:
    """The first call launches each kernel, the second records them; results are the same, and inputs are new ones."""
    path = write(folder, "moved")
    network, on_cpu = compiled(path), compiled(path, target=None)
    kernels = len(network.runners[0].record.steps.kernels)
    assert kernels > 2
    for graphs, launches in ((0, kernels), (1, 2 * kernels), (2, 2 * kernels), (3, 2 * kernels)):
        feeds = (DRAW.standard_normal((1, 6, 10)).astype(np.float32),)
        assert_alike(outputs(network, feeds), outputs(on_cpu, feeds))
        assert driver.called.count("cuGraphLaunch") == graphs
        assert driver.called.count("cuLaunchKernel") == launches
    assert driver.called.count("cuStreamSynchronize") == 4


def test_a_profile_has_each_call_also_of_what_is_replayed(folder: Path, driver: FakeDriver) -> None:
    """Timed calls are launched one by one and awaited; those that are not timed go on as a graph."""
    network = compiled(write(folder, "moved"))
    for _ in range(3):
        network(*FEEDS["moved"])
    graphs = driver.called.count("cuGraphLaunch")
    families = [each.call.family for each in network.profile(FEEDS["moved"], runs=1).rows]
    assert families[0] == families[-1] == "DeviceCopy"
    assert set(families) == {"DeviceCopy", "copy", "elementwise"}
    network(*FEEDS["moved"])
    assert driver.called.count("cuGraphLaunch") > graphs


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("name", "shape"), [("moved", (6, 10)), ("perceptron", (16,)), slow("convolutional", (3, 16, 16))]
)
def test_a_network_of_any_size_runs_on_the_gpu_at_each(
    name: str, shape: tuple[int, ...], folder: Path, driver: FakeDriver
) -> None:
    """Further sizes compile nothing, also in the next process; a size that comes back is right, memory is enough."""
    path = write(folder, name, "n")
    on_cpu, on_gpu = compiled(path, target=None), compiled(path)
    for size in (2, 3, 3, 1, 4):
        feeds = (DRAW.standard_normal((size, *shape)).astype(np.float32),)
        assert_alike(outputs(on_gpu, feeds), outputs(on_cpu, feeds))
    again = compiled(path, stored=True)
    assert_alike(outputs(again, feeds), outputs(on_cpu, feeds))
    assert families_of(again) >= served(FAMILIES[name])
    del on_gpu, again
    assert driver.is_empty


# -- what fails --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("function", "code", "error", "said"),
    [
        ("cuMemAlloc_v2", 2, RunError, r"the GPU has no memory for .* of 1\.0 GiB are free"),
        (
            "cuModuleLoadData",
            200,
            BuildError,
            r"kernel \w+__kernel0 cannot be loaded: cuModuleLoadData: CUDA_ERROR_INVALID_IMAGE",
        ),
        (
            "cuLaunchKernel",
            1,
            RunError,
            r"kernel \w+__kernel0 cannot be launched: cuLaunchKernel: CUDA_ERROR_INVALID_VA",
        ),
        ("cuStreamSynchronize", 700, RunError, r"failed.*CUDA_ERROR_ILLEGAL_ADDRESS \(700\), an illegal memory access"),
        ("cuMemcpyDtoHAsync_v2", 719, RunError, r"\(719\)"),
    ],
)
def test_a_driver_that_fails_is_told_and_the_cpu_goes_on(
    function: str, code: int, error: type[Exception], said: str, folder: Path, driver: FakeDriver
) -> None:
    """With what to do; nothing is left on the GPU, and the same model runs without it."""
    path, feeds = write(folder, "moved"), FEEDS["moved"]
    compiled(path).wait_until_stored()
    driver.fail(function, code, at=0)
    with pytest.raises(error, match=said) as raised:
        outputs(compiled(path), feeds)
    assert "hint: " in str(raised.value)
    assert np.isfinite(outputs(compiled(path, target=None), feeds)[0]).all()
    raised.value.__traceback__ = raised.value.__context__ = raised.value.__cause__ = None
    del raised
    assert driver.is_empty


@pytest.mark.parametrize("function", ["cuStreamBeginCapture_v2", "cuStreamEndCapture", "cuGraphInstantiateWithFlags"])
def test_a_driver_that_records_nothing_launches_each_kernel(function: str, folder: Path, driver: FakeDriver) -> None:
    """Slower, and right."""
    network, feeds = compiled(write(folder, "moved")), FEEDS["moved"]
    driver.fail(function, 801, at=0)
    wanted = outputs(network, feeds)
    for _ in range(3):
        assert_alike(outputs(network, feeds), wanted)
    assert "cuGraphLaunch" not in driver.called


def test_a_machine_without_a_driver_builds_and_says_where_to_run(
    folder: Path, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All that needs no GPU is done; a network is refused with what is missing."""
    monkeypatch.setattr(CLASS, "_device", CudaDevice())
    monkeypatch.setattr(cuda_driver, "LIBRARY", "libcuda-that-is-nowhere.so.1")
    path = write(folder, "moved")
    (report,) = opbuild.warm([path], targets=[TARGET], cache_path=folder / "warm")
    assert report.level.endswith("with cuda:sm_90a")
    with pytest.raises(TargetError, match="there is no NVIDIA driver here") as raised:
        opbuild.compile(path, cache_path=folder / "warm", target=TARGET, forbid_compile=True)
    assert "on the CPU" in raised.value.hint
    monkeypatch.setattr(CLASS, "_device", CudaDevice(driver))
    network = opbuild.compile(path, cache_path=folder / "warm", target=TARGET, forbid_compile=True)
    assert_alike(outputs(network, FEEDS["moved"]), outputs(compiled(path, target=None), FEEDS["moved"]))


OF_DEVICES = [f"opbuild.runtime.devices.{name}" for name in ("arrays", "network", "several")]
"""Modules of networks for any class of devices."""


def test_what_needs_no_gpu_loads_nothing_of_one(folder: Path) -> None:
    """Neither the class nor the driver, whatever a network of the CPU does."""
    path = write(folder, "perceptron")
    program = (
        "import sys, numpy as np, opbuild\n"
        f"opbuild.compile({str(path)!r}, cache_path={str(folder / 'cache')!r})(np.ones((8, 16), np.float32))\n"
        f"print([name for name in sys.modules if 'cuda' in name or name in {OF_DEVICES!r}])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
