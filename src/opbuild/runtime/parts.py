"""Running a network in parts: values by name, a part, what the cut behind it waits for, the next part.

Each part is a network like any other. Which one comes next depends on what the cut behind the last one waited for: some
values, or the types of what was evaluated on the host. All that were met are remembered, in bounded memory.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

from opbuild.errors import BuildError, OpbuildError, RunError, ShapeError
from opbuild.graph.cut import Answer, Cut, is_tensor, type_of_value
from opbuild.graph.types import Array, Node, TensorType
from opbuild.platform.locks import Lock
from opbuild.platform.records import dataclass, field
from opbuild.report import Clock, Report
from opbuild.runtime.endpoint import dense
from opbuild.runtime.executor import Evaluate, Executor
from opbuild.runtime.timing import TIMER

MOST_PARTS = 256
"""Parts that stay bound: of a loop whose values grow, each turn is one. They share the memory that they run in."""

MOST_VALUES = 8
"""Different values with which as constants the rest of a network is built, or is bound by numbers to the same sizes. A
node that waits for ever new ones is then evaluated on the host: what follows it depends on the types of its results
alone, of which there are fewer."""

MOST_STATES = 4096
"""Cuts whose answers are counted."""


class NoProgramError(ShapeError):
    """There is no program for what comes behind a graph break, and none can be made."""


@dataclass(eq=False)
class Part:
    """One part of a network, bound.

    Attributes:
        executor: Runs it.
        cut: What comes after it.
        report: What its build did.
        walked: Returns the same part as the front end has it, from which the next one is bound.
        by_numbers: Whether it was bound to what was lowered before.
        numbers: The numbers that it was given; see ``Answer.numbers``.
    """

    executor: Executor
    cut: Cut
    report: Report
    walked: Callable[[Clock], Any]
    by_numbers: bool = False
    numbers: tuple[int, ...] = ()
    inputs: tuple[str, ...] = field(init=False)
    outputs: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        self.inputs = tuple(port.name for port in self.executor.inputs)
        self.outputs = tuple(port.name for port in self.executor.outputs)

    @property
    def sizes(self) -> Hashable:
        """What differs between two parts that were bound by numbers for values that decide extents, not only places."""
        return tuple(port.type for port in self.executor.outputs), self.executor.arena_size

    def checked(self, known: Iterable[str]) -> Part:
        """Return this part, if all that it and the cut behind it read is there where these values are known.

        Raises:
            BuildError: If something is not: its record is damaged.
        """
        found = {*known, *self.outputs}
        problem = "" if found.issuperset(self.inputs) else f"nothing assigns {', '.join({*self.inputs} - found)}"
        problem = problem or self.cut.problem(found)
        if problem:
            raise BuildError(
                f"a part of the network {self.report.network} can not run: {problem}",
                "remove its cache folder and build it again",
            )
        return self


BindNext = Callable[[Part, Answer, Mapping[str, TensorType], bool], Part]
"""Binds the part that follows another one once it is known what the cut between them waits for, given the types of its
inputs; or, if the last argument is true, the first part of the body of the cut's loop."""


class KnownParts:
    """The parts of one network that were met in this process, for all who run them.

    It knows nothing of what binds them: that may have it.

    Attributes:
        parts: The parts by what decides them, the one that was used last at the end.
        values: How many different values decided what follows a cut.
        lock: Held while any of these are read or changed.
        binding: Held while a part is bound.
    """

    def __init__(self) -> None:
        self.parts: OrderedDict[Hashable, Part] = OrderedDict()
        self.values: Counter[Hashable] = Counter()
        self.lock = Lock()
        self.binding = Lock()


