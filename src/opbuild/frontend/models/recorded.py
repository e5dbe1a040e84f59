"""Recorded sizes: those at which models were bound where they run, in a file that warming and packing read.

    {"digest": "<of the model>", "inputs": {"x": [1, 3, 224, 224]}, "model": "/models/a.onnx"}

A line is written when a size is bound, never when a known one is called, and by one write to the end of the file, so
that threads and processes of a host may share it; in a folder each host has a file of its own. It is data, as a model
is: whoever reads it takes nothing from it but shapes, and paths of models.
"""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import suppress

from opbuild.errors import OptionError
from opbuild.frontend.models.source import ModelSource
from opbuild.platform.files.trust import Trust, parse_json
from opbuild.platform.files.writing import append, make_folder
from opbuild.platform.locks import Lock, made_once
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple
from opbuild.runtime.binding import Shapes
from opbuild.text.canonical import canonical_json

SUFFIX = ".jsonl"

MOST_SIZES = 4096
"""Sizes of a model that are recorded."""

LARGEST = 64 * 2**20
"""Bytes of a file at most; a line has some two hundred."""

_EXTENTS = range(2**31)
_ANYBODYS = Trust(shared=True)


class RecordedSize(NamedTuple):
    """A size at which a model was bound.

    Attributes:
        model: The model's file; empty if it was none.
        digest: Digest of the model.
        inputs: The shapes of its inputs, by name.
    """

    model: str
    digest: str
    inputs: dict[str, tuple[int, ...]]

    def is_of(self, model: Path, digest: str) -> bool:
        """Return whether it is a model's: of the same content, or of a file of the same name, as one trained anew."""
        return self.digest == digest or os.path.basename(self.model) == model.name  # noqa: PTH119  may be anything


class SizeRecorder:
    """Records the sizes that a process binds, each once. Threads may share it.

    Args:
        place: The file, or a folder of files.
    """

    def __init__(self, place: str) -> None:
        is_folder = place.endswith("/") or os.path.isdir(place)  # noqa: PTH112  pathlib's may raise
        self._path = Path(os.path.abspath(place), f"{os.uname().nodename}{SUFFIX}") if is_folder else Path(place)
        self._makes_folder = is_folder
        self._known: defaultdict[str, set[str]] | None = None
        self._lock, self._has_failed = Lock(), False

    def note(self, source: ModelSource, shapes: Shapes, warn: Callable[[str, BaseException], None]) -> None:
        """Record a size of a model, unless it was, or there are too many; what goes wrong is told once."""
        if self._has_failed:
            return
        try:
            names = [each.name for each in source.declaration.inputs]
            inputs = {name: list(shape) for name, shape in zip(names, shapes, strict=True)}
            line = {"model": str(source.path or ""), "digest": source.digest, "inputs": inputs}
            with self._lock:
                self._write(str(source.digest), canonical_json(inputs), canonical_json(line))
        except (OSError, ValueError) as error:
            self._has_failed = True
            warn(f"sizes are not recorded in {self._path} (OPBUILD_RECORD_SHAPES)", error)

    def _write(self, digest: str, inputs: str, line: str) -> None:
        if self._known is None:
            if self._makes_folder:
                make_folder(self._path.parent)
            self._known = defaultdict(set)
            with suppress(FileNotFoundError):  # what other processes have recorded
                for each in _sizes_in(self._path):
                    self._known[each.digest].add(canonical_json({n: list(shape) for n, shape in each.inputs.items()}))
        known = self._known[digest]
        if inputs in known or len(known) >= MOST_SIZES:
            return
        known.add(inputs)
        if append(self._path, f"{line}\n".encode(), create=True) > LARGEST:
            raise OSError("the file is full: remove what is not needed any more")


@made_once
def recorder(place: str) -> SizeRecorder:
    """Return the recorder of a place, one a process."""
    return SizeRecorder(place)


def read_recorded(place: Path) -> list[RecordedSize]:
    """Return the sizes that a file has, or all files of a folder, each once; a line that is none is left out.

    Raises:
        OptionError: If it cannot be read, or has none.
    """
    try:
        files = sorted(place.glob(f"*{SUFFIX}")) if place.is_dir() else [place]
        found = {canonical_json([*each]): each for file in files for each in _sizes_in(file)}
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise OptionError(f"the recorded sizes {str(place)!r} cannot be read: {why}", _HINT) from error
    if not found:
        raise OptionError(f"{str(place)!r} has no recorded sizes", _HINT)
    return list(found.values())


_HINT = "give a file, or the folder, that OPBUILD_RECORD_SHAPES named where the models ran"


def _sizes_in(path: Path) -> Iterator[RecordedSize]:
    """Yield the sizes of a file; of many processes' lines one may be cut."""
    for line in _ANYBODYS.read(path, 2 * LARGEST).splitlines():
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            stored = parse_json(line)
            inputs = {str(name): _shape(shape) for name, shape in stored["inputs"].items()}
            yield RecordedSize(str(stored["model"]), str(stored["digest"]), inputs)


def _shape(found: object) -> tuple[int, ...]:
    if not isinstance(found, list) or not all(type(each) is int and each in _EXTENTS for each in found):
        raise ValueError(f"{json.dumps(found):.100} is no shape")
    return tuple(found)
