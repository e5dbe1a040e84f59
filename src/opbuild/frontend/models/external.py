"""ExternalData: the files beside a model that hold its tensors, as they were when the network was made.

A network binds new sizes for as long as it lives, and may read its weights again for that. What it reads then has the
digest that the files had at first, or is refused: a network is of one version. A file is held while it is used
(``platform.files.held``), so that nobody cuts or overwrites it meanwhile.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opbuild.errors import InvalidModelError
from opbuild.frontend.models.memory import ModelMemory
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.mapping import Array, KnownFile, anonymous, state_of_open
from opbuild.platform.files.writing import inside
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from opbuild.platform.files.held import HeldFile, Parts

_PIECE = 2**25
"""Bytes that are digested at once."""


class ExternalData:
    """See the module. Threads may share it.

    Args:
        model: The model's path.
        memory: What is remembered of models.
    """

    def __init__(self, model: Path, memory: ModelMemory) -> None:
        self._model, self._memory = model, memory
        self._known: dict[Path, KnownFile] = {}
        self._held: list[tuple[Path, HeldFile]] = []
        self._parts: defaultdict[Path, Parts] = defaultdict(dict)
        self._changed: Path | None = None

    def digest(self, location: str) -> str:
        """Return the digest that a file had when it was first asked for.

        Raises:
            InvalidModelError: If it cannot be read.
        """
        with self._error_context(location):
            return self._first(inside(self._model.parent, location, self._model)).digest

    def reader(self) -> Callable[[Path], Array]:
        """Return the reader of files, which reads each once and holds it until ``release``."""
        found: dict[Path, Array] = {}

        def read(path: Path) -> Array:
            if path not in found:
                found[path] = self._read(path)
            return found[path]

        return read

    @property
    def edited(self) -> bool:
        """Whether the bytes read may not be those of ``digest``, because somebody waits to write to them.

        Raises:
            InvalidModelError: If it is something else.
        """
        uncertain = [(path, held) for path, held in self._held if not held.is_certain()]
        for path, held in uncertain:
            self._compare(path, held.mapped())
        if self._changed is not None:
            raise self._changed_error(self._changed)
        return bool(uncertain)

    def release(self) -> None:
        """Let others write to the files; parts of them still used are memory of this process from now on."""
        held, self._held = self._held, []
        for path, each in held:
            if not each.is_certain():
                self._parts[path].clear()
                self._compare(path, each.mapped())
            each.release()

    def _read(self, path: Path) -> Array:
        from opbuild.platform.files.held import hold_file, know_parts

        with self._error_context(os.path.relpath(path, self._model.parent)):
            known = self._first(path)
        try:
            held = hold_file(path)
        except OSError as error:
            raise self._changed_error(path, f": it cannot be read ({error.strerror or error})") from error
        contents, descriptor = held.contents, held.descriptor
        held.take()
        self._held.append((path, held))
        is_sure = descriptor is not None and known.lasts and state_of_open(descriptor) == known.state
        if not is_sure and _digest(_pieces(contents)) != known.digest:
            raise self._changed_error(path)
        know_parts(contents, self._parts[path])
        return contents

    @contextmanager
    def _error_context(self, location: str) -> Iterator[None]:
        """Tell which file cannot be read."""
        try:
            yield
        except OSError as error:
            raise InvalidModelError(
                f"the external data {location!r} of {str(self._model)!r} cannot be read: {error.strerror or error}",
                "copy the model's data files beside the model",
            ) from error

    def _first(self, path: Path) -> KnownFile:
        """Return the contents of a file as they were when it was first needed."""
        return self._known.get(path) or self._known.setdefault(path, self._memory.digest(path, _digest_file))

    def _compare(self, path: Path, mapped: Array | None) -> None:
        """Take note of a file that was written to while it was used; one that is not there any more may have been."""
        if mapped is None or _digest(_pieces(mapped)) != self._known[path].digest:
            self._changed = path

    def _changed_error(self, path: Path, how: str = "") -> InvalidModelError:
        location = os.path.relpath(path, self._model.parent)
        problem = f"the external data {location!r} of {str(self._model)!r} changed since it was compiled{how}"
        return InvalidModelError(problem, "compile it again")


def _digest_file(path: Path) -> str:
    from opbuild.platform.files.held import lease_file

    held = lease_file(path)
    if held is None:
        return _digest(_read_pieces(path))
    digest = _digest(_pieces(held.contents))
    held.release()
    return digest


def _digest(pieces: Iterable[Array]) -> str:
    return blake3_of("\n".join([blake3_of(piece.data) for piece in pieces]).encode())


def _pieces(contents: Array) -> Iterator[Array]:
    return (contents[start : start + _PIECE] for start in range(0, contents.nbytes, _PIECE))


def _read_pieces(path: Path) -> Iterator[Array]:
    """Yield a file's bytes, read rather than mapped: who cuts a file that is mapped ends the process."""
    piece = anonymous(_PIECE)
    with path.open("rb", buffering=0) as file:
        while count := _fill(file.fileno(), piece):
            yield piece[:count]


def _fill(descriptor: int, piece: Array) -> int:
    """Read until a piece is full or the file ends; return how many bytes there were."""
    end = 0
    while end < piece.nbytes and (count := os.readv(descriptor, [piece.data[end:]])):
        end += count
    return end
