"""Rehearsal: which parts a network in parts may have, told by running it on made-up values, without computing any.

A part's results are made up from their types; only what stands at the cuts is evaluated, and loops are driven. So each
run goes from part to part as a real one does, whatever the cuts wait for. Values are all false, all true, or at random:
results of no, some and all elements are met. The branches of an If are taken in turn.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any, cast

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import ModelError, OpbuildError
from opbuild.frontend.rest import Rest
from opbuild.frontend.walk import Walked
from opbuild.graph.cut import Answer, Cut
from opbuild.graph.types import Array, Node, TensorType
from opbuild.platform.records import dataclass
from opbuild.program import Port
from opbuild.report import Clock, Report
from opbuild.runtime.blocks import Blocks
from opbuild.runtime.executor import Evaluate, Executor
from opbuild.runtime.parts import BindNext, KnownParts, Part, Parts

CHANCES = (0.0, 1.0, 0.5)
"""How likely a made-up value is true in the first runs, and in all others."""

QUIET_RUNS, MOST_RUNS = 3, 64
"""So many runs in a row that meet no new part end the rehearsal, and so many in all."""

LONG, LONGEST = 64, 4096
"""Parts run after which all made-up values are false, which ends loops, and after which a run ends."""

MOST_GUESSES, MOST_LISTED = 256, 64
"""Combinations of values that are tried where some decide shapes, and elements of a list that does."""


@dataclass(frozen=True, eq=False)
class Imagined:
    """A part that a call may have.

    Attributes:
        walked: The part.
        is_certain: Whether calls have this very part if they come here: no data decided its types.
    """

    walked: Walked
    is_certain: bool


def rehearse(
    first: Walked, go_on: Callable[[Rest], Walked], evaluate: Evaluate, inputs: Mapping[str, TensorType]
) -> list[Imagined]:
    """Return parts that a network may have, its first part first.

    Args:
        first: The first part.
        go_on: Returns the next part.
        evaluate: The host backend.
        inputs: The types of its inputs.
    """
    rehearsal = _Rehearsal(go_on, evaluate)
    part = rehearsal.part(first, is_certain=True)
    quiet = 0
    for number in range(MOST_RUNS):
        known = len(rehearsal.imagined)
        rehearsal.run(part, inputs, number)
        quiet = quiet + 1 if len(rehearsal.imagined) == known else 0
        if quiet == QUIET_RUNS and number >= len(CHANCES):
            break
    return list(rehearsal.imagined.values())


class _Enough(Exception):  # noqa: N818 - it ends a run, and is no error
    """A run met enough parts."""


class _Rehearsal:
    def __init__(self, go_on: Callable[[Rest], Walked], evaluate: Evaluate) -> None:
        self.imagined: dict[Part, Imagined] = {}
        self._go_on = go_on
        self._evaluate = evaluate
        self._parts = _Parts(self._next, self._evaluated)
        self._has_body: set[Part] = set()
        self._begin(0)

    def run(self, part: Part, inputs: Mapping[str, TensorType], number: int) -> None:
        """Run the network once, as far as made-up values lead."""
        self._begin(number)
        try:
            self._parts.run(part, {name: self.made(each) for name, each in inputs.items()})
        except (OpbuildError, _Enough):  # values that do not go together, as made-up ones may not
            return

    def _begin(self, number: int) -> None:
        self._random, self._count = np.random.default_rng(number), 0
        self._chance = CHANCES[min(number, len(CHANCES) - 1)]

    def part(self, walked: Walked, *, is_certain: bool) -> Part:
        """Return a part that makes up its results."""
        graph = walked.graph
        ports = [tuple(Port(name, graph.types[name], 0) for name in names) for names in (graph.inputs, graph.outputs)]
        cut = cast("Cut", walked.cut)
        part = Part(cast("Executor", _Stand(self, ports[0], ports[1])), cut, Report(graph.name), lambda _: walked)
        self.imagined[part] = Imagined(walked, is_certain)
        return part

    def made(self, type_: TensorType) -> Array:
        """Return a made-up value."""
        chance = self._chance if self._count < LONG else 0.0
        dtype = numpy_dtype(type_.dtype)
        if type_.dtype == "bool":
            return self._random.random(type_.shape) < chance
        if np.issubdtype(dtype, np.integer):
            most = 1 if chance in (0.0, 1.0) else 4
            return (self._random.integers(0, most, type_.shape) + (chance == 1.0)).astype(dtype)
        return (self._random.random(type_.shape) * (chance > 0)).astype(dtype)

    def passed(self) -> None:
        """Count a part that is run."""
        self._count += 1
        if self._count > LONGEST:
            raise _Enough

    def _next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        before = part.walked(Clock())
        rest = cast("Rest", before.body if body else before.rest)
        for guess in _guesses(answer):
            try:
                walked = self._go_on(rest.answered(guess, part.cut.path))
            except ModelError as error:
                problem = error.with_traceback(None)
            else:
                is_first_turn = body and part not in self._has_body
                self._has_body.update([part] if body else [])
                follows = is_first_turn or (part.cut.kind == "values" and part.cut.op_type == "If")
                return self.part(walked, is_certain=self.imagined[part].is_certain and follows)
        try:
            raise problem
        finally:
            del problem  # its traceback has this frame: a cycle

    def _evaluated(self, node: Node, inputs: Sequence[Any], opset: int) -> Sequence[Any]:
        """Evaluate a node on made-up values, or on other lists of sizes and places if it does not take those."""
        extents = [extent for value in inputs[:1] for extent in np.shape(value)]
        places = [place for place, value in enumerate(inputs) if _is_list(value)]
        problem: OpbuildError | None = None
        for lists in islice(_combined([inputs[place] for place in places], extents), MOST_GUESSES):
            tried = dict(zip(places, lists, strict=True))
            try:
                return self._evaluate(node, [tried.get(place, value) for place, value in enumerate(inputs)], opset)
            except OpbuildError as error:
                problem = problem or error.with_traceback(None)
        try:
            raise problem or _Enough
        finally:
            del problem


class _Parts(Parts):
    """Parts in which the branches of an If are taken in turn, whatever its condition is."""

    def __init__(self, bind: BindNext, evaluate: Evaluate) -> None:
        super().__init__(bind, evaluate, KnownParts())
        self._taken: Counter[str] = Counter()

    def _decided(
        self, part: Part, decided: Mapping[str, Array], symbols: tuple[int, ...], values: Mapping[str, Any]
    ) -> Part:
        if part.cut.op_type == "If":
            self._taken[part.cut.state] += 1
            is_then = self._taken[part.cut.state] % 2 == 1
            decided = {name: np.full_like(value, is_then) for name, value in decided.items()}
        return super()._decided(part, decided, symbols, values)


class _Stand:
    """Stands for what runs a part."""

    arena_size = 0

    def __init__(self, rehearsal: _Rehearsal, inputs: tuple[Port, ...], outputs: tuple[Port, ...]) -> None:
        self.inputs, self.outputs, self._rehearsal = inputs, outputs, rehearsal
        self.blocks: Blocks[Any] = Blocks()

    def run(self, inputs: Sequence[Any]) -> list[Array]:
        """Return made-up results."""
        self._rehearsal.passed()
        return [self._rehearsal.made(port.type) for port in self.outputs]


def _guesses(answer: Answer) -> Iterator[Answer]:
    """Yield an answer, and, if it is of made-up values, others that may fit the network better."""
    lists = {name: value for name, value in answer.values.items() if _is_list(value)}
    for each in islice(_combined([*lists.values()]), MOST_GUESSES):
        yield answer._replace(values={**answer.values, **dict(zip(lists, each, strict=True))})


def _combined(values: Sequence[Array], extents: Sequence[int] = ()) -> Iterator[tuple[Array, ...]]:
    """Yield lists of integers, and what may stand in their places."""
    yield tuple(values)
    if values:
        yield from product(*(_lists(value, extents) for value in values))


def _is_list(value: Any) -> bool:
    """Return whether a value may be a list of sizes, axes or places."""
    return isinstance(value, np.ndarray) and value.dtype.kind in "iu" and value.ndim <= 1 and value.size <= MOST_LISTED


def _lists(like: Array, extents: Sequence[int]) -> list[Array]:
    """Return lists of sizes, axes or places; among them are even parts of some extents."""
    count = like.size
    last = [0] * (count - 1) + [-1]
    found = [[1] * count, range(count), [0] * count, [2] * count, last, [*last[1:], 1], range(-count, 0)]
    found += [[*[extent // count] * (count - 1), extent - extent // count * (count - 1)] for extent in extents if count]
    lists = dict.fromkeys(tuple(each) for each in found if len(each) == count)
    return [np.array(each).astype(like.dtype).reshape(like.shape) for each in lists]
