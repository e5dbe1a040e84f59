"""Programs in C, compiled with the address and undefined-behaviour sanitizers."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from opbuild import native

NATIVE = Path(native.__file__).parent
_FLAGS = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Wconversion", "-Werror", f"-I{NATIVE}"]
_SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]


def compiled(program: Path, sources: Sequence[Path], *flags: str) -> Path:
    """Return a program with sanitizers; skip the test where there are none."""
    if reason := _missing():
        pytest.skip(reason)
    build(program, sources, *_SANITIZERS, *flags, "-ldl", "-lpthread", "-lm")
    return program


def build(output: Path, sources: Sequence[Path], *flags: str) -> None:
    """Compile C without a warning."""
    libraries = [flag for flag in flags if flag.startswith("-l")]
    others = [flag for flag in flags if not flag.startswith("-l")]
    command = ["cc", *_FLAGS, *others, *map(str, sources), "-o", str(output), *libraries]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def run(program: Path, *words: str) -> str:
    """Return the output of a program; it must end well."""
    done = subprocess.run([str(program), *words], check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@cache
def _missing() -> str:
    """Return why nothing can be compiled with sanitizers here; empty if it can."""
    if shutil.which("cc") is None:
        return "there is no C compiler"
    with TemporaryDirectory() as folder:
        source, program = Path(folder) / "empty.c", Path(folder) / "empty"
        source.write_text("int main(void) { return 0; }\n")
        for command in (["cc", *_SANITIZERS, str(source), "-o", str(program)], [str(program)]):
            if subprocess.run(command, check=False, capture_output=True).returncode:
                return "the C compiler has no sanitizers that run here"
    return ""
