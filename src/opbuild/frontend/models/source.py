"""ModelSource: an ONNX model as the user gave it, known by its digest before anything reads it."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.errors import InvalidModelError, MissingPackageError
from opbuild.frontend.models.declaration import Declaration, Declared
from opbuild.frontend.models.external import ExternalData
from opbuild.frontend.models.memory import ModelMemory, digest_model
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.platform.digest import blake3_of
from opbuild.platform.files.kinds import ONNX, require_kind
from opbuild.platform.files.mapping import KnownFile, read_file, state_of_open
from opbuild.platform.limits import require_room
from opbuild.platform.locks import Lock
from opbuild.platform.paths import Path
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from opbuild.frontend.block import Remainder
    from opbuild.frontend.onnx_model import OnnxModel
    from opbuild.frontend.walk import Walked
    from opbuild.platform.files.held import HeldFile, Parts

Model = str | os.PathLike[str] | bytes | Any
"""A path, a file's bytes, or an ``onnx.ModelProto``."""


class ModelSource:
    """A model, its digest and its declaration; ``open_model`` makes it.

    Attributes:
        keeps: Whether the model, once read, is kept for the next graph.
        own_digest: Digest of the model without its external data.

    Args:
        model: A path that holds wherever the process goes, bytes or ``ModelProto``.
        memory: What is remembered of models.
        digest: Digest of the model without its external data.
        shown: What messages call it.
        held: Its bytes, if they had to be read.
        message: What remains of them without large tensors.
        known: The file as its digest was taken; None if it is no file.
    """

    def __init__(
        self,
        model: Model,
        memory: ModelMemory,
        digest: str,
        shown: str,
        held: HeldFile | None = None,
        message: bytes | None = None,
        known: KnownFile | None = None,
    ) -> None:
        self._model, self._shown, self._memory = model, shown, memory
        self.own_digest = digest
        self._held, self._message, self._known = held, message, known
        self.keeps = self._is_changed = self._is_read_again = False
        self._readers: tuple[int, ...] = ()
        self._counting = Lock()
        self._parts: Parts = {}
        self._loaded: OnnxModel | None = None  # between reading what it declares and making its first graph
        self._data = ExternalData(model, memory) if isinstance(model, Path) else None
        self.declaration_file = memory.declaration_file(model.stem if isinstance(model, Path) else "model", digest)
        self._declaration = memory.declaration(self.declaration_file, digest)
        self.was_built = self._declaration is not None

    @property
    def path(self) -> Path | None:
        """The model's file; None if it is none."""
        return self._model if isinstance(self._model, Path) else None

    @property
    def declaration(self) -> Declaration:
        """The declaration of the model; reads the model if it was never built before."""
        if self._declaration is None:
            self._declaration = self._declare()
        return self._declaration

    @property
    def digest(self) -> str:
        """Digest of the model and its external data, as they were when it was first asked for.

        Raises:
            InvalidModelError: If a file of external data cannot be read.
        """
        if not self.declaration.external or self._data is None:
            return self.own_digest
        return blake3_of("\n".join([self.own_digest, *map(self._data.digest, self.declaration.external)]).encode())

    @property
    def edited(self) -> bool:
        """Whether the file or external data, mapped while a network is built, may not be those that ``digest`` read.

        Raises:
            InvalidModelError: If it is something else.
        """
        if self._is_changed or (self._is_uncertain and self._differs()):
            raise self.changed_error()
        return (self._data is not None and self._data.edited) or self._is_uncertain

    def fix(self) -> None:
        """Let the network be of the present content of the model's files, also if it is bound later."""
        self.digest  # noqa: B018  which is taken once

    def types(self, shapes: Shapes) -> dict[str, TensorType]:
        """Return the types of the inputs in one signature, by name."""
        inputs = zip(self.declaration.inputs, shapes, strict=True)
        return {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}

    def _by_name(self, shapes: Shapes) -> dict[str, tuple[int, ...]]:
        return {each.name: shape for each, shape in zip(self.declaration.inputs, shapes, strict=True)}

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Read the model and return its graph for the shapes of its inputs.

        Raises:
            ModelError: If the model is not valid, or does not fit the shapes.
            InvalidModelError: If the file is not the one it was when the network was compiled.
        """
        with clock("read"):
            model, given = self._loaded or self._load(), self._by_name(shapes)
            self._loaded = model if self.keeps else None
            return model.bind(given, _evaluator())

    def walk(self, shapes: Shapes, clock: Clock) -> Walked:
        """Read the model and return its graph as ``graph`` does, or the first segment of a network in segments.

        Raises:
            ModelError: As ``graph``.
        """
        with clock("read"):
            model = self._loaded or self._load()
            walked = model.walk(self._by_name(shapes), _evaluator())
            self._loaded = None if walked.follows is None and not self.keeps else model
            return walked

    def go_on(self, remainder: Remainder, clock: Clock) -> Walked:
        """Return the next segment of a network in segments, whose model is kept in memory from the first one on.

        Raises:
            ModelError: As ``graph``.
        """
        with clock("read"):
            model = self._loaded = self._loaded or self._load()
            return model.go_on(remainder, _evaluator())

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Hold the files that are read meanwhile until the last of all who read is done."""
        with self._counting:
            own = os.getpid()  # whoever else read stayed in the parent of a fork
            self._readers = *(each for each in self._readers if each == own), own
        try:
            yield
        finally:
            with self._counting:
                self._readers = self._readers[1:]
            self.release()

    def release(self) -> None:
        """Let others write to the file, unless somebody reads it; who needs more of it than is kept reads it again."""
        with self._counting:  # nobody begins to read meanwhile
            if not self._is_reading:
                self._release()

    def _release(self) -> None:
        if self._is_read_again or (self._declaration is not None and self._declaration.external):
            self._loaded, self._is_read_again = None, False  # less is read again than would be copied
        if self._is_uncertain:
            self._parts.clear()
            if self._held is not None and self._held.mapped() is not None:
                self._is_changed = self._differs()
        held, self._held = self._held, None
        if held is not None:
            held.release()
        if self._data is not None:
            self._data.release()

    @property
    def _is_reading(self) -> bool:
        """Whether somebody reads who will release it."""
        return os.getpid() in self._readers

    def forget(self) -> None:
        """Keep the model no longer; its files are held until ``release``."""
        self.keeps, self._loaded = False, None

    def remember(self) -> None:
        """Keep the facts of the model for the next process."""
        if not self.was_built:
            self._memory.keep(self.declaration_file, self.declaration, self.own_digest)
            self.was_built = True

    def _load(self) -> OnnxModel:
        """Read the model, whose file must be as it was when its digest was taken."""
        require_room()
        try:
            from opbuild.frontend.onnx_model import load_model
            from opbuild.frontend.onnx_read import ModelFile
        except ImportError:  # also of a module that another thread could not import to its end
            from importlib.util import find_spec

            if find_spec("onnx") is not None:
                raise
            raise MissingPackageError(
                f"the package onnx is not installed, and {self._shown} must be read, since no network of it that "
                "serves is stored",
                "pip install onnx, or warm the cache with this file, under its name, for this machine's level",
            ) from None
        from opbuild.platform.files.held import know_parts

        contents = None if self._held is None else self._held.take()
        if contents is None:
            contents = self._reread()
        know_parts(contents, self._parts)
        message, self._message = self._message, None
        read = None if self._data is None else self._data.reader()
        return load_model(ModelFile(self.path, contents.data, self._shown, message, read))

    def _reread(self) -> Array:
        """Return the bytes of the model once more, not looked at where the file's state says what they are."""
        from opbuild.platform.files.held import HeldFile, hold_file

        try:
            if isinstance(self._model, Path):
                held = hold_file(self._model) if self._is_reading else HeldFile(read_file(self._model))
            else:
                held = HeldFile(_contents(self._model))
        except OSError as error:
            raise self.changed_error(f": it cannot be read ({error.strerror or error})") from error
        contents, known = held.contents, self._known
        held.take()
        self._held, self._is_read_again = held, held.descriptor is not None
        if held.descriptor is not None and known and known.lasts and state_of_open(held.descriptor) == known.state:
            return contents
        again = digest_model(contents)
        if again.digest != self.own_digest:
            raise self.changed_error()
        self._message = again.message
        return contents

    @property
    def _is_uncertain(self) -> bool:
        """Whether somebody waits to write to the file, or did."""
        return self._held is not None and not self._held.is_certain()

    def _differs(self) -> bool:
        """Return whether the file, where it is still mapped, surely differs from the one that ``digest`` read."""
        mapped = None if self._held is None else self._held.mapped()
        return mapped is None or digest_model(mapped).digest != self.own_digest

    def changed_error(self, how: str = "") -> InvalidModelError:
        """Return the error for files that have changed."""
        return InvalidModelError(f"{self._shown} changed since it was compiled{how}", "compile it again")

    def _declare(self) -> Declaration:
        model = self._loaded = self._load()
        inputs = tuple(Declared(name, *each) for name, each in model.inputs.items())
        outputs = tuple(
            Declared(name, *(each or ("", None)))
            for name, each in zip(model.outputs, model.declared_outputs, strict=True)
        )
        return Declaration(model.name, inputs, outputs, model.external_files)


