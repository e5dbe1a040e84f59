"""Recurrent layers that gradients ask for more of what they compute: one layer gives all of it."""

from __future__ import annotations

from itertools import zip_longest

from opbuild.graph.types import Graph, Node

_LAYERS = frozenset({"RNN", "GRU", "LSTM"})


def join_asked_again(graph: Graph) -> Graph:
    """Return the graph with one layer in the place of several that compute the same of the same.

    The first one gives what the others gave, too, unless that has the name of an output of the graph.
    """
    first: dict[tuple[object, ...], int] = {}
    kept, renamed = list[Node](), dict[str, str]()
    for node in graph.nodes:
        place = len(kept)
        if node.op_type in _LAYERS and not node.domain:
            place = first.setdefault((node.op_type, node.inputs, repr(sorted(node.attrs.items()))), place)
        if place == len(kept) or any(name in graph.outputs for name in node.outputs):
            kept.append(node.with_(inputs=tuple(renamed.get(name, name) for name in node.inputs)))
            continue
        own = kept[place].outputs
        kept[place] = kept[place].with_(
            outputs=tuple(one or other for one, other in zip_longest(own, node.outputs, fillvalue=""))
        )
        renamed |= {other: one for one, other in zip(own, node.outputs, strict=False) if one and other}
    if len(kept) == len(graph.nodes):
        return graph
    return graph.with_(nodes=tuple(kept), types={k: v for k, v in graph.types.items() if k not in renamed})