class Parts:
    """All parts of one network; any number of threads may use them.

    Args:
        bind: Binds one that is new.
        evaluate: The host backend.
        known: Those that were met.
    """

    def __init__(self, bind: BindNext, evaluate: Evaluate, known: KnownParts) -> None:
        self._bind = bind
        self._evaluate = evaluate
        self._parts, self._values = known.parts, known.values
        self._lock, self._binding = known.lock, known.binding

    @property
    def reports(self) -> list[tuple[Cut, Report]]:
        """What the build of each part did that is remembered, and the cut behind it."""
        return [(part.cut, part.report) for part in self.known]

    @property
    def known(self) -> list[Part]:
        """The parts that are remembered."""
        with self._lock:
            return list(self._parts.values())

    def run(self, part: Part, values: dict[str, Any]) -> list[Any]:
        """Run a network from its first part.

        Args:
            part: The first part.
            values: Its inputs by name, arrays dense. It is changed.

        Returns:
            The results in order; they may be inputs, or views of them.

        Raises:
            RunError: If it fails on these values.
            ModelError, BuildError: If a part can not be bound.
        """
        while True:
            if part.outputs:
                given = part.executor.run([values[name] for name in part.inputs])
                values.update(zip(part.outputs, given, strict=True))
            cut = part.cut
            symbols = cut.symbols_of(values, part.numbers)
            values.update(cut.constants)
            values.update((name, each.value(symbols)) for name, each in cut.derived.items())
            if cut.kind == "end":
                return [values[name] for name in cut.reads]
            if cut.kind == "values":
                decided = cut.deciding(values)
                values = {name: values[value] for name, value in cut.live.items()}
                part = self._decided(part, decided, symbols, values)
                continue
            if cut.kind == "data":
                self._evaluate_nodes(cut, values)
            else:
                self._repeat(part, cut.nodes[0], symbols, values)
            values = {name: values[value] for name, value in cut.live.items()}
            if cut.results:
                return [values[name] for name in cut.results]
            key = (cut.state, _signatures(cut, values), symbols)
            part = self._known(key) or self._next(part, key, partial(_types, values, cut.made, symbols), values)

    # What a cut waits for

    def _decided(
        self, part: Part, decided: Mapping[str, Array], symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> Part:
        """Return the part behind one that some values decide."""
        state = part.cut.state
        around = (state, _signatures(part.cut, values), symbols)
        shown = tuple((array.dtype.str, array.shape, array.tobytes()) for array in decided.values())
        known = self._known((*around, shown))
        if known is not None:
            return known
        if max(self._values[around], self._values[state]) >= MOST_VALUES and part.cut.can_wait:
            with suppress(NoProgramError):
                return self._on_host(part, symbols, values)
        try:
            found = self._next(part, (*around, shown), lambda: Answer(decided, symbols=symbols), values)
        except NoProgramError:
            if not part.cut.can_wait:
                raise
            return self._on_host(part, symbols, values)
        if found.by_numbers and found.cut.kind != "end":
            return found
        with self._lock:
            alike = (around, found.sizes)
            self._values[alike if found.by_numbers else state] += 1
            self._values[around] = max(self._values[around], self._values[alike])
            if len(self._values) > MOST_STATES:
                self._values.clear()
        return found

    def _on_host(self, part: Part, symbols: tuple[int, ...], values: Mapping[str, Any]) -> Part:
        """Return the part behind one whose node is evaluated on the host instead of waiting for values."""
        key = (part.cut.state, _signatures(part.cut, values), symbols, "on host")
        return self._next(part, key, lambda: Answer(on_host=True, symbols=symbols), values)

    def _evaluate_nodes(self, cut: Cut, values: dict[str, Any]) -> None:
        for node in cut.nodes:
            inputs = [values[name] if name else None for name in node.inputs]
            values.update(zip(node.outputs, evaluated(self._evaluate, node, inputs, cut.opset), strict=False))

    def _repeat(self, part: Part, node: Node, symbols: tuple[int, ...], values: dict[str, Any]) -> None:
        body = part.cut.body
        if body is None:
            raise RunError(
                f"{node.op_type} node {node.name!r} has no body", "this is an error in opbuild; please report it"
            )
        outer = {name: values[value] for name, value in body.outer.items()}
        names, state = body.inputs, body.state
        around = tuple([_signature(value) for value in outer.values()])

        def bound(inputs: Sequence[Any]) -> tuple[Part, dict[str, Any]]:
            given = {**dict(zip(names, inputs, strict=True)), **outer}
            key = (state, tuple([_signature(value) for value in inputs]), around, symbols)
            types = partial(_types, given, tuple(given), symbols)
            first = self._known(key) or self._next(part, key, types, given, body=True)
            return first, given

        def turn(inputs: Sequence[Any]) -> list[Any]:
            return self.run(*bound(inputs))

        def types(inputs: Sequence[Any]) -> list[TensorType | None]:
            first, _ = bound(inputs)
            executor, cut = first.executor, first.cut
            known = {port.name: port.type for port in (*executor.inputs, *executor.outputs)}
            known.update((name, type_of_value(value)) for name, value in cut.constants.items())
            return [known.get(name) for name in cut.reads] if cut.kind == "end" else []

        from opbuild.runtime.repeat import Turn, repeat

        results = repeat(node, [values[name] if name else None for name in node.inputs], Turn(turn, types))
        values.update((name, result) for name, result in zip(node.outputs, results, strict=True) if name)

    # Remembering

    def _next(
        self,
        part: Part,
        key: Hashable,
        answer: Callable[[], Answer],
        values: Mapping[str, Any],
        *,
        body: bool = False,
    ) -> Part:
        """Return the part of a key; if it is new, bind it behind another one, for the values that it begins with."""
        known = self._known(key)
        if known is not None:
            return known
        with self._binding:  # a part is bound once, however many threads ask for it; others go on meanwhile
            found = self._known(key)
            if found is None:
                given = answer()
                left_out = () if body else (*given.values, *part.cut.kept)
                types = {name: type_of_value(value) for name, value in sorted(values.items()) if name not in left_out}
                tensors = {name: each for name, each in types.items() if is_tensor(each)}
                found = self._bind(part, given, tensors, body).checked(values)
                self._keep(key, found)
            return found

    def _known(self, key: Hashable) -> Part | None:
        with self._lock:
            found = self._parts.get(key)
            if found is not None:
                self._parts.move_to_end(key)
            return found

    def _keep(self, key: Hashable, part: Part) -> None:
        """Remember a part, and let go of those that were used longest ago; a call keeps what it uses."""
        with self._lock:
            self._parts[key] = part
            if len(self._parts) > MOST_PARTS:
                _, gone = self._parts.popitem(last=False)
                gone.executor.blocks.shrink(max(each.executor.arena_size for each in self._parts.values()))


def _signature(value: Any) -> Hashable:
    """Return what decides the type of a value: equal ones have equal types. It is quicker than the type itself."""
    if isinstance(value, np.ndarray) and not value.dtype.hasobject:
        return value.dtype, value.shape
    return None


def _signatures(cut: Cut, values: Mapping[str, Any]) -> Hashable:
    """Return what decides the types of all values that the part behind a cut reads."""
    return tuple([_signature(values[name]) for name in cut.live if name not in cut.kept])


def _types(values: Mapping[str, Any], names: Iterable[str], symbols: tuple[int, ...]) -> Answer:
    return Answer(types={name: type_of_value(values[name]) for name in names}, symbols=symbols)


def evaluated(evaluate: Evaluate, node: Node, inputs: Sequence[Any], opset: int) -> list[Any]:
    """Return the results of a node on the host, arrays dense.

    Raises:
        RunError: If the backend fails.
    """
    timer = TIMER.get()
    try:
        if timer is not None:
            return [dense(result) for result in timer.node(node, partial(evaluate, node, inputs, opset))]
        return [dense(result) for result in evaluate(node, inputs, opset)]
    except OpbuildError:
        raise
    except Exception as error:
        where = f"node {node.name} ({node.op_type})"
        raise RunError(f"{where} failed on the host: {error!r}", "check the values that it reads") from error
