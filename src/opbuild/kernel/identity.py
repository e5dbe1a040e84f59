"""Which compiler is installed: its release and the digest of its library's bytes, without importing it.

The version number alone is not enough, since a library can be swapped in place; nor is its time stamp, since the same
library reinstalled gets a new one. So its bytes decide. Reading 165 MB takes tens of milliseconds, therefore the digest
is remembered in a small file, for as long as the library's file is the very one that was read.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from opbuild.digest import fast_file
from opbuild.errors import BuildError
from opbuild.kernel.key import CompilerIdentity
from opbuild.kernel.private_files import publish
from opbuild.kernel.trust import PRIVATE, Trust

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import Compiler


def identify(compiler: Compiler, memo: Path | None = None, trust: Trust = PRIVATE) -> CompilerIdentity:
    """Return the identity of an installed compiler.

    Where it is not installed, its identity is the one that built or imported what is stored: it decides which entries
    are looked up, and nothing new can be compiled.

    Args:
        compiler: Asked for its name, release and library.
        memo: File in which the library's digest is remembered; None to read the library each time.
        trust: Whose memo is believed.

    Raises:
        BuildError: If the compiler is not installed and none is remembered, or its library can not be read.
    """
    library = compiler.library()
    if library is None:
        known = remembered(memo, trust) if memo is not None else None
        if known is None or known.name != compiler.name:
            raise BuildError(f"the compiler {compiler.name} is not installed", f"pip install {compiler.name}")
        return known
    try:
        identity = CompilerIdentity(compiler.name, compiler.version(), file_digest(library, memo, trust))
    except OSError as error:
        raise BuildError(f"{library} can not be read: {error}", f"reinstall {compiler.name}") from error
    if memo is not None and remembered(memo, trust) != identity:
        remember(memo, identity, trust)
    return identity


def remembered(memo: Path, trust: Trust = PRIVATE) -> CompilerIdentity | None:
    """Return the compiler whose objects a cache holds, as ``memo`` says; None if it does not."""
    content = _content(memo, trust)
    parts = [content.get(name) for name in ("compiler", "version", "blake3")]
    return CompilerIdentity(*parts) if all(isinstance(part, str) for part in parts) else None  # type: ignore[arg-type]


def remember(memo: Path, identity: CompilerIdentity, trust: Trust = PRIVATE) -> None:
    """Write down the compiler whose objects a cache holds; a folder that can not be written forgets it."""
    content = _content(memo, trust)
    kept = {"file": content["file"]} if content.get("blake3") == identity.digest and "file" in content else {}
    known = {**kept, "blake3": identity.digest, "compiler": identity.name, "version": identity.version}
    _write(memo, known, trust)


def file_digest(path: Path, memo: Path | None, trust: Trust = PRIVATE) -> str:
    """Return a file's digest, from ``memo`` if the file is unchanged since it was written there.

    The file counts as unchanged if its real path, size, times of modification and of change, and inode are the same:
    the time of change can not be set back, so bytes overwritten under an old time stamp are noticed.

    Raises:
        OSError: If the file can not be read.
    """
    real = path.resolve()
    before = _state(real)
    if memo is not None and (remembered := _read(memo, before, trust)):
        return remembered
    digest = fast_file(real)
    if memo is not None and _state(real) == before:
        content = _content(memo, trust)
        known = content if content.get("blake3") == digest else {}
        _write(memo, {**known, "file": before, "blake3": digest}, trust)
    return digest


def _state(path: Path) -> list[str | int]:
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(memo: Path, state: list[str | int], trust: Trust) -> str | None:
    content = _content(memo, trust)
    if content.get("file") != state:
        return None
    digest = content.get("blake3")
    return digest if isinstance(digest, str) and len(digest) == 64 else None


def _content(memo: Path, trust: Trust) -> dict[str, Any]:
    try:
        return trust.read_memo(memo)
    except (OSError, ValueError):
        return {}


def _write(memo: Path, content: dict[str, Any], trust: Trust) -> None:
    """Write what is remembered; a folder that can not be written costs only the reading next time."""
    with contextlib.suppress(OSError):
        publish(memo, trust.write_memo(memo, content))
