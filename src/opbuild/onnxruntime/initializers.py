"""Initializers: a model's bytes with other values of its weights, and with those that it has in other files.

The rest of the model stays as it is: only messages on the way to a tensor are written anew. Nothing of ``onnx`` is
imported for that.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from math import prod
from typing import Any

import numpy as np

from opbuild.dtypes import stored_bits
from opbuild.frontend.wire import BYTES, Field, Pieces, fields, read_varint, varint
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.onnxruntime.logs import warn_once
from opbuild.onnxruntime.options import FOLDER, SessionOptions
from opbuild.onnxruntime.status import Fail, InvalidArgument, NotImplemented, failure
from opbuild.onnxruntime.values import OrtValue, type_number
from opbuild.platform.files.mapping import read_file
from opbuild.platform.files.writing import inside
from opbuild.platform.paths import Path

# Numbers of fields, from onnx.proto
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_ATTRIBUTE = 5
_ATTRIBUTE_TENSORS, _ATTRIBUTE_GRAPHS = (5, 10), (6, 11)
_DIMS, _DATA_TYPE, _NAME, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION = 1, 2, 8, 9, 13, 14
_DATA = frozenset({3, 4, 5, 6, 7, 10, 11, _RAW_DATA, _EXTERNAL_DATA, _DATA_LOCATION})

_LOCATION = b"location"
"""Every tensor that lies in a file beside the model has this text."""

Rule = Callable[[memoryview, Field], "Pieces | None"]
"""Returns what takes the place of a field's value; None leaves the field out."""


def with_values(
    contents: memoryview, options: SessionOptions, folder: Path | None, left_out: Collection[str] = ()
) -> bytes:
    """Return a model's bytes with the values of its weights that options give, and with no data in other files.

    Args:
        contents: A serialised ``ModelProto``.
        options: Values, files' contents and where files are.
        folder: Where files are if the options do not say; None: nowhere.
        left_out: Weights that become inputs.

    Raises:
        Fail: If a value does not fit, a weight is not there, or a file cannot be read.
    """
    given = options.config.get(FOLDER)
    external = _ExternalTensors(options.files, folder if given is None else Path(given))
    initializers = _Initializers(options, external, frozenset(left_out))
    pieces = _rewritten(contents, 0, len(contents), {_MODEL_GRAPH: initializers.graph})
    initializers.require_all()
    return b"".join(pieces)


class _Tensor:
    """A tensor as the model has it."""

    def __init__(self, data: memoryview, at: Field) -> None:
        self._data = data
        self._fields = [*fields(data, at.value, at.after)]
        self.name = "".join(self._text(each) for each in self._fields if each.number == _NAME)
        self.dims = tuple(self._dims())
        self.dtype = next((read_varint(data, each.value)[0] for each in self._fields if each.number == _DATA_TYPE), 0)
        self.entries = dict(self._entries())

    @property
    def is_external(self) -> bool:
        """Whether its data are in another file."""
        return bool(self.entries)

    def with_data(self, raw: bytes | memoryview) -> Pieces:
        """Return the tensor with these data."""
        kept: Pieces = [self._data[each.tag : each.after] for each in self._fields if each.number not in _DATA]
        return [*kept, varint(_RAW_DATA << 3 | BYTES), varint(len(raw)), raw]

    def _text(self, at: Field) -> str:
        return bytes(self._data[at.value : at.after]).decode("utf-8", "replace")

    def _dims(self) -> Iterator[int]:
        for each in self._fields:
            position = each.value
            while each.number == _DIMS and position < each.after:
                value, position = read_varint(self._data, position)
                yield value

    def _entries(self) -> Iterator[tuple[str, str]]:
        for each in self._fields:
            if each.number == _EXTERNAL_DATA:
                parts = {part.number: self._text(part) for part in fields(self._data, each.value, each.after)}
                yield parts.get(1, ""), parts.get(2, "")


