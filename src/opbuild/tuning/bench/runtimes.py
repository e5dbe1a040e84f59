"""The runtimes that can be compared: how each opens an ONNX model, with which settings; some convert it first."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field

Array = npt.NDArray[Any]
Call = Callable[[], "list[Array]"]

NO_ARRAYS: Mapping[int, Array] = MappingProxyType({})


class Run(Protocol):
    """A model that was opened."""

    def __call__(self, data: Mapping[str, Array], out: Mapping[int, Array] = NO_ARRAYS, /) -> list[Array]:
        """Return the outputs for inputs by name; some, by number, are written to arrays that may be inputs."""


@dataclass(frozen=True)
class BenchJob:
    """The task of a runtime in a comparison.

    Attributes:
        data: Its inputs by name; their shapes are the ones to build for; none: any that come.
        cache: A folder for what the runtime keeps for its next start.
        level: The level whose code opbuild runs; empty: this machine's.
    """

    model: str
    data: Mapping[str, Array]
    threads: int
    cache: str
    level: str = ""


MNN_CONVERT = (sys.executable, "-c", "import sys, MNN, _tools; _tools.mnnconvert(sys.argv)")
"""MNN's converter without its command, which installs a package and reports each conversion to a service."""

CONVERT_SECONDS = 600
"""Seconds that a converter may take."""


def mnn(job: BenchJob) -> Call:
    """Return a model in MNN, made by its own converter."""
    import MNN
    import onnx

    path = Path(job.cache) / "model.mnn"
    if not path.exists():
        part = path.with_suffix(".part")
        _convert([*MNN_CONVERT, "-f", "ONNX", "--modelFile", job.model, "--MNNModel", str(part)])
        part.replace(path)
    outputs = [each.name for each in onnx.load(job.model, load_external_data=False).graph.output]
    settings = {"backend": 0, "numThread": job.threads, "precision": 1, "power": 0, "memory": 0}
    manager = MNN.nn.create_runtime_manager((settings,))
    module = MNN.nn.load_module_from_file(str(path), list(job.data), outputs, runtime_manager=manager)
    values = [_without_long(array) for array in job.data.values()]

    def call() -> list[Array]:
        found = module.onForward([MNN.expr.const(each, each.shape, MNN.expr.NCHW, _mnn_type(each)) for each in values])
        return [np.array(MNN.expr.convert(each, MNN.expr.NCHW).read(), copy=True) for each in found]

    return call


def ncnn(job: BenchJob) -> Call:
    """Return a model in ncnn, made by pnnx; ncnn drops the first axis, so only batches of one can be told."""
    import ncnn as library

    folder = _pnnx(job)
    net = library.Net()
    net.opt.num_threads = job.threads
    net.opt.use_vulkan_compute = False
    for name in ("use_fp16_packed", "use_fp16_storage", "use_fp16_arithmetic", "use_bf16_storage"):
        setattr(net.opt, name, False)
    if net.load_param(str(folder / "model.ncnn.param")) or net.load_model(str(folder / "model.ncnn.bin")):
        raise RuntimeError("ncnn cannot read what pnnx made")
    names = sorted(net.output_names(), key=lambda name: int(name.removeprefix("out")))
    values = [_without_long(array) for array in job.data.values()]
    if any(each.shape[:1] != (1,) for each in values):
        raise RuntimeError("ncnn takes batches of one")

    def call() -> list[Array]:
        with net.create_extractor() as extractor:
            for place, each in enumerate(values):
                extractor.input(f"in{place}", library.Mat(np.ascontiguousarray(each[0])))
            found = []
            for name in names:
                code, value = extractor.extract(name)
                if code:
                    raise RuntimeError(f"ncnn cannot compute {name}: {code}")
                found.append(np.array(value)[np.newaxis])
            return found

    return call


def torch_compiled(job: BenchJob) -> Call:
    """Return a model in ``torch.compile`` with frozen weights, as onnx2torch makes a module of it.

    pnnx writes modules, too, as a program: what came from a model is never run as one.
    """
    import onnx2torch
    import torch
    import torch._inductor.config as inductor

    torch.set_num_threads(job.threads)
    inductor.freezing = True
    compiled: Any = torch.compile(onnx2torch.convert(job.model).eval())
    values = [torch.from_numpy(array) for array in job.data.values()]

    def call() -> list[Array]:
        with torch.no_grad():
            found = compiled(*values)
        return [each.numpy() for each in (found if isinstance(found, (tuple, list)) else (found,))]

    return call


def _pnnx(job: BenchJob) -> Path:
    """Return the folder in which pnnx left a model for ncnn."""
    folder = Path(job.cache) / "pnnx"
    if not (folder / "done").exists():
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copyfile(job.model, folder / "model.onnx")  # it writes beside the model
        shapes = ",".join(f"[{','.join(map(str, each.shape))}]{_PNNX[each.dtype.name]}" for each in job.data.values())
        _convert([_program("pnnx"), "model.onnx", f"inputshape={shapes}", "fp16=0"], folder)
        (folder / "done").touch()
    return folder


