"""The compiler of kernels for NVIDIA's GPUs. Triton is imported only when it compiles; no GPU or driver is needed.

Triton's own caches, launcher and detection of devices are not used: a function becomes Triton's IR, of which the
digest of a pipeline is, and Triton's stages make the binary of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from opbuild.backend.family_compiler import FamilyCompiler
from opbuild.backend.triton.cubin import KIND, parameter_places
from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, TritonKernel
from opbuild.backend.triton.types import POINTED
from opbuild.errors import CompileError, OpbuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.packages import lacking
from opbuild.platform.paths import Path
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.kernel.artifact import Artifact
    from opbuild.target.level import Target

PACKAGE = "opbuild.backend.triton"
WARP = 32
"""Threads of a warp."""

OPTIONS: Mapping[str, Any] = {"enable_fp_fusion": True, "enable_reflect_ftz": False}
"""Options of all kernels: products and sums are contracted where they are not rounded by name, and functions of
libdevice keep denormals."""

STATED = {"TRITON_DISABLE_LINE_INFO": "1"}
"""Variables of the environment that decide bytes: with line numbers the path of sources would be among them."""

DECIDING = re.compile(r"TRITON_|PTXAS_OPTIONS|MLIR_|LLVM_|NVPTX_|AMDGCN_|DISABLE_|ALLOW_|USE_IR_LOC")
"""What other variables begin with that Triton reads: they are not there while it compiles."""


class TritonCompiler(FamilyCompiler):
    """Compiles descriptors with Triton."""

    import_string = f"{PACKAGE}.compiler:TritonCompiler"
    name = "triton"
    emission = f"{PACKAGE}.compiler"
    undeciding = frozenset(
        {"opbuild.backend.family_compiler", "opbuild.errors", "opbuild.platform.digest", "opbuild.text.plural"}
    )

    @classmethod
    def files(cls) -> tuple[Path, ...]:
        """Return the files whose bytes are part of every key: the library, ptxas, libdevice, and Python sources."""
        return _installed()

    def prepare(self) -> None:
        """Import everything that a compile needs, so that forked children start ready."""
        with _settings():
            super().prepare()

    def load(self) -> None:
        """Import Triton."""
        _triton()

    @staticmethod
    def define(desc: OpDesc, target: Target) -> TritonPipeline:
        """Return the pipeline of an operator, as Triton gets it.

        Raises:
            CompileError: If Triton refuses the operator; the message is Triton's.
            MissingPackageError: If Triton is not installed.
        """
        return TritonPipeline(desc, target)

    @staticmethod
    def inspect(desc: OpDesc, symbol: str, target: Target, options: Collection[str]) -> Mapping[str, bytes]:
        """Return the binary of one operator (``.o``) and Triton's texts: ``.ttir``, ``.ttgir``, ``.llir``, ``.ptx``.

        Raises:
            CompileError: If Triton refuses the operator; the message is Triton's.
        """
        stages = TritonPipeline(desc, target).stages(symbol)
        texts = {f".{name}": str(text).encode() for name, text in stages.items() if name != "cubin"}
        return {".o": stages["cubin"], **(texts if options else {})}


class TritonPipeline:
    """The pipeline of an operator, as Triton gets it.

    Args:
        desc: The operator.
        target: What to compile for.

    Attributes:
        digest: Of all that decides the binary but its symbol and the compiler: Triton's IR, options, the launch.

    Raises:
        CompileError: If Triton refuses the operator; the message is Triton's. ``compile`` raises it too.
    """

    def __init__(self, desc: OpDesc, target: Target) -> None:
        self._desc, self._target = desc, target
        with _compiling(desc):
            self._kernel: TritonKernel = import_module(TritonCompiler.module(desc)).define(desc)
            text = self._made("kernel", "ttir")["last"].str_nodebug()  # without lines and names of variables
        decided = {
            "ir": text, "options": {**OPTIONS, **_own_options(self._kernel)}, "target": target.name,
            "arguments": _arguments(self._kernel), "grid": _grid(self._kernel),
        }  # fmt: skip
        self.digest = sha256(canonical_json(decided).encode())[:32]

    def compile(self, symbol: str) -> Artifact:
        """Return a binary whose kernel has a symbol, and how it is launched."""
        from opbuild.kernel.artifact import Artifact

        with _compiling(self._desc):
            made = self._made(symbol, "cubin")
            binary, metadata = made["cubin"], made["metadata"]
            if metadata["global_scratch_size"] or metadata["profile_scratch_size"]:
                raise CompileError(f"{self._desc.op_type}: the kernel needs memory of its own, which no launch gives")
            launch = {
                "warps": metadata["num_warps"],
                "shared": metadata["shared"],
                "arguments": _arguments(self._kernel),
                "parameters": [list(each) for each in parameter_places(binary)],
                "grid": _grid(self._kernel),
            }
            return Artifact(binary, symbol, KIND, launch)

    def stages(self, symbol: str) -> dict[str, Any]:
        """Return the texts of the stages, and the binary last."""
        with _compiling(self._desc):
            made = self._made(symbol, "cubin")
        return {name: each for name, each in made.items() if name not in ("metadata", "last")}

    def _made(self, symbol: str, last: str) -> dict[str, Any]:
        """Return the texts of the stages up to one, its own result as ``last``, and the metadata that they wrote."""
        triton = _triton()
        from triton._C.libtriton import ir
        from triton.backends.compiler import GPUTarget
        from triton.compiler import ASTSource, make_backend

        architecture = GPUTarget("cuda", int(self._target.arch.removeprefix("sm_").removesuffix("a")), WARP)
        backend, function = make_backend(architecture), self._kernel.function
        source = ASTSource(triton.jit(function.fn, repr=lambda _: symbol), *self._signature())
        options = replace(backend.parse_options({**OPTIONS, **_own_options(self._kernel)}), ptx_options=None)
        stages: dict[str, Any] = {}
        backend.add_stages(stages, options, source.language)
        context = ir.context()
        ir.load_dialects(context)
        backend.load_dialects(context)
        functions = backend.get_codegen_implementation(options)
        module = source.make_ir(architecture, options, functions, backend.get_module_map(), context)
        made: dict[str, Any] = {"metadata": {**options.__dict__}}
        for name, stage in stages.items():
            module = stage(module, made["metadata"])
            made[name] = module if isinstance(module, bytes) else str(module)
            if name == last:
                break
        return {**made, "last": module}

    def _signature(self) -> tuple[dict[str, str], dict[str, Any], dict[tuple[int], Any]]:
        """Return types of parameters, values of those that are constants, and what is known of the others."""
        kernel, names = self._kernel, self._kernel.function.arg_names
        dtypes = [operand.dtype for operand in self._desc.operands]
        types = {EXTENT: "i32", STRIDE: "i64"}
        signature = dict.fromkeys(kernel.constants, "constexpr")
        for name, argument in kernel.arguments.items():
            pointed = f"*{POINTED[dtypes[argument.operand]]}"
            signature[name] = pointed if argument.kind == ADDRESS else types[argument.kind]
        if {*signature} != {*names}:
            wrong = ", ".join(sorted({*signature} ^ {*names}))
            raise CompileError(f"{self._desc.op_type}: parameters and arguments differ: {wrong}")
        aligned: dict[tuple[int], Any] = {(names.index(name),): [["tt.divisibility", 16]] for name in kernel.aligned}
        return {name: signature[name] for name in names}, dict(kernel.constants), aligned


def _own_options(kernel: TritonKernel) -> dict[str, int]:
    return {"num_warps": kernel.warps, "num_stages": kernel.stages}


def _arguments(kernel: TritonKernel) -> list[list[Any]]:
    given = [name for name in kernel.function.arg_names if name in kernel.arguments]
    return [list(kernel.arguments[name]) for name in given]


def _grid(kernel: TritonKernel) -> list[list[list[int]]]:
    return [[list(tiles) for tiles in axis] for axis in kernel.grid]


@contextmanager
def _compiling(desc: OpDesc) -> Iterator[None]:
    """Turn an error of Triton's into a ``CompileError``."""
    with _settings():
        try:
            yield
        except OpbuildError:
            raise
        except (RuntimeError, AssertionError, LookupError, TypeError, ValueError, OSError) as error:
            raise CompileError(f"triton cannot compile {desc.op_type} (family {desc.family}): {error}") from error
        except Exception as error:
            if not type(error).__module__.startswith("triton"):
                raise
            raise CompileError(f"triton cannot compile {desc.op_type} (family {desc.family}): {error}") from error


