"""MindSpore's checkpoint files: parameters by name, in a ``Checkpoint`` message of protobuf.

The message, as MindSpore declares it::

    message Checkpoint { repeated Value value = 1; }
    message Value { required string tag = 1; oneof value { TensorProto tensor = 2; MapTensorProto maptensor = 3; } }
    message TensorProto { repeated int64 dims = 1; required string tensor_type = 2; required bytes tensor_content = 3; }

A large tensor is several values of one tag, one after the other. A file may end with ``crc_num`` and ten bytes: the
CRC-32 of what is before them.

Safetensors files have a JSON header before the data: https://github.com/huggingface/safetensors
"""

from __future__ import annotations

import json
import math
import mmap
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import ModelError
from opbuild.frontend.wire import BYTES, VARINT, delimited, fields, read_varint, varint
from opbuild.graph.types import Array
from opbuild.mindspore.dtype import TYPES
from opbuild.platform.files.trust import parse_json
from opbuild.platform.records import dataclass

CHUNK = 512 << 20
"""Bytes of a tensor that one value holds at most."""

_VALUE = 1
_TAG, _TENSOR, _MAP = 1, 2, 3
_DIMS, _TYPE, _CONTENT = 1, 2, 3
_CRC_MARK = b"crc_num"
_CRC_BYTES = 10
_ENCRYPTED = bytes.fromhex("d85e3a7f")  # what MindSpore begins an encrypted file with
_TEXT = "str"
_RANK = 32  # axes of an array, at most
_TYPES = {str(each): each.name for each in TYPES}
_LABELS = {dtype: label for label, dtype in _TYPES.items()}

Content = Array | str


class CheckpointError(ModelError, ValueError):
    """A file is no checkpoint, or a damaged one."""


