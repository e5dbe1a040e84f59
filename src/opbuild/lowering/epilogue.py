"""Epilogues: what a convolution applies to its accumulator before it stores it, in the one form that keys use.

The fusion pass leaves ``attrs["epilogue"]``, an expression over ``("acc",)`` and ``("arg", i)``, on a node, and the
operands as inputs beyond the weights and the bias. Here operands of commutative operations are put in order, and
operands are numbered in order of appearance, so that ``x + conv`` and ``conv + x`` have one key.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from opbuild.graph.types import Array, Node
from opbuild.kernel.opdesc import HIGH_PERFORMANCE, Dim, Operand
from opbuild.lowering.context import Lowering, NotServedError
from opbuild.lowering.operands import BLOCK, Blocked, OperandRef, Plain, blocks
from opbuild.operations.evaluation import evaluate_scalar
from opbuild.operations.expression import ACC, Expression, children, from_json, is_refined, operations, rebuild, walk
from opbuild.platform.digest import fast

Kind = Literal["residual", "channel", "scalar"]

_COMMUTATIVE = ("add", "mul")
_CHANNEL_FILL = 1.0
"""What lanes beyond the channels hold in a packed operand: a neutral divisor and factor."""

BLOCKED_DIMS = (Dim(BLOCK, 1), Dim(stride=BLOCK), Dim(), Dim())
"""Dimensions of one image of a blocked value: lane, x, y, block."""

CHANNEL_DIMS = (Dim(BLOCK, 1), Dim(stride=BLOCK))
"""Dimensions of one value for each channel: lane, block."""


@dataclass(frozen=True)
class Epilogue:
    """An epilogue in canonical form.

    Attributes:
        expression: Over the accumulator and operands numbered in order of appearance.
        operands: Each operand's kind and the name of its value.
        impl_mode: The implementation mode of the kernel that applies it.
    """

    expression: Expression = ACC
    operands: tuple[tuple[Kind, str], ...] = ()
    impl_mode: str = HIGH_PERFORMANCE

    @property
    def op_types(self) -> tuple[str, ...]:
        """The operator types that the epilogue adds to its kernel."""
        return operations(self.expression)

    @property
    def attrs(self) -> dict[str, Any]:
        """What the descriptor says of the epilogue."""
        return {"epilogue": self.expression}

    @property
    def has_scalars_only(self) -> bool:
        """Whether no operand depends on the channel."""
        return all(kind == "scalar" for kind, _ in self.operands)

    @property
    def has_residual(self) -> bool:
        """Whether a whole tensor is read."""
        return any(kind == "residual" for kind, _ in self.operands)

    def inputs(self, step: int = 1) -> tuple[Operand, ...]:
        """Return the descriptor's operands; ``step`` is the distance between the positions of a row that are read."""
        return tuple(_operand(f"e{index}", kind, step) for index, (kind, _) in enumerate(self.operands))

    def references(
        self, lowering: Lowering, channels: int, image: int, place: Callable[[Blocked], OperandRef] | None = None
    ) -> list[OperandRef]:
        """Return the operands of one image.

        Args:
            lowering: Where the values lie.
            channels: Channels of the output.
            image: Index of the image.
            place: The part of a residual that is read; by default the image.
        """
        found: list[OperandRef] = []
        for kind, name in self.operands:
            if kind == "residual":
                value = lowering.blocked(name)
                found.append(place(value) if place else value.window(image))
            elif kind == "channel":
                found.append(pack_channels(lowering, name, channels, _CHANNEL_FILL))
            else:
                found.append(lowering.packed((name,), "scalar", (1,), "float32", _scalar(lowering, name)))
        return found

    def padding(self, lowering: Lowering, channels: int) -> tuple[float, float]:
        """Return a bias for lanes beyond the channels, and the finite value that they hold after the epilogue with it.

        Raises:
            NotServedError: If every bias tried leads to a value that is not finite.
        """
        if channels % BLOCK == 0:
            return 0.0, 0.0
        args = [self._lane_value(lowering, kind, name) for kind, name in self.operands]
        for bias in (0.0, 1.0, -1.0, 0.5):
            value = float(evaluate_scalar(_with_accumulator(self.expression), [*args, bias]))
            if math.isfinite(value):
                return bias, value
        raise NotServedError("the epilogue has no finite value for the lanes beyond the channels")

    @staticmethod
    def _lane_value(lowering: Lowering, kind: Kind, name: str) -> float:
        if kind == "residual":
            return lowering.blocked(name).padding_value
        return _CHANNEL_FILL if kind == "channel" else float(np.asarray(lowering.constant(name)).reshape(-1)[0])


