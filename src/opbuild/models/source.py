"""ModelSource: an ONNX model as the user gave it, known by its digest before anything reads it.

What its inputs are is remembered beside the stored networks, so that a network which was built before starts without
the onnx package.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from opbuild.errors import InvalidModelError, OpbuildError, ShapeError
from opbuild.files.kinds import ONNX, require_kind
from opbuild.files.mapping import Known, digest_of, read_file
from opbuild.files.private import publish
from opbuild.files.usage import mark_used
from opbuild.files.writing import inside
from opbuild.graph.types import Array, Graph, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.models.face import SUFFIX, Declared, Face, face_bytes, read_face
from opbuild.models.open_outputs import outputs_of_any
from opbuild.models.sizes import make_sizes
from opbuild.platform.digest import fast
from opbuild.platform.limits import require_room
from opbuild.platform.sources import own_sources
from opbuild.runtime.endpoint import Endpoint
from opbuild.runtime.network import Shapes
from opbuild.session import Session, evaluate
from opbuild.text.names import nearest
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.frontend.onnx_model import OnnxModel
    from opbuild.frontend.portable import PortableModel

Model = str | os.PathLike[str] | bytes | Any
"""A path, a file's bytes, or an ``onnx.ModelProto``."""

_NAMES_AT_MOST = 2000
"""Names of stored networks' files looked at to find out that a model is new: a millisecond."""


