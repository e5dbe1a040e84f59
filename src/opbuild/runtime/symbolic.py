"""The parts of a record for several input signatures: formulas, and the facts beside them.

Its columns hold places in a list of numbers, which is worked out for a signature (``graph.formulas``) if the conditions
hold under which the record is right. What remains to be decided then is which kernel computes a call: any of those that
compute the same and whose limits (``OpDesc.problem``) the numbers keep. Calls of one descriptor on equal extents are
decided once; they are of one kind.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from opbuild.graph.formulas import Formulas
from opbuild.graph.tables import Table
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import desc_from_text
from opbuild.program import HostCall, View
from opbuild.runtime.record import CHECKS, Dims, Record
from opbuild.runtime.soundness import Soundness
from opbuild.runtime.symbols import NONE, Argument, Decided, Padding, Repetition, Symbolic, SymbolicChoice


def symbolic_of(record: Record) -> Symbolic:
    """Return the symbolic part of a record for several signatures.

    Raises:
        ValueError: If it is for one.
    """
    if record.symbolic is None:
        raise ValueError("the record is for one signature")
    return record.symbolic


def numbers_of(record: Record, shapes: Sequence[Sequence[int]]) -> Array | None:
    """Return all numbers of a record for shapes of its inputs, and other deciding values; None if it is not for them.

    Raises:
        ValueError: If the record is for one signature.
    """
    symbolic, (ranks, places) = symbolic_of(record), record.given
    if [*map(len, shapes)] != ranks:
        return None
    found = symbolic.formulas([shapes[index][axis] for index, axis in symbolic.variables])
    if found is None:
        return None
    given = np.array([*chain(*shapes)], np.int64)
    return found if np.array_equal(found[places], given) else None


def dims_of(record: Record, numbers: Array) -> list[list[Dims]]:
    """Return the extents and strides of the operands of each kind that is decided."""
    table, dims = record.steps.dims, numbers[record.steps.dims.pairs]
    rows = table.with_(pairs=dims).rows
    return [[rows[row] for row in own] for own in record.rows_of_kinds]


def run_kinds(record: Record, numbers: Array) -> set[int]:
    """Return the kinds of steps of which some are run; the others are computed otherwise for these numbers."""
    kind, run = record.steps.kind, np.ones(len(record.steps), np.bool_)
    for each in symbolic_of(record).repetitions:
        run[each.first : each.end] = numbers[each.times] > 0
    return {*kind[run].tolist()}


def argument(given: Argument, numbers: Sequence[int] | Array) -> Any:
    """Return an argument for some numbers."""
    kind, value = given
    if kind == "tuple":
        return tuple([argument(each, numbers) for each in value])
    return int(numbers[value]) if kind == "place" else value


def host_call(call: HostCall, numbers: Array) -> HostCall:
    """Return a call of the host backend with numbers in place of their places."""

    def view(each: View | None) -> View | None:
        return None if each is None else View(each.buffer, int(numbers[each.offset]), _pairs(each.dims, numbers))

    def type_(each: TensorType | None) -> TensorType | None:
        return None if each is None else TensorType(each.dtype, tuple(numbers[list(each.shape)].tolist()))

    inputs, outputs = (tuple(map(view, side)) for side in (call.inputs, call.outputs))
    taken, given = (tuple(map(type_, side)) for side in (call.input_types, call.output_types))
    return HostCall(call.node, inputs, outputs, taken, given, call.opset)


def _pairs(dims: Dims, numbers: Array) -> Dims:
    return tuple((int(numbers[extent]), int(numbers[stride])) for extent, stride in dims)


# -- JSON and back ----------------------------------------------------------------------------------------------------


def to_json(symbolic: Symbolic) -> dict[str, Any]:
    """Return it as JSON values."""
    return {
        "formulas": symbolic.formulas.to_json(),
        "variables": symbolic.variables,
        "values": symbolic.values,
        "decided": [[each.desc.canonical(), each.choice] for each in symbolic.decided],
        "questions": symbolic.choices,
        "repetitions": symbolic.repetitions,
        "more": symbolic.more.tolist(),
        "tables": symbolic.tables,
        "padding": symbolic.padding,
        "one": symbolic.one,
        "zero": symbolic.zero,
    }


def from_json(parts: Mapping[str, Any]) -> Symbolic:
    """Return the symbolic part that ``to_json`` wrote.

    Raises:
        ValueError: If it is something else; or ``LookupError``, ``TypeError``, ``AttributeError``.
    """
    return Symbolic(
        formulas=Formulas.from_json(parts["formulas"]),
        variables=tuple((int(index), int(axis)) for index, axis in parts["variables"]),
        values=tuple(map(_places, parts["values"])),
        decided=tuple(Decided(desc_from_text(desc), int(question)) for desc, question in parts["decided"]),
        choices=tuple(
            SymbolicChoice(str(family), tuple(map(_argument, arguments)), bool(answered))
            for family, arguments, answered in parts["questions"]
        ),
        repetitions=tuple(Repetition(*map(int, each)) for each in parts["repetitions"]),
        more=np.array(parts["more"], np.int64),
        tables=tuple(Table(str(name), tuple(map(_argument, arguments))) for name, arguments in parts["tables"]),
        padding=tuple(Padding(int(buffer), str(name), _places(own)) for buffer, name, own in parts["padding"]),
        one=int(parts["one"]),
        zero=int(parts["zero"]),
    )


def _places(parts: Any) -> tuple[int, ...]:
    return tuple(int(place) for place in parts)


def _argument(parts: Any) -> Argument:
    kind, value = parts
    if kind not in ("place", "value", "tuple"):
        raise ValueError(f"there is an argument of kind {kind!r}")
    return kind, tuple(map(_argument, value)) if kind == "tuple" else int(value) if kind == "place" else value


def problem(record: Record) -> str | None:
    """Return the reason that a record for several signatures can be bound to none, or None.

    Numbers are looked at for each: a place that there is not, or of another number, is found there.
    """
    symbolic, steps = symbolic_of(record), record.steps
    bounds = [0, *chain(*((each.first, each.end) for each in symbolic.repetitions)), len(steps)]
    if bounds != sorted(bounds) or any((steps.kind[each.first : each.end] < 0).any() for each in symbolic.repetitions):
        return "what is repeated are not steps next to each other"
    if len(symbolic.more) not in (0, len(steps.buffer)) or (symbolic.repetitions and not len(symbolic.more)):
        return "its arguments and what is repeated do not belong together"
    return _undecided_step(record) or Soundness(record).structure()


def _undecided_step(record: Record) -> str | None:
    """Return the kind of step that differs from its decision: calls of one kind have equal operands."""
    decided, steps = symbolic_of(record).decided, record.steps
    own = [*record.rows_of_kinds, *([NONE] * kind.arguments for kind in steps.kinds[len(decided) :])]
    if [*map(len, own)] != [kind.arguments for kind in steps.kinds]:
        return "it decides what it does not call"
    rows = steps.of_arguments(own)
    if ((rows != NONE) & (rows != steps.shape)).any():
        return "calls of one kind have other operands"
    for each, kind, operands in zip(decided, steps.kinds, own, strict=False):
        given = [len(operand.dims) for operand in each.desc.operands]
        if steps.dims.rank[operands].tolist() != given or kind.writes != len(each.desc.outputs):
            return f"{each.desc.op_type}: its operands are not those of its kernel"
    if any(kind.symbol not in CHECKS.values() for kind in steps.kinds[len(decided) :]):
        return "it calls what nobody chooses"
    return None