def epilogue_of(lowering: Lowering, node: Node, first: int) -> Epilogue:
    """Return a node's epilogue.

    Args:
        lowering: Where the values lie.
        node: The node; its epilogue's operands are its inputs from ``first`` on.
        first: Index of operand 0 among the node's inputs.

    Raises:
        NotServedError: If an operand is neither of the output's shape nor a constant for each channel or for all.
    """
    stored = node.attrs.get("epilogue")
    if stored is None:
        return Epilogue()
    expression = _ordered(from_json(list(stored)))
    order: list[int] = []
    for part in walk(expression):
        if part[0] == "arg" and part[1] not in order:
            order.append(part[1])
    shape = lowering.type(node.outputs[0]).shape
    operands = tuple(_classified(lowering, node.inputs[first + index], shape) for index in order)
    return Epilogue(_renumbered(expression, order), operands, lowering.impl_mode(node, is_refined(expression)))


def pack_channels(lowering: Lowering, name: str, channels: int, fill: float, order: Array | None = None) -> Plain:
    """Return one value a channel (``""``: zero) as ``(C1, 16)``, lanes beyond the channels holding ``fill``.

    With an ``order``, the value of channel c lies at ``order[c]``.
    """
    array = lowering.constant(name)
    shape = (blocks(channels), BLOCK)

    def pack() -> Array:
        packed = np.full(shape[0] * BLOCK, fill, np.float32)
        place = slice(channels) if order is None else order
        packed[place] = 0.0 if array is None else np.asarray(array, np.float32).reshape(-1)
        return packed.reshape(shape)

    recipe = f"channels {channels} fill {fill!r}{order_recipe(order)}"
    return lowering.packed((name,) if name else (), recipe, shape, "float32", pack)


def order_recipe(order: Array | None) -> str:
    """Return what the recipe of a packed constant says of an order of channels."""
    return "" if order is None else f" order {fast(order.tobytes())}"


def _operand(name: str, kind: Kind, step: int) -> Operand:
    if kind == "residual":
        return Operand(name, "float32", (BLOCKED_DIMS[0], Dim(stride=BLOCK * step), *BLOCKED_DIMS[2:]), "NC1HWC0")
    return Operand(name, "float32", CHANNEL_DIMS if kind == "channel" else (Dim(1, 1),))


def _scalar(lowering: Lowering, name: str) -> Any:
    return lambda: np.asarray(lowering.constant(name), np.float32).reshape(1)


def _classified(lowering: Lowering, name: str, shape: tuple[int, ...]) -> tuple[Kind, str]:
    type_ = lowering.type(name)
    if type_.dtype != "float32":
        raise NotServedError(f"the epilogue reads {name} of type {type_.dtype}")
    if lowering.is_constant(name):
        if type_.size == 1:
            return "scalar", name
        padded = (1,) * (len(shape) - len(type_.shape)) + type_.shape
        if padded == (1, shape[1], *(1,) * (len(shape) - 2)):
            return "channel", name
    if type_.shape == shape:
        return "residual", name
    raise NotServedError(
        f"the epilogue reads {name} of shape {list(type_.shape)}, which is no residual and no constant"
    )


def _ordered(expression: Expression) -> Expression:
    parts = tuple(_ordered(child) for child in children(expression))
    if expression[0] in _COMMUTATIVE:
        parts = tuple(sorted(parts, key=_rank))
    return rebuild(expression, parts)


def _rank(expression: Expression) -> tuple[int, str]:
    heads = [part[0] for part in walk(expression)]
    return (0 if "acc" in heads else 1 if "arg" in heads else 2), repr(expression)


def _renumbered(expression: Expression, order: Sequence[int]) -> Expression:
    if expression[0] == "arg":
        return ("arg", order.index(expression[1]))
    return rebuild(expression, tuple(_renumbered(child, order) for child in children(expression)))


def _with_accumulator(expression: Expression) -> Expression:
    """Return the expression with the accumulator as one more operand, the last one."""
    count = 1 + max((part[1] for part in walk(expression) if part[0] == "arg"), default=-1)
    return _replace_accumulator(expression, ("arg", count))


def _replace_accumulator(expression: Expression, replacement: Expression) -> Expression:
    if expression == ACC:
        return replacement
    return rebuild(expression, tuple(_replace_accumulator(child, replacement) for child in children(expression)))
