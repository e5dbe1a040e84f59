"""Gates: factors of channels that the weights of the convolution behind take over.

Squeeze-and-excite multiplies a channel by one number, a sigmoid's value, at all positions, and a convolution of 1 x 1
reads the products. ``sum x g w`` is the same whichever of the two is multiplied by ``g``, and weights are fewer than
positions in early layers.
"""

from __future__ import annotations

from math import prod

from opbuild.graph.constants import numbers_of
from opbuild.graph.elementwise import Elementwise, elementwise_of
from opbuild.graph.extents import example_value, is_open
from opbuild.graph.factors import magnitudes
from opbuild.graph.types import Node
from opbuild.kernel.opdesc import HIGH_PRECISION
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.operands import Gate
from opbuild.lowering.windows import window_of
from opbuild.operations.expression import Expression, arg, canonical, from_json

POSITIONS = 4
"""So many positions for each output channel there are at least where weights are multiplied: both cores of two read
them, so that writing them costs more than writing values of which each core reads its own."""

PRODUCT: Expression = ("mul", arg(0), arg(1))
BOUNDED = ("sigmoid", "hard_sigmoid")
"""What a gate is made by: it is from 0 to 1, so that no product overflows where the other one would not."""

LEAST_WEIGHT = 2.0**-62
"""Weights that are not 0 are at least so large: gates down to 2**-64 make no denormals of them."""


def fold_gate_into_weights(lowering: Lowering, node: Node, chain: Elementwise) -> bool:
    """Return whether a product is left to the convolution that reads it; its rule finds the gate by the product's name.

    Args:
        lowering: The lowering.
        node: The node that assigns the product.
        chain: What it computes.
    """
    if canonical(chain.expression)[0] != PRODUCT:
        return False
    product = node.outputs[0]
    for data, gate in (chain.inputs, chain.inputs[::-1]):
        if _is_gate(lowering, data, gate, product) and _serves(lowering, product):
            lowering.gates[product] = Gate(node.name, data, lowering.blocked(gate))
            return True
    return False


def _is_gate(lowering: Lowering, data: str, gate: str, product: str) -> bool:
    """Return whether a value is one number from 0 to 1 for each channel of another one, which is a single image."""
    shape = lowering.type(product).shape
    if len(shape) != 4 or is_open(shape[:1]) or shape[0] != 1 or lowering.type(gate).shape != (1, shape[1], 1, 1):
        return False
    if lowering.type(data).shape != shape or not (lowering.is_blocked(data) and lowering.is_blocked(gate)):
        return False
    producer = lowering.graph.producers().get(gate)
    if producer is None or lowering.type(gate).dtype != "float32":
        return False
    if producer.attrs.get("epilogue") is not None:
        return from_json(list(producer.attrs["epilogue"]))[0] in BOUNDED
    found = elementwise_of(producer, lowering.graph.types, lowering.graph.constants)
    return found is not None and found.expression[0] in BOUNDED


def _serves(lowering: Lowering, product: str) -> bool:
    """Return whether all that reads a product is a convolution of 1 x 1 with few known weights of float32."""
    readers = lowering.consumers.get(product, [])
    if len(readers) != 1 or product in lowering.graph.outputs:
        return False
    conv = readers[0]
    if (conv.domain, conv.op_type) != ("", "Conv"):
        return False
    weights = conv.inputs[1]
    if conv.inputs.count(product) != 1 or conv.inputs[0] != product or not lowering.is_constant(weights):
        return False
    outputs, inputs, *kernel = lowering.type(weights).shape
    if kernel != [1, 1] or lowering.type(product).shape[1] != inputs:
        return False
    if numbers_of(lowering.graph.constants, weights) == "bfloat16" or lowering.impl_mode(conv) == HIGH_PRECISION:
        return False
    try:
        window_of(lowering, conv, kernel)
    except NotServedError:  # the host takes it
        return False
    if example_value(prod(lowering.type(product).shape[2:])) < POSITIONS * outputs:
        return False
    return magnitudes(lowering.graph.constants[weights]).least >= LEAST_WEIGHT
