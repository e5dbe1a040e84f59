"""Kernels that tests compiled before, in this run or an earlier one: kept as opbuild keeps those of its users.

They lie in the user's cache, so a new clone finds them too. A kernel's name holds everything that decides its bytes:
its key (what is computed, the level, the compiler's own bytes, the sources of its family), and in
what way it was compiled. What builds compile is named by the pipeline that the sources define instead, which is kept
under their digest. A machine that has nothing takes those that the package brings, of the same sources and compiler
(``tests/system/test_pack.py`` compiles some of them anew), and compiles the others. A campaign takes none.
"""

from __future__ import annotations

import contextlib
import os
import pwd
from collections.abc import Callable
from functools import cache, lru_cache, partial
from inspect import getsource
from pathlib import Path
from typing import Any

from opbuild.backend.halide.driver import PACKAGE, HalideCompiler
from opbuild.families import catalogue
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import Entry
from opbuild.kernel.identity import identify
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import CompilerIdentity, Key, key_digest, make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.private import publish
from opbuild.platform.imports import Modules
from opbuild.platform.sources import SourceFiles
from opbuild.store.pack import Pack
from opbuild.target.level import Level
from support.fuzzing import CAMPAIGN

Make = Callable[[OpDesc, str, Level], bytes]

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "src"

FOLDER = Path(pwd.getpwuid(os.getuid()).pw_dir, ".cache", "opbuild-tests", "kernels")
"""Not what the environment says: tests change it, and compile servers have another one."""

MOST_BYTES = 400_000_000
"""Ten times what the suite needs or more: for some branches, and for what was edited."""

_AS_STARTED = SourceFiles()
"""The sources, before the tests load any: what is edited later is not what is compiled."""

_MODULES = Modules(_AS_STARTED, HalideCompiler.undeciding)


def name_of(desc: OpDesc, level: Level, make: Make) -> str:
    """Return a kernel's name, which is another one when anything that decides its bytes is."""
    return key_digest({"key": key_of(desc, level).sha256, "way": _way(make)})[:40]


def key_of(desc: OpDesc, level: Level) -> Key:
    """Return a kernel's key, by the sources as they were when the process was started."""
    return make_key(desc, level, _compiler(), _sources(desc.family))


def shipped(key: Key) -> Entry | None:
    """Return the entry of a key that the package brings, just as it would be compiled; None if it brings none."""
    pack = Pack(key.components["target"])
    found = pack.lookup(key) if pack.compiler() == _compiler() and not CAMPAIGN else None
    return found.entry if isinstance(found, Found) else None


def kept(path: Path) -> bytes | None:
    """Return the bytes kept in a file, which counts as used now; None if there are none or they are damaged."""
    if CAMPAIGN:
        return None
    try:
        content, _, digest = path.read_bytes().rpartition(b"\n")
        os.utime(path)
    except OSError:
        return None
    return content if digest == blake3_of(content).encode() else None


def keep(path: Path, content: bytes) -> None:
    """Keep what was just made of sources, if they are still what they were when the process was started."""
    if not CAMPAIGN and _AS_STARTED.unchanged:
        with contextlib.suppress(OSError):  # compiled again the next time
            publish(path, content + b"\n" + blake3_of(content).encode())


def forget_the_oldest(most: int = MOST_BYTES) -> None:
    """Remove what was not used for longest until the rest fits; what a process has loaded stays loaded."""
    with contextlib.suppress(OSError):
        files = [(path.stat(), path) for path in FOLDER.iterdir()]
        for state, path in sorted(files, key=lambda file: -file[0].st_mtime):
            most -= state.st_size
            if most < 0:
                path.unlink(missing_ok=True)


class KeptCompiler(HalideCompiler):
    """The compiler that a compile server loads for tests that are about results, and not about compiling them."""

    import_string = "support.kept_kernels:KeptCompiler"

    def prepare(self) -> None:
        """Import what a compile needs, and digest the sources once for all children."""
        super().prepare()
        _compiler()
        for family in catalogue.names():
            _sources(family)

    @staticmethod
    def define(desc: OpDesc, level: Level) -> Any:
        """Return the pipeline; its digest is kept under the sources that define it."""
        return HalideCompiler.define(desc, level) if desc.family == "runtime" else KeptPipeline(desc, level)


class KeptPipeline:
    """What is compiled for an operator, made only where its digest or its object is not kept.

    Args:
        desc: The operator.
        level: What to compile for.
    """

    def __init__(self, desc: OpDesc, level: Level) -> None:
        self._made = lru_cache(maxsize=1)(partial(HalideCompiler.define, desc, level))
        self._key = key_of(desc, level)
        path = FOLDER / f"{self._key.sha256[:40]}.pipeline"
        known = kept(path)
        self.digest = self._new_digest() if known is None else known.decode()
        if known is None:
            keep(path, self.digest.encode())

    def compile(self, symbol: str) -> Artifact:
        """Return a kept object, or compile and keep it: its name has the symbol, which the compiler is a part of."""
        path = FOLDER / f"{self.digest}_{symbol}.o"
        found = kept(path)
        if found is None:
            entry = shipped(self._key)
            is_it = entry is not None and entry.symbol == symbol
            found = entry.object if is_it else self._made().compile(symbol).data
            keep(path, found)
        return Artifact(found, symbol)

    def _new_digest(self) -> str:
        entry = shipped(self._key)
        return self._made().digest if entry is None else entry.pipeline


def search_path() -> str:
    """Return a ``PYTHONPATH`` with which a process's builds take what this one's do, besides opbuild's own sources."""
    return taking_path() if HalideCompiler.import_string == KeptCompiler.import_string else str(SOURCE)


def taking_path() -> str:
    """Return a ``PYTHONPATH`` with which a process's builds take kept objects, but for a campaign's."""
    return os.pathsep.join(map(str, (SOURCE,) if CAMPAIGN else (SOURCE, TESTS, TESTS / "support" / "kept")))


def take_in_builds() -> None:
    """Let the compile servers of this process, and of its forks, be of such a compiler; not in a campaign."""
    if not CAMPAIGN:
        HalideCompiler.import_string = KeptCompiler.import_string


@cache
def _compiler() -> CompilerIdentity:
    return identify(HalideCompiler(), FOLDER.parent / "compiler.json")


@cache
def _sources(family: str) -> str:
    return _MODULES.digest((HalideCompiler.emission, HalideCompiler.module_of(family)))


@cache
def _way(make: Any) -> str:
    """Return the identity of a way of compiling: of a test's own, its text and the sources of debugging."""
    if make == HalideCompiler.compile:
        return ""
    return blake3_of(getsource(make).encode()) + _MODULES.digest((f"{PACKAGE}.debug",))
