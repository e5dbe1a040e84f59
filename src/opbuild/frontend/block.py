"""Untyped graphs (a network, a branch of an If, the body of a Loop), and the nodes still to be bound.

A remainder begins with a whole graph or behind a graph break. It is what the next segment is bound from, once it is
known what the break waits for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from opbuild.frontend.open_values import fixed, is_open_value
from opbuild.graph.breaks import Answer
from opbuild.graph.constants import array_digest
from opbuild.graph.expressions import DerivedValue
from opbuild.graph.types import Array, Node, TensorType
from opbuild.platform.digest import blake3_of
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass, field, replace
from opbuild.text.canonical import canonical_json


class UntypedPort(NamedTuple):
    """An input or output of a block.

    Attributes:
        name: Its name.
        dtype: Its element type, a numpy name; empty where it is not declared, or it is no tensor.
        shape: Its shape, -1 for an extent that is not declared; None for a rank that is not.
    """

    name: str
    dtype: str = ""
    shape: tuple[int, ...] | None = None


@dataclass(frozen=True, eq=False)
class UntypedGraph:
    """A graph before its types are known.

    Attributes:
        nodes: Operators in topological order, as the model has them; graphs among their attributes are blocks.
        tensors: The constants, each to be read when it is needed.
        inputs: Its inputs.
        outputs: Its outputs.
    """

    nodes: tuple[Node, ...]
    tensors: Mapping[str, Callable[[], Array]]
    inputs: tuple[UntypedPort, ...]
    outputs: tuple[UntypedPort, ...]

    @lazy_property
    def last_used(self) -> Mapping[str, int]:
        """The position of the last node that reads each value."""
        return {name: index for index, node in enumerate(self.nodes) for name in reads(node)}

    @lazy_property
    def last_read(self) -> Mapping[str, int]:
        """The position of the last node that reads each value; behind all nodes for the outputs."""
        return {**self.last_used, **{output.name: len(self.nodes) for output in self.outputs}}

    @lazy_property
    def free(self) -> tuple[str, ...]:
        """The values that it reads from outside, in order of first use."""
        own = {each.name for each in self.inputs} | {*self.tensors}
        own.update(name for node in self.nodes for name in node.outputs)
        named = [name for node in self.nodes for name in reads(node)]
        named += [output.name for output in self.outputs]
        return tuple(dict.fromkeys(name for name in named if name not in own))

    @lazy_property
    def has_loop(self) -> bool:
        """Whether a loop stands in it, however deep."""
        return any(node.op_type == "Loop" or any(block.has_loop for block in blocks(node)) for node in self.nodes)


def blocks(node: Node) -> Iterator[UntypedGraph]:
    """Yield the blocks among a node's attributes."""
    return (value for value in node.attrs.values() if isinstance(value, UntypedGraph))


def captures(node: Node) -> tuple[str, ...]:
    """Return the values that a node's blocks read from outside, in order of first use."""
    return tuple(dict.fromkeys(name for block in blocks(node) for name in block.free))


def reads(node: Node) -> Iterator[str]:
    """Yield the values that a node and its blocks read."""
    yield from (name for name in node.inputs if name)
    yield from captures(node)


Names = dict[str, str]
"""What each name of the model is called in the graph that is made."""


class KnownValue(NamedTuple):
    """A constant.

    Attributes:
        origin: Says exactly what it is: where the model has it, or a digest of what was computed.
        read: Returns it.
        dtype: If it follows from open extents, the element type that it stands for.
    """

    origin: str
    read: Callable[[], Array]
    dtype: str = ""


def decided(array: Array, dtype: str) -> KnownValue:
    """Return a constant that a break waited for; one of open extents stays open, and has no origin."""
    return KnownValue("", lambda: array, dtype) if is_open_value(array) else computed(array)


def computed(array: Array, dtype: str = "int64") -> KnownValue:
    """Return a constant that was computed; one that follows from open extents is that of the size at hand."""
    if is_open_value(array):
        array = fixed(array, dtype)
    return KnownValue(array_digest(array), lambda: array)


