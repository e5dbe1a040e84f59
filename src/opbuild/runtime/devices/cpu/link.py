"""Linking: the objects of one network become one shared library.

Each network's library holds its own copy of what its kernels call and binds it to itself (``-Bsymbolic``): the
number of threads is exact for each network, and no library takes another's symbols. All symbols are bound when the
library is opened (``-z now``), so that a missing one is an error there and not in the middle of a run. Mathematical
functions of libm come from the process, as ``library`` makes them visible.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import shutil
import struct
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

from opbuild.config import linker_environment
from opbuild.errors import LinkError
from opbuild.kernel.artifact import read_symbols
from opbuild.platform.files.private import private_stem, sweep
from opbuild.platform.limits import hint_for
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.runtime.run_program import run_program

T = TypeVar("T")

TIMEOUT = 120.0
"""Seconds after which a linker counts as hung; 50 objects take 0.01."""

_SCRATCH = "opbuild-"

_LD_FLAGS = ("-shared", "-Bsymbolic", "-z", "now", "-z", "noexecstack", "--build-id=none", "-s")
_CC_FLAGS = ("-shared", "-nostdlib", "-Wl,-Bsymbolic,-z,now,-z,noexecstack,--build-id=none,-s")


_MACHINES = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64", "riscv-64-linux": "riscv64"}
_ELF_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243}


_ANOTHER = "try another linker: OPBUILD_LINKER"
_TELLING = ("error", "undefined", "multiple")
"""Words in the line of what a linker says that says what is wrong."""


class _FailedError(LinkError):
    """The linker itself failed, and no limit made it: another may do."""


class _NoRoomError(_FailedError):
    """There is no folder to link in, and this linker, as ``ld.lld``, cannot write to memory; another may."""


@dataclass(frozen=True)
class Linker:
    """A linker found on this machine.

    Attributes:
        command: The program and its fixed arguments; ``-o OUTPUT OBJECT...`` follows.
        name: How messages and reports call it.
    """

    command: tuple[str, ...]
    name: str


def find_linker(path: str = "", triple: str = "") -> Linker:
    """Return a linker that works: the one given, else ``ld.lld``, ``ld``, a C compiler, or the ``ziglang`` package.

    For another architecture than this machine's: the one given, else ``ld.lld``, that architecture's ``ld`` or C
    compiler under its GNU name, or ``ziglang``. Each is tried on an empty object, once in a process: a compiler may be
    installed without the linker that it calls, and nobody should wait for operators to learn that.

    Args:
        path: A linker or C compiler, by path or name (``OPBUILD_LINKER``); empty to search.
        triple: What is linked, e.g. ``arm-64-linux``; empty for this machine.

    Raises:
        LinkError: If the one given does not exist or work, or none is found that does.
    """
    return _with_working_linker(path, triple, _check_linker)


def link_with_any(objects: Sequence[bytes], path: str = "", triple: str = "") -> bytes:
    """Link as ``link`` does, with the first linker that can: none is tried on anything else before.

    Raises:
        LinkError: As ``find_linker`` and ``link``.
    """
    return _with_working_linker(path, triple, lambda linker, _: link(objects, linker))


def _with_working_linker(path: str, triple: str, use: Callable[[Linker, str], T]) -> T:
    """Return the result of using a linker for a machine, with the first linker that does not fail."""
    machine = _MACHINES.get(triple, platform.machine())
    problem = None
    for linker in _candidates(path, machine):
        try:
            return use(linker, machine)
        except _FailedError as error:
            problem = problem or error.with_traceback(None)  # it has this frame: a cycle
    if isinstance(problem, _NoRoomError):
        try:
            raise problem
        finally:
            del problem
    what = problem.message if problem else f"no linker was found: none of {', '.join(_names(machine))} is on the PATH"
    for_ = "" if machine == platform.machine() else f" for {triple}"
    if path:
        hint = f"OPBUILD_LINKER must name a linker{for_}; without it one is searched for"
    else:
        hint = f"install {_packages(machine)}, or 'pip install opbuild[linker]', or set OPBUILD_LINKER"
    raise LinkError(what.replace("no linker", f"no linker{for_}", 1), hint)


def _candidates(path: str, machine: str) -> Iterator[Linker]:
    """Yield the linkers that are installed, the preferred one first."""
    if path:
        found = shutil.which(path)
        if found is None:
            raise LinkError(f"the linker {path!r} was not found", "OPBUILD_LINKER must name an executable program")
        yield _linker(found)
        return
    for name in _names(machine):
        found = shutil.which(name)
        if found is not None:
            yield _linker(found)
    if importlib.util.find_spec("ziglang") is not None:
        yield Linker((sys.executable, "-m", "ziglang", "ld.lld", *_LD_FLAGS), "ziglang")


def _names(machine: str) -> tuple[str, ...]:
    """Return the programs that link for a machine, in order of preference."""
    if machine == platform.machine():
        return "ld.lld", "ld", "cc", "gcc", "clang"
    return "ld.lld", f"{machine}-linux-gnu-ld", f"{machine}-linux-gnu-gcc"


def _packages(machine: str) -> str:
    """Return the packages to install, by the names that Debian and its like have."""
    if machine == platform.machine():
        return "binutils, lld or a C compiler"
    return f"binutils-{machine.replace('_', '-')}-linux-gnu or lld"


@lru_cache(maxsize=32)
def _check_linker(linker: Linker, machine: str) -> Linker:
    """Return a linker that has linked an object for a machine that holds nothing: 6 ms."""
    if machine in _ELF_MACHINES:
        link([_empty_object(_ELF_MACHINES[machine])], linker)
    return linker


def _empty_object(machine: int) -> bytes:
    """Return a relocatable ELF object of two sections: the first, which has none of anything, and the names."""
    names = b"\0.shstrtab\0".ljust(16, b"\0")
    header = b"\x7fELF\2\1\1".ljust(16, b"\0") + struct.pack(
        "<HHIQQQIHHHHHH", 1, machine, 1, 0, 0, 64 + len(names), 0, 64, 0, 0, 64, 2, 1
    )
    section = struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, 64, len(names), 0, 0, 1, 0)
    return header + names + bytes(64) + section


def link(objects: Sequence[bytes], linker: Linker) -> bytes:
    """Link relocatable objects into one shared library; equal objects in equal order give equal bytes.

    Raises:
        LinkError: If there is no room for the linker's files, or the linker fails, hangs or writes nothing.
    """
    if not objects:
        raise LinkError("there is nothing to link", "this is an error in opbuild; please report it")
    for folder in _scratch_folders():
        try:
            sweep(folder or tempfile.gettempdir(), _SCRATCH)  # a build that was killed while it linked
            prefix = private_stem(_SCRATCH)
            with tempfile.TemporaryDirectory(prefix=prefix, dir=folder, ignore_cleanup_errors=True) as scratch:
                return _link_in(Path(scratch), objects, linker)
        except OSError as error:
            problem = error.with_traceback(None)
    try:
        return _link_in_memory(objects, linker)
    except (OSError, AttributeError, LinkError):
        raise _NoRoomError(
            f"no room to link the network: {problem}",
            hint_for(problem) or "make space in the temporary folder, or point TMPDIR at another",
        ) from problem


def _linker(found: str) -> Linker:
    name = Path(found).name
    plain = name == "ld" or name.startswith(("ld.", "ld-")) or name.endswith(("-ld", "lld", "mold"))
    return Linker((found, *(_LD_FLAGS if plain else _CC_FLAGS)), name)


def _scratch_folders() -> list[str | None]:
    """Folders to try: the system's temporary one, then memory."""
    return [None, "/dev/shm"] if Path("/dev/shm").is_dir() else [None]  # noqa: S108  a private folder is made inside


