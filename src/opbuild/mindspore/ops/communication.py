"""Operators of all ranks: ``AllReduce``, ``AllGather``, ``ReduceScatter``, ``Broadcast``.

In a cell that is built they run between its kernels, on the host. Every rank must call the same ones in the same order.
"""

from __future__ import annotations

from typing import Any

from opbuild.errors import DTypeError, ShapeError
from opbuild.frontend.cell import current, location
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import COLLECTIVES, Node
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, TensorTypeError, one_of
from opbuild.mindspore.communication import GlobalComm, check_group, get_group_size
from opbuild.mindspore.execution import emit
from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.tensor import Tensor

__all__ = ["AllGather", "AllReduce", "Broadcast", "ReduceOp", "ReduceScatter"]


class ReduceOp:
    """The reductions of ``AllReduce`` and ``ReduceScatter``."""

    SUM = "sum"
    MAX = "max"
    MIN = "min"
    PROD = "prod"


_REDUCTIONS = (ReduceOp.SUM, ReduceOp.MAX, ReduceOp.MIN, ReduceOp.PROD)


def _together(kind: str, tensor: Any, **attributes: Any) -> Tensor:
    """Record an operator of all ranks if a trace is active in this thread, else run it."""
    if not isinstance(tensor, Tensor):
        raise ArgumentTypeError(f"{kind} was given a {type(tensor).__name__}{location()}", "give a Tensor")
    attributes["ranks"] = get_group_size()
    if current() is not None:
        return emit(kind, tensor, domain=COLLECTIVES, **attributes)
    from opbuild.ranks.world import run

    array = tensor.asnumpy()
    try:
        infer_node(Node(kind, ("x",), ("y",), attributes, kind, COLLECTIVES), [tensor.type], [None])
    except ShapeError as error:
        raise TensorShapeError(f"{error.message}{location()}", error.hint) from None
    except DTypeError as error:
        raise TensorTypeError(f"{error.message}{location()}", error.hint) from None
    del attributes["ranks"]
    return Tensor.of(run(kind, array, **attributes))


class _Reducing(Primitive):
    def __init__(self, op: str = ReduceOp.SUM, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__()
        one_of(op, _REDUCTIONS, f"the op of {self.name}")
        check_group(group)
        self.op = op
        self.group = group
        self.attributes.update(op=op, group=group)

    def __call__(self, input_x: Tensor) -> Tensor:
        """Apply the operator."""
        return _together(self.name, input_x, reduction=self.op)


class AllReduce(_Reducing):
    """The elements of all ranks' tensors combined, on every rank.

    Args:
        op: ``ReduceOp.SUM``, ``MAX``, ``MIN`` or ``PROD``.
        group: The group of all ranks.
    """


class ReduceScatter(_Reducing):
    """The elements of all ranks' tensors combined, and the first dimension divided among the ranks.

    Args:
        op: As for ``AllReduce``.
        group: The group of all ranks.
    """


class AllGather(Primitive):
    """All ranks' tensors, one after the other in the first dimension, on every rank.

    Args:
        group: The group of all ranks.
    """

    def __init__(self, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__()
        check_group(group)
        self.group = group
        self.attributes["group"] = group

    def __call__(self, input_x: Tensor) -> Tensor:
        """Apply the operator."""
        return _together(self.name, input_x)


class Broadcast(Primitive):
    """The tensors of one rank, on every rank.

    Args:
        root_rank: The rank whose tensors all get.
        group: The group of all ranks.
    """

    def __init__(self, root_rank: int, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:
        super().__init__()
        if isinstance(root_rank, bool) or not isinstance(root_rank, int):
            raise ArgumentTypeError(f"the root_rank of Broadcast is {root_rank!r}", "give an integer")
        check_group(group)
        self.root_rank = root_rank
        self.group = group
        self.attributes.update(root_rank=root_rank, group=group)

    def __call__(self, input_x: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Apply the operator to each tensor of a tuple."""
        if not isinstance(input_x, (tuple, list)):
            raise ArgumentTypeError(
                f"Broadcast was given a {type(input_x).__name__}{location()}", "give a tuple of tensors: (x,)"
            )
        size = get_group_size()
        if not 0 <= self.root_rank < size:
            raise ArgumentValueError(
                f"the root_rank of Broadcast is {self.root_rank}{location()}", f"it must be in [0, {size})"
            )
        return tuple(_together(self.name, tensor, root=self.root_rank) for tensor in input_x)
