"""Only ``config.py`` reads the environment, so that what a variable does can be found in one place."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import pytest

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.config import PLACES, Config, compiler_environment

PACKAGE = Path(__file__).resolve().parents[3] / "src" / "opbuild"
DOCUMENT = PACKAGE.parents[1] / "docs" / "reference" / "environment.md"
READERS = {"environ", "environb", "getenv", "getenvb"}

COPIED_FOR_CHILDREN: dict[str, str] = {
    "backend/triton/compiler.py": "it hides from Triton what that would read, while it compiles",
}
"""Files that hand the whole environment to others and read no variable from it, each with its reason."""


def reads(source: str) -> Iterator[int]:
    """Yield the lines of a program that mention the process's environment, however ``os`` was imported."""
    if not any(name in source for name in READERS):
        return  # most files, and parsing takes long
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in READERS and isinstance(node.value, ast.Name):
            yield node.lineno
        if isinstance(node, ast.ImportFrom) and node.module == "os" and READERS & {name.name for name in node.names}:
            yield node.lineno


def test_only_config_reads_the_environment() -> None:
    """No other file mentions it, but for those on the list."""
    found = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if list(reads(path.read_text())) and path.name != "config.py"
    }
    assert found == set(COPIED_FOR_CHILDREN)
    assert list(reads((PACKAGE / "config.py").read_text()))


@pytest.mark.parametrize(
    "source", ["import os\nos.environ['X']", "from os import getenv", "import os as o\nx = o.getenv('X')"]
)
def test_a_read_is_found(source: str) -> None:
    """Each way to reach the environment is noticed."""
    assert list(reads(source))