@contextmanager
def _settings() -> Iterator[None]:
    """Give Triton one environment, whatever the user's is."""
    before = dict(os.environ)
    try:
        for name in filter(DECIDING.match, before):
            del os.environ[name]
        os.environ.update(STATED)
        yield
    finally:
        for name in STATED:
            os.environ.pop(name, None)
        os.environ.update({name: value for name, value in before.items() if DECIDING.match(name)})


def _triton() -> Any:
    """Return Triton; an error that names what installs it, if it is not there."""
    try:
        return import_module("triton")
    except ModuleNotFoundError as error:
        if error.name != "triton":
            raise
        raise lacking("triton") from error


_DECIDING_FOLDERS = ("", "compiler", "language", "language/extra", "language/extra/cuda", "runtime", "backends/nvidia")
_DECIDING_FILES = ("_C/libtriton.so", "backends/nvidia/bin/ptxas", "backends/nvidia/lib/libdevice.10.bc")


def _installed() -> tuple[Path, ...]:
    """Return the files of the installed Triton that decide its binaries, its shared library first."""
    spec = find_spec("triton")
    if spec is None or not spec.submodule_search_locations:
        return ()
    folder = os.path.realpath(next(iter(spec.submodule_search_locations)))
    binaries = [Path(folder, name) for name in _DECIDING_FILES]
    if not all(each.is_file() for each in binaries):
        return ()
    python = [Path(folder, part, name) for part in _DECIDING_FOLDERS for name in _python(Path(folder, part))]
    return (*binaries, *python, Path(folder, "backends", "compiler.py"))


def _python(folder: Path) -> Sequence[str]:
    try:
        return sorted(entry.name for entry in os.scandir(folder) if entry.name.endswith(".py"))
    except OSError:
        return []
