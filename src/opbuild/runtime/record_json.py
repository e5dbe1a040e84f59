"""Records as JSON. Reading trusts nothing: whatever is not exactly a record is a ``ValueError``."""

from __future__ import annotations

import re
from typing import Any

from opbuild.graph.node_json import node_from_json, node_to_json
from opbuild.graph.types import DTYPES
from opbuild.program import HostCall, Port, View
from opbuild.runtime.record import Constant, KernelStep, Record, Storage, problem, type_from_json, type_to_json

KINDS = ("input", "output", "constant", "temporary")


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON values.

    Raises:
        ValueError: If a host call's node has an attribute that JSON can not hold, so that the network has no stored
            image.
    """
    return {
        "name": record.name,
        "arena_size": record.arena_size,
        "buffers": [[buffer.kind, buffer.dtype, buffer.size, buffer.place] for buffer in record.buffers],
        "steps": [_step_to_json(step) for step in record.steps],
        "inputs": [_port_to_json(port) for port in record.inputs],
        "outputs": [_port_to_json(port) for port in record.outputs],
        "constants": [[constant.nbytes, constant.digest, constant.offset] for constant in record.constants],
        "notes": dict(record.notes),
    }


def from_json(parts: Any) -> Record:
    """Return the record that ``to_json`` wrote.

    Raises:
        ValueError: If it is not a record that can be run safely.
    """
    try:
        record = Record(
            name=str(parts["name"]),
            buffers=tuple(_storage(*buffer) for buffer in parts["buffers"]),
            steps=tuple(_step_from_json(step) for step in parts["steps"]),
            inputs=tuple(_port_from_json(port) for port in parts["inputs"]),
            outputs=tuple(_port_from_json(port) for port in parts["outputs"]),
            arena_size=int(parts["arena_size"]),
            constants=tuple(_constant(*constant) for constant in parts["constants"]),
            notes=dict(parts["notes"]),
        )
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record: {error!r}") from error
    wrong = problem(record)
    if wrong:
        raise ValueError(wrong)
    return record


def _storage(kind: Any, dtype: Any, size: Any, place: Any) -> Storage:
    if kind not in KINDS or dtype not in DTYPES:
        raise ValueError(f"a buffer is of kind {kind!r} and type {dtype!r}")
    return Storage(kind, dtype, int(size), int(place))


def _constant(nbytes: Any, digest: Any, offset: Any) -> Constant:
    if digest and not re.fullmatch(r"[0-9a-f]{64}", digest):  # it becomes the name of a file
        raise ValueError(f"{digest[:80]!r} is not a digest")
    return Constant(int(nbytes), str(digest), int(offset))


def _port_to_json(port: Port) -> list[Any]:
    return [port.name, type_to_json(port.type), port.buffer]


def _port_from_json(parts: Any) -> Port:
    name, type_, buffer = parts
    return Port(str(name), type_from_json(type_), int(buffer))


def _view_to_json(view: View | None) -> list[Any] | None:
    return None if view is None else [view.buffer, view.offset, [list(dim) for dim in view.dims]]


def _view_from_json(parts: Any) -> View:
    buffer, offset, dims = parts
    return View(int(buffer), int(offset), tuple((int(extent), int(stride)) for extent, stride in dims))


def _step_to_json(step: KernelStep | HostCall) -> dict[str, Any]:
    if isinstance(step, KernelStep):
        views, types = [_view_to_json(view) for view in step.views], {"dtypes": list(step.dtypes)}
        return {"kernel": step.symbol, "views": views, "nodes": list(step.nodes)} | (types if step.dtypes else {})
    return {
        "host": node_to_json(step.node),
        "inputs": [_view_to_json(view) for view in step.inputs],
        "outputs": [_view_to_json(view) for view in step.outputs],
        "input_types": [None if type_ is None else type_to_json(type_) for type_ in step.input_types],
        "output_types": [None if type_ is None else type_to_json(type_) for type_ in step.output_types],
        "opset": step.opset,
    }


def _step_from_json(parts: Any) -> KernelStep | HostCall:
    if "kernel" in parts:
        views = tuple(_view_from_json(view) for view in parts["views"])
        dtypes = tuple(map(str, parts.get("dtypes", ())))
        if (dtypes and len(dtypes) != len(views)) or not set(dtypes) <= set(DTYPES):
            raise ValueError(f"a kernel's arguments have the types {dtypes}")
        return KernelStep(str(parts["kernel"]), views, tuple(map(str, parts["nodes"])), dtypes)
    return HostCall(
        node=node_from_json(parts["host"]),
        inputs=tuple(None if view is None else _view_from_json(view) for view in parts["inputs"]),
        outputs=tuple(None if view is None else _view_from_json(view) for view in parts["outputs"]),
        input_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["input_types"]),
        output_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["output_types"]),
        opset=int(parts["opset"]),
    )
