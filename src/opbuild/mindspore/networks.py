"""Turns calls of cells and functions into networks: one trace and one build for each input signature.

A network prints each time it runs, with the values that it has then. While it is traced its code runs once and tensors
have no values. What it prints is kept instead: a traced tensor writes itself as a mark, ``<traced v3>``, and where a
mark is printed its tensor becomes an output of the network. After each run the lines are printed, in their order, with
values in the place of the marks.
"""

from __future__ import annotations

import builtins
import re
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any
from urllib.parse import unquote

import numpy as np

from opbuild.families.blocked import BLOCK
from opbuild.frontend.cell import Symbol
from opbuild.graph.passes.weight_layout import weights_in_blocks
from opbuild.graph.types import Graph
from opbuild.mindspore import execution
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.execution import Call, nested, new_trace, symbol_of
from opbuild.mindspore.parameter import Drawn, Parameter, States, StatesNeededError, active, in_use
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.locks import Lock, RLock
from opbuild.platform.records import dataclass

_MARK = re.compile(r"Tensor\(shape=\[[\d, ]*\], dtype=\w+, value= <traced (\w+)>\)|<traced (\w+)(?::([^<>]*))?>")
"""What ``repr``, ``str`` and, with a quoted format, ``format`` give for a traced tensor."""
_LIMIT = 64


@dataclass(frozen=True)
class Line:
    """One call of ``print``: its text, with marks, and whether it asked for the stream to be flushed."""

    text: str
    flush: bool

    def marks(self) -> list[str]:
        """Return the names of the traced tensors, in order."""
        return [found[1] or found[2] for found in _MARK.finditer(self.text)]

    def show(self, values: Mapping[str, Tensor]) -> None:
        """Print the line with values."""

        def value(found: re.Match[str]) -> str:
            name = found[1] or found[2]
            if name not in values:
                return found[0]
            return repr(values[name]) if found[1] else format(values[name], unquote(found[3] or ""))

        print(_MARK.sub(value, self.text), end="", flush=self.flush)


class _Recording(threading.local):
    """The lines that this thread keeps, while it traces."""

    lines: list[Line] | None = None


_RECORDING = _Recording()


class _Builtin:
    """Python's ``print``, replaced while any thread traces; the others still print."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._users = 0
        self._original: Callable[..., None] = builtins.print

    @contextmanager
    def replaced(self) -> Iterator[None]:
        with self._lock:
            if not self._users:
                self._original = builtins.print
                builtins.print = self._print
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    builtins.print = self._original

    def _print(self, *values: Any, sep: str | None = " ", end: str | None = "\n", file: Any = None,
               flush: bool = False) -> None:  # fmt: skip
        lines = _RECORDING.lines
        if lines is None or file not in (None, sys.stdout):
            self._original(*values, sep=sep, end=end, file=file, flush=flush)
            return
        text = (" " if sep is None else sep).join(map(str, values)) + ("\n" if end is None else end)
        lines.append(Line(text, flush))


_BUILTIN = _Builtin()


@contextmanager
def kept() -> Iterator[list[Line]]:
    """Keep this thread's output inside the block; if the block fails, print it at once to show how far it came."""
    before = _RECORDING.lines
    lines: list[Line] = []
    _RECORDING.lines = lines
    try:
        with _BUILTIN.replaced():
            yield lines
    except BaseException:
        _RECORDING.lines = before
        for line in lines:
            line.show({})
        raise
    finally:
        _RECORDING.lines = before


def marked(lines: Sequence[Line], symbols: Callable[[str], Symbol | None]) -> dict[str, Symbol]:
    """Return the symbols whose marks are printed, by name."""
    named = {name: symbols(name) for line in lines for name in line.marks()}
    return {name: symbol for name, symbol in named.items() if symbol is not None}


@dataclass(frozen=True)
class _Built:
    call: Call | None
    result: Any
    """What the function returned, with ``_Place`` where the network's outputs go."""
    lines: Sequence[Line]
    """What it printed."""
    marks: Sequence[str]
    """The marks in these lines whose values are the last outputs."""
    reads: Sequence[Parameter | Drawn] = ()
    """What else are inputs, behind the arguments: parameters, and what is drawn for each call."""
    writes: Sequence[Parameter] = ()
    """Parameters whose new elements are the first outputs."""
    changes: Sequence[Parameter] = ()
    """Those of them that it changes in place."""
    blocked: Sequence[Parameter] = ()
    """Those of these that it wants in blocks."""
    uses: Sequence[Parameter] = ()
    """Parameters that it reads and does not change in place."""
    constants: Sequence[tuple[Parameter, int]] = ()
    """Parameters that are built in, and their versions."""

    @property
    def holds(self) -> bool:
        """Whether the parameters that are built in are as they were, and others may lie in blocks still."""
        is_same = all(parameter.version == version for parameter, version in self.constants)
        return is_same and not any(parameter.stays_plain for parameter in self.blocked)


@dataclass(frozen=True)
class _Place:
    index: int