class ModelSource:
    """A model and what is known of it.

    Args:
        model: A path, bytes or ``ModelProto``.
        session: Where what is known is kept.
        when_unknown: Called before the model's file is read, if it surely was not read before.

    Raises:
        InvalidModelError: If it can not be read.
    """

    def __init__(self, model: Model, session: Session, when_unknown: Callable[[], None] = lambda: None) -> None:
        self._session = session
        self._when_unknown = when_unknown
        self._path = Path(model) if isinstance(model, (str, os.PathLike)) else None
        self._shown = str(self._path)  # as it was given
        self._model = model
        self._contents: Array | None = None  # of the file, if it had to be read, until the model is loaded
        self._loaded: OnnxModel | None = None  # between reading what it shows and making its first graph
        self._own_digest = self._read_digest()
        stem = self._path.stem if self._path is not None else "model"
        number = int(fast(f"{self._own_digest} {own_sources()}".encode())[:16], 16)
        self._data: dict[Path, Known] = {}  # files of external data, each with what was read of it
        self._file = session.config.network_meta / f"{_plain_name(stem)}_{number}{SUFFIX}"
        self._known: Face | None = self._remembered()
        self._is_remembered = self._known is not None

    @property
    def known(self) -> bool:
        """Whether the model was read before, so that it need not be now."""
        return self._known is not None

    @property
    def memo(self) -> Path:
        """The file that remembers what the model shows."""
        return self._file

    @property
    def face(self) -> Face:
        """What the model shows; reads the model if it was never read before."""
        if self._known is None:
            self._known = self._read_face()
        return self._known

    @property
    def digest(self) -> str:
        """Digest of the model and its external data.

        Raises:
            InvalidModelError: If a file of external data can not be read.
        """
        if not self.face.external or self._path is None:
            return self._own_digest
        parts = [self._own_digest]
        for location in self.face.external:
            try:
                path = inside(self._path.parent, location)
                self._data[path] = self._digest_of(path)
                parts.append(self._data[path].digest)
            except OSError as error:
                raise InvalidModelError(
                    f"the external data {location!r} of {str(self._path)!r} can not be read: {error.strerror}",
                    "copy the model's data files beside the model",
                ) from error
        return fast("\n".join(parts).encode())

    @property
    def edited(self) -> bool:
        """Whether external data, which is mapped while a network is built, is not what ``digest`` read."""
        try:
            return any(known.is_outdated(path) for path, known in self._data.items())
        except OSError:
            return True

    def endpoints(self, input_shapes: Mapping[str, Sequence[int]]) -> tuple[tuple[Endpoint, ...], Shapes | None]:
        """Return the inputs as declared, -1 where they are open, and the signature if it is known already.

        Args:
            input_shapes: Shapes by input name; they win over the model's: an extent in which they differ is open. -1
                leaves an extent open too.

        Raises:
            ShapeError: If a shape does not fit its input or names none.
        """
        names = [name for name, _, _ in self.face.inputs]
        for name in input_shapes:
            if name not in names:
                known = ", ".join(map(repr, names)) or "none"
                message = f"a shape was given for {name!r}, which is no input"
                raise ShapeError(message, f"{nearest(name, names)}the inputs are {known}")
        endpoints, shapes = [], []
        for name, dtype, declared in self.face.inputs:
            if name in input_shapes:
                shape = _checked(name, declared, tuple(input_shapes[name]))
                endpoints.append(Endpoint(name, TensorType(dtype, _in_common(shape, declared))))
            elif declared is None:
                raise ShapeError(
                    f"input {name!r} may have any rank",
                    f"give its shape: input_shapes={{{name!r}: (...)}}",
                    command=f'give its shape: --input_shape "{name}:..."',
                )
            else:
                shape = declared
                endpoints.append(Endpoint(name, TensorType(dtype, declared)))
            shapes.append(shape)
        known_now = all(FREE not in shape for shape in shapes)
        return tuple(endpoints), tuple(shapes) if known_now else None

    def outputs(self, inputs: Sequence[Endpoint], bound: Sequence[Endpoint]) -> tuple[Endpoint, ...]:
        """Return the outputs as declared, -1 where they are open.

        Of inputs that are not what the model declares they may be anything: then they are told from some sizes.

        Args:
            inputs: The inputs, as ``endpoints`` returns them.
            bound: The outputs for one signature; empty if none was bound yet.
        """
        if bound and not any(FREE in endpoint.shape for endpoint in inputs):
            return tuple(bound)
        said = (declared.shape for declared in self.face.inputs)
        holds = all(endpoint.shape == shape for endpoint, shape in zip(inputs, said, strict=True))
        if any(output.shape is None for output in self.face.outputs) or not (bound or holds):
            with contextlib.suppress(OpbuildError):  # a model that has operators without rules, say
                sizes = make_sizes([endpoint.name for endpoint in inputs], [endpoint.shape for endpoint in inputs])
                return outputs_of_any(self.portable(), sizes)
        seen = bound or (None,) * len(self.face.outputs)
        return tuple(_output(each, one, holds) for each, one in zip(self.face.outputs, seen, strict=True))

    def graph(self, shapes: Shapes, *, keep: bool = False) -> Graph:
        """Read the model and return its graph for the shapes of its inputs; ``keep`` keeps it for the next graph.

        Raises:
            ModelError: If the model is not valid, or does not fit the shapes.
            InvalidModelError: If the file is not the one it was when the network was compiled.
        """
        names = [name for name, _, _ in self.face.inputs]
        model = self._loaded or self._load()
        self._loaded = model if keep else None
        return model.bind(dict(zip(names, shapes, strict=True)), evaluate)

    def release(self) -> None:
        """Give back the memory of the file's contents; who needs them later reads the file again."""
        self._contents = None

    def portable(self) -> PortableModel:
        """Read the model and return the network in a form that binds to any shapes without onnx.

        Raises:
            ModelError: If the model is not valid, or some of its nodes need onnx.
        """
        model, self._loaded = self._loaded or self._load(), None
        return model.portable()

    def remember(self) -> None:
        """Keep what is known of the model for the next process; a folder that can not be written costs only time."""
        if self._is_remembered:
            return
        if self._session.use_images:
            with contextlib.suppress(OSError):
                publish(self._file, face_bytes(self._file, self.face, self._own_digest, self._session.trust))

    def _read_digest(self) -> str:
        if self._path is not None:
            try:
                require_kind(self._path, ONNX)
                digest = self._digest_of(self._path, self._read_contents).digest
                self._path = self._path.absolute()  # read again for another signature, wherever the process is then
            except (OSError, ValueError) as error:
                why = error.strerror if isinstance(error, OSError) and error.strerror else error
                raise InvalidModelError(f"{str(self._path)!r} can not be read: {why}", "check the path") from error
            return digest
        if isinstance(self._model, (bytes, bytearray, memoryview)):
            return fast(bytes(self._model))
        proto: Any = self._model
        try:
            return fast(proto.SerializeToString(deterministic=True))
        except Exception as error:  # protobuf's own types
            raise InvalidModelError(
                f"the ModelProto given can not be serialised: {error}",
                "a model above 2 GiB must be saved with external data and given as a path",
            ) from error

    def _read_contents(self, path: Path) -> str:
        """Read the model's file, keep its contents and return their digest."""
        if self._is_surely_unknown(path):
            self._when_unknown()
        self._contents = read_file(path)
        return fast(self._contents.data)

    def _digest_of(self, path: Path, digest_file: Callable[[Path], str] | None = None) -> Known:
        """Return the digest of one of the model's files, remembered by the file's state."""
        if not self._session.starts_stored:
            return digest_of(path, None, digest_file)
        return digest_of(path, self._digest_memo(path), digest_file, self._session.trust)

    def _digest_memo(self, path: Path) -> Path:
        number = int(fast(os.path.abspath(path).encode(errors="surrogateescape"))[:16], 16)
        return self._session.config.network_meta / f"{_plain_name(path.stem)}_{number}.digest"

    def _is_surely_unknown(self, path: Path) -> bool:
        """Return whether the file was edited since its digest was remembered, or no model of its name was ever built.

        Else it may be a copy, or so new when it was built that its digest was not remembered; or there are too many
        networks to be sure.
        """
        folder = self._session.config.network_meta
        try:
            if not self._session.starts_stored or self._digest_memo(path).exists():
                return True
            with os.scandir(folder) as listing:
                names = [entry.name for entry in islice(listing, _NAMES_AT_MOST)]
        except OSError:  # the folder can not be one, or not be read
            return True
        start = f"{_plain_name(path.stem)}_"
        own = (name for name in names if name.startswith(start) and name.endswith(SUFFIX))
        return len(names) < _NAMES_AT_MOST and next(own, None) is None

    def _load(self) -> OnnxModel:
        """Read the model.

        Raises:
            ModelError: If it is not valid.
            InvalidModelError: If its file changed since its digest was taken.
        """
        require_room()
        from opbuild.frontend.onnx_model import ModelFile, load_model

        if self._path is None:
            return load_model(self._model)
        contents, self._contents = self._contents, None
        if contents is None:
            contents = self._read_again(self._path)
        return load_model(ModelFile(self._path, contents.data, self._shown))

    def _read_again(self, path: Path) -> Array:
        try:
            contents = read_file(path)
        except OSError as error:
            raise InvalidModelError(f"{str(path)!r} can not be read: {error}", "check the path") from error
        if fast(contents.data) != self._own_digest:
            raise InvalidModelError(f"{str(path)!r} changed since it was compiled", "compile it again")
        return contents

    def _read_face(self) -> Face:
        model = self._loaded = self._load()
        inputs = tuple(Declared(name, each.dtype, _open(each.shape)) for name, each in model.inputs.items())
        outputs = tuple(
            Declared(name, "", None) if each is None else Declared(name, each.dtype, _open(each.shape))
            for name, each in zip(model.outputs, model.declared_outputs, strict=True)
        )
        return Face(model.name, inputs, outputs, model.external_files)

    def _remembered(self) -> Face | None:
        if not self._session.starts_stored:
            return None
        try:
            face, model = read_face(self._file, self._session.trust)
            if model != self._own_digest:
                return None
            mark_used(self._file, keep_time=self._session.policy.ages)
            return face
        except (OSError, ValueError, KeyError, TypeError):
            return None