class Frame(NamedTuple):
    """A block of which some nodes were taken.

    Attributes:
        block: The block.
        path: Where the model has it.
        position: The next node's index.
        scope: What the values of the model that are known in it are called.
        opset: The operator set that its nodes speak.
        computes: The node whose outputs are its outputs: an If of which it is a branch, or a call of a function.
        within: What the names of its values begin with.
    """

    block: UntypedGraph
    path: str
    position: int
    scope: Names
    opset: int
    computes: Node | None = None
    within: str = ""

    @property
    def place(self) -> str:
        """The place of the next node in the model."""
        return f"{self.path}/{self.position}"

    @property
    def is_done(self) -> bool:
        """Whether all nodes were taken."""
        return self.position == len(self.block.nodes)

    def uses_later(self, name: str) -> bool:
        """Return whether the next node, or one behind it, reads a value; of a branch the outputs are read, too."""
        table = self.block.last_used if self.computes is None else self.block.last_read
        return table.get(name, -1) >= self.position

    def reads_later(self, name: str) -> bool:
        """Return whether the next node, or one behind it, reads a value."""
        return self.block.last_read.get(name, -1) >= self.position


@dataclass(frozen=True, eq=False)
class Remainder:
    """The rest of a network that is still to be bound.

    Attributes:
        frames: The blocks whose nodes are being taken, each but the first a branch or a function in the one before.
        types: The values that are given when it runs; sorted by name, but for a network's own inputs.
        known: The constants.
        on_host: Places of nodes that are evaluated on the host although values of their inputs would tell their types.
        asked: The values that a break waited for, with which it begins.
        before: What it was before that, if a further break may ask for all of them at once.
        derived: The constants that follow from symbols.
        numbers: Once they are given: the symbols, and the integers that decide, see ``Answer.numbers``.
    """

    frames: tuple[Frame, ...]
    types: Mapping[str, TensorType]
    known: Mapping[str, KnownValue]
    on_host: frozenset[str] = frozenset()
    asked: tuple[str, ...] = ()
    before: Remainder | None = None
    derived: Mapping[str, DerivedValue] = field(default_factory=dict)
    numbers: tuple[int, ...] = ()

    @property
    def constants(self) -> Mapping[str, KnownValue]:
        """All constants, for the symbols that are given."""
        found = {name: (each.dtype, each.value(self.numbers)) for name, each in self.derived.items()}
        return {**self.known, **{name: decided(value, dtype) for name, (dtype, value) in found.items()}}

    @property
    def own_inputs(self) -> tuple[str, ...]:
        """The inputs of the block that it begins with."""
        return tuple(each.name for each in self.frames[0].block.inputs)

    @property
    def digest(self) -> str:
        """Digest of all that decides how it goes on, for one model, but for the extents of its inputs."""
        parts = {
            "frames": [[frame.path, frame.position, sorted(frame.scope.items())] for frame in self.frames],
            "types": {name: [each.dtype, len(each.shape)] for name, each in self.types.items()},
            "derived": {name: list(each) for name, each in self.derived.items()},
            "known": {name: each.origin for name, each in self.known.items()},
            "on_host": sorted(self.on_host),
        }
        return blake3_of(canonical_json(parts).encode())

    def answered(self, answer: Answer, place: str) -> Remainder:
        """Return it with the values that the break at a place waited for."""
        given = replace(self, numbers=answer.numbers)
        if answer.on_host:
            return replace(given, on_host=self.on_host | {place})
        if not answer.values:
            return given.with_types(answer.types)
        before = replace(self, numbers=answer.symbols) if answer.values.keys() <= self.types.keys() else None
        return replace(given.with_values(answer.values), before=before, asked=tuple(answer.values))

    def with_values(self, values: Mapping[str, Array]) -> Remainder:
        """Return it with some values known."""
        types = {name: each for name, each in sorted(self.types.items()) if name not in values}
        found = {n: decided(array, self.types[n].dtype if n in self.types else "int64") for n, array in values.items()}
        return replace(self, types=types, known={**self.known, **found})

    def with_types(self, types: Mapping[str, TensorType]) -> Remainder:
        """Return it with the types of further values that are given when it runs."""
        return replace(self, types=dict(sorted({**self.types, **types}.items())))


def begin(block: UntypedGraph, types: Mapping[str, TensorType], opset: int) -> Remainder:
    """Return a whole network as a remainder, for the types of its inputs and the operator set that it speaks."""
    return Remainder((Frame(block, "", 0, {name: name for name in types}, opset),), types, {})
