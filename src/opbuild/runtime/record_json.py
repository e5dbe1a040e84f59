"""Records as JSON, and back. Reading trusts nothing: whatever is not exactly a record is a ``ValueError``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import starmap
from types import ModuleType
from typing import Any

import numpy as np

from opbuild.graph.breaks import break_from_json, break_to_json
from opbuild.graph.types import DTYPES, Array, TensorType
from opbuild.platform.digest import is_digest
from opbuild.program import HostCall, Port, View
from opbuild.runtime.record import (
    CHECKS,
    KINDS,
    CallKind,
    Constant,
    Dims,
    DimsTable,
    KernelStep,
    Places,
    Ports,
    Record,
    Sort,
    Steps,
    Storage,
    Storages,
)
from opbuild.runtime.soundness import problem
from opbuild.target.level import CPU

_KINDS, _TYPES = frozenset(KINDS), frozenset(DTYPES)


def type_to_json(type_: TensorType) -> list[Any]:
    """Return a type as JSON."""
    return [type_.dtype, list(type_.shape)]


def type_from_json(parts: Any) -> TensorType:
    """Return the type that ``type_to_json`` wrote."""
    return TensorType(str(parts[0]), tuple(int(extent) for extent in parts[1]))


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON values.

    Raises:
        ValueError: If a host call's node has an attribute that JSON cannot hold, so that the network has no stored
            image.
    """
    buffers, steps, constants = record.buffers, record.steps, record.constants
    return {
        "name": record.name,
        "arena_size": record.arena_size,
        "zeroed": record.zeroed,
        "buffers": {"sorts": [*map(_sort_to_json, buffers.sorts)]} | _columns_to_json(buffers, _OF_BUFFERS),
        "dims": [[list(dim) for dim in dims] for dims in steps.dims],
        "steps": {
            "kinds": [[*kind[:2], list(kind.dtypes), kind.work, kind.writes] for kind in steps.kinds],
            "nodes": [*map(list, steps.nodes)],
            "hosts": [*map(_host_to_json, steps.hosts)],
        }
        | _columns_to_json(steps, _OF_STEPS),
        "inputs": [_port_to_json(port) for port in record.inputs],
        "outputs": [_port_to_json(port) for port in record.outputs],
        "constants": {"digests": [*constants.digests]} | _columns_to_json(constants, _OF_CONSTANTS),
        "notes": dict(record.notes),
        **({"arenas": {name: [*each] for name, each in record.arenas.items()}} if record.arenas else {}),
        **({} if record.follows is None else {"cut": break_to_json(record.follows)}),
        **({} if record.symbolic is None else {"symbolic": _symbolic().to_json(record.symbolic)}),
    }


def from_json(parts: Any) -> Record:
    """Return the record that ``to_json`` wrote.

    Raises:
        ValueError: If it is not a record that can be run safely.
    """
    try:
        dims = DimsTable.of(parts.get("dims", ()))
        buffers, steps, constants = parts["buffers"], parts["steps"], parts["constants"]
        record = Record(
            name=str(parts["name"]),
            buffers=_storages(buffers) if isinstance(buffers, dict) else Storages.of(starmap(_storage, buffers)),
            steps=_steps(steps, dims) if isinstance(steps, dict) else Steps.of([_step(step, dims) for step in steps]),
            inputs=Ports.of(_port_from_json(*port) for port in parts["inputs"]),
            outputs=Ports.of(_port_from_json(*port) for port in parts["outputs"]),
            arena_size=int(parts["arena_size"]),
            constants=_places(constants) if isinstance(constants, dict) else Places.of(starmap(_constant, constants)),
            notes=dict(parts["notes"]),
            follows=break_from_json(parts["cut"]) if "cut" in parts else None,
            zeroed=int(parts.get("zeroed", parts["arena_size"])),
            symbolic=_symbolic().from_json(parts["symbolic"]) if "symbolic" in parts else None,
            arenas={str(name): (int(size), int(zeroed)) for name, (size, zeroed) in parts.get("arenas", {}).items()},
        )
        wrong = problem(record) if record.symbolic is None else _symbolic().problem(record)
    except (KeyError, TypeError, AttributeError, IndexError, OverflowError, RecursionError) as error:
        raise ValueError(f"not a record: {error!r}") from error
    if wrong:
        raise ValueError(wrong)
    return record


def _symbolic() -> ModuleType:
    """Return the module that reads and writes the part that only records for several signatures have."""
    from opbuild.runtime import symbolic  # few are

    return symbolic


_OF_BUFFERS, _OF_STEPS = ("sort", "size", "place"), ("kind", "buffer", "offset", "shape")
_OF_CONSTANTS = ("nbytes", "offset")
"""The columns of numbers, as they are called here and there."""


def _columns_to_json(columns: Storages | Steps | Places, names: Sequence[str]) -> dict[str, list[int]]:
    return {name: getattr(columns, name).tolist() for name in names}


def _columns(parts: Mapping[str, Any], names: Sequence[str]) -> dict[str, Array]:
    columns = {name: np.array(parts[name], np.int64) for name in names}
    if len({column.shape for name, column in columns.items() if name != "kind"}) != 1 or any(
        column.ndim != 1 for column in columns.values()
    ):
        raise ValueError(f"the columns {', '.join(names)} do not belong together")
    return columns


