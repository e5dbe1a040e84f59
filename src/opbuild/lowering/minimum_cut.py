"""Minimum cuts of networks of capacities, found by maximum flows.

Two-processor assignment is one (Stone, Multiprocessor Scheduling with the Aid of Network Flow Algorithms, 1977); the
flow is Dinic's (Algorithm for Solution of a Problem of Maximum Flow in Networks with Power Estimation, 1970).
"""

from __future__ import annotations

SOURCE, SINK = 0, 1
"""The nodes that a cut separates."""


class FlowNetwork:
    """A directed graph whose edges have capacities; it has a source and a sink from the beginning."""

    def __init__(self) -> None:
        self._edges: list[list[int]] = [[], []]  # by node; the reverse of an edge differs from it in the last bit
        self._heads: list[int] = []
        self._left: list[float] = []

    def node(self) -> int:
        """Return a new node."""
        self._edges.append([])
        return len(self._edges) - 1

    def edge(self, tail: int, head: int, capacity: float) -> None:
        """Add an edge; its capacity is an integer, or infinite."""
        for start, end, left in ((tail, head, capacity), (head, tail, 0)):
            self._edges[start].append(len(self._heads))
            self._heads.append(end)
            self._left.append(left)

    def cut(self) -> set[int]:
        """Return the nodes on the source's side of the minimum cut where these are the fewest; uses capacities up."""
        while SINK in (levels := self._levels()):
            edges = [[*own] for own in self._edges]
            while path := self._path(levels, edges):
                least = min(self._left[edge] for edge in path)
                for edge in path:
                    self._left[edge] -= least
                    self._left[edge ^ 1] += least
        return {*levels}

    def _path(self, levels: dict[int, int], edges: list[list[int]]) -> list[int]:
        """Return the edges of a path from level to level, none if there is none; drops edges that lead nowhere."""
        path, node = list[int](), SOURCE
        while node != SINK:
            own = edges[node]
            while own and not (self._left[own[-1]] and levels.get(self._heads[own[-1]]) == levels[node] + 1):
                own.pop()
            if own:
                path.append(own[-1])
                node = self._heads[own[-1]]
            elif path:
                node = self._heads[path.pop() ^ 1]
                edges[node].pop()
            else:
                break
        return path

    def _levels(self) -> dict[int, int]:
        """Return the distances from the source of all nodes that it reaches by edges with capacity left."""
        levels = {SOURCE: 0}
        for node in (waiting := [SOURCE]):
            for edge in self._edges[node]:
                head = self._heads[edge]
                if self._left[edge] and head not in levels:
                    levels[head] = levels[node] + 1
                    waiting.append(head)
        return levels
