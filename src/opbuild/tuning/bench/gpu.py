"""Models on a GPU: inputs and outputs lie there, and a call ends when all of it is done."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from typing import Any, cast

import numpy as np

from opbuild.runtime.devices.cuda.device import CudaDevice
from opbuild.runtime.devices.device import open_device
from opbuild.runtime.devices.network import DeviceNetwork
from opbuild.runtime.executor import Executor
from opbuild.target.level import CPU
from opbuild.tuning.bench.runtimes import Array, BenchJob, Call

CUDA = "cuda"
PROVIDER = "CUDAExecutionProvider"
"""ONNX Runtime's name of what runs there."""


class OpbuildCall:
    """A network on a GPU: its calls write into the outputs of the first one.

    Args:
        job: The model, and its inputs.
    """

    def __init__(self, job: BenchJob) -> None:
        from opbuild import api

        shapes = {name: array.shape for name, array in job.data.items()}
        self._network = cast("DeviceNetwork", api.compile(
            job.model, input_shapes=shapes, cache_path=job.cache, num_threads=job.threads, target=CUDA, wait=True
        ))  # fmt: skip
        self._network.wait_until_stored()  # else that would go on beside the first calls
        self._device = cast("CudaDevice", open_device(CUDA))
        self._feeds = {name: self._device.uploaded(array) for name, array in job.data.items()}
        self._out: dict[str, Any] = {}

    def __call__(self) -> list[Array]:
        """Return the outputs, on the GPU."""
        self._out = self._network.run(self._feeds, out=self._out)
        self._device.synchronize()
        return list(self._out.values())

    @property
    def counts(self) -> dict[str, int]:
        """The calls of kernels on the GPU and on the CPU, and the bytes of weights and temporaries on the GPU."""
        return counts_of(self._network.runners)


def counts_of(runners: Sequence[Executor]) -> dict[str, int]:
    """Return the calls of kernels on a GPU and on the CPU, and the bytes on the GPU, of a network's executors."""
    there, here, nbytes = 0, 0, 0
    for each in runners:
        steps, buffers = each.record.steps, each.record.buffers
        devices = [buffers.all_devices[number] for number in buffers.device[steps.buffer[steps.ends - 1]].tolist()]
        here += devices.count(CPU)
        there += len(devices) - devices.count(CPU)
        own = buffers.is_of("constant") & (buffers.device != buffers.all_devices.index(CPU))
        places = np.unique(buffers.place[own]).tolist()
        nbytes += sum(size for size, _ in each.arenas.values()) + sum(each.constants[place].nbytes for place in places)
    return {"calls": there, "cpu_calls": here, "bytes": nbytes}


def onnxruntime_on_gpu(job: BenchJob) -> Call:
    """Return a model in ONNX Runtime on a GPU, its inputs and outputs bound to memory there.

    Raises:
        RuntimeError: If the package that is installed runs nothing there.
    """
    import onnxruntime

    if PROVIDER not in onnxruntime.get_available_providers():
        raise RuntimeError(f"the package that is installed has no {PROVIDER}: pip install onnxruntime-gpu")
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.model, options, providers=[PROVIDER, "CPUExecutionProvider"])
    if PROVIDER not in session.get_providers():
        raise RuntimeError(f"{PROVIDER} cannot be used: it needs CUDA and cuDNN of its version")
    binding = session.io_binding()
    for name, array in job.data.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(array, CUDA, 0))
    for port in session.get_outputs():
        binding.bind_output(port.name, CUDA)

    def call() -> list[Array]:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()
        return [_OnGpu(each) for each in binding.get_outputs()]  # type: ignore[misc]  # numpy reads it

    return call


class _OnGpu:
    """An output of ONNX Runtime's on a GPU, which is copied only where somebody looks."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        return cast("Array", self._value.numpy())


ON_GPU: Mapping[str, Callable[[BenchJob], Call]] = {"opbuild": OpbuildCall, "onnxruntime": onnxruntime_on_gpu}
"""The runtimes that are measured on a GPU, by their names."""


def is_installed(runtime: str) -> bool:
    """Return whether what is installed of a runtime may run models on a GPU; ONNX Runtime has a package for that."""
    if runtime != "onnxruntime":
        return runtime in ON_GPU
    try:
        return bool(version("onnxruntime-gpu"))
    except PackageNotFoundError:
        return False
