"""The declaration of an ONNX file, read on protobuf's wire format: no tensor is looked into, and nothing is imported.

It has what a network does not need and programs ask for: names of open extents, denotations, the exporter's notes.
"""

from __future__ import annotations

from collections.abc import Iterator

from opbuild.frontend.wire import BYTES, Field, fields, read_varint
from opbuild.platform.records import dataclass, field

# Numbers of fields, from onnx.proto
_MODEL = {2: "producer_name", 4: "domain", 6: "description"}
_MODEL_IR_VERSION, _MODEL_VERSION, _MODEL_GRAPH, _MODEL_METADATA = 1, 5, 7, 14
_GRAPH_NAME, _GRAPH_INITIALIZER, _GRAPH_DESCRIPTION, _GRAPH_INPUT, _GRAPH_OUTPUT = 2, 5, 10, 11, 12
_TENSOR_NAME = 8
_TENSOR_TYPE, _SEQUENCE_TYPE, _MAP_TYPE, _SPARSE_TYPE, _OPTIONAL_TYPE = 1, 4, 5, 8, 9
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

    texts: dict[str, str] = field(default_factory=dict)
    version: int | None = None
    metadata: dict[str, str] = field(default_factory=dict)
    inputs: dict[str, DeclaredType] = field(default_factory=dict)
    defaults: dict[str, DeclaredType] = field(default_factory=dict)
    outputs: dict[str, DeclaredType] = field(default_factory=dict)


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
            entry = {inner.number: _text(data, inner) for inner in _inside(data, each)}
            model.metadata[entry.get(1, "")] = entry.get(2, "")
        elif each.number == _MODEL_GRAPH:
            graph = each
    if graph is not None:
        _read_graph(data, graph, model, ir_version)
    return model


def _read_graph(data: memoryview, graph: Field, model: DeclaredModel, ir_version: int) -> None:
    initializers = set[str]()
    for each in _inside(data, graph):
        if each.number == _GRAPH_NAME:
            model.texts["graph_name"] = _text(data, each)
        elif each.number == _GRAPH_DESCRIPTION:
            model.texts["graph_description"] = _text(data, each)
        elif each.number == _GRAPH_INITIALIZER:
            initializers.update(_text(data, one) for one in _inside(data, each) if one.number == _TENSOR_NAME)
        elif each.number in (_GRAPH_INPUT, _GRAPH_OUTPUT):
            name, kind = _value(data, each)
            (model.inputs if each.number == _GRAPH_INPUT else model.outputs)[name] = kind
    both = [name for name in model.inputs if name in initializers]
    defaults = {name: model.inputs.pop(name) for name in both}
    if ir_version >= _VALUES_MAY_BE_LEFT_OUT:
        model.defaults = defaults


def _value(data: memoryview, value: Field) -> tuple[str, DeclaredType]:
    name, kind = "", DeclaredType()
    for each in _inside(data, value):
        if each.number == 1:
            name = _text(data, each)
        elif each.number == 2:
            kind = _type(data, each)
    return name, kind


def _type(data: memoryview, declared: Field) -> DeclaredType:
    kinds = {_TENSOR_TYPE: "tensor", _SPARSE_TYPE: "sparse_tensor", _SEQUENCE_TYPE: "seq", _MAP_TYPE: "map",
             _OPTIONAL_TYPE: "optional"}  # fmt: skip
    for each in _inside(data, declared):
        if each.number not in kinds:
            continue
        elem, shape, inner = 0, None, None
        for part in _inside(data, each):
            if part.kind != BYTES:
                elem = read_varint(data, part.value)[0]
            elif each.number in (_TENSOR_TYPE, _SPARSE_TYPE):
                shape = tuple(_extent(data, one) for one in _inside(data, part))
            else:
                inner = _type(data, part)
        return DeclaredType(kinds[each.number], elem, shape, inner)
    return DeclaredType()


def _extent(data: memoryview, extent: Field) -> DeclaredExtent:
    value, name, denotation = None, "", ""
    for each in _inside(data, extent):
        if each.number == 1:
            number = _signed(data, each)
            value = number if number >= 0 else None
        elif each.number == 2:
            name = _text(data, each)
        elif each.number == 3:
            denotation = _text(data, each)
    return DeclaredExtent(value, name, denotation)


def _inside(data: memoryview, message: Field) -> Iterator[Field]:
    return fields(data, message.value, message.after)


def _signed(data: memoryview, value: Field) -> int:
    number = read_varint(data, value.value)[0]
    return number - 2**64 if number >= 2**63 else number


def _text(data: memoryview, value: Field) -> str:
    return bytes(data[value.value : value.after]).decode("utf-8", "replace")