def _open(shape: Sequence[int | str | None] | None) -> tuple[int, ...] | None:
    return None if shape is None else tuple(extent if isinstance(extent, int) else FREE for extent in shape)


def _in_common(shape: tuple[int, ...], declared: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return a shape with -1 for each extent that another one does not have too."""
    if declared is None or len(declared) != len(shape):
        return (FREE,) * len(shape)
    return tuple(one if one == other else FREE for one, other in zip(shape, declared, strict=True))


def _output(declared: Declared, seen: Endpoint | None, holds: bool) -> Endpoint:
    """Return an output as declared, but for what is not so in a signature that was bound.

    Args:
        declared: What the model says of it.
        seen: What it is in one signature, if one was bound.
        holds: Whether the inputs are what the model says of them; otherwise the outputs may be anything.
    """
    if seen is not None:
        return Endpoint(declared.name, TensorType(seen.type.dtype, _in_common(seen.shape, declared.shape)))
    shape = declared.shape if holds or declared.shape is None else (FREE,) * len(declared.shape)
    return Endpoint(declared.name, TensorType(declared.dtype, cast("tuple[int, ...]", shape)))  # see Endpoint


def _checked(name: str, declared: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, ...]:
    if declared is not None and len(declared) != len(given):
        shown = ["?" if extent == FREE else extent for extent in declared]
        raise ShapeError(
            f"input {name!r} has {counted(len(declared), 'dimension')} {shown}; the shape given is {list(given)}",
            "give one extent for each dimension",
        )
    if any(not FREE <= extent < 2**31 for extent in given):
        message = f"the shape given for input {name!r} is {list(given)}"
        raise ShapeError(message, "extents are from 0 to 2147483647; -1 leaves one open")
    return tuple(int(extent) for extent in given)


def _plain_name(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c == "_") else "_" for c in text.lower())[:60] or "model"
