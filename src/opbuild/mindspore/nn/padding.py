"""Paddings as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, derived
from opbuild.mindspore.ops.images import mirror_pad
from opbuild.mindspore.ops.shaping import cut, pad
from opbuild.mindspore.tensor import Tensor


def _pairs(paddings: Any, what: str) -> None:
    if not isinstance(paddings, tuple):
        raise ArgumentTypeError(f"{what} is a {type(paddings).__name__}", "give a tuple of pairs")
    if any(len(pair) != 2 for pair in paddings):
        raise ArgumentValueError(f"{what} is {paddings}", "give a pair (before, after) for each axis")


@cell(checks={"mode": lambda mode, what: one_of(mode, ("CONSTANT", "REFLECT", "SYMMETRIC"), what), "paddings": _pairs})
def Pad(x: Tensor, *, paddings: tuple[tuple[int, int], ...], mode: str = "CONSTANT") -> Tensor:
    """Elements around a tensor.

    Args:
        x: The tensor.
        paddings: A pair (before, after) for each axis, the first axis first.
        mode: ``CONSTANT`` (zeros), ``REFLECT`` (without the edge) or ``SYMMETRIC`` (with it).
    """
    if mode == "SYMMETRIC":
        return mirror_pad(x, paddings, mode)
    flat = [amount for pair in reversed(paddings) for amount in pair]
    return pad(x, flat, "constant" if mode == "CONSTANT" else "reflect")


class _Padding(Cell):
    """Elements before and after the last axes; of a negative padding, elements less.

    Args:
        padding: An integer, or pairs (before, after), the last axis first.
    """

    axes = 1
    mode = "constant"
    value: float = 0

    def __init__(self, padding: Any) -> None:
        super().__init__()
        name = type(self).__name__
        amounts = (padding,) * 2 * self.axes if isinstance(padding, int) else padding
        if not isinstance(amounts, tuple) or not all(isinstance(item, int) for item in amounts):
            raise ArgumentTypeError(f"padding of {name} is {padding!r}", "give an integer or a tuple of integers")
        if len(amounts) % 2 or len(amounts) > 2 * self.axes:
            raise ArgumentValueError(f"padding of {name} is {padding}", f"give up to {self.axes} pairs")
        if self.mode == "reflect" and min(amounts, default=0) < 0:
            raise ArgumentValueError(f"padding of {name} is {padding}", "give integers of at least 0")
        self.padding = amounts

    def construct(self, x: Tensor) -> Tensor:
        """Return the padded tensor."""
        added = [max(amount, 0) for amount in self.padding]
        result = pad(x, added, self.mode, self.value if self.mode == "constant" else None)
        pairs = zip(self.padding[::2], self.padding[1::2], strict=True)
        for place, (before, after) in enumerate(pairs, 1):
            if before < 0 or after < 0:
                axis = x.ndim - place
                start, end = max(-before, 0), result.shape[axis] - max(-after, 0)
                result = cut(result, [start], [end], [axis], [1])
        return result


class _ConstantPad(_Padding):
    def __init__(self, padding: Any, value: float) -> None:
        super().__init__(padding)
        if not isinstance(value, (int, float)):
            raise ArgumentTypeError(f"value of {type(self).__name__} is {value!r}", "give a number")
        self.value = value


ConstantPad1d = derived(_ConstantPad, "ConstantPad1d", "A value around the last axis.", axes=1)
ConstantPad2d = derived(_ConstantPad, "ConstantPad2d", "A value around the last two axes.", axes=2)
ConstantPad3d = derived(_ConstantPad, "ConstantPad3d", "A value around the last three axes.", axes=3)
ZeroPad2d = derived(_Padding, "ZeroPad2d", "Zeros around the last two axes.", axes=2)
ReflectionPad1d = derived(
    _Padding, "ReflectionPad1d", "The reflection at the edge around the last axis.", axes=1, mode="reflect"
)
ReflectionPad2d = derived(
    _Padding, "ReflectionPad2d", "The reflection at the edge around the last two axes.", axes=2, mode="reflect"
)
ReflectionPad3d = derived(
    _Padding, "ReflectionPad3d", "The reflection at the edge around the last three axes.", axes=3, mode="reflect"
)
ReplicationPad1d = derived(_Padding, "ReplicationPad1d", "The edge around the last axis.", axes=1, mode="replicate")
ReplicationPad2d = derived(_Padding, "ReplicationPad2d", "The edge around the last two axes.", axes=2, mode="replicate")
ReplicationPad3d = derived(
    _Padding, "ReplicationPad3d", "The edge around the last three axes.", axes=3, mode="replicate"
)

__all__ = names.public(vars(), Cell)
