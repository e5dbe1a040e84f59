"""Block: a graph before its types are known: a network, a branch of an If, the body of a Loop; without onnx."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from opbuild.graph.types import Array, Node
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass


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
