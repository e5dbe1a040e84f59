"""Which compiler is installed: its release and the digest of its library's bytes, without importing it.

The version number alone is not enough, since a library can be swapped in place; nor is its time stamp, since the same
library reinstalled gets a new one. So its bytes decide. Reading 165 MB takes tens of milliseconds, therefore the digest
is remembered in a small file, for as long as the library's file is the very one that was read.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING

from opbuild.digest import fast_file
from opbuild.errors import BuildError
from opbuild.kernel.files import make_folder, write_new
from opbuild.kernel.key import CompilerIdentity

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import Compiler


def identify(compiler: Compiler, memo: Path | None = None) -> CompilerIdentity:
    """Return the identity of an installed compiler.

    Args:
        compiler: Asked for its name, release and library.
        memo: File in which the library's digest is remembered; None to read the library each time.

    Raises:
        BuildError: If the compiler is not installed or its library can not be read.
    """
    library = compiler.library()
    if library is None:
        raise BuildError(f"the compiler {compiler.name} is not installed", f"pip install {compiler.name}")
    try:
        return CompilerIdentity(compiler.name, compiler.version(), file_digest(library, memo))
    except OSError as error:
        raise BuildError(f"{library} can not be read: {error}", f"reinstall {compiler.name}") from error


def file_digest(path: Path, memo: Path | None) -> str:
    """Return a file's digest, from ``memo`` if the file is unchanged since it was written there.

    The file counts as unchanged if its real path, size, times of modification and of change, and inode are the same:
    the time of change can not be set back, so bytes overwritten under an old time stamp are noticed.

    Raises:
        OSError: If the file can not be read.
    """
    real = path.resolve()
    before = _state(real)
    if memo is not None and (remembered := _read(memo, before)):
        return remembered
    digest = fast_file(real)
    if memo is not None and _state(real) == before:
        _write(memo, before, digest)
    return digest


def _state(path: Path) -> list[str | int]:
    stat = path.stat()
    return [str(path), stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino]


def _read(memo: Path, state: list[str | int]) -> str | None:
    try:
        content = json.loads(memo.read_bytes())
    except (OSError, ValueError):
        return None
    if not isinstance(content, dict) or content.get("file") != state:
        return None
    digest = content.get("blake3")
    return digest if isinstance(digest, str) and len(digest) == 64 else None


def _write(memo: Path, state: list[str | int], digest: str) -> None:
    """Remember a digest; a folder that can not be written costs only the reading next time."""
    temporary = memo.with_name(f".{memo.name}.{os.urandom(8).hex()}.tmp")
    try:
        make_folder(memo.parent)
        write_new(temporary, json.dumps({"file": state, "blake3": digest}).encode())
        temporary.replace(memo)
    except OSError:
        with contextlib.suppress(OSError):
            temporary.unlink()
