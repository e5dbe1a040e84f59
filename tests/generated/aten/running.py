"""What becomes of a call of one of ATen's operators: by torch, and by the graph that its rule makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import fx
from torch.utils import _pytree as pytree

from generated.aten import elementwise, images, indexed, moves, reductions, windows
from generated.aten.drawing import MAKERS, Call, Draw
from opbuild.api import compile_source
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.torch.builder import build_graph
from opbuild.frontend.torch.capture import capture, why_not
from opbuild.frontend.torch.program import AtenProgram
from opbuild.torch.part import ProgramSource
from opbuild.torch.tensors import to_array, to_tensor
from support.graph_runner import run_graph

MODULES = (elementwise, images, indexed, moves, reductions, windows)
"""Importing a module registers its makers."""

TOLERANCES = {torch.float16: 4e-3, torch.bfloat16: 3e-2, torch.float64: 5e-6}
"""Of numbers, as parts of themselves and of the greatest; torch rounds each step of those of 16 bits,
and ONNX's files hold some attributes and factors of float64 in float32."""

UNSAID = ("aten.empty.memory_format", "aten.empty_permuted.default", "aten.new_empty_strided.default",
          "aten.empty_strided.default")  # fmt: skip
"""Operators whose values nothing says: types and shapes are compared."""


class Asked(NamedTuple):
    """A call as a graph of torch: the graph, its tensors, and what torch gives."""

    graph: fx.Graph
    tensors: list[torch.Tensor]
    expected: list[torch.Tensor]


def overload_of(name: str) -> Any:
    """Return an operator; None if this torch has none of that name."""
    space, packet, overload = name.split(".")
    found = getattr(getattr(torch.ops, space), packet, None)
    return None if found is None else getattr(found, overload, None)


def drawn(name: str, seed: int) -> tuple[Call | None, Draw]:
    """Return a call of an operator, with the arguments that its overload has, and what draws on.

    There is none where torch refuses what a backward operator needs of the forward one.
    """
    draw = Draw(f"{name} {seed}")
    try:
        args, kwargs = MAKERS[name](draw)
    except RuntimeError:
        return None, draw
    known = {each.name for each in overload_of(name)._schema.arguments}
    return (args, {key: value for key, value in kwargs.items() if key in known}), draw


def asked(name: str, call: Call, results: Sequence[int] | None = None) -> Asked | None:
    """Return a call as a graph that gives some of its results, all if none are named; None if torch refuses it."""
    args, kwargs = call
    try:
        with torch.no_grad():
            copies = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))
            value = overload_of(name)(*copies[0], **copies[1])
    except (RuntimeError, IndexError, ValueError, TypeError, ZeroDivisionError):
        return None
    graph, tensors = fx.Graph(), list[torch.Tensor]()

    def taken(tensor: torch.Tensor) -> fx.Node:
        node = graph.placeholder(f"x{len(tensors)}")
        node.meta["val"] = tensor
        tensors.append(tensor)
        return node

    node = graph.call_function(overload_of(name), *pytree.tree_map_only(torch.Tensor, taken, (args, kwargs)))
    node.meta["val"] = value
    outputs, expected = [node], [value]
    if isinstance(value, (tuple, list)):
        chosen = [
            i for i in range(len(value)) if isinstance(value[i], torch.Tensor) and (results is None or i in results)
        ]
        expected = [value[index] for index in chosen]
        outputs = [_element(graph, node, index, value[index]) for index in chosen]
    graph.output(tuple(outputs))
    return Asked(graph, tensors, expected)


def _element(graph: fx.Graph, node: fx.Node, index: int, value: torch.Tensor) -> fx.Node:
    import operator

    found = graph.call_function(operator.getitem, (node, index))
    found.meta["val"] = value
    return found


def refusal(given: Asked) -> str:
    """Return why the partitioner leaves a call to torch, empty if it does not."""
    return next(filter(None, (why_not(each) for each in given.graph.nodes if each.op == "call_function")), "")


def frozen_program(given: Asked, draw: Draw) -> tuple[AtenProgram, list[Any], list[Any]]:
    """Return a call as a program, the arrays that it is given, and those of its tensors that are constants."""
    constants = [f"x{number}" for number in range(len(given.tensors)) if draw.some(0.3)]
    program, _ = capture(given.graph, "call", constants)
    feeds = [to_array(given.tensors[index], program.inputs[index].order) for index in program.given]
    frozen = [to_array(given.tensors[index], range(given.tensors[index].dim())) for index in program.frozen]
    return program, feeds, frozen


def by_host(program: AtenProgram, feeds: Sequence[Any], frozen: Sequence[Any]) -> list[Any]:
    """Return the results of a program's graph, node by node on the host."""
    graph = build_graph(program, [array.shape for array in feeds], frozen, evaluate)
    return list(run_graph(graph, dict(zip(graph.inputs, feeds, strict=True))))


def by_kernels(program: AtenProgram, feeds: Sequence[Any], frozen: Sequence[Any], cache: Path) -> list[Any]:
    """Return the results of its network, compiled as any."""
    config = Config.from_environment(cache_path=cache, num_threads=1)
    network = compile_source(ProgramSource(program, list(frozen)), config, image=False)
    found = network(*feeds)
    return list(found) if isinstance(found, tuple) else [found]


def outcome(name: str, seed: int, cache: Path | None) -> tuple[str, str]:
    """Return the outcome of a call: ``no call``, ``left to torch`` and why, or ``same``.

    Args:
        name: The operator.
        seed: Of what is drawn.
        cache: Where kernels are kept; None to compute on the host.

    Raises:
        AssertionError: If values, types or shapes are not torch's.
        OpbuildError: If it fails although its rule serves it.
    """
    call, draw = drawn(name, seed)
    results = [0] if draw.some(0.3) else None
    given = None if call is None else asked(name, call, results)
    if call is None or given is None:
        return "no call", ""
    why = refusal(given)
    if why:
        return "left to torch", why
    program, feeds, frozen = frozen_program(given, draw)
    try:
        build_graph(program, [array.shape for array in feeds], frozen, evaluate)
    except UnsupportedOperatorError as error:
        if "is not computed" not in str(error) or results == [0]:
            return "left to torch", str(error)
        given = asked(name, call, [0])
        assert given is not None
        program, feeds, frozen = frozen_program(given, draw)
    found = by_host(program, feeds, frozen) if cache is None else by_kernels(program, feeds, frozen, cache)
    for array, port, expected in zip(found, program.outputs, given.expected, strict=True):
        assert_same(to_tensor(np.array(array, order="C"), port.order), expected, name not in UNSAID)
    return "same", ""


def assert_same(found: torch.Tensor, expected: torch.Tensor, values: bool = True) -> None:
    """Assert equality: of types, shapes, integers, NaN and infinities, and of numbers up to rounding."""
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape), f"{found.dtype} {tuple(found.shape)}"
    if not values:
        return
    tolerance = TOLERANCES.get(expected.dtype, 1e-4)
    finite = expected[expected.isfinite()].abs() if expected.is_floating_point() else torch.empty(0)
    largest = min(float(finite.max()), 1e3) if finite.numel() else 0.0
    torch.testing.assert_close(found, expected, equal_nan=True, rtol=tolerance, atol=tolerance * max(largest, 1.0) / 10)
