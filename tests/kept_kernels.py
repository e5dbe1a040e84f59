"""Kernels that tests compiled before, in this run or an earlier one: kept as opbuild keeps those of its users.

They lie in the user's cache, so a new clone finds them too. A kernel's name holds everything that decides its bytes:
its key (what is computed, the level, the compiler's own bytes, the sources of its family), the linker's release, and in
what way it was compiled. Where a family's source was edited, all its kernels are compiled again; a machine that has
none compiles all. A campaign takes none.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Callable
from functools import cache
from inspect import getsource
from pathlib import Path
from typing import Any

from fuzzing import CAMPAIGN
from opbuild.backend.halide.driver import EMISSION, PACKAGE, UNDECIDING, HalideCompiler
from opbuild.files.private import publish
from opbuild.kernel.identity import identify
from opbuild.kernel.key import CompilerIdentity, key_digest, make_key
from opbuild.kernel.level import Level
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import blake3_of
from opbuild.platform.imports import Modules
from opbuild.platform.sources import Sources

Make = Callable[[OpDesc, str, Level], bytes]

FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "opbuild-tests" / "kernels"
"""As the environment says before a test changes it."""

MOST_BYTES = 400_000_000
"""Ten times what the suite needs or more: for some branches, and for what was edited."""

_AS_STARTED = Sources()
"""The sources, before the tests load any: what is edited later is not what is compiled."""

_MODULES = Modules(_AS_STARTED, UNDECIDING)


def name_of(desc: OpDesc, level: Level, make: Make) -> str:
    """Return a kernel's name, which is another one when anything that decides its bytes is."""
    key = make_key(desc, level, _compiler(), _sources(desc.family))
    return key_digest({"key": key.sha256, "linker": _linker(), "way": _way(make)})[:40]


def is_kept(path: Path) -> bool:
    """Return whether a library is there and whole; it counts as used now."""
    if CAMPAIGN:
        return False
    try:
        content, _, digest = path.read_bytes().rpartition(b"\n")
        os.utime(path)
    except OSError:
        return False
    return digest == blake3_of(content).encode()


def keep(library: Path) -> None:
    """Keep a library that was just made of sources that are still what they were when the tests were started."""
    if not CAMPAIGN and _AS_STARTED.unchanged:
        content = library.read_bytes()
        with contextlib.suppress(OSError):  # compiled again the next time
            publish(FOLDER / library.name, content + b"\n" + blake3_of(content).encode())


def forget_the_oldest(most: int = MOST_BYTES) -> None:
    """Remove what was not used for longest until the rest fits; what a process has loaded stays loaded."""
    with contextlib.suppress(OSError):
        files = [(path.stat(), path) for path in FOLDER.iterdir()]
        for state, path in sorted(files, key=lambda file: -file[0].st_mtime):
            most -= state.st_size
            if most < 0:
                path.unlink(missing_ok=True)


@cache
def _compiler() -> CompilerIdentity:
    return identify(HalideCompiler(), FOLDER.parent / "compiler.json")


@cache
def _sources(family: str) -> str:
    return _MODULES.digest((EMISSION, f"opbuild.families.{family}.definition", f"opbuild.families.{family}.schedule"))


@cache
def _linker() -> str:
    return subprocess.run(["ld", "--version"], check=True, capture_output=True, text=True).stdout


@cache
def _way(make: Any) -> str:
    """Return what tells a way of compiling from another: of a test's own, its text and the sources of debugging."""
    if make == HalideCompiler.compile:
        return ""
    return blake3_of(getsource(make).encode()) + _MODULES.digest((f"{PACKAGE}.debug",))