class Networks:
    """The networks of one function, by input signature and the state of its parameters.

    Args:
        has_states: Whether parameters are states from the start; else they become it when one is assigned.
    """

    def __init__(self, name: str, function: Callable[..., Any], has_states: bool = False) -> None:
        self._name = name
        self._function = function
        self._has_states = has_states
        self._built: OrderedDict[Hashable, _Built] = OrderedDict()
        self._lock = RLock()

    def call(self, args: tuple[Any, ...], kwargs: Mapping[str, Any], state: Hashable = ()) -> Any:
        """Run the network of this signature; trace and build it first if it is new, or its constants changed.

        Args:
            args: Positional arguments: tensors, nests of them, and plain values that become part of the signature.
            kwargs: Arguments by name.
            state: What else decides the network, such as training flags.
        """
        leaves: list[Tensor] = []
        nest = _split((args, dict(kwargs)), leaves)
        signature = (_signature(nest), tuple(leaf.type for leaf in leaves), state)
        with self._lock:
            built = self._built.get(signature)
            if built is None or not built.holds:
                built = self._build(nest, leaves)
                self._built[signature] = built
                if len(self._built) > _LIMIT:
                    self._built.popitem(last=False)
        given, blocked = [leaf.asnumpy() for leaf in leaves], set(map(id, built.blocked))
        # steps follow each other; what only reads runs side by side
        used = in_use(built.uses, built.changes, built.blocked)
        with self._lock if built.writes else nullcontext(), used as found:
            given += [found[id(each)] if isinstance(each, Parameter) else each.asnumpy() for each in built.reads]
            arrays = built.call(given) if built.call else ()
            for parameter, array in zip(built.writes, arrays, strict=False):
                parameter.take(array, blocked=id(parameter) in blocked)
        tensors = [Tensor.of(array) for array in arrays[len(built.writes) :]]
        printed = dict(zip(built.marks, tensors[len(tensors) - len(built.marks) :], strict=True))
        for line in built.lines:
            line.show(printed)
        return _fill(built.result, tensors)

    def _build(self, nest: Any, leaves: Sequence[Tensor]) -> _Built:
        try:
            return self._trace(nest, leaves)
        except StatesNeededError:
            self._has_states = True
            return self._trace(nest, leaves)

    def _trace(self, nest: Any, leaves: Sequence[Tensor]) -> _Built:
        trace = new_trace(self._name)
        states = States(trace, are_constant=not self._has_states)
        traced = [Tensor.of(trace.input(leaf.type)) for leaf in leaves]
        with trace.active(), active(states), kept() as lines:
            args, kwargs = _fill(nest, traced)
            returned = self._function(*args, **kwargs)
            outputs: list[Tensor] = []
            result = _split(returned, outputs)
            symbols = [symbol_of(trace, output) for output in outputs]
        printed = marked(lines, trace.symbol)
        symbols += printed.values()
        written = states.outputs
        symbols = [symbol for _, symbol in written] + symbols
        writes = [parameter for parameter, _ in written]
        graph = trace.finish(symbols)
        graph = graph.with_(updates=_updates(graph, writes, states.inputs, len(leaves)))
        graph, blocked = _in_blocks(graph, states.inputs, len(leaves))
        call = execution.build(graph) if symbols else None
        changes = [writes[output] for output, _ in graph.updates]
        constants = list((states.constants or {}).values())
        changed = set(map(id, changes))
        uses = [each for each in states.inputs if isinstance(each, Parameter) and id(each) not in changed]
        return _Built(call, result, lines, list(printed), states.inputs, writes, changes, blocked, uses, constants)


def _updates(
    graph: Graph, writes: Sequence[Parameter], inputs: Sequence[Parameter | Drawn], first: int
) -> tuple[tuple[int, int], ...]:
    """Return the outputs that replace inputs, by position; the parameters begin at the input ``first``."""
    places = {id(each): place for place, each in enumerate(inputs, first)}
    found = ((output, places[id(parameter)]) for output, parameter in enumerate(writes))
    return tuple(each for each in found if graph.types[graph.outputs[each[0]]] == graph.types[graph.inputs[each[1]]])


def _in_blocks(graph: Graph, inputs: Sequence[Parameter | Drawn], first: int) -> tuple[Graph, Sequence[Parameter]]:
    """Return a graph that takes parameters in blocks where they may lie so, and those parameters."""
    parameters = {place: each for place, each in enumerate(inputs, first) if isinstance(each, Parameter)}
    free = [given for _, given in graph.updates if not parameters[given].stays_plain]
    graph, places = weights_in_blocks(graph, BLOCK, free)
    return graph, [parameters[place] for place in places]


def _split(value: Any, leaves: list[Tensor]) -> Any:
    """Return the nest with a ``_Place`` for each tensor, which is appended to ``leaves``."""

    def place(item: Any) -> Any:
        if isinstance(item, Tensor):
            leaves.append(item)
            return _Place(len(leaves) - 1)
        if isinstance(item, np.ndarray):
            raise ArgumentTypeError("a numpy array where a network takes or gives tensors", "wrap it in Tensor()")
        return item

    return nested(value, place)


def _fill(nest: Any, tensors: Sequence[Tensor]) -> Any:
    return nested(nest, lambda item: tensors[item.index] if isinstance(item, _Place) else item)


def _signature(nest: Any) -> Hashable:
    if isinstance(nest, dict):
        return ("dict", *((key, _signature(item)) for key, item in nest.items()))
    if isinstance(nest, (tuple, list)):
        return (type(nest).__name__, *map(_signature, nest))
    try:
        hash(nest)
    except TypeError:
        raise ArgumentTypeError(
            f"an argument of type {type(nest).__name__}", "a network takes tensors and plain values"
        ) from None
    return (type(nest).__name__, nest)
