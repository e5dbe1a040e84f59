"""Communication beside computation: operators of all ranks begin early, and their results are waited for late.

``AllReduce`` becomes ``AllReduceStart``, which reads the tensor and gives a ticket, and ``AllReduceWait``, which gives
the result for it; the others likewise. The wait reads the tensor too, so that its memory lives until then. The order of
the nodes is the one in which each operator, from the first to the last, begins as soon as it can, and what reads the
result of an earlier one comes before what reads that of a later one. A step of training so runs the backward pass of
the first layers while gradients of the last ones travel, and changes the last parameters while the others travel.
"""

from __future__ import annotations

from collections.abc import Iterator

from opbuild.graph.types import COLLECTIVES, START, WAIT, Graph, Node, TensorType

TICKET = TensorType("int64", ())


def overlap_collectives(graph: Graph) -> Graph:
    """Return the graph in which operators of all ranks run beside those that do not wait for them."""
    if all(node.domain != COLLECTIVES for node in graph.nodes):
        return graph
    nodes = tuple(_split_collectives(_ordered(graph)))
    tickets = {node.outputs[0]: TICKET for node in nodes if node.op_type.endswith(START) and node.domain == COLLECTIVES}
    return graph.with_(nodes=nodes, types={**graph.types, **tickets})


def _ordered(graph: Graph) -> list[Node]:
    """Return the nodes by the first operator of all ranks that needs them, then by the last one that they need.

    What no operator needs is run beside the one that its inputs were computed for, or behind all that it needs.
    """
    makers = {name: place for place, node in enumerate(graph.nodes) for name in node.outputs if name}
    read = [[makers[name] for name in node.inputs if name in makers] for node in graph.nodes]
    together = [place for place, node in enumerate(graph.nodes) if node.domain == COLLECTIVES]
    last = len(together)
    numbers = {place: number for number, place in enumerate(together)}
    needed = [numbers.get(place, last) for place in range(len(read))]
    for place in reversed(range(len(read))):
        for maker in read[place]:
            needed[maker] = min(needed[maker], needed[place])
    keys: list[tuple[int, bool, int]] = []
    for place, makers_of in enumerate(read):
        behind = max((numbers.get(maker, keys[maker][2]) for maker in makers_of), default=-1)
        is_needed, group = needed[place] < last, needed[place]
        if not is_needed and behind < 0:
            group = max((keys[maker][0] for maker in makers_of), default=0)
        keys.append((group, not is_needed, behind))
    return [graph.nodes[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]


def _split_collectives(nodes: list[Node]) -> Iterator[Node]:
    """Yield the nodes, operators of all ranks in two: the wait before the first reader.

    One behind which nothing runs before its result is read stays as it is.
    """
    waiting: dict[str, Node] = {}
    for place, node in enumerate(nodes):
        for name in node.inputs:
            if name in waiting:
                yield _wait(waiting.pop(name))
        if node.domain != COLLECTIVES:
            yield node
        elif nodes[place + 1 : place + 2] and node.outputs[0] not in nodes[place + 1].inputs:
            waiting[node.outputs[0]] = node
            yield node.with_(op_type=f"{node.op_type}{START}", outputs=(_ticket(node),))
        else:
            yield node
    yield from map(_wait, waiting.values())


def _wait(node: Node) -> Node:
    name, inputs = f"{node.name}/wait", (_ticket(node), *node.inputs)
    return node.with_(op_type=f"{node.op_type}{WAIT}", inputs=inputs, name=name)


def _ticket(node: Node) -> str:
    return f"{node.outputs[0]}/ticket"