_PNNX = {"float32": "f32", "float64": "f64", "int64": "i64", "int32": "i32", "uint8": "u8", "int8": "i8"}


def _program(name: str) -> str:
    """Return the path of a program beside the interpreter, or wherever there is one."""
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _convert(command: list[str], folder: Path | None = None) -> None:
    if folder is None:
        Path(command[-1]).parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=CONVERT_SECONDS, check=False)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise RuntimeError(f"{Path(command[0]).name}: {lines[-1] if lines else done.returncode}")


def _without_long(array: Array) -> Array:
    """Return an array whose whole numbers have 32 bits, which is all that these two know."""
    return array.astype(np.int32) if array.dtype == np.int64 else array


def _mnn_type(array: Array) -> Any:
    import MNN

    return {"float32": MNN.expr.float, "int32": MNN.expr.int, "uint8": MNN.expr.uint8}[array.dtype.name]


@dataclass(frozen=True)
class Runtime:
    """A runtime.

    Attributes:
        package: The package to import, and the one whose version counts.
        load: Makes a job ready to be called; the result is a function without arguments.
        needs: Another package, with what converts models for it.
        limits: By level, the variables of its process that keep it from instructions beyond that level.
        open: Makes a model ready to be called with any inputs; None: none is made so.
    """

    title: str
    package: str
    load: Callable[[BenchJob], Call]
    needs: str = ""
    limits: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    open: Callable[[BenchJob], Run] | None = None

    @property
    def is_installed(self) -> bool:
        """Whether all that it takes can be imported."""
        return not self._missing

    @property
    def installation(self) -> str:
        """The commands that install what is missing; torch from its index for CPUs: others bring code for GPUs."""
        indexes = {"torch": " --index-url https://download.pytorch.org/whl/cpu"}
        return " && ".join(f"pip install {package}{indexes.get(package, '')}" for package in self._missing)

    @property
    def _missing(self) -> list[str]:
        return [package for package in (self.package, self.needs) if package and find_spec(package) is None]


def _on_data(open_: Callable[[BenchJob], Run]) -> Callable[[BenchJob], Call]:
    """Return the ``load`` of a runtime, given its ``open``."""

    def load(job: BenchJob) -> Call:
        run, data = open_(job), dict(job.data)
        return lambda: run(data)

    return load


def _opbuild(job: BenchJob) -> Run:
    from opbuild import api

    shapes = {name: array.shape for name, array in job.data.items()}
    level, threads = job.level or None, job.threads
    network = api.compile(
        job.model, input_shapes=shapes, cache_path=job.cache, num_threads=threads, target=level, wait=True
    )
    network.wait_until_stored()  # else that would go on beside the first calls

    def run(data: Mapping[str, Array], out: Mapping[int, Array] = NO_ARRAYS, /) -> list[Array]:
        return list(network.run(data, out={names[place]: array for place, array in out.items()}).values())

    names = [each.name for each in network.outputs]
    return run


def _onnxruntime(job: BenchJob) -> Run:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = job.threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(job.model, options, providers=["CPUExecutionProvider"])

    def run(data: Mapping[str, Array], out: Mapping[int, Array] = NO_ARRAYS, /) -> list[Array]:
        if not out:
            return list(map(np.asarray, session.run(None, data)))
        binding = session.io_binding()
        for name, array in data.items():
            binding.bind_cpu_input(name, array)
        for place, port in enumerate(session.get_outputs()):
            given = out.get(place)
            if given is None:
                binding.bind_output(port.name)
            else:
                binding.bind_output(port.name, "cpu", 0, given.dtype, given.shape, given.ctypes.data)
        session.run_with_iobinding(binding)
        found = binding.get_outputs()
        return [out[place] if place in out else each.numpy() for place, each in enumerate(found)]

    return run


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
    "opbuild": Runtime("opbuild", "opbuild", _on_data(_opbuild), open=_opbuild),
    "onnxruntime": Runtime("ONNX Runtime", "onnxruntime", _on_data(_onnxruntime), open=_onnxruntime),
    "openvino": Runtime("OpenVINO", "openvino", _openvino, limits=_ONEDNN),
    "mnn": Runtime("MNN", "MNN", mnn),
    "ncnn": Runtime("ncnn", "ncnn", ncnn, needs="pnnx"),
    "torch": Runtime("torch.compile", "torch", torch_compiled, "onnx2torch", _TORCH),
}
"""Those that can be compared, by the name that options and results have."""

COLUMNS = {
    "opbuild untuned": Runtime("opbuild, untuned", "opbuild", _on_data(_opbuild)),
    "opbuild tuned": Runtime("opbuild, own tuning", "opbuild", _on_data(_opbuild)),
}
"""opbuild with other databases than the release's: whoever measures sets the variables that say so."""
