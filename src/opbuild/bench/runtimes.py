"""The runtimes that can be compared: how each opens an ONNX model, with which settings.

All compute float32 models in float32: OpenVINO would take bfloat16 by itself where the processor has it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import numpy as np

from opbuild.bench import converted
from opbuild.bench.job import Array, BenchJob, Call
from opbuild.platform.records import dataclass, field


@dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        title: Its name for people.
        package: The package to import, and the one whose version counts.
        load: Makes a job ready to be called; the result is a function without arguments.
        needs: Another package, with what converts models for it.
        limits: By level, the variables of its process that keep it from instructions beyond that level.
    """

    title: str
    package: str
    load: Callable[[BenchJob], Call]
    needs: str = ""
    limits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def is_installed(self) -> bool:
        """Whether all that it takes can be imported."""
        return all(find_spec(package) is not None for package in (self.package, self.needs) if package)


def _opbuild(job: BenchJob) -> Call:
    from opbuild import api

    shapes = {name: array.shape for name, array in job.data.items()}
    network = api.compile(
        job.model, input_shapes=shapes, cache_path=job.cache, num_threads=job.threads, target=job.level or None
    )
    network.wait_until_stored()  # else that would go on beside the first calls
    return lambda: list(network.run(dict(job.data)).values())


def _onnxruntime(job: BenchJob) -> Call:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])
    data = dict(job.data)
    return lambda: list(map(np.asarray, session.run(None, data)))


def _openvino(job: BenchJob) -> Call:
    import openvino

    core = openvino.Core()
    model = core.read_model(job.model)
    if model.is_dynamic():
        model.reshape({name: list(array.shape) for name, array in job.data.items()})
    settings = {
        "CACHE_DIR": job.cache,
        "INFERENCE_NUM_THREADS": job.threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = core.compile_model(model, "CPU", settings).create_infer_request()
    outputs = request.model_outputs
    data = dict(job.data)

    def call() -> list[Array]:
        results = request.infer(data, share_inputs=True)
        return [np.asarray(results[output]) for output in outputs]

    return call


LIMITED = {"x86-64-v3": "AVX2", "x86-64-v4": "AVX512_CORE"}
"""Levels below which other runtimes can be kept, where they can at all, as oneDNN calls them."""

_ONEDNN = {level: {"ONEDNN_MAX_CPU_ISA": name} for level, name in LIMITED.items()}
_ATEN = {"x86-64-v3": "avx2", "x86-64-v4": "avx512"}
_TORCH = {level: {**_ONEDNN[level], "ATEN_CPU_CAPABILITY": name} for level, name in _ATEN.items()}

RUNTIMES = {
    "opbuild": Runtime("opbuild", "opbuild", _opbuild),
    "onnxruntime": Runtime("ONNX Runtime", "onnxruntime", _onnxruntime),
    "openvino": Runtime("OpenVINO", "openvino", _openvino, limits=_ONEDNN),
    "mnn": Runtime("MNN", "MNN", converted.mnn),
    "ncnn": Runtime("ncnn", "ncnn", converted.ncnn, needs="pnnx"),
    "torch": Runtime("torch.compile", "torch", converted.torch_compiled, "onnx2torch", _TORCH),
}
"""Those that can be compared, by the name that options and results have."""

COLUMNS = {
    "opbuild untuned": Runtime("opbuild, untuned", "opbuild", _opbuild),
    "opbuild tuned": Runtime("opbuild, own tuning", "opbuild", _opbuild),
}
"""opbuild with other banks than the one that the release brings: whoever measures sets the variables that say so."""