@dataclass(frozen=True)
class Record:
    """A parameter as it stands in a file.

    Attributes:
        tag: Its name.
        label: Its element type, in MindSpore's words.
        shape: Its extents.
        pieces: Its bytes, in order.
    """

    tag: str
    label: str
    shape: tuple[int, ...]
    pieces: tuple[memoryview, ...]

    def content(self) -> Content:
        """Return the values; a ``CheckpointError`` says if type, shape and bytes do not fit together."""
        size = sum(map(len, self.pieces))
        if self.label == _TEXT:
            return self._text()
        if self.label not in _TYPES:
            raise CheckpointError(
                f"{self.tag!r} has the element type {self.label!r:.40}", f"opbuild reads {', '.join(_TYPES)}"
            )
        dtype = numpy_dtype(_TYPES[self.label]).newbyteorder("<")
        shape = () if self.shape == (0,) and size else self.shape  # older files write a scalar so
        if size != math.prod(shape) * dtype.itemsize:
            raise CheckpointError(
                f"{self.tag!r} of shape {shape_text(shape)} and type {self.label} has {size} bytes",
                "the file is damaged: save it again",
            )
        array = np.frombuffer(b"".join(self.pieces), dtype).reshape(shape)
        return array.astype(dtype.newbyteorder("="))  # a copy: it can be written to

    def _text(self) -> str:
        try:
            return b"".join(self.pieces).decode("utf-32-le").rstrip("\0")
        except UnicodeDecodeError:
            raise CheckpointError(f"{self.tag!r} is no text", "the file is damaged: save it again") from None


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape for a message: a damaged one may have any length."""
    return str(shape) if len(shape) <= 8 else f"({', '.join(map(str, shape[:8]))}, ...)"


def read_records(file: BinaryIO, crc_check: bool = False) -> Iterator[Record]:
    """Yield the parameters of a file, whose bytes stay in the file until they are asked for."""
    try:
        mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:
        raise CheckpointError("the file is empty", "save it again") from None
    data = memoryview(mapped)
    if data[:4] == _ENCRYPTED:
        raise CheckpointError("the file is encrypted", "opbuild has no decryption: save it without enc_key")
    yield from _joined(_values(_without_crc(data, crc_check)))


def has_crc(data: memoryview) -> bool:
    """Return whether a file ends with a checksum."""
    return bytes(data[-_CRC_BYTES - len(_CRC_MARK) : -_CRC_BYTES]) == _CRC_MARK


def _without_crc(data: memoryview, check: bool) -> memoryview:
    if not has_crc(data):
        return data
    checksum = int.from_bytes(data[-_CRC_BYTES:], "big")
    data = data[: -_CRC_BYTES - len(_CRC_MARK)]
    if check and zlib.crc32(data) != checksum:
        raise CheckpointError("the file's checksum does not fit its content", "it is damaged: save it again")
    return data


def _values(data: memoryview) -> Iterator[Record]:
    """Yield each value of the message; a large tensor is several."""
    try:
        for field in fields(data, 0, len(data)):
            if field.number != _VALUE or field.kind != BYTES:
                raise ValueError(f"field {field.number} of kind {field.kind} at {field.tag}")
            yield _value(data, field.value, field.after)
    except (IndexError, ValueError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise CheckpointError(
            f"the file is no checkpoint of MindSpore, or it is cut off or damaged: {error}",
            "save it again with mindspore.save_checkpoint",
        ) from None


def _value(data: memoryview, start: int, end: int) -> Record:
    parts = {field.number: field for field in fields(data, start, end) if field.kind == BYTES}
    if _TAG not in parts:
        raise ValueError(f"a parameter without a name at {start}")
    tag = str(data[parts[_TAG].value : parts[_TAG].after], "utf-8")
    if _MAP in parts:
        raise CheckpointError(
            f"{tag!r:.100} is a MapParameter", "opbuild loads tensors only: leave it out with choice_func"
        )
    if _TENSOR not in parts:
        raise ValueError(f"{tag!r:.100} has no tensor")
    return _tensor(data, parts[_TENSOR].value, parts[_TENSOR].after, tag)


def _tensor(data: memoryview, start: int, end: int, tag: str) -> Record:
    dims: list[int] = []
    label = ""
    content = data[:0]
    for field in fields(data, start, end):
        if field.number == _DIMS:
            dims += _integers(data, field.kind, field.value, field.after)
        elif field.number == _TYPE and field.kind == BYTES:
            label = str(data[field.value : field.after], "utf-8")
        elif field.number == _CONTENT and field.kind == BYTES:
            content = data[field.value : field.after]
    if len(dims) > _RANK or any(not 0 <= extent < 1 << 62 for extent in dims):
        raise ValueError(f"{tag!r:.100} has the shape {shape_text(tuple(dims))}")
    return Record(tag, label, tuple(dims), (content,))


def _integers(data: memoryview, kind: int, position: int, end: int) -> Iterator[int]:
    """Yield the integers of a field: one, or several packed."""
    if kind not in (VARINT, BYTES):
        raise ValueError(f"an extent of kind {kind} at {position}")
    while position < end:
        value, position = read_varint(data, position)
        yield value


def _joined(values: Iterator[Record]) -> Iterator[Record]:
    held: Record | None = None
    for value in values:
        if held is not None and value.tag == held.tag:
            held = Record(held.tag, value.label, value.shape, held.pieces + value.pieces)
            continue
        if held is not None:
            yield held
        held = value
    if held is not None:
        yield held


def write_records(file: BinaryIO, contents: Mapping[str, Content], crc_check: bool = False) -> None:
    """Write parameters as MindSpore does, with a checksum at the end if ``crc_check``."""
    crc = 0
    for tag, content in contents.items():
        if isinstance(content, str):
            dims, label, data = (0,), _TEXT, memoryview(content.encode("utf-32-le"))
        else:
            dims, label = content.shape, _LABELS[content.dtype.name]
            little = np.ascontiguousarray(content, content.dtype.newbyteorder("<"))
            data = little.reshape(-1).view(np.uint8).data
        for start in range(0, max(len(data), 1), CHUNK):
            for piece in _written(tag, dims, label, data[start : start + CHUNK]):
                file.write(piece)
                crc = zlib.crc32(piece, crc) if crc_check else 0
    if crc_check:
        file.write(_CRC_MARK + crc.to_bytes(_CRC_BYTES, "big"))


def _written(tag: str, dims: tuple[int, ...], label: str, content: memoryview) -> tuple[bytes, memoryview]:
    """Return one value: the bytes before the content, and the content, which is its end."""
    extents = b"".join(varint(_DIMS << 3 | VARINT) + varint(extent) for extent in dims)
    tensor = extents + delimited(_TYPE, label.encode()) + varint(_CONTENT << 3 | BYTES) + varint(len(content))
    value = delimited(_TAG, tag.encode()) + varint(_TENSOR << 3 | BYTES) + varint(len(tensor) + len(content)) + tensor
    return varint(_VALUE << 3 | BYTES) + varint(len(value) + len(content)) + value, content


_LENGTH = 8
_HEADER_LIMIT = 100_000_000  # the format's own
_METADATA = "__metadata__"
_SAFE_LABELS = {
    "BOOL": "Bool", "I8": "Int8", "I16": "Int16", "I32": "Int32", "I64": "Int64", "U8": "UInt8", "U16": "UInt16",
    "U32": "UInt32", "U64": "UInt64", "F16": "Float16", "BF16": "BFloat16", "F32": "Float32", "F64": "Float64",
}  # fmt: skip
_CODES = {label.lower(): code for code, label in _SAFE_LABELS.items()}
_AGAIN = "it is cut off or damaged: save it again"


def read_safetensors(file: BinaryIO) -> Iterator[Record]:
    """Yield the parameters of a file in the order of their names."""
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH or length > min(_HEADER_LIMIT, size - _LENGTH):
        raise CheckpointError("the file is no safetensors file", _AGAIN)
    header = _header(file.read(length))
    header.pop(_METADATA, None)
    for name in sorted(header):
        yield _described(file, _LENGTH + length, size, name, header[name])


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError("the header of the safetensors file is no JSON object", _AGAIN)
    return header


def _described(file: BinaryIO, data: int, size: int, name: str, described: Any) -> Record:
    """Return the tensor that an entry of the header describes, of a file whose data begin at ``data``."""
    entry = described if isinstance(described, dict) else {}
    shape, place = _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
    if shape is None or place is None or len(place) != 2:
        raise CheckpointError(f"the header says nothing sensible about {name!r:.100}", _AGAIN)
    label = _SAFE_LABELS.get(str(entry.get("dtype")), str(entry.get("dtype")))
    start, end = place
    if not start <= end <= size - data:
        raise CheckpointError(f"{name!r:.100} lies at {start} to {end} of {size - data} bytes", _AGAIN)
    if len(shape) > _RANK or math.prod(shape) > end - start:
        raise CheckpointError(f"{name!r:.100} of shape {shape_text(tuple(shape))} has {end - start} bytes", _AGAIN)
    file.seek(data + start)
    return Record(name, label, tuple(shape), (memoryview(file.read(end - start)),))


def _naturals(value: Any) -> list[int] | None:
    """Return a list of sizes; None for anything else."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        return value
    return None


def write_safetensors(file: BinaryIO, contents: Mapping[str, Array]) -> None:
    """Write arrays in the order of their names, with MindSpore's own metadata."""
    header: dict[str, Any] = {_METADATA: {"format": "ms"}}
    ordered = {name: contents[name] for name in sorted(contents)}
    little = {name: np.ascontiguousarray(each, each.dtype.newbyteorder("<")).reshape(each.shape)
              for name, each in ordered.items()}  # fmt: skip
    place = 0
    for name, array in little.items():
        code = _CODES[array.dtype.name]
        header[name] = {"dtype": code, "shape": list(array.shape), "data_offsets": [place, place + array.nbytes]}
        place += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    file.write(len(text).to_bytes(_LENGTH, "little") + text)
    for array in little.values():
        file.write(array.reshape(-1).view(np.uint8).data)