def _storages(parts: Mapping[str, Any]) -> Storages:
    return Storages([_sort(*sort) for sort in parts["sorts"]], **_columns(parts, _OF_BUFFERS))


def _sort_to_json(sort: Sort) -> list[str]:
    """Return the shared facts of buffers; that they lie on the CPU is left out."""
    return [*sort[: 2 + (sort.device != CPU)]]


def _sort(kind: Any, dtype: Any, device: Any = CPU) -> Sort:
    if kind not in _KINDS or dtype not in _TYPES:
        raise ValueError(f"a buffer is of kind {kind!r} and type {dtype!r}")
    return Sort(kind, dtype, str(device))


def _storage(kind: Any, dtype: Any, size: Any, place: Any, device: Any = CPU) -> Storage:
    own = _sort(kind, dtype, device)
    return Storage(own.kind, own.dtype, int(size), int(place), own.device)


def _steps(parts: Mapping[str, Any], dims: DimsTable) -> Steps:
    nodes = parts["nodes"]
    if not {*map(type, nodes)} <= {list}:
        raise ValueError("a step has no list of nodes")
    hosts = [_host_from_json(host, dims) for host in parts["hosts"]]
    return Steps(
        [_kind(*kind) for kind in parts["kinds"]], nodes=nodes, hosts=hosts, dims=dims, **_columns(parts, _OF_STEPS)
    )


def _kind(symbol: Any, arguments: Any, types: Any, work: Any, writes: Any) -> CallKind:
    kind = CallKind(str(symbol), int(arguments), tuple(map(str, types)), max(int(work), 0), int(writes))
    if (kind.dtypes and len(kind.dtypes) != kind.arguments) or not _TYPES.issuperset(kind.dtypes):
        raise ValueError(f"a kernel's arguments have the types {kind.dtypes}")
    least = 0 if kind.symbol in CHECKS.values() else 1
    if not least <= kind.writes <= kind.arguments:
        raise ValueError(f"a kernel of {kind.arguments} arguments writes {kind.writes}")
    return kind


def _places(parts: Mapping[str, Any]) -> Places:
    columns, digests = _columns(parts, _OF_CONSTANTS), parts["digests"]
    if not isinstance(digests, list) or len(digests) != len(columns["nbytes"]):
        raise ValueError("constants have no list of digests")
    return Places(digests=[*map(_digest, digests)], **columns)


def _digest(text: Any) -> str:
    if text and not is_digest(text):  # it becomes the name of a file
        raise ValueError(f"{text[:80]!r} is not a digest")
    return str(text)


def _constant(nbytes: Any, digest: Any, offset: Any) -> Constant:
    return Constant(int(nbytes), _digest(digest), int(offset))


def _port_to_json(port: Port) -> list[Any]:
    return [port.name, type_to_json(port.type), port.buffer]


def _port_from_json(name: Any, type_: Any, buffer: Any) -> Port:
    return Port(str(name), type_from_json(type_), int(buffer))


def _dims(parts: Any) -> Dims:
    return tuple((int(extent), int(stride)) for extent, stride in parts)


def _view(parts: Any, table: Sequence[Dims]) -> View:
    """Return a view; before there was a table each had its own extents and strides."""
    buffer, offset, dims = parts
    return View(int(buffer), int(offset), table[dims] if isinstance(dims, int) and dims >= 0 else _dims(dims))


def _step(parts: Any, table: Sequence[Dims]) -> KernelStep | HostCall:
    """Return a step as it was stored before there were columns."""
    if "kernel" not in parts:
        return _host_from_json(parts, table)
    views = tuple([_view(view, table) for view in parts["views"]])
    symbol, work, writes = parts["kernel"], parts.get("work", 0), parts.get("writes", 1)
    kind = _kind(symbol, len(views), parts.get("dtypes", ()), work, writes)
    return KernelStep(kind.symbol, views, tuple(map(str, parts["nodes"])), *kind[2:])


def _host_to_json(call: HostCall) -> dict[str, Any]:
    from opbuild.graph.node_json import node_to_json  # few networks have steps on the host

    return {
        "host": node_to_json(call.node),
        "inputs": [*map(_view_to_json, call.inputs)],
        "outputs": [*map(_view_to_json, call.outputs)],
        "input_types": [None if type_ is None else type_to_json(type_) for type_ in call.input_types],
        "output_types": [None if type_ is None else type_to_json(type_) for type_ in call.output_types],
        "opset": call.opset,
    }


def _view_to_json(view: View | None) -> list[Any] | None:
    return None if view is None else [view.buffer, view.offset, [list(dim) for dim in view.dims]]


def _host_from_json(parts: Any, table: Sequence[Dims]) -> HostCall:
    from opbuild.graph.node_json import node_from_json

    return HostCall(
        node=node_from_json(parts["host"]),
        inputs=tuple(None if view is None else _view(view, table) for view in parts["inputs"]),
        outputs=tuple(None if view is None else _view(view, table) for view in parts["outputs"]),
        input_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["input_types"]),
        output_types=tuple(None if type_ is None else type_from_json(type_) for type_ in parts["output_types"]),
        opset=int(parts["opset"]),
    )
