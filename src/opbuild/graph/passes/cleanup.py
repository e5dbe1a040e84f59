"""Passes that remove idle nodes: dead nodes, identities, dropout of inference, layers asked for twice."""

from __future__ import annotations

from itertools import zip_longest

from opbuild.graph.constants import ConstantValues
from opbuild.graph.types import COLLECTIVES, Graph, Node


def eliminate_dead(graph: Graph) -> Graph:
    """Drop nodes that no output needs, and constants and types that nothing names.

    What communicates stays: other ranks wait for it.
    """
    needed = set(graph.outputs)
    kept: list[Node] = []
    for node in reversed(graph.nodes):
        if needed.intersection(node.outputs) or node.domain == COLLECTIVES:
            kept.append(node)
            needed.update(node.inputs)
    needed.update(graph.inputs)
    named = needed.union(*(node.outputs for node in kept)) if kept else needed
    constants = ConstantValues(graph.constants)
    constants.keep(needed)
    types = {name: kind for name, kind in graph.types.items() if name in named}
    return graph.with_(nodes=tuple(reversed(kept)), types=types, constants=constants)


def remove_identities(graph: Graph) -> Graph:
    """Drop Identity and Dropout nodes (inference passes everything through), and casts to the type that is there.

    A node that assigns an output stays only if its input is an input, a constant, or another output; else the input's
    producer assigns the output itself.
    """
    outputs = frozenset(graph.outputs)
    fixed = {*graph.inputs, *graph.constants, *outputs}
    alias: dict[str, str] = {}
    renamed: dict[str, str] = {}
    kept: list[Node] = []
    for node in graph.nodes:
        if not _passes_through(node, graph):
            kept.append(node)
            continue
        source, output = alias.get(node.inputs[0], node.inputs[0]), node.outputs[0]
        if output not in outputs:
            alias[output] = source
        elif source in fixed or source in renamed:
            kept.append(node.with_(op_type="Identity", domain="", inputs=(source,), outputs=(output,), attrs={}))
        else:
            renamed[source] = output
    final = {name: renamed.get(alias.get(name, name), alias.get(name, name)) for name in graph.types}
    nodes = tuple(
        node.with_(
            inputs=tuple(final.get(name, name) for name in node.inputs),
            outputs=tuple(renamed.get(name, name) for name in node.outputs),
        )
        for node in kept
    )
    return eliminate_dead(graph.with_(nodes=nodes))


def _passes_through(node: Node, graph: Graph) -> bool:
    if node.domain or any(node.outputs[1:]):
        return False
    if node.op_type == "Dropout" and len(node.inputs) > 2 and node.inputs[2]:
        training = graph.constants.get(node.inputs[2])
        return training is not None and not training.any()
    if node.op_type in ("Cast", "CastLike"):
        return graph.types[node.inputs[0]].dtype == graph.types[node.outputs[0]].dtype
    return node.op_type in ("Identity", "Dropout")


_LAYERS = frozenset({"RNN", "GRU", "LSTM"})


def merge_duplicates(graph: Graph) -> Graph:
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
