"""Squeeze-and-excite: the weights of the convolution behind take over the factors of channels where they are fewer."""

from __future__ import annotations

from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest

from kernels.harness import run_program
from kernels.lowered import Array, random
from kernels.one_node import assert_close, convolve
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.kernel.opdesc import HIGH_PRECISION
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from support.tiers import halved

GATES = {
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "HardSigmoid": lambda x: np.clip(0.2 * x + 0.5, 0, 1),
    "Relu": lambda x: np.maximum(x, 0),
}


def excited(
    shape: tuple[int, ...], outputs: int, gate: str = "Sigmoid", swapped: bool = False, **attrs: Any
) -> tuple[Graph, Array, dict[str, Array]]:
    """Return a graph of a convolution, its squeeze-and-excite ``m`` and a convolution ``y``, its input and values."""
    channels = shape[1]
    known = {
        "wa": random(channels, channels, 1, 1, seed=1), "wg": random(channels, channels, 1, 1, seed=2),
        "wy": random(outputs, channels, 1, 1, seed=3), "by": random(outputs, seed=4),
    }  # fmt: skip
    x = random(*shape)
    a = convolve(x, known["wa"])
    p = a.mean((2, 3), keepdims=True)
    s = convolve(p.astype("f4"), known["wg"])
    g = GATES[gate](s)
    m = a * g
    y = convolve(m.astype("f4"), known["wy"], known["by"], **attrs)
    nodes = (
        Node("Conv", ("x", "wa"), ("a",), {}, "a"),
        Node("GlobalAveragePool", ("a",), ("p",), {}, "p"),
        Node("Conv", ("p", "wg"), ("s",), {}, "s"),
        Node(gate, ("s",), ("g",), {}, "g"),
        Node("Mul", ("g", "a") if swapped else ("a", "g"), ("m",), {}, "m"),
        Node("Conv", ("m", "wy", "by"), ("y",), attrs, "y"),
    )
    values = {"x": x, "a": a, "p": p, "s": s, "g": g, "m": m, "y": y}
    types = {name: TensorType("float32", value.shape) for name, value in {**values, **known}.items()}
    return Graph("g", nodes, ("x",), ("y",), types, known, 21), x, values


def multiplied(program: Program) -> int:
    """Return how many elements the call of the multiplication writes."""
    call = next(call for call in program.calls if isinstance(call, KernelCall) and call.nodes == ("m",))
    return prod(extent for extent, _ in call.views[-1].dims)


@halved
@pytest.mark.parametrize("gate", ["Sigmoid", "HardSigmoid"])
@pytest.mark.parametrize("channels", [32, 40])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("attrs", [{}, {"strides": (2, 2), "pads": (1, 0, 1, 2)}])
def test_few_weights_are_multiplied_in_place_of_many_positions(
    gate: str, channels: int, swapped: bool, attrs: dict[str, Any]
) -> None:
    """Of channels that fill their blocks or do not; the result is that of the multiplied values."""
    graph, x, values = excited((1, channels, 9, 10), 20, gate, swapped, **attrs)
    program = lower(graph, host_level())
    assert multiplied(program) == 32 * -(-channels // 16) * 16
    assert_close(run_program(program, {"x": x})["y"], values["y"])


@pytest.mark.parametrize(
    ("shape", "outputs", "gate"),
    [((1, 32, 7, 7), 20, "Sigmoid"), ((2, 32, 9, 10), 20, "Sigmoid"), ((1, 32, 9, 10), 20, "Relu")],
    ids=["many weights", "two images", "unbounded"],
)
def test_other_products_stay_what_they_are(shape: tuple[int, ...], outputs: int, gate: str) -> None:
    """Weights that are not fewer, factors that differ from image to image, and those that could overflow."""
    graph, x, values = excited(shape, outputs, gate)
    program = lower(graph, host_level())
    assert multiplied(program) == prod(shape)
    assert_close(run_program(program, {"x": x})["y"], values["y"])


def test_a_product_that_others_need_is_computed() -> None:
    """As an output of the network, for a second reader, for the host, and where each operator is to be precise."""
    graph, x, values = excited((1, 32, 9, 10), 20)
    asked = replace(graph, outputs=("m", "y"))
    again = replace(
        graph,
        nodes=(*graph.nodes, Node("Relu", ("m",), ("z",), {}, "z")),
        outputs=("y", "z"),
        types={**graph.types, "z": graph.types["m"]},
    )
    for each in (asked, again):
        program = lower(each, host_level())
        assert multiplied(program) == values["m"].size
        assert_close(run_program(program, {"x": x})["y"], values["y"])
    cut = Node("Conv", ("m", "wy", "by"), ("y",), {"pads": (-1, 0, 0, 0)}, "y")
    fewer = {**graph.types, "y": TensorType("float32", (1, 20, 8, 10))}
    assert (
        multiplied(lower(replace(graph, nodes=(*graph.nodes[:-1], cut), types=fewer), host_level())) == values["m"].size
    )
    assert multiplied(lower(graph, host_level(), Options(impl_mode=HIGH_PRECISION))) == values["m"].size
