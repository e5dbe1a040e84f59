"""Protobuf's wire format: an ONNX file without its large tensors, and the file's declarations.

See https://protobuf.dev/programming-guides/encoding. Parsing a file as a whole copies every weight twice, once into
protobuf's memory and once out of it: 0.3 s of the 0.9 s that a changed ResNet-50 took to start. Only the few fields
that lead to a tensor's bytes are looked at here; all others are passed on as they are. What remains is parsed in a
millisecond, and the tensors stay where they are.

A declaration has what a network does not need and programs ask for: names of open extents, denotations, the exporter's
notes. It is read without importing anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from opbuild.platform.records import NamedTuple, dataclass
from opbuild.platform.records import field as empty

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""Kinds of fields."""


class Field(NamedTuple):
    """A field: where its tag, its value and the next field begin."""

    number: int
    kind: int
    tag: int
    value: int
    after: int


def fields(data: memoryview, start: int, end: int) -> Iterator[Field]:
    """Yield a message's fields.

    Raises:
        IndexError: If the message ends too early.
        ValueError: If it is no message.
    """
    position = start
    while position < end:
        tag, value = read_varint(data, position)
        after = value
        kind = tag & 7
        if kind == VARINT:
            after = read_varint(data, value)[1]
        elif kind == BYTES:
            length, value = read_varint(data, value)
            after = value + length
        elif kind in (FIXED32, FIXED64):
            after = value + (4 if kind == FIXED32 else 8)
        else:
            raise ValueError(f"kind {kind} of a field at {position}")
        if after > end:
            raise IndexError(f"a field at {position} ends at {after}, beyond {end}")
        yield Field(tag >> 3, kind, position, value, after)
        position = after


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """Return a number and where it ends.

    Raises:
        IndexError: If the data end too early.
        ValueError: If it has more than 64 bits.
    """
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
        if shift > 63:
            raise ValueError(f"a number at {position} is too long")


def varint(value: int) -> bytes:
    """Return a number of at least 0 as it is written."""
    digits = bytearray()
    while value >= 0x80:
        digits.append(value & 0x7F | 0x80)
        value >>= 7
    digits.append(value)
    return bytes(digits)


def delimited(number: int, value: bytes) -> bytes:
    """Return a field of bytes, a text or a message."""
    return varint(number << 3 | BYTES) + varint(len(value)) + value


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


_MODEL = {2: "producer_name", 4: "domain", 6: "description"}
_MODEL_IR_VERSION, _MODEL_VERSION, _MODEL_METADATA = 1, 5, 14
_GRAPH_INPUT, _GRAPH_OUTPUT = 11, 12
_GRAPH = {2: "graph_name", 10: "graph_description"}
_TENSOR_NAME = 8
_TYPES = {1: "tensor", 4: "seq", 5: "map", 8: "sparse_tensor", 9: "optional"}
_VALUES_MAY_BE_LEFT_OUT = 4
"""The version of the format from which an initializer need not be an input: one that is both has a default."""


@dataclass(frozen=True)
class DeclaredExtent:
    """An extent of a declared shape.

    Attributes:
        value: The number; None if it is open, which some exporters write as -1.
        name: The name that an open one has, or empty.
        denotation: What it stands for, such as ``DATA_BATCH``, or empty.
    """

    value: int | None = None
    name: str = ""
    denotation: str = ""


@dataclass(frozen=True)
class DeclaredType:
    """A declared type.

    Attributes:
        kind: ``tensor``, ``seq``, ``map``, ``sparse_tensor``, ``optional``, or empty if nothing is declared.
        elem: ONNX's number of the element type; of a map that of its keys.
        shape: The extents; None where the rank is open too.
        inner: The type of a sequence's elements, a map's values or an optional's content.
    """

    kind: str = ""
    elem: int = 0
    shape: tuple[DeclaredExtent, ...] | None = None
    inner: DeclaredType | None = None


