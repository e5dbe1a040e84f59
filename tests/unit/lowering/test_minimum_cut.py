"""Minimum cuts, against all cuts of small random networks."""

from __future__ import annotations

import random
from itertools import chain, combinations

import pytest

from opbuild.lowering.minimum_cut import SINK, SOURCE, FlowNetwork
from support.fuzzing import check_seeds
from support.tiers import spans

Edge = tuple[int, int, int]


def capacity(edges: list[Edge], side: set[int]) -> int:
    """Return the capacity of a cut, whose source's side is given."""
    return sum(size for tail, head, size in edges if tail in side and head not in side)


def try_one(seed: int) -> None:
    """Compare the cut of a seed's network with all that there are."""
    draw, network = random.Random(seed), FlowNetwork()
    nodes = [SOURCE, SINK, *(network.node() for _ in range(draw.randint(0, 6)))]
    edges: list[Edge] = [
        (*draw.sample(nodes, 2), draw.randint(0, 9))  # type: ignore[misc]
        for _ in range(draw.randint(0, 3 * len(nodes)))
    ]
    for edge in edges:
        network.edge(*edge)
    inner = nodes[2:]
    sides = [{SOURCE, *own} for own in chain(*(combinations(inner, count) for count in range(len(inner) + 1)))]
    least = min(capacity(edges, side) for side in sides)
    fewest = set.intersection(*(side for side in sides if capacity(edges, side) == least))
    assert network.cut() == fewest


@pytest.mark.parametrize("seeds", spans(300, 100))
def test_a_cut_is_the_least_with_the_fewest_nodes_beside_the_source(seeds: range) -> None:
    """Minimum cuts are closed under intersection, so the smallest is the intersection of all."""
    check_seeds("cuts", try_one, seeds)


def test_a_long_chain_is_cut_where_it_is_thinnest() -> None:
    """It is far longer than Python lets functions call themselves."""
    network = FlowNetwork()
    nodes = [SOURCE, *(network.node() for _ in range(5000))]
    for number, (tail, head) in enumerate(zip(nodes, [*nodes[1:], SINK], strict=True)):
        network.edge(tail, head, 7 if number == 3210 else 8)
    assert network.cut() == {*nodes[:3211]}