class _ExternalTensors:
    """The data of tensors that are in other files: in memory, or in a folder."""

    def __init__(self, files: Mapping[str, memoryview], folder: Path | None) -> None:
        self._given, self._folder = files, folder
        self._read: dict[str, memoryview] = {}

    def data_of(self, tensor: _Tensor) -> memoryview:
        """Return the bytes of a tensor."""
        location = tensor.entries.get("location", "")
        whole = self._file(location, tensor.name)
        bits = stored_bits(ONNX_DTYPES[tensor.dtype]) if tensor.dtype in ONNX_DTYPES else 0
        offset, size = _number(tensor, "offset"), -(-prod(tensor.dims) * bits // 8)
        if _number(tensor, "length") not in (0, size) or offset + size > len(whole):
            raise failure(
                Fail,
                f"External initializer: {tensor.name} offset: {offset} size to read: {size} given file_length: "
                f"{len(whole)} are out of bounds or can not be read in full.",
            )
        return whole[offset : offset + size]

    def _file(self, location: str, name: str) -> memoryview:
        if self._given:
            if location not in self._given:
                raise failure(Fail, f"External file: {location} not found from the table user provided.")
            return self._given[location]
        if location not in self._read:
            self._read[location] = self._from_folder(location, name)
        return self._read[location]

    def _from_folder(self, location: str, name: str) -> memoryview:
        start = f"External data path validation failed for initializer: {name}. Error:"
        if self._folder is None:
            hint = f"give its folder by the entry {FOLDER}, or its contents"
            raise failure(Fail, f"{start} the model is bytes, and {location!r} is in no known folder", hint)
        try:
            return read_file(inside(self._folder, location)).data
        except OSError as error:
            place = str(self._folder / location)
            text = f"{start} External data path does not exist: {place!r} ({error.strerror or error})"
            raise failure(Fail, text, "copy the model's data files there") from error


def _number(tensor: _Tensor, key: str) -> int:
    text = tensor.entries.get(key, "0")
    if not (text.isascii() and text.isdigit()):
        raise failure(Fail, f"External initializer: {tensor.name} has the {key} {text!r}, which is no number of bytes")
    return int(text)


class _Initializers:
    """The tensors of a model, and what becomes of each."""

    def __init__(self, options: SessionOptions, external: _ExternalTensors, left_out: frozenset[str]) -> None:
        self._options, self._external, self._left_out = options, external, left_out
        self._missing = {*options.external}
        self._unused = {*options.replaced}

    def require_all(self) -> None:
        """Refuse values of weights that are not there; one that only replaces another is ignored with a warning."""
        for name in sorted(self._missing):
            raise failure(Fail, f"Failed to find existing initializer with name {name}.")
        for name in sorted(self._unused):
            warn_once(f"add_initializer({name!r}) is ignored: the model has no such initializer", self._options.log)

    def graph(self, data: memoryview, at: Field, *, is_inner: bool = False) -> Pieces:
        """Return a graph."""
        rule = self._tensor if is_inner else self._initializer
        return _rewritten(data, at.value, at.after, {_GRAPH_INITIALIZER: rule, _GRAPH_NODE: self._node})

    def _node(self, data: memoryview, at: Field) -> Pieces:
        if _LOCATION not in bytes(data[at.value : at.after]):
            return [data[at.value : at.after]]
        return _rewritten(data, at.value, at.after, {_NODE_ATTRIBUTE: self._attribute})

    def _attribute(self, data: memoryview, at: Field) -> Pieces:
        def inner(data: memoryview, at: Field) -> Pieces:
            return self.graph(data, at, is_inner=True)

        rules = dict.fromkeys(_ATTRIBUTE_TENSORS, self._tensor) | dict.fromkeys(_ATTRIBUTE_GRAPHS, inner)
        return _rewritten(data, at.value, at.after, rules)

    def _initializer(self, data: memoryview, at: Field) -> Pieces | None:
        """Return a tensor of the outermost graph, to which names of weights refer; None if it is left out."""
        tensor = _Tensor(data, at)
        name, value = tensor.name, self._options.external.get(tensor.name)
        if value is not None:
            self._missing.discard(name)
            if not tensor.is_external:
                raise failure(Fail, "Trying to replace non-external initializer with external data")
            pieces = tensor.with_data(_raw(tensor, value, Fail))
        else:
            pieces = self._tensor(data, at, tensor)
        replaced = self._options.replaced.get(name)
        if replaced is not None:
            self._unused.discard(name)
            pieces = tensor.with_data(_raw(tensor, replaced, InvalidArgument))
        return None if name in self._left_out else pieces

    def _tensor(self, data: memoryview, at: Field, tensor: _Tensor | None = None) -> Pieces:
        tensor = tensor or _Tensor(data, at)
        return tensor.with_data(self._external.data_of(tensor)) if tensor.is_external else [data[at.value : at.after]]


def _rewritten(data: memoryview, start: int, end: int, rules: Mapping[int, Rule]) -> Pieces:
    """Return a message with the fields that have a rule rewritten by it."""
    pieces: Pieces = []
    for field in fields(data, start, end):
        rule = rules.get(field.number) if field.kind == BYTES else None
        if rule is None:
            pieces.append(data[field.tag : field.after])
        elif (inner := rule(data, field)) is not None:
            pieces += [varint(field.number << 3 | BYTES), varint(sum(map(len, inner))), *inner]
    return pieces


def _raw(tensor: _Tensor, value: OrtValue, kind: type[Any]) -> memoryview:
    """Return a value's elements as ONNX's files have them."""
    array = value.numpy()
    if array.shape != tensor.dims:
        shapes = f"{list(array.shape)} for {tensor.name}, which is {list(tensor.dims)}"
        raise failure(kind, f"Replacement tensor's dimensions do not match: {shapes}.")
    if type_number(array.dtype) != tensor.dtype:
        dtype = ONNX_DTYPES.get(tensor.dtype, str(tensor.dtype))
        text = f"{array.dtype} for {tensor.name}, which is {dtype}"
        raise failure(kind, f"Replacement tensor's data type does not match: {text}.")
    if array.dtype.hasobject:
        raise failure(NotImplemented, f"the text {tensor.name} cannot be replaced", "write it into the model")
    bits = stored_bits(array.dtype.name)
    dense = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    return (dense if bits == 8 * array.dtype.itemsize else _packed(dense, bits)).data


def _packed(codes: np.ndarray[Any, Any], bits: int) -> np.ndarray[Any, Any]:
    """Return numbers of fewer than 8 bits, the first of each byte lowest."""
    each = 8 // bits
    padded = np.zeros(-(-codes.size // each) * each, np.uint8)
    padded[: codes.size] = codes & (2**bits - 1)
    shifted: np.ndarray[Any, Any] = padded.reshape(-1, each) << np.arange(0, 8, bits, dtype=np.uint8)
    packed: np.ndarray[Any, Any] = np.bitwise_or.reduce(shifted, axis=1)
    return packed