@dataclass
class DeclaredModel:
    """The declaration of a model.

    Attributes:
        texts: ``producer_name``, ``domain``, ``description``, ``graph_name`` and ``graph_description``, where given.
        version: The model's version; None if it has none.
        metadata: The exporter's notes.
        inputs: Types of the inputs by name, without those that have a default.
        defaults: Types of the inputs that have one.
        outputs: Types of the outputs by name.
    """

    texts: dict[str, str] = empty(default_factory=dict)
    version: int | None = None
    metadata: dict[str, str] = empty(default_factory=dict)
    inputs: dict[str, DeclaredType] = empty(default_factory=dict)
    defaults: dict[str, DeclaredType] = empty(default_factory=dict)
    outputs: dict[str, DeclaredType] = empty(default_factory=dict)


def read_declared(data: memoryview) -> DeclaredModel:
    """Return the declaration in a serialised ``ModelProto``.

    Raises:
        IndexError: If it ends too early.
        ValueError: If it is no message.
    """
    model, ir_version, graph = DeclaredModel(), 0, None
    for each in fields(data, 0, len(data)):
        if each.kind == BYTES and each.number in _MODEL:
            model.texts[_MODEL[each.number]] = _text(data, each)
        elif each.number == _MODEL_IR_VERSION:
            ir_version = read_varint(data, each.value)[0]
        elif each.number == _MODEL_VERSION:
            model.version = _signed(data, each)
        elif each.number == _MODEL_METADATA:
            entry = {inner.number: _text(data, inner) for inner in _fields_of(data, each)}
            model.metadata[entry.get(1, "")] = entry.get(2, "")
        elif each.number == _MODEL_GRAPH:
            graph = each
    if graph is not None:
        _read_graph(data, graph, model, ir_version)
    return model


def _read_graph(data: memoryview, graph: Field, model: DeclaredModel, ir_version: int) -> None:
    initializers = set[str]()
    for each in _fields_of(data, graph):
        if each.number in _GRAPH:
            model.texts[_GRAPH[each.number]] = _text(data, each)
        elif each.number == _GRAPH_INITIALIZER:
            initializers.update(_text(data, one) for one in _fields_of(data, each) if one.number == _TENSOR_NAME)
        elif each.number in (_GRAPH_INPUT, _GRAPH_OUTPUT):
            name, kind = _value(data, each)
            (model.inputs if each.number == _GRAPH_INPUT else model.outputs)[name] = kind
    both = [name for name in model.inputs if name in initializers]
    defaults = {name: model.inputs.pop(name) for name in both}
    if ir_version >= _VALUES_MAY_BE_LEFT_OUT:
        model.defaults = defaults


def _value(data: memoryview, value: Field) -> tuple[str, DeclaredType]:
    parts = {each.number: each for each in _fields_of(data, value)}
    return _text(data, parts.get(1)), _type(data, parts[2]) if 2 in parts else DeclaredType()


def _type(data: memoryview, declared: Field) -> DeclaredType:
    for each in _fields_of(data, declared):
        if each.number not in _TYPES:
            continue
        elem, shape, inner = 0, None, None
        for part in _fields_of(data, each):
            if part.kind != BYTES:
                elem = read_varint(data, part.value)[0]
            elif "tensor" in _TYPES[each.number]:
                shape = tuple(_extent(data, one) for one in _fields_of(data, part))
            else:
                inner = _type(data, part)
        return DeclaredType(_TYPES[each.number], elem, shape, inner)
    return DeclaredType()


def _extent(data: memoryview, extent: Field) -> DeclaredExtent:
    parts = {each.number: each for each in _fields_of(data, extent)}
    number = _signed(data, parts[1]) if 1 in parts else -1
    return DeclaredExtent(number if number >= 0 else None, _text(data, parts.get(2)), _text(data, parts.get(3)))


def _fields_of(data: memoryview, message: Field) -> Iterator[Field]:
    return fields(data, message.value, message.after)


def _signed(data: memoryview, value: Field) -> int:
    number = read_varint(data, value.value)[0]
    return number - 2**64 if number >= 2**63 else number


def _text(data: memoryview, value: Field | None) -> str:
    return "" if value is None else bytes(data[value.value : value.after]).decode("utf-8", "replace")