def _link_in(folder: Path, objects: Sequence[bytes], linker: Linker) -> bytes:
    names = [f"{index}.o" for index in range(len(objects))]
    for name, data in zip(names, objects, strict=True):
        (folder / name).write_bytes(data)
    output = folder / "network.so"
    # Relative names: the folder's own name differs from run to run and must not reach the library.
    _run(linker, [output.name, *names], folder)
    return _linked(output.read_bytes() if output.exists() else b"", linker)


def _link_in_memory(objects: Sequence[bytes], linker: Linker) -> bytes:
    """Link where no folder can be written, through files without names, which not every linker can write."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(os.fdopen(os.memfd_create(f"opbuild-{index}"), "w+b", buffering=0))
            for index in range(len(objects) + 1)
        ]
        for file, data in zip(files[1:], objects, strict=True):
            file.write(data)
        _run(linker, [f"/proc/self/fd/{file.fileno()}" for file in files], Path("/"), [each.fileno() for each in files])
        files[0].seek(0)
        return _linked(files[0].read(), linker)


def _run(linker: Linker, names: Sequence[str], folder: Path, descriptors: Sequence[int] = ()) -> None:
    """Link the files named after the first into the first."""
    try:
        ended = run_program(
            [*linker.command, "-o", *names],
            folder=folder, timeout=TIMEOUT, environment=linker_environment(), descriptors=descriptors,
        )  # fmt: skip
    except TimeoutError as error:
        raise LinkError(
            f"the linker {linker.name} did not end within {TIMEOUT:.0f} s", "try another: OPBUILD_LINKER"
        ) from error
    except OSError as error:
        raise LinkError(
            f"the linker {linker.name} could not be started: {error.strerror}",
            hint_for(error) or "check OPBUILD_LINKER",
        ) from error
    if ended.code != 0:
        message = ended.message.strip().splitlines()
        telling = [line for line in message if any(word in line for word in _TELLING) and "returned 1 exit" not in line]
        what = (telling or message or [ended.how])[0]
        kind = LinkError if ended.hint else _FailedError
        raise kind(f"the linker {linker.name} failed: {what}", ended.hint or _ANOTHER)


def _linked(library: bytes, linker: Linker) -> bytes:
    if not library:
        raise _FailedError(f"the linker {linker.name} failed: it wrote nothing", _ANOTHER)
    return library


_PARTS = ("tasks", "memory", "call", "indices")
_ALWAYS = ("call", "indices")
"""Parts that no kernel calls."""
_SUPPORT = Path(__file__).parent.parent.parent.parent / "native" / "support"
_SUPPORT_FOR = {"x86-64-linux": "x86_64", "arm-64-linux": "aarch64", "riscv-64-linux": "riscv64"}


@lru_cache(maxsize=4)
def support_parts(triple: str) -> dict[str, bytes]:
    """Return the relocatable objects by the names of their sources; RISC-V has the compiler's in the place of most.

    Args:
        triple: The target's architecture and system, e.g. ``x86-64-linux``.
    """
    machine = _SUPPORT_FOR.get(triple)
    files = {part: _SUPPORT / f"{part}_{machine}.o" for part in _PARTS}
    return {part: path.read_bytes() for part, path in files.items() if path.exists()}


def provided_symbols(triple: str) -> frozenset[str]:
    """Return the symbols that the objects define, all together."""
    return frozenset(symbol for part in support_parts(triple).values() for symbol in read_symbols(part).defined)


def support_objects(triple: str, undefined: Collection[str]) -> list[bytes]:
    """Return the objects that define some of these symbols, call kernels, and refuse indices."""
    parts = support_parts(triple).items()
    return [p for name, p in parts if name in _ALWAYS or not set(read_symbols(p).defined).isdisjoint(undefined)]
