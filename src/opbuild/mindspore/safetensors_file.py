"""Safetensors files: parameters by name behind a JSON header (https://github.com/huggingface/safetensors)."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any, BinaryIO

import numpy as np

from opbuild.files.trust import parse_json
from opbuild.graph.types import Array
from opbuild.mindspore.checkpoint_file import CheckpointError, Record, shape_text

_LENGTH = 8
_HEADER_LIMIT = 100_000_000  # the format's own
_METADATA = "__metadata__"
_LABELS = {
    "BOOL": "Bool", "I8": "Int8", "I16": "Int16", "I32": "Int32", "I64": "Int64", "U8": "UInt8", "U16": "UInt16",
    "U32": "UInt32", "U64": "UInt64", "F16": "Float16", "BF16": "BFloat16", "F32": "Float32", "F64": "Float64",
}  # fmt: skip
_CODES = {label.lower(): code for code, label in _LABELS.items()}
_AGAIN = "it is cut off or damaged: save it again"


def read_records(file: BinaryIO) -> Iterator[Record]:
    """Yield the parameters of a file in the order of their names.

    Raises:
        CheckpointError: If the file is no safetensors file, or a damaged one.
    """
    size = file.seek(0, 2)
    file.seek(0)
    length = int.from_bytes(file.read(_LENGTH), "little")
    if size < _LENGTH or length > min(_HEADER_LIMIT, size - _LENGTH):
        raise CheckpointError("the file is no safetensors file", _AGAIN)
    header = _header(file.read(length))
    header.pop(_METADATA, None)
    data = _Data(file, _LENGTH + length, size)
    for name in sorted(header):
        yield data.record(name, header[name])


def _header(text: bytes) -> dict[str, Any]:
    try:
        header = parse_json(text)
    except ValueError:
        header = None
    if not isinstance(header, dict):
        raise CheckpointError("the header of the safetensors file is no JSON object", _AGAIN)
    return header


class _Data:
    """The data behind the header."""

    def __init__(self, file: BinaryIO, start: int, end: int) -> None:
        self._file = file
        self._start = start
        self._size = end - start

    def record(self, name: str, described: Any) -> Record:
        """Return the tensor that an entry of the header describes."""
        entry = described if isinstance(described, dict) else {}
        shape, place = _naturals(entry.get("shape")), _naturals(entry.get("data_offsets"))
        if shape is None or place is None or len(place) != 2:
            raise CheckpointError(f"the header says nothing sensible about {name!r:.100}", _AGAIN)
        label = _LABELS.get(str(entry.get("dtype")), str(entry.get("dtype")))
        start, end = place
        if not start <= end <= self._size:
            raise CheckpointError(f"{name!r:.100} lies at {start} to {end} of {self._size} bytes", _AGAIN)
        if len(shape) > 32 or math.prod(shape) > end - start:
            raise CheckpointError(f"{name!r:.100} of shape {shape_text(tuple(shape))} has {end - start} bytes", _AGAIN)
        self._file.seek(self._start + start)
        return Record(name, label, tuple(shape), (memoryview(self._file.read(end - start)),))


def _naturals(value: Any) -> list[int] | None:
    """Return a list of sizes; None for anything else."""
    if isinstance(value, list) and all(type(item) is int and 0 <= item < 1 << 62 for item in value):
        return value
    return None


def write_records(file: BinaryIO, contents: Mapping[str, Array]) -> None:
    """Write arrays in the order of their names, with MindSpore's own metadata."""
    header: dict[str, Any] = {_METADATA: {"format": "ms"}}
    little = {name: _little(contents[name]) for name in sorted(contents)}
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


def _little(array: Array) -> Array:
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(array.shape)
