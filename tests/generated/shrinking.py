"""Making a model that shows a fault smaller: fewer outputs, values given instead of computed, fewer nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy.typing as npt
import onnx
from onnx import helper

Array = npt.NDArray[Any]
Feeds = Mapping[str, Array]
Fails = Callable[[onnx.ModelProto, Feeds], bool]

MOST_TRIES = 60


def shrink(model: onnx.ModelProto, feeds: Feeds, values: Feeds, fails: Fails) -> tuple[onnx.ModelProto, Feeds]:
    """Return a smaller model that still fails.

    Args:
        model: The model.
        feeds: Its inputs.
        values: What the values inside are, by name, as far as they are known.
        fails: Whether a model fails.
    """
    tries = 0
    progress = True
    while progress and tries < MOST_TRIES:
        progress = False
        for smaller, given in _smaller(model, feeds, values):
            tries += 1
            if tries > MOST_TRIES:
                break
            if fails(smaller, given):
                model, feeds, progress = smaller, given, True
                break
    return model, feeds


def with_outputs(model: onnx.ModelProto, feeds: Feeds, values: Feeds, names: list[str]) -> onnx.ModelProto:
    """Return a copy with these outputs, of the types that ``values`` have, and only the nodes and inputs they need.

    A value that is among ``feeds`` becomes an input.
    """
    needed, nodes = set(names), []
    for node in reversed(model.graph.node):
        if needed.intersection(node.output) and not needed.intersection(node.output) <= set(feeds):
            nodes.append(node)
            needed.update(node.input)
    kept = {tensor.name: tensor for tensor in model.graph.initializer if tensor.name in needed}
    given = [name for name in feeds if name in needed]
    graph = helper.make_graph(
        nodes[::-1],
        model.graph.name,
        [_described(name, feeds[name]) for name in given],
        [_described(name, values[name]) for name in names],
        list(kept.values()),
    )
    return helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)


def _described(name: str, array: Array) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)


def _smaller(model: onnx.ModelProto, feeds: Feeds, values: Feeds) -> Iterator[tuple[onnx.ModelProto, Feeds]]:
    outputs = [value.name for value in model.graph.output]
    inside = [name for node in model.graph.node for name in node.output if name in values and name not in outputs]
    known = {**values, **feeds}
    if len(outputs) > 1:
        for keep in (*([name] for name in outputs), *([n for n in outputs if n != name] for name in outputs)):
            yield _checked(with_outputs(model, feeds, known, list(keep)), feeds)
    else:
        for name in inside[: len(inside) // 2 + 1]:
            yield _checked(with_outputs(model, feeds, known, [name]), feeds)
    for name in inside[::-1]:
        given = {**feeds, name: values[name]}
        yield _checked(with_outputs(model, given, known, outputs), given)


def _checked(model: onnx.ModelProto, feeds: Feeds) -> tuple[onnx.ModelProto, Feeds]:
    return model, {value.name: feeds[value.name] for value in model.graph.input}
