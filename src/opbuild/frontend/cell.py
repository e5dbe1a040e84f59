"""Tracing: records the operators that Python code applies to symbolic values, as one ``Graph``.

A ``Trace`` is a stack-like context of one thread. While it is active every operator that the code applies is appended
to it instead of being run; the values that code sees are ``Symbol``: a name and a type, never data. Python's own
control flow runs as written, so loops are unrolled and only the branch taken is recorded.

The machinery knows no user interface: ``opbuild.mindspore`` wraps symbols in its ``Tensor``.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain, count, groupby
from types import FrameType

from opbuild.dtypes import is_float
from opbuild.errors import InvalidModelError
from opbuild.graph.gradients.reverse import WHOLE, gradients
from opbuild.graph.graph_builder import GraphBuilder, Value
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.composite import decompose
from opbuild.graph.types import Array, Attribute, Graph, Node, TensorType
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass, field

Infer = Callable[[Node, Sequence["TensorType | None"], Sequence["Array | None"]], tuple[TensorType, ...]]
"""Returns the types of a node's outputs, from the type of each input and its value where that is known."""

_PACKAGE = str(Path(__file__).resolve().parents[1])
_OPSET = 21


@dataclass(frozen=True, eq=False)
class Symbol:
    """A value that exists only while its trace is recorded."""

    name: str
    type: TensorType
    trace: Trace


@dataclass(eq=False)
class Trace:
    """The operators recorded so far for one input signature.

    Attributes:
        name: The network's name.
        infer: Gives the types of a node's outputs.
        own_gradients: For values whose maker has a gradient of its own, what gives those of its inputs.
        nodes: The operators recorded so far.
        regions: The number of the region that assigned a value, by the value's name.
    """

    name: str
    infer: Infer
    own_gradients: dict[str, Callable[[Symbol], Sequence[Symbol | None]]] = field(default_factory=dict)
    nodes: list[Node] = field(default_factory=list)
    regions: dict[str, int] = field(default_factory=dict)
    _inputs: list[str] = field(default_factory=list)
    _types: dict[str, TensorType] = field(default_factory=dict)
    _constants: dict[str, Array] = field(default_factory=dict)
    _known: dict[object, str] = field(default_factory=dict)
    _scopes: list[str] = field(default_factory=list)
    _is_in_region: bool = False

    def input(self, type_: TensorType) -> Symbol:
        """Add an input of the network; inputs are named ``x0``, ``x1``, ... in order."""
        name = f"x{len(self._inputs)}"
        self._inputs.append(name)
        return self._value(name, type_)

    def constant(self, array: Array, name: str = "") -> Symbol:
        """Add a value known now; the same array twice is one constant, and so are equal scalars and small vectors."""
        small = array.nbytes <= 256 and not name
        key: object = (array.dtype.name, array.shape, array.tobytes()) if small else id(array)
        known = self._known.get(key)
        if known is not None:
            return Symbol(known, self._types[known], self)
        name = self._known[key] = self.unique(name or f"constant_{len(self._constants)}")
        self._constants[name] = array
        return self._value(name, TensorType(array.dtype.name, array.shape))

    def apply(
        self,
        op_type: str,
        operands: Sequence[Symbol | None],
        attrs: Mapping[str, Attribute],
        domain: str = "",
        outputs: int = 1,
    ) -> tuple[Symbol, ...]:
        """Append one operator and return its outputs.

        Raises:
            InvalidModelError: If an operand belongs to another trace.
            ShapeError, DTypeError, UnsupportedOperatorError: If ``infer`` finds that the operands do not fit.
        """
        for operand in operands:
            if operand is not None and operand.trace is not self:
                raise InvalidModelError(
                    f"{op_type}{location()} uses a tensor that was computed in another call",
                    "return it from construct and pass it in as an argument; attributes cannot keep traced tensors",
                )
        number = len(self.nodes)
        label = "/".join((*self._scopes, f"{op_type}-{number}"))
        names = tuple(f"v{number}" if index == 0 else f"v{number}_{index}" for index in range(outputs))
        node = Node(op_type, tuple(s.name if s else "" for s in operands), names, dict(attrs), label, domain)
        types = self.infer(
            node,
            [symbol.type if symbol else None for symbol in operands],
            [self._constants.get(name) for name in node.inputs],
        )
        self.nodes.append(node)
        return tuple(self._value(name, type_) for name, type_ in zip(names, types, strict=True))

    def append(self, node: Node) -> None:
        """Append a node that has its names; its outputs get their types."""
        types = [self._types[name] if name else None for name in node.inputs]
        found = self.infer(node, types, [self._constants.get(name) for name in node.inputs])
        self._types.update(zip(node.outputs, found, strict=True))
        self.nodes.append(node)

    def unique(self, name: str) -> str:
        """Return an unused name that begins with ``name``."""
        names = chain((name,), (f"{name}_{number}" for number in count(1)))
        return next(each for each in names if each not in self._types)

    def type_of(self, name: str) -> TensorType:
        """Return the type of a value."""
        return self._types[name]

    def value_of(self, name: str) -> Array | None:
        """Return a value that is known now."""
        return self._constants.get(name)

    def rewrite(self, start: int, change: Callable[[Graph], Graph]) -> None:
        """Replace the operators from ``start`` on by those that a pass makes of them; their results keep their names.

        What is made of the operators of a region belongs to it.
        """
        before = self.nodes[start:]
        del self.nodes[start:]
        for region, nodes in groupby(before, lambda node: self.regions.get(node.outputs[0], 0)):
            own = tuple(nodes)
            names = tuple(name for node in own for name in node.outputs)
            graph = change(Graph(self.name, own, (), names, self._types, self._constants, _OPSET))
            self.nodes.extend(graph.nodes)
            self._types.update(graph.types)
            self._constants.update(graph.constants)
            if region:
                self._mark(graph.nodes, region)

    def symbol(self, name: str) -> Symbol | None:
        """Return the value of a name that this trace gave; None if it gave none."""
        type_ = self._types.get(name)
        return None if type_ is None else Symbol(name, type_, self)

    def finish(self, outputs: Sequence[Symbol]) -> Graph:
        """Return the graph that computes ``outputs``.

        An output that is an input, a constant or named twice is copied.
        """
        names: list[str] = []
        produced = {name for node in self.nodes for name in node.outputs}
        for symbol in outputs:
            copied = symbol.name in names or symbol.name not in produced
            names.append(self.apply("Identity", (symbol,), {})[0].name if copied else symbol.name)
        types, constants = self._types, self._constants
        graph = Graph(self.name, tuple(self.nodes), tuple(self._inputs), tuple(names), types, constants, _OPSET)
        return eliminate_dead(graph)

    @contextmanager
    def scope(self, name: str) -> Iterator[None]:
        """Prefix the names of the operators recorded inside with ``name``."""
        self._scopes.append(name)
        try:
            yield
        finally:
            self._scopes.pop()

    @contextmanager
    def region(self) -> Iterator[None]:
        """Let backward passes compute again the operators recorded inside; a region in a region is a part of it."""
        if self._is_in_region:
            yield
            return
        start, self._is_in_region = len(self.nodes), True
        try:
            yield
        finally:
            self._is_in_region = False
            self._mark(self.nodes[start:], max(self.regions.values(), default=0) + 1)

    def _mark(self, nodes: Sequence[Node], region: int) -> None:
        self.regions.update((name, region) for node in nodes for name in node.outputs)

    @contextmanager
    def active(self) -> Iterator[Trace]:
        """Make this the trace that ``current`` returns in this thread."""
        before = current()
        _LOCAL.trace = self
        try:
            yield self
        finally:
            _LOCAL.trace = before

    def _value(self, name: str, type_: TensorType) -> Symbol:
        self._types[name] = type_
        return Symbol(name, type_, self)