def variables() -> set[str]:
    """Return the names that config.py reads."""
    calls = [node for node in ast.walk(ast.parse((PACKAGE / "config.py").read_text())) if isinstance(node, ast.Call)]
    reading = [call for call in calls if any(isinstance(n, ast.Name) and n.id == "env" for n in ast.walk(call))]
    names = {a.value for call in reading for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    names |= {field.metadata["setting"].variable for field in fields(Config) if "setting" in field.metadata}
    names |= set(PLACES)
    assert {"RANK_ID", "OPBUILD_FORBID_COMPILE"} <= names
    return {name for name in names if name.isupper()}


def test_every_variable_is_documented() -> None:
    """Each name that config.py reads stands in docs/reference/environment.md (F26: no switch that nobody knows of)."""
    text = DOCUMENT.read_text()
    assert [name for name in sorted(variables()) if f"`{name}`" not in text] == []


def test_every_variable_of_opbuild_is_one_that_it_knows() -> None:
    """None is both read and called unknown; each that a document names is read."""
    own = {name for name in variables() if name.startswith("OPBUILD_")}
    named = set(re.findall(r"`(OPBUILD_\w+)`", DOCUMENT.read_text()))
    assert own == named
    assert Config.from_environment(environ={"HOME": "/h", **dict.fromkeys(own, "")}).warnings == ()


REACHES_CODE = (
    "backend",
    "builder",
    "platform/files",
    "frontend",
    "graph",
    "kernel",
    "lowering",
    "operations",
    "program.py",
    "target",
)
"""What stands between a model and an object's bytes; ``frontend/models`` only remembers models."""

MODULES = {"getpass", "grp", "locale", "platform", "pwd", "random", "secrets", "site", "socket", "sysconfig", "uuid"}
ATTRIBUTES = {
    "os": {"cpu_count", "getcwd", "getlogin", "getpid", "getuid", "sched_getaffinity", "uname", "urandom"},
    "sys": {"argv", "byteorder", "executable", "flags", "hexversion", "implementation", "path", "platform", "version",
            "version_info"},
    "time": {"localtime", "monotonic", "perf_counter", "time", "time_ns"},
    "Path": {"cwd", "home"},
    "tempfile": {"gettempdir"},
}  # fmt: skip
METHODS = {"expanduser", "expandvars", "home"}

REVIEWED = {
    ("backend/host/search.py", "time.time_ns"): "what is drawn at a call by a search without a seed",
    ("builder/build.py", "time.perf_counter"): "how long a build took",
    ("builder/server.py", "sys.platform"): "whether a child can be told to end with its parent",
    ("builder/client.py", "os.getpid"): "a fork leaves its parent's server alone",
    ("builder/client.py", "sys.executable"): "starts the server; an idle one is of this interpreter",
    ("builder/client.py", "sys.path"): "where the server finds halide, whose bytes are compared, and these sources",
    ("builder/work.py", "time.perf_counter"): "how long a build took",
    ("builder/queue.py", "time.monotonic"): "how long to wait for others",
    ("builder/queue.py", "random"): "when, and in which order, others are asked",
    ("builder/queue.py", "random.sample"): "in which order others are asked",
    ("builder/queue.py", "random.uniform"): "how long to wait for others",
    ("builder/spread.py", "time.monotonic"): "how long workers elsewhere have been silent",
    ("builder/spread.py", "os.getpid"): "who answers or refuses, for messages",
    ("builder/spread.py", "os.uname"): "who answers or refuses, for messages",
    ("builder/server.py", "os.getpid"): "a child ends with the server",
    (
        "builder/server.py",
        "tempfile.gettempdir",
    ): "where the compiler's files are until they are read; paths are in none",
    ("builder/server.py", "sys.argv"): "the compiler's class, the number of workers and the kind of slots",
    ("builder/server.py", "time.monotonic"): "how long a compile took",
    ("kernel/identity.py", "time.time_ns"): "whether a file has only just changed",
    ("platform/files/mapping.py", "time.time_ns"): "whether a file has only just changed",
    ("platform/files/private.py", "os.getpid"): "names of temporary files",
    ("platform/files/private.py", "os.urandom"): "names of temporary files",
    ("platform/files/private.py", "time.time"): "whether a temporary file is old",
    ("frontend/microsoft.py", "platform"): "the blocks in which ONNX Runtime writes weights on such a machine",
    ("frontend/microsoft.py", "platform.machine"): "the same; kernels are the same ones",
    ("target/host.py", "platform"): "the level, which is in the key",
    ("target/host.py", "platform.machine"): "the level, which is in the key",
    ("target/host.py", "platform.system"): "the level, which is in the key",
}
"""What the code between model and object asks of its surroundings, each with why no object's bytes depend on it, or
where the key has it. Whoever adds a line here has asked which of the two it is.
"""


def surroundings(source: str) -> set[str]:
    """Return the facts of machine, user, process or clock that a program asks for."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            known = ATTRIBUTES.get(node.module, set())
            found |= {f"{node.module}.{name.name}" for name in node.names if name.name in known}
            found |= {node.module} & MODULES
        elif isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner = node.value.id
            if owner in MODULES or node.attr in ATTRIBUTES.get(owner, set()):
                found.add(f"{owner}.{node.attr}")
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            found.add(node.attr)
    return found


def test_what_reaches_code_generation_asks_nothing_else_of_its_surroundings() -> None:
    """A new read of machine, user, process or clock is either in the key or on the list, with the reason (F26, F43)."""
    files = [PACKAGE / f"{name}.py" for name in REACHES_CODE]
    paths = [each for each in files if each.is_file()]
    paths += [path for name in REACHES_CODE for path in (PACKAGE / name).rglob("*.py")]
    paths = [path for path in paths if not path.is_relative_to(PACKAGE / "frontend" / "models")]
    found = {
        (str(path.relative_to(PACKAGE)), read)
        for path in paths
        for read in surroundings(path.read_text(encoding="utf-8"))
    }
    assert found - set(REVIEWED) == set()
    assert set(REVIEWED) - found == set(), "no longer read: take it off the list"


@pytest.mark.parametrize(
    ("source", "read"),
    [
        ("import platform", "platform"),
        ("from locale import getlocale", "locale"),
        ("from time import time", "time.time"),
        ("import sys\nsys.flags.optimize", "sys.flags"),
        ("Path('~').expanduser()", "expanduser"),
        ("import os\nos.cpu_count()", "os.cpu_count"),
    ],
)
def test_a_read_of_the_surroundings_is_found(source: str, read: str) -> None:
    """The list would bite."""
    assert read in surroundings(source)


HALIDE_READS = {
    "HL_COLORS", "HL_COMPILER_STACK_SIZE", "HL_CUDA_JIT_MAX_REGISTERS", "HL_DEBUG_CODEGEN", "HL_DEBUG_COMPILER_LOGGER",
    "HL_EXTRA_OUTPUTS", "HL_GPU_DEVICE", "HL_HEXAGON_CODE_SIGNER", "HL_HEXAGON_DUMP_BITCODE", "HL_JIT_TARGET",
    "HL_LLVM_ARGS", "HL_NUMTHREADS", "HL_NUM_THREADS", "HL_OBFUSCATE_COMPILER_LOGGER", "HL_OCL_BUILD_OPTIONS",
    "HL_OCL_DEVICE_TYPE", "HL_OCL_PLATFORM_NAME", "HL_PERMIT_FAILED_UNROLL", "HL_PROFILER_SORT",
    "HL_RUNTIME_DROP_FUNCS", "HL_SPIRV_DUMP_FILE", "HL_TARGET", "HL_TIME_LOWERING_PASSES", "HL_TRACE_FILE",
    "HL_VK_ALLOC_CONFIG", "HL_VK_BUILD_OPTIONS", "HL_VK_DEVICE_TYPE", "HL_VK_EXTENSIONS", "HL_VK_LAYERS",
    "HL_WEBGPU_NATIVE_LIB",
}  # fmt: skip
"""Variables that Halide 21 reads while it compiles or, in the runtime library, while a network runs."""

NOT_VARIABLES = {
    "HL_PT_DEFINE_TYPECHECK", "HL_PYTORCH_API_VERSION", "HL_PYTORCH_CUDA_HELPERS_H", "HL_PYTORCH_WRAPPER_H",
}  # fmt: skip
"""Names of macros in the C++ that Halide writes."""


def test_every_variable_that_halide_reads_is_known_and_kept_from_it() -> None:
    """A release of halide that reads a new variable fails here, until somebody has looked at it (F26)."""
    found = {
        name.decode()
        for path in HalideCompiler.files()
        # "HL_" first, which is found fast in a hundred megabytes.
        for name in re.findall(rb"HL_(?<!\wHL_)[A-Z0-9_]{2,}\b", path.read_bytes())
    }
    assert found - NOT_VARIABLES == HALIDE_READS
    assert not HALIDE_READS & set(compiler_environment())
