"""Functions of torch, computed by the graphs that the rules make of them; nothing is compiled."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.torch.builder import build_graph
from opbuild.frontend.torch.capture import capture, why_not
from opbuild.frontend.torch.program import AtenProgram
from opbuild.graph.types import Graph
from opbuild.torch.decompositions import decompositions
from opbuild.torch.tensors import to_array, to_tensor
from support.graph_runner import run_graph


def program_of(function: Callable[..., Any], *args: Any) -> AtenProgram:
    """Return a function of tensors as a program; an operator without a rule fails the test."""
    made = make_fx(function, decomposition_table=decompositions(), tracing_mode="fake")(*args)
    made.graph.eliminate_dead_code()
    for node in made.graph.nodes:
        assert node.op != "call_function" or not why_not(node), f"{node.target}: {why_not(node)}"
    return capture(made.graph, "program", ())[0]


def graph_of(function: Callable[..., Any], *args: torch.Tensor) -> Graph:
    """Return the graph of a function of tensors."""
    program = program_of(function, *args)
    arrays = [to_array(arg, each.order) for arg, each in zip(args, program.inputs, strict=True)]
    return build_graph(program, [array.shape for array in arrays], (), evaluate)


def computed(function: Callable[..., Any], *args: torch.Tensor) -> list[torch.Tensor]:
    """Return the results of a function's graph, computed node by node on the host."""
    program = program_of(function, *args)
    arrays = [to_array(arg, each.order) for arg, each in zip(args, program.inputs, strict=True)]
    graph = build_graph(program, [array.shape for array in arrays], (), evaluate)
    results = run_graph(graph, dict(zip(graph.inputs, arrays, strict=True)))
    outputs = [each for each in program.outputs if not each.is_size]
    return [to_tensor(np.array(array, order="C"), each.order) for array, each in zip(results, outputs, strict=True)]


def check(function: Callable[..., Any], *args: torch.Tensor) -> None:
    """Compare the results of a function's graph with torch's: values, types, shapes and strides."""
    expected = function(*args)
    whole: Sequence[torch.Tensor] = expected if isinstance(expected, (tuple, list)) else (expected,)
    for found, wanted in zip(computed(function, *args), whole, strict=True):
        torch.testing.assert_close(found, wanted, equal_nan=True)
        assert found.stride() == wanted.stride() or not wanted.is_contiguous() or wanted.numel() < 2