def open_model(model: Model, memory: ModelMemory, *, releases: bool = False) -> ModelSource:
    """Return a model, known by its digest; its file is read only if the digest is not remembered.

    ``releases``: the caller calls ``release``, whatever happens, so that the file may be mapped until then.

    Raises:
        InvalidModelError: If it cannot be read.
    """
    if not isinstance(model, (str, os.PathLike)):
        return _open_object(model, memory)
    path = Path(model)
    read: list[tuple[HeldFile, bytes]] = []

    def read_and_digest(file: Path) -> str:
        from opbuild.platform.files.held import HeldFile, hold_file

        held = hold_file(file) if releases else HeldFile(read_file(file))
        digest, message = digest_model(held.contents)
        read.append((held, message))
        return digest

    try:
        require_kind(path, ONNX)
        known = memory.digest(path, read_and_digest)
        place = path.absolute()  # read again for another signature, wherever the process is then
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidModelError(f"{str(path)!r} cannot be read: {why}", "check the path") from error
    held, message = read[-1] if read else (None, None)
    return ModelSource(place, memory, known.digest, repr(str(path)), held, message, known)


def is_not_cached(model: Model, memory: ModelMemory) -> bool:
    """Return whether a model surely was never built, before its file is read; see ``ModelMemory``."""
    if not isinstance(model, (str, os.PathLike)) or not memory.is_not_cached(Path(model)):
        return False
    try:
        require_kind(Path(model), ONNX)
    except (OSError, ValueError, InvalidModelError):  # raised again, and reported, where it is opened
        return False
    return True


def _open_object(model: Any, memory: ModelMemory) -> ModelSource:
    from opbuild.platform.files.held import HeldFile

    contents = _contents(model)
    digest, message = digest_model(contents)
    is_bytes = isinstance(model, (bytes, bytearray, memoryview))
    shown = f"the model given as {contents.nbytes} bytes" if is_bytes else "the ModelProto given"
    return ModelSource(model, memory, digest, shown, HeldFile(contents), message)


def _contents(model: Any) -> Array:
    """Return the bytes of a model that is no file; they are copied where somebody may write to them."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return np.frombuffer(model if isinstance(model, bytes) else bytes(model), np.uint8)
    try:
        return np.frombuffer(model.SerializeToString(deterministic=True), np.uint8)
    except Exception as error:  # protobuf's own types
        raise InvalidModelError(
            f"the ModelProto given cannot be serialised: {error}",
            "a model above 2 GiB must be saved with external data and given as a path",
        ) from error


def _evaluator() -> Callable[[Node, Sequence[Array | None], int], Sequence[Array]]:
    """Return the evaluator of nodes; a start from the store is without."""
    from opbuild.backend.evaluate import evaluate

    return evaluate
