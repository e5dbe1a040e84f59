"""Lowers single nodes and runs their kernels, every buffer between canaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from kernels.harness import run_program
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import Level

Array = npt.NDArray[Any]


def random(*shape: int, seed: int = 0, dtype: str = "float32") -> Array:
    """Return normally distributed numbers, or integers from -9 to 9."""
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        low = -9 if np.dtype(dtype).kind == "i" else 0
        return rng.integers(low, 10, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def program_of(
    nodes: Sequence[Node],
    inputs: Mapping[str, Array],
    outputs: Mapping[str, tuple[str, Sequence[int]]],
    constants: Mapping[str, Array] | None = None,
    impl_mode: str = "high_performance",
    level: Level | None = None,
) -> Program:
    """Return the program of some nodes.

    Args:
        nodes: In topological order.
        inputs: Values given at run time.
        outputs: Element type and shape of every value that the nodes assign; the last one is the graph's output.
        constants: Values known when the network is built.
        impl_mode: The implementation mode.
        level: What it is lowered for; None for this machine's level.
    """
    known = dict(constants or {})
    types = {name: TensorType(str(value.dtype), value.shape) for name, value in {**inputs, **known}.items()}
    types |= {name: TensorType(dtype, tuple(shape)) for name, (dtype, shape) in outputs.items()}
    graph = Graph("test", tuple(nodes), tuple(inputs), (list(outputs)[-1],), types, known, 21)
    return lower(graph, level or host_level(), Options(impl_mode=impl_mode))


def run_node(
    node: Node,
    inputs: Mapping[str, Array],
    dtype: str,
    shape: Sequence[int],
    constants: Mapping[str, Array] | None = None,
    impl_mode: str = "high_performance",
) -> Array:
    """Return the single output of a node, computed by kernels alone."""
    program = program_of([node], inputs, {node.outputs[0]: (dtype, shape)}, constants, impl_mode)
    return run_program(program, inputs)[node.outputs[0]]


def variants(program: Program) -> list[tuple[str, dict[str, Any]]]:
    """Return the families and variants that a program calls, in order."""
    return [(c.desc.family, dict(c.desc.variant)) for c in program.calls if isinstance(c, KernelCall)]
