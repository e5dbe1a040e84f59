"""An ONNX file without its large tensors: what remains is parsed in a millisecond, and the tensors stay where they are.

Parsing a file as a whole copies every weight twice, once into protobuf's memory and once out of it: 0.3 s of the
0.9 s that a changed ResNet-50 took to start. Only the few fields that lead to a tensor's bytes are looked at here, on
protobuf's wire format (https://protobuf.dev/programming-guides/encoding); all others are passed on as they are.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from opbuild.frontend.wire import BYTES, delimited, fields, varint

LARGE = 4096
"""Bytes from which a tensor stays in the file."""

PLACE = "opbuild_place"
"""Key under which a tensor's ``external_data`` says where its bytes are in the model's own file: offset and length."""

# Numbers of fields, from onnx.proto
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER = 1, 5
_NODE_OP_TYPE, _NODE_ATTRIBUTE = 4, 5
_ATTRIBUTE_T = 5
_TENSOR_RAW_DATA, _TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION = 9, 13, 14

Pieces = list[bytes | memoryview]
Place = tuple[int, int]
"""Where a tensor's bytes begin, and how many there are."""

_Rule = Callable[[memoryview, int, int], Pieces]


def without_large_tensors(data: memoryview) -> tuple[bytes, list[Place]]:
    """Return a serialised ``ModelProto`` whose large tensors say where in ``data`` their bytes are, and these places.

    Args:
        data: A serialised ``ModelProto``, of single bytes. What is no such thing is returned as it is, for protobuf
            to complain about.
    """
    places: list[Place] = []
    tensor = partial(_tensor, places)
    attribute = partial(_rewritten, rules={_ATTRIBUTE_T: tensor})
    graph = partial(_rewritten, rules={_GRAPH_NODE: partial(_node, attribute), _GRAPH_INITIALIZER: tensor})
    try:
        return b"".join(_rewritten(data, 0, len(data), {_MODEL_GRAPH: graph})), places
    except (IndexError, ValueError):
        return bytes(data), []


def _node(attribute: _Rule, data: memoryview, start: int, end: int) -> Pieces:
    types = [bytes(data[f.value : f.after]) for f in fields(data, start, end) if f.number == _NODE_OP_TYPE]
    return _rewritten(data, start, end, {_NODE_ATTRIBUTE: attribute} if types == [b"Constant"] else {})


def _tensor(places: list[Place], data: memoryview, start: int, end: int) -> Pieces:
    held = list(fields(data, start, end))
    raw = [field for field in held if field.number == _TENSOR_RAW_DATA and field.kind == BYTES]
    external = any(field.number in (_TENSOR_EXTERNAL_DATA, _TENSOR_DATA_LOCATION) for field in held)
    if len(raw) != 1 or external or raw[0].after - raw[0].value < LARGE:
        return [data[start:end]]
    place = raw[0].value, raw[0].after - raw[0].value
    places.append(place)
    entry = delimited(1, PLACE.encode()) + delimited(2, f"{place[0]} {place[1]}".encode())
    where = delimited(_TENSOR_EXTERNAL_DATA, entry) + varint(_TENSOR_DATA_LOCATION << 3) + varint(1)
    return [data[start : raw[0].tag], data[raw[0].after : end], where]


def _rewritten(data: memoryview, start: int, end: int, rules: dict[int, _Rule]) -> Pieces:
    """Return a message with its large fields that have a rule rewritten by it."""
    pieces: Pieces = []
    kept = start
    for field in fields(data, start, end):
        if field.kind != BYTES or field.number not in rules or field.after - field.value < LARGE:
            continue
        inner = rules[field.number](data, field.value, field.after)
        pieces += [data[kept : field.tag], varint(field.number << 3 | BYTES), varint(sum(map(len, inner))), *inner]
        kept = field.after
    pieces.append(data[kept:end])
    return pieces
