"""Which compiler is installed: its release and the digest of its library's bytes, without importing it.

The version number alone is not enough, since a library can be swapped in place; nor is its time stamp, since the same
library reinstalled gets a new one. So its bytes decide. Reading 165 MB takes tens of milliseconds, therefore the digest
is remembered in a small file, for as long as the compiler's files are the very ones that were read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from opbuild.errors import BuildError
from opbuild.kernel.key import CompilerIdentity
from opbuild.platform.digest import blake3_of, blake3_of_file
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import PRIVATE, Trust
from opbuild.platform.packages import install_command
from opbuild.platform.paths import Path
from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import Compiler

FilesState = tuple[tuple[str | int, ...], ...]
"""For each file its path, size, times of modification and of change, and inode. The time of change cannot be set
back, so bytes overwritten under an old time stamp are noticed."""

_SETTLED = 10**9
"""Nanoseconds since a file's last change after which a further change surely gives it another time of change."""


def identify(
    compiler: Compiler,
    memo: Path | None = None,
    trust: Trust = PRIVATE,
    otherwise: Callable[[], CompilerIdentity | None] = lambda: None,
) -> CompilerIdentity:
    """Return the identity of an installed compiler.

    Where it is not installed, its identity is the one that built or imported what is stored, or made the pack: it
    decides which entries are looked up, and nothing new can be compiled.

    Args:
        compiler: Asked for its name, release and library.
        memo: File in which the library's digest is remembered; None to read the library each time.
        trust: Whose memo is believed.
        otherwise: Returns the identity where it is neither installed nor remembered; None: there is none.

    Raises:
        BuildError: If the compiler is not installed and none is known otherwise, or its library cannot be read.
    """
    library = compiler.library()
    if library is None:
        known = remembered(memo, trust) if memo is not None else None
        if known is None or known.name != compiler.name:
            known = otherwise()
        if known is None or known.name != compiler.name:
            raise BuildError(f"the compiler {compiler.name} is not installed", install_command(compiler.name))
        return known
    try:
        identity = CompilerIdentity(compiler.name, compiler.version(), files_digest(compiler.files(), memo, trust))
    except OSError as error:
        path = error.filename or library
        raise BuildError(f"{path} cannot be read: {error}", f"reinstall {compiler.name}") from error
    if memo is not None and remembered(memo, trust) != identity:
        remember(memo, identity, trust)
    return identity


def memo_of(device: str, memo: Path | None) -> Path | None:
    """Return the file that remembers the compiler for a class of devices, beside that of the CPU's."""
    return memo if memo is None or device == CPU else memo.parent / f"{memo.stem}_{device}.json"


def remembered(memo: Path, trust: Trust = PRIVATE) -> CompilerIdentity | None:
    """Return the compiler whose objects a cache holds, as ``memo`` says; None if it does not."""
    content = _content(memo, trust)
    parts = [content.get(name) for name in ("compiler", "version", "blake3")]
    return CompilerIdentity(*parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


def remember(memo: Path, identity: CompilerIdentity, trust: Trust = PRIVATE) -> None:
    """Write down the compiler whose objects a cache holds; a folder that cannot be written forgets it."""
    content = _content(memo, trust)
    kept = {"files": content["files"]} if content.get("blake3") == identity.digest and "files" in content else {}
    known = {**kept, "blake3": identity.digest, "compiler": identity.name, "version": identity.version}
    _write(memo, known, trust)


def files_digest(paths: Sequence[Path], memo: Path | None, trust: Trust = PRIVATE) -> str:
    """Return one digest of several files' bytes, from ``memo`` if their state is the one that was written there.

    Raises:
        OSError: If a file cannot be read.
    """
    before = files_state(paths)
    content = _content(memo, trust) if memo is not None else {}
    known = content.get("blake3")
    if content.get("files") == [list(each) for each in before] and isinstance(known, str) and len(known) == 64:
        return known
    digest = blake3_of("\n".join(blake3_of_file(path) for path in paths).encode())
    if memo is not None and _settled(before) and files_state(paths) == before:
        _write(memo, {**(content if known == digest else {}), "files": before, "blake3": digest}, trust)
    return digest


def files_state(paths: Sequence[Path]) -> FilesState:
    """Return the state of files; as long as it stays the same, so do their bytes.

    Raises:
        OSError: If there is no such file.
    """
    states = [(path, path.stat()) for path in paths]
    return tuple(
        (str(path), state.st_size, state.st_mtime_ns, state.st_ctime_ns, state.st_ino) for path, state in states
    )


def _settled(state: FilesState) -> bool:
    """Return whether no file has only just changed: it might change again without getting another time of change."""
    return all(time.time_ns() - int(changed) > _SETTLED for *_, changed, _ in state)


def _content(memo: Path, trust: Trust) -> dict[str, Any]:
    try:
        return trust.read_memo(memo)
    except (OSError, ValueError):
        return {}


def _write(memo: Path, content: dict[str, Any], trust: Trust) -> None:
    """Write the identity; a folder that cannot be written costs only the reading next time."""
    with contextlib.suppress(OSError):
        publish(memo, trust.write_memo(memo, content))
