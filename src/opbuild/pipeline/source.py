"""Source: whatever gives graphs for the shapes of its inputs: a model, a graph, a segment, a subgraph of torch's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from opbuild.frontend.models.declaration import Declaration
    from opbuild.graph.types import Graph
    from opbuild.report import Clock
    from opbuild.runtime.binding import Shapes


class Source(Protocol):
    """See the module.

    Attributes:
        keeps: Whether what it is read from, once read, is kept for the next graph.
    """

    keeps: bool

    @property
    def declaration(self) -> Declaration:
        """The declaration of the source: its name, and its inputs; an extent of -1 may differ from call to call."""

    @property
    def digest(self) -> str | None:
        """Digest of all that decides its results; None if there is none."""

    @property
    def edited(self) -> bool:
        """Whether it may differ from the file that was read; raises ``ModelError`` if it surely does."""

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs, whose extents may be symbolic.

        Raises:
            ModelError: If it does not fit the shapes.
        """

    def forget(self) -> None:
        """Give back the memory of the bytes it was read from."""


class GraphSource:
    """A graph as a source: it is for one input signature.

    Args:
        graph: The graph.
        is_stored: Whether its network may be stored.
    """

    edited = False

    def __init__(self, graph: Graph, *, is_stored: bool = True) -> None:
        self._graph, self._is_stored, self.keeps = graph, is_stored, True

    @property
    def declaration(self) -> Declaration:
        """The graph's name, inputs and outputs."""
        from opbuild.frontend.models.declaration import Declaration, Declared

        inputs, outputs = (
            tuple(Declared(name, self._graph.types[name].dtype, self._graph.types[name].shape) for name in names)
            for names in (self._graph.inputs, self._graph.outputs)
        )
        return Declaration(self._graph.name, inputs, outputs, ())

    @property
    def digest(self) -> str | None:
        """Digest of the graph; None if it has a part without a digest, or is not to be stored."""
        from opbuild.graph.identity import graph_digest

        try:
            return graph_digest(self._graph) if self._is_stored else None
        except ValueError:
            return None

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return the graph."""
        return self._graph

    def forget(self) -> None:
        """Nothing is kept that the caller does not have."""
