"""Private files: files being written, under a name that says by whom, until they are renamed to their own.

    .publish-<32 hexadecimal digits>-<16 of the machine>.<process id>-<number>

So nobody ever sees part of a file, and what a killed writer left is known as rubbish: at once if it died on this
machine, after an hour if it may live on another one or in another container. Nothing is flushed to the disk: a file
that a power cut left empty or torn is noticed by its digest and built again, which costs less than waiting for the disk
in every build.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator
from functools import lru_cache

from opbuild.platform.digest import blake3_of
from opbuild.platform.files.writing import make_folder, write_new
from opbuild.platform.paths import Path

PREFIX = ".publish-"
STALE_SECONDS = 3600.0
"""After which a private file is rubbish whoever wrote it."""

_OWNED = r"(?s)[a-z.]+-[0-9a-f]{32}-([0-9a-f]{16})\.([0-9]{1,10})-.*"
_MACHINE_DIGITS = 16


def private_stem(prefix: str = PREFIX) -> str:
    """Return the beginning of a new private name, to be followed by a number or random letters."""
    return f"{prefix}{os.urandom(16).hex()}-{_machine()}.{os.getpid()}-"


def publish(path: Path, data: bytes | memoryview) -> None:
    """Write a file so that nobody ever sees part of it; whatever has its name is replaced.

    Raises:
        OSError: If it cannot be written; nothing is left behind then.
    """
    make_folder(path.parent)
    with private_path(path.parent) as temporary:
        write_new(temporary, data)
        replace(temporary, path)


@contextlib.contextmanager
def private_path(folder: Path) -> Iterator[Path]:
    """Give the path of a private file, which goes if anything is raised; else it is to be renamed meanwhile."""
    temporary = folder / f"{private_stem()}0"
    try:
        yield temporary
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise


def replace(temporary: Path, final: Path) -> None:
    """Give a private file of the cache its own name, even if somebody put a folder there: it goes with its contents.

    Raises:
        OSError: If the storage refuses.
    """
    try:
        temporary.replace(final)
    except IsADirectoryError:
        aside = temporary.with_name(temporary.name + "-folder")
        final.replace(aside)
        temporary.replace(final)
        _remove_folder(aside)


def is_private(name: str) -> bool:
    """Return whether a file is being written, or was when its writer was killed; ``.tmp`` is how they once ended."""
    return name.startswith(PREFIX) or (name.startswith(".") and name.endswith(".tmp"))


def is_rubbish(name: str, seconds: float) -> bool:
    """Return whether the writer of a private file is gone.

    Args:
        name: The file's name.
        seconds: Since it was last written; negative if that lies in the future, which says nothing and counts as long.
    """
    owned = re.fullmatch(_OWNED, name)
    if owned and owned[1] == _machine() and not _is_alive(int(owned[2])):
        return True
    return abs(seconds) > STALE_SECONDS


def sweep(folder: str | os.PathLike[str], prefix: str = PREFIX) -> None:
    """Remove the private files, and the folders put aside, whose writers are gone; those that cannot be removed stay.

    With a prefix of their own they lie in a folder that others use too, where only a whole private name is proof.
    """
    with contextlib.suppress(OSError), os.scandir(folder) as listing:
        for item in listing:
            if item.name.startswith(prefix) and (prefix == PREFIX or re.fullmatch(_OWNED, item.name)):
                remove_rubbish(item)


def remove_rubbish(item: os.DirEntry[str]) -> None:
    """Remove a private file, or a folder put aside, if its writer is gone; one that cannot be removed stays."""
    with contextlib.suppress(OSError):
        if not is_rubbish(item.name, time.time() - item.stat(follow_symlinks=False).st_mtime):
            return
        if item.is_dir(follow_symlinks=False):
            _remove_folder(item.path)
        else:
            Path(item.path).unlink()


def _remove_folder(path: str | Path) -> None:
    import shutil  # a network that starts from its image never needs it

    shutil.rmtree(path, ignore_errors=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True  # another user's
    return True


@lru_cache(maxsize=1)
def boot() -> str:
    """Return an identity of this machine since it was started; unknown parts are like no others."""
    try:
        # UTF-8's codec is there, ASCII's would have to be loaded.
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    except OSError:
        return os.urandom(16).hex()


@lru_cache(maxsize=1)
def _machine() -> str:
    """Return an identity of the machine or container, shared by the processes that this one can see."""
    try:
        processes = str(Path("/proc/self/ns/pid").stat().st_ino)
    except OSError:
        processes = os.urandom(16).hex()
    return blake3_of(f"{boot()} {processes}".encode())[:_MACHINE_DIGITS]
