"""Graph breaks: where a network goes on that cannot be bound whole, as plain data.

The shapes of a network's values may depend on what is known only when it runs. Such a network is bound in segments:
each is a graph like any other, and the break behind it says what must be known before the next one can be bound.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from opbuild.graph.types import DTYPES, MOST_ELEMENTS, Array, Node, TensorType
from opbuild.platform.digest import blake3_of
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.graph.expressions import DerivedValue

Kind = Literal["values", "data", "repeat", "end"]

Dimension = tuple[str, int]
"""A value, and one of its dimensions."""

HOST_VALUE = TensorType("object", ())
"""The type of a value that no kernel can read: a sequence, an optional value, text."""


MOST_NUMBERS = 64
"""Elements of a value whose integers may stand for extents."""


def is_tensor(type_: TensorType) -> bool:
    """Return whether kernels can read values of a type."""
    return type_.dtype in DTYPES


def type_of_value(value: Any) -> TensorType:
    """Return the type of any value that a network may hold."""
    name = _element_type(value.dtype) if isinstance(value, np.ndarray) else ""
    return TensorType(name, value.shape) if name else HOST_VALUE


@cache
def _element_type(dtype: np.dtype[Any]) -> str:
    """The name of an element type, which numpy puts together each time; empty if no kernel reads it."""
    return dtype.name if dtype.name in DTYPES else ""


class Body(NamedTuple):
    """The body of a Loop, Scan or SequenceMap, as a graph break knows it.

    Attributes:
        state: Digest of the body and of its constants; with the types of its inputs it says what is bound.
        inputs: Names of its own inputs, in order.
        outer: Values that it reads from outside: what it calls each, and what the segment before the break does.
    """

    state: str
    inputs: tuple[str, ...]
    outer: Mapping[str, str]


class Answer(NamedTuple):
    """The values and types that a graph break waited for.

    Attributes:
        values: The values that decide, as the remainder calls them.
        types: The types of what was made, or of the inputs of a body.
        on_host: Whether the node is to be evaluated on the host instead of waiting for values.
        symbols: The numbers of the break's ``symbols``.
    """

    values: Mapping[str, Array] = {}
    types: Mapping[str, TensorType] = {}
    on_host: bool = False
    symbols: tuple[int, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """The symbols, and the integers among the values that may stand for extents, in order."""
        decided = (value[_may_be_extents(value)].tolist() for value in self.values.values())
        return (*self.symbols, *chain(*decided))

    def without_numbers(self) -> Answer:
        """Return it with zeros in place of these integers, and without the types of tensors."""
        values = {n: np.where(_may_be_extents(v), 0, v).astype(v.dtype) for n, v in self.values.items()}
        types = {name: each for name, each in self.types.items() if not is_tensor(each)}
        return Answer(values, types, self.on_host, (0,) * len(self.symbols))

    def with_numbers(self, numbers: Sequence[int]) -> Answer:
        """Return it with others in place of these integers; open extents make arrays of objects."""
        from opbuild.graph.extents import is_open

        given = iter(numbers[len(self.symbols) :])
        values = {}
        for name, value in self.values.items():
            places = zip(value.reshape(-1).tolist(), _may_be_extents(value).reshape(-1).tolist(), strict=True)
            found = [next(given) if is_extent else number for number, is_extent in places]
            values[name] = np.array(found, object if is_open(found) else value.dtype).reshape(value.shape)
        return self._replace(values=values, symbols=tuple(numbers[: len(self.symbols)]))

    @property
    def key(self) -> Hashable:
        """The identity of this answer in one process: equal ones have equal digests."""
        values = tuple([(name, each.dtype, each.shape, each.tobytes()) for name, each in self.values.items()])
        return values, tuple(self.types.items()), self.on_host, self.symbols

    def digest(self, state: str) -> str:
        """Return a digest of this answer to a state."""
        from opbuild.graph.constants import array_digest

        parts = {
            "state": state,
            "values": {name: array_digest(value) for name, value in self.values.items()},
            "types": {name: [each.dtype, list(each.shape)] for name, each in self.types.items()},
            "on_host": self.on_host,
            "symbols": list(self.symbols),
        }
        return blake3_of(canonical_json(parts).encode())


@dataclass(frozen=True, eq=False)
class GraphBreak:
    """The break behind a segment of a network, and the values that the remainder reads.

    Attributes:
        kind: ``values``: the values ``reads`` decide, and are constants of the remainder. ``data``: ``nodes`` are
            evaluated, and the types of their results decide. ``repeat``: as ``data``, of a Loop or Scan, whose body is
            a network in segments. ``end``: nothing comes after it; ``reads`` are the network's results.
        reads: Values; for ``values`` as the remainder calls them, otherwise as the segment does.
        live: The values that the remainder reads: what it calls each, and what the segment, or a node of ``nodes``,
            does.
        kept: Those among them that are only results of the network, so that their types decide nothing.
        made: Those among them that ``nodes`` assign, as the remainder calls them.
        results: The network's results, as the remainder calls them, if nothing is left to compute behind ``nodes``.
        nodes: What is evaluated, all of ``opset``: one node, but for some of older operator sets.
        constants: Constants that ``nodes`` read, by name.
        body: Of a Loop or Scan.
        state: Digest of the remainder and of what is known of it; with what is decided and the types of the values
            that it reads it says what is bound next.
        path: Where in the model the node stands that could not be typed.
        node: Its name.
        op_type: Its type.
        why: Why it could not be typed.
        opset: The operator set that ``nodes`` speak.
        least: Of the only one of ``reads`` all values count as one that are smaller than an extent of a live value:
            what the remainder calls that value, and the dimension; empty: smaller than 0. The remainder goes on reading
            the value, and knows the greater of both as a constant of another name (``bounded``).
        symbols: The numbers from which constants of the remainder follow: extents of values with which the segment
            begins, or, of no value, numbers that it was given itself, by index.
        derived: Of what ``nodes`` or callers read, what follows from ``symbols``, by name, as the segment calls it.
        shapes: Of those among ``live`` that are not made: their shapes, -1 where an extent follows from the inputs'.
    """

    kind: Kind
    reads: tuple[str, ...] = ()
    live: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    made: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    nodes: tuple[Node, ...] = ()
    constants: Mapping[str, Array] = field(default_factory=dict)
    body: Body | None = None
    state: str = ""
    path: str = ""
    node: str = ""
    op_type: str = ""
    why: str = ""
    opset: int = 0
    least: Dimension | None = None
    symbols: tuple[Dimension, ...] = ()
    derived: Mapping[str, DerivedValue] = field(default_factory=dict)
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    @property
    def can_wait(self) -> bool:
        """Whether its node may be evaluated on the host instead of waiting for the values that decide."""
        return self.op_type != "If" and self.least is None

    def deciding(self, values: Mapping[str, Any]) -> dict[str, Array]:
        """Return the deciding values by their names in the remainder, given all values by those in the segment."""
        found = {name: values[self.live[name]] for name in self.reads}
        if self.least is None:
            return found
        value, axis = self.least
        least = values[self.live[value]].shape[axis] if value else 0
        return {bounded(name, self.least): np.maximum(each, least, dtype=np.int64) for name, each in found.items()}

    def symbols_of(self, values: Mapping[str, Any], numbers: Sequence[int]) -> tuple[int, ...]:
        """Return the numbers of ``symbols``, given the values with which the segment begins and its own numbers."""
        return tuple(values[name].shape[place] if name else numbers[place] for name, place in self.symbols)

    def problem(self, known: Iterable[str]) -> str:
        """Return the reason that this cannot come where these values are known; empty if it can."""
        found = {*known, *self.constants, *self.derived}
        if not found.issuperset(name for name, _ in self.symbols if name):
            return "its symbols are extents of what is not there"
        if self.kind == "values":
            named, decided = {*self.live.values()}, (*self.reads, *filter(None, (self.least or ("", 0))[:1]))
        else:
            decided = ()
            outer = self.body.outer.values() if self.body else ()
            for node in self.nodes:
                if not found.issuperset(name for name in node.inputs if name):
                    return f"node {node.name!r} reads what nothing assigns"
                found.update(node.outputs)
            named = {*self.live.values(), *self.reads, *outer}
        if not found.issuperset(named):
            return f"nothing assigns {', '.join(sorted(named - found))}"
        return "" if self.live.keys() >= {*self.made, *self.results, *decided} else "what is made or read is not live"


def bounded(name: str, least: Dimension) -> str:
    """Return the name of the greater of a value and an extent."""
    return f"{name}>={least[1]}.{least[0]}"


def bound_of(known: str, name: str) -> Dimension | None:
    """Return the extent of which a constant is the greater one, or a value is; None if it is not named so."""
    axis, _, other = known[len(name) + 2 :].partition(".") if known.startswith(f"{name}>=") else ("", "", "")
    return (other, int(axis)) if axis.isdecimal() else None


def break_to_json(follows: GraphBreak) -> dict[str, Any]:
    """Return a graph break as JSON values.

    Raises:
        ValueError: If a node has an attribute that JSON cannot hold.
    """
    from opbuild.graph.node_json import array_to_json, node_to_json

    def plain(value: Any) -> Any:
        if isinstance(value, Node):
            return node_to_json(value)
        if isinstance(value, np.ndarray):
            return array_to_json(value)
        if isinstance(value, Mapping):
            return {name: plain(each) for name, each in value.items()}
        return [plain(each) for each in value] if isinstance(value, tuple) else value

    return {name: plain(value) for name, value in vars(follows).items()}


def break_from_json(parts: Any) -> GraphBreak:
    """Return the graph break that ``break_to_json`` wrote.

    Raises:
        KeyError, TypeError, AttributeError, ValueError: If it is none.
    """
    from opbuild.graph.expressions import DerivedValue  # most networks have no break
    from opbuild.graph.node_json import node_from_json

    if parts["kind"] not in get_args(Kind):
        raise ValueError(f"a graph break is of kind {parts['kind']!r}")
    readers: dict[str, Callable[[Any], Any]] = {
        **dict.fromkeys(("kind", "state", "path", "node", "op_type", "why"), str),
        **dict.fromkeys(("reads", "kept", "made", "results"), _texts),
        "live": _names,
        "nodes": lambda nodes: tuple(map(node_from_json, nodes)),
        "constants": lambda constants: {str(name): _constant(array) for name, array in constants.items()},
        "body": lambda body: None if body is None else Body(str(body[0]), _texts(body[1]), _names(body[2])),
        "opset": int,
        "least": lambda least: None if least is None else (str(least[0]), int(least[1])),
        "symbols": lambda symbols: tuple((str(name), int(place)) for name, place in symbols),
        "derived": lambda derived: {
            str(name): DerivedValue(str(dtype), tuple(map(int, shape)), tuple(elements))
            for name, (dtype, shape, elements) in derived.items()
        },
        "shapes": lambda shapes: {str(name): tuple(map(int, shape)) for name, shape in shapes.items()},
    }
    return GraphBreak(**{name: read(parts[name]) for name, read in readers.items()})


def _may_be_extents(value: Array) -> Array:
    """Return which elements of a value that decides may stand for extents; of an open one those that are."""
    if value.dtype == object:
        from opbuild.graph.extents import SymbolicExtent

        return np.array([isinstance(each, SymbolicExtent) for each in value.reshape(-1)], np.bool_).reshape(value.shape)
    if value.dtype not in (np.int32, np.int64) or value.size > MOST_NUMBERS:
        return np.zeros(value.shape, np.bool_)
    return np.asarray((value >= 0) & (value <= MOST_ELEMENTS))


def _texts(parts: Any) -> tuple[str, ...]:
    return tuple(map(str, parts))


def _names(parts: Any) -> dict[str, str]:
    return {str(name): str(other) for name, other in parts.items()}


def _constant(parts: Any) -> Array:
    from opbuild.graph.node_json import array_from_json

    array = array_from_json(parts)
    array.flags.writeable = False
    return array