class _Local(threading.local):
    trace: Trace | None = None


_LOCAL = _Local()


def current() -> Trace | None:
    """Return the trace that this thread records, or None."""
    return _LOCAL.trace


def location() -> str:
    """Return `` (file.py:12, in construct)`` for the innermost line that is not opbuild's own, or an empty text."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    if frame is None:
        return ""
    return f" ({Path(frame.f_code.co_filename).name}:{frame.f_lineno}, in {frame.f_code.co_name})"


def record_gradients(trace: Trace, start: int, outputs: Sequence[Symbol], wanted: Sequence[Symbol]) -> list[Symbol]:
    """Record the gradients of the sum of all elements of some values, of which those of integers count for nothing.

    What is differentiated was recorded from ``start`` on; where nothing flows back, gradients are zeros.

    Raises:
        UnsupportedOperatorError: If an operator on the way has no gradient; the message names it and its node.
    """
    trace.rewrite(start, partial(decompose, kept=WHOLE))
    nodes = tuple(trace.nodes[start:])
    scope = _Scope(trace, nodes)
    of = GraphBuilder("gradient", scope)
    counts = Counter(each.name for each in outputs)
    types = {each.name: each.type for each in outputs if is_float(each.type.dtype)}
    seeds = {name: of.filled(float(counts[name]), kind.dtype, kind.shape) for name, kind in types.items()}
    own = {name: partial(_cell_gradients, trace, flow) for name, flow in trace.own_gradients.items()}
    found = gradients(nodes, scope, seeds, [each.name for each in wanted], trace.regions, own)
    return [Symbol(each.name, each.type, trace) for each in found]


def _cell_gradients(
    trace: Trace, flow: Callable[[Symbol], Sequence[Symbol | None]], gradient: Value
) -> Sequence[Value | None]:
    found = flow(Symbol(gradient.name, gradient.type, trace))
    return [None if each is None else Value(each.name, each.type) for each in found]


class _Scope:
    """A trace as functions that write operators see it."""

    def __init__(self, trace: Trace, nodes: Sequence[Node]) -> None:
        self._trace = trace
        self.type_of, self.value_of, self.fresh = trace.type_of, trace.value_of, trace.unique
        self._producers = {name: node for node in nodes for name in node.outputs}

    def constant(self, value: Array) -> str:
        return self._trace.constant(value).name

    def append(self, node: Node) -> None:
        self._trace.append(node)
        self._producers.update(dict.fromkeys(node.outputs, node))

    def producer(self, name: str) -> Node | None:
        return self._producers.get(name)
