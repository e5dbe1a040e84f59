"""A network in parts as its callers see it: like one that is whole."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.errors import BuildError
from opbuild.graph.cut import HOST_VALUE, Cut, type_of_value
from opbuild.graph.types import Array, TensorType
from opbuild.platform.records import replace
from opbuild.program import Port
from opbuild.report import Report
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Arena, Executor
from opbuild.runtime.parts import Part, Parts
from opbuild.runtime.reused import owns_memory


class InParts:
    """A network in parts for one input signature; it is what ``Binding`` and ``Executor`` are for a whole one.

    Args:
        first: Its first part.
        parts: The others.
        types: The types of its inputs, in order.
        results: The names of its outputs.
    """

    better = None

    def __init__(self, first: Part, parts: Parts, types: Mapping[str, TensorType], results: Sequence[str]) -> None:
        self._first = first.checked(types)
        self._parts = parts
        self._inputs = types
        self._results = tuple(results)
        self._latest: list[tuple[Any, tuple[int, ...]] | None] = []

    @property
    def executor(self) -> InParts:
        """Runs it."""
        return self

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs in order."""
        return tuple(Port(name, each, 0) for name, each in self._inputs.items())

    @property
    def outputs(self) -> tuple[Port, ...]:
        """The outputs in order, as they were in the last call."""
        types = [
            HOST_VALUE if each is None else type_of_value(np.broadcast_to(np.empty((), each[0]), each[1]))
            for each in self._latest
        ]
        return tuple(Port(name, each, 0) for name, each in zip(self._results, types, strict=False))

    @property
    def arena_size(self) -> int:
        """Bytes of the memory for the temporaries of its largest part."""
        return max(report.arena for _, report in self._reports())

    @property
    def blocks(self) -> Blocks[Arena]:
        """The memory in which all parts run."""
        return self._first.executor.blocks

    @property
    def runners(self) -> tuple[Executor, ...]:
        """What runs the parts that were met."""
        return (self._first.executor, *[part.executor for part in self._parts.known])

    @property
    def report(self) -> Report:
        """What the builds of all parts did that were met."""
        return merged(self._reports())

    def _reports(self) -> list[tuple[Cut, Report]]:
        return [(self._first.cut, self._first.report), *self._parts.reports]

    def run(self, inputs: Sequence[Any]) -> list[Any]:
        """Run the network; see ``Executor.run``.

        Raises:
            RunError: If it fails on these values.
            ModelError, BuildError: If a part that is new can not be bound.
        """
        values = dict(zip(self._inputs, inputs, strict=True))
        taken = {id(each) for value in inputs for each in _arrays(value)}
        results = [_fresh(value, taken) for value in self._parts.run(self._first, values)]
        if len(results) != len(self._results):
            raise BuildError(f"a part of the network ends with {len(results)} results, not {len(self._results)}",
                             "remove its cache folder and build it again")  # fmt: skip
        self._latest = [(each.dtype, each.shape) if isinstance(each, np.ndarray) else None for each in results]
        return results


def _fresh(value: Any, taken: set[int]) -> Any:
    """Return a result, copied if it may be memory of the caller's or of another result; ``taken`` grows by it."""
    if isinstance(value, list):
        return list(value) if value and isinstance(value[0], dict) else [_fresh(each, taken) for each in value]
    if isinstance(value, np.ndarray):
        own = owns_memory(value) and value.flags.writeable and id(value) not in taken
        value = value if own else value.copy()
        taken.add(id(value))
    return value


def _arrays(value: Any) -> Iterator[Array]:
    """Yield an array, or those of a sequence."""
    if isinstance(value, list):
        for each in value:
            yield from _arrays(each)
    elif isinstance(value, np.ndarray):
        yield value


def merged(parts: Sequence[tuple[Cut, Report]]) -> Report:
    """Return what the builds of several parts did, each with the cut behind it, as one report."""
    reports = [report for _, report in parts]
    operators = {operator.name: operator for report in reversed(reports) for operator in report.operators}
    cuts = {cut.path: cut.nodes for cut, _ in parts if cut.kind == "data"}  # one place may be cut in many parts
    host = Counter(node.op_type for nodes in cuts.values() for node in nodes)
    steps = Counter[str]()
    for report in reports:
        host.update(report.host)
        steps.update(report.steps)
    first = reports[0]
    reasons = [report.image_reason for report in reports if not report.image]
    return replace(
        first,
        operators=tuple(operators.values()),
        host=dict(host),
        steps=dict(steps),
        cuts=tuple({cut.path: f"{cut.op_type} {cut.node}" for cut, _ in parts if cut.kind != "end"}.values()),
        image=not reasons,
        image_reason=reasons[0] if reasons else "",
        notes={name: note for report in reports for name, note in report.notes.items()},
        tuned={name: said for report in reports for name, said in report.tuned.items()},
        arena=max(report.arena for report in reports),
        constants=sum(report.constants for report in reports),
    )
