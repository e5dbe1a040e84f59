"""Tries every Python that opbuild is for: ``python tools/pythons.py [NAME...]``, or ``make test-pythons``.

Looked for are the interpreters of pyenv, the system and PATH, also without the global lock (``3.14t``). Each that is
found gets an environment of opbuild and little else in ``build/pythons``, in which what the README shows is run, and a
file of each folder of the tests. Those that are not found are named; names as arguments (``3.12``) choose some.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
WANTED = ("3.10", "3.11", "3.12", "3.13", "3.13t", "3.14", "3.14t")

SAMPLE = (
    "tests/contract/test_tiers.py", "tests/golden/test_golden_keys.py",
    "tests/property/test_key_properties.py", "tests/unit/backend/host/test_sequences.py",
    "tests/unit/builder/test_queue.py", "tests/unit/cli/test_main.py", "tests/unit/families/test_attention.py",
    "tests/unit/frontend/test_wire.py", "tests/unit/graph/test_constants.py", "tests/unit/kernel/test_artifact.py",
    "tests/unit/mindspore/test_checkpoint.py", "tests/unit/platform/test_forks.py",
    "tests/unit/runtime/test_memory_plan.py", "tests/unit/store/test_compatibility.py",
    "tests/unit/target/test_devices.py",
)  # fmt: skip
COMPILED = (
    "tests/conformance/test_conformance.py", "tests/generated/test_expression_trees.py",
    "tests/kernels/test_softmax.py", "tests/system/test_run_script.py", "tests/unit/test_api.py",
    "tests/unit/mindspore/test_indexing.py",
)  # fmt: skip
"""What is tried where Halide has packages, too: these compile."""

_PROGRAM = re.compile(r"python3\.\d+t?")
_ASK = """
import sys, sysconfig
print(f"{sys.version_info[0]}.{sys.version_info[1]}{'t' * bool(sysconfig.get_config_var('Py_GIL_DISABLED'))}")
print(*sys.version_info[:3])
"""


def folders(environment: Mapping[str, str]) -> list[Path]:
    """Return where interpreters are looked for."""
    pyenv = Path(environment.get("PYENV_ROOT") or Path(environment.get("HOME", "/"), ".pyenv"))
    path = [Path(each) for each in environment.get("PATH", "").split(os.pathsep) if each]
    return [*sorted(pyenv.glob("versions/*/bin")), *path, Path("/usr/bin"), Path("/usr/local/bin")]


def found(places: Iterable[Path]) -> dict[str, Path]:
    """Return the newest interpreter of each name in some folders."""
    known: dict[str, tuple[list[int], Path]] = {}
    for path in dict.fromkeys(path for place in places if place.is_dir() for path in sorted(place.iterdir())):
        if _PROGRAM.fullmatch(path.name):
            said = subprocess.run([str(path), "-c", _ASK], capture_output=True, text=True, check=False).stdout.split()
            if len(said) == 4:
                known[said[0]] = max(known.get(said[0], ([], path)), ([int(part) for part in said[1:]], path))
    return {name: path for name, (_, path) in known.items()}


def commands(name: str, path: Path, folder: Path) -> Iterator[Sequence[str]]:
    """Yield what is run for an interpreter, one after the other; ``folder`` is its own."""
    python = str(folder / "bin" / "python")
    if not Path(python).exists():
        yield [str(path), "-m", "venv", str(folder)]
    pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    yield [*pip, "--editable", str(ROOT), "hypothesis", "pytest", "pytest-timeout"]
    yield [python, str(ROOT / "tests" / "support" / "documented.py"), str(ROOT / "README.md"), "examples/", "make "]
    has_halide = subprocess.run([python, "-c", "import halide"], capture_output=True, check=False).returncode == 0
    tests = [str(ROOT / each) for each in (*SAMPLE, *(COMPILED if has_halide else ()))]
    yield [python, "-m", "pytest", "--timeout", "300", "-m", "not slow", "--rootdir", str(ROOT), *tests]


def problem(name: str, path: Path) -> str:
    """Return the command that fails for an interpreter; empty if none does."""
    folder = ROOT / "build" / "pythons" / name
    work = folder.with_name(f"{name}-work")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    environment = {
        **{key: value for key, value in os.environ.items() if not key.startswith(("OPBUILD_", "MS_"))},
        "PATH": os.pathsep.join([str(folder / "bin"), os.environ.get("PATH", "")]),
        "HOME": str(work), "LC_ALL": "C.UTF-8", "COLUMNS": "160", "PIP_QUIET": "1",
    }  # fmt: skip
    for command in commands(name, path, folder):
        if subprocess.run(command, cwd=work, env=environment, check=False).returncode:
            return " ".join(command)
    return ""


def main(names: Sequence[str]) -> int:
    """Try the interpreters of some names, or of all; return the exit code."""
    there, wrong = found(folders(os.environ)), []
    for name in names or WANTED:
        if name not in there:
            print(f"{name}: not found", flush=True)
            continue
        print(f"{name}: {there[name]}", flush=True)
        failed = problem(name, there[name])
        print(f"{name}: {f'FAILED: {failed}' if failed else 'passed'}", flush=True)
        wrong += [name] if failed else []
    return int(bool(wrong) or not there.keys() & set(names or WANTED))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
