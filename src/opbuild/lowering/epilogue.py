"""Epilogues: from the expression that fusion leaves on a node to the one form of keys, and its operands.

The fusion pass leaves ``attrs["epilogue"]``, an expression over ``("acc",)`` and ``("arg", i)``, on a node, and the
operands as inputs beyond the weights and the bias. Here operands of commutative operations are put in order, and
operands are numbered in order of appearance, so that ``x + conv`` and ``conv + x`` have one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.epilogue import Epilogue, Kind
from opbuild.graph.types import Array, Node
from opbuild.lowering import run_time_weights
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError
from opbuild.lowering.operands import Blocked, OperandRef, Plain
from opbuild.lowering.strided import dense_as
from opbuild.operations.evaluation import evaluate_scalar
from opbuild.operations.expression import ACC, arg, canonical, from_json, is_refined, substitute
from opbuild.platform.digest import blake3_of

FLOATS = ("float32",)

CHANNEL_FILL = 1.0
"""What lanes beyond the channels hold in a packed operand: a neutral divisor and factor."""


def references(
    epilogue: Epilogue,
    lowering: Lowering,
    channels: int,
    image: int,
    place: Callable[[Blocked], OperandRef] | None = None,
) -> list[OperandRef]:
    """Return the operands of one image.

    Args:
        epilogue: The epilogue.
        lowering: Where the values lie.
        channels: Channels of the output.
        image: Index of the image.
        place: The part of a residual that is read; by default the image.
    """
    found: list[OperandRef] = []
    for kind, name in epilogue.operands:
        if kind == "residual":
            value = lowering.blocked(name)
            found.append(place(value) if place else value.window(image))
        elif kind == "channel":
            found.append(pack_channels(lowering, name, channels, CHANNEL_FILL))
        else:
            found.append(pack_scalar(lowering, name))
    return found


def padding(epilogue: Epilogue, lowering: Lowering, channels: int) -> tuple[float, float]:
    """Return a bias for lanes beyond the channels, and the finite value that they hold after the epilogue with it.

    Raises:
        NotServedError: If every bias tried leads to a value that is not finite.
    """
    if channels % BLOCK == 0:
        return 0.0, 0.0
    args = [_lane_value(lowering, kind, name) for kind, name in epilogue.operands]
    expression = substitute(epilogue.expression, lambda e: arg(len(args)) if e == ACC else None)
    for bias in (0.0, 1.0, -1.0, 0.5):
        value = evaluate_scalar(expression, [*args, bias])
        if math.isfinite(value):
            return bias, value
    raise NotServedError("the epilogue has no finite value for the lanes beyond the channels")


def _lane_value(lowering: Lowering, kind: Kind, name: str) -> float:
    if kind == "residual":
        return lowering.blocked(name).padding_value
    return CHANNEL_FILL if kind == "channel" else float(np.asarray(lowering.constant(name)).reshape(-1)[0])


def epilogue_of(lowering: Lowering, node: Node, dtypes: Sequence[str] = FLOATS) -> Epilogue:
    """Return a convolution's epilogue.

    Args:
        lowering: Where the values lie.
        node: The convolution.
        dtypes: The element types that operands may have; with more than ``FLOATS``, numbers may be computed.

    Raises:
        NotServedError: If an operand is neither of the output's shape nor a constant for each channel or for all.
    """
    stored = node.attrs.get("epilogue")
    if stored is None:
        return Epilogue()
    expression, order = canonical(from_json(list(stored)))
    shape, own = lowering.type(node.outputs[0]).shape, int(node.attrs["own_inputs"])
    operands = tuple(_classified(lowering, node.inputs[own + index], shape, dtypes) for index in order)
    types = tuple(lowering.type(name).dtype for _, name in operands)
    mode = lowering.impl_mode(node, is_refined(expression, types))
    return Epilogue(expression, operands, mode, types)


def pack_channels(lowering: Lowering, name: str, channels: int, fill: float, order: Array | None = None) -> Plain:
    """Return one value a channel (``""``: zero) as ``(C1, 16)``, lanes beyond the channels holding ``fill``.

    With an ``order``, the value of channel c lies at ``order[c]``; there is none for values known only at run time.
    """
    if name and not lowering.is_constant(name):
        value = lowering.dense(name)
        return run_time_weights.packed(lowering, dense_as(value, (channels,)), run_time_weights.CHANNELS, name, fill)
    array, dtype = lowering.constant(name), lowering.type(name).dtype if name else "float32"
    shape = (blocks(channels), BLOCK)

    def pack() -> Array:
        packed = np.full(shape[0] * BLOCK, fill, dtype)
        place = slice(channels) if order is None else order
        packed[place] = 0.0 if array is None else np.asarray(array).reshape(-1)
        return packed.reshape(shape)

    recipe = f"channels {channels} fill {fill!r}{order_recipe(order)}"
    return lowering.packed((name,) if name else (), recipe, shape, dtype, pack)


def order_recipe(order: Array | None) -> str:
    """Return the text for an order of channels in the recipe of a packed constant."""
    return "" if order is None else f" order {blake3_of(order.tobytes())}"


def is_per_channel(own: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    """Return whether a value of the shape ``own``, broadcast to ``shape``, has one element for each channel."""
    return (1,) * (len(shape) - len(own)) + own == (1, shape[1]) + (1,) * (len(shape) - 2)


def pack_scalar(lowering: Lowering, name: str) -> Plain:
    """Return a constant of one element."""
    dtype = lowering.type(name).dtype
    return lowering.packed((name,), "scalar", (1,), dtype, lambda: np.asarray(lowering.constant(name)).reshape(1))


def _classified(lowering: Lowering, name: str, shape: tuple[int, ...], dtypes: Sequence[str]) -> tuple[Kind, str]:
    type_ = lowering.type(name)
    if type_.dtype not in dtypes:
        raise NotServedError(f"the epilogue reads {name} of type {type_.dtype}")
    if type_.size == 1 and (lowering.is_constant(name) or dtypes != FLOATS):
        return "scalar", name
    if lowering.is_constant(name) and is_per_channel(type_.shape, shape):
        return "channel", name
    if type_.shape == shape:
        return "residual", name
    raise NotServedError(
        f"the epilogue reads {name} of shape {list(type_.shape)}, which is no residual and no constant"
    )
