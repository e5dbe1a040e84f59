"""Reports of networks: a record's notes on its build, and the report now and of a later process."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import repeat
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from opbuild.report import Clock, OperatorReport, Report
from opbuild.runtime.record import CHECKED_ORDER, CHOICES, KERNELS, Record

if TYPE_CHECKING:
    from opbuild.kernel.networks import Answers
    from opbuild.kernel.opdesc import OpDesc


def record_notes(
    operators: Sequence[OperatorReport],
    lowering: Mapping[str, Any],
    checked: Sequence[str] = (),
    symbols: Mapping[OpDesc, str] = MappingProxyType({}),
    tuned: Mapping[str, str] = MappingProxyType({}),
    answers: Answers = (),
    stayed: Mapping[str, int] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the notes of a build that a record keeps: for later reports, and for who chooses kernels for a size."""
    choices = [[each.family, each.arguments, each.choice] for each in answers if each.choice != each.default]
    return ({CHECKED_ORDER: list(checked)} if checked else {}) | {
        "operators": [[operator.name, list(operator.nodes), operator.milliseconds] for operator in operators],
        "symbols": [operator.symbol for operator in operators],
        KERNELS: {symbol: [desc.family, dict(desc.variant)] for desc, symbol in symbols.items()},
        "lowering": {str(node): str(note) for node, note in lowering.items()},
        **({"tuned": dict(tuned)} if tuned else {}),
        **({"stayed": dict(stayed)} if stayed else {}),
        **({CHOICES: choices} if choices else {}),
    }


def stored_report(record: Record, clock: Clock, level: str) -> Report:
    """Return the report of a network that was built before, for a level."""
    return make_report(record, stored_operators(record), clock, level)


def stored_operators(record: Record) -> tuple[OperatorReport, ...]:
    """Return the operators of a network that was built before."""
    symbols = repeat("") if "symbols" not in record.notes else map(str, record.notes["symbols"])
    return tuple(
        OperatorReport(str(name), "reused", "in the stored network", tuple(map(str, nodes)), float(time), symbol)
        for (name, nodes, time), symbol in zip(record.notes["operators"], symbols, strict=False)
    )


def make_report(
    record: Record, operators: Sequence[OperatorReport], clock: Clock, level: str, not_stored: str | None = None
) -> Report:
    """Return a report.

    Args:
        record: The network.
        operators: What became of its operators.
        clock: How long each step took.
        level: The level of its code, as readers are told.
        not_stored: Why the network did not start from its image; None: it did.
    """
    return Report(
        network=record.name,
        operators=tuple(operators),
        host=dict(Counter(call.node.op_type for call in record.steps.hosts if call.computes)),
        steps=clock.steps,
        image=not_stored is None,
        image_reason=not_stored or "",
        notes=record.notes["lowering"],
        tuned=record.notes.get("tuned", {}),
        stayed=record.notes.get("stayed", {}),
        arena=record.arena_size,
        level=level,
        constants=int(record.constants.nbytes.sum()),
    )
