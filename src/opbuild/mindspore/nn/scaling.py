"""Steps of training whose loss is scaled, and which are left out where gradients overflow."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.dtype import float32, int32
from opbuild.mindspore.gradients import value_and_grad
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.optimizer import Optimizer
from opbuild.mindspore.nn.training import TrainOneStepCell
from opbuild.mindspore.ops.arithmetic import (
    add,
    div,
    greater_equal,
    isfinite,
    logical_and,
    logical_not,
    maximum,
    mul,
    where,
)
from opbuild.mindspore.ops.assignment import assign, depend
from opbuild.mindspore.ops.reduction import all as all_of
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.states import need_states
from opbuild.mindspore.tensor import Tensor


def all_finite(inputs: Any, status: Any = None) -> Tensor:
    """Return whether no element of any tensor is infinite or no number.

    Args:
        inputs: Tensors.
        status: Kept for programs that give it.
    """
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return reduce(logical_and, [all_of(isfinite(each)) for each in tensors])


def changed_scale(scale: Any, count: Any, finite: Any, factor: float, window: int) -> tuple[Tensor, Tensor]:
    """Return a loss scale after a step, and the number of steps without overflow since it changed last."""
    counted = where(finite, add(count, 1), 0)
    grows = greater_equal(counted, window)
    kept = where(grows, mul(scale, factor), scale)
    return where(finite, kept, maximum(div(scale, factor), 1.0)), where(grows, 0, counted)


class DynamicLossScaleUpdateCell(Cell):
    """Changes a loss scale: divided at an overflow, multiplied after ``scale_window`` steps without one.

    Args:
        loss_scale_value: The first scale.
        scale_factor: The factor.
        scale_window: The number of steps.
    """

    def __init__(self, loss_scale_value: float, scale_factor: float, scale_window: int) -> None:
        super().__init__()
        if loss_scale_value < 1 or scale_factor <= 1 or scale_window < 1:
            raise ArgumentValueError(
                f"a loss scale of {loss_scale_value}, factor {scale_factor}, window {scale_window}",
                "give a scale from 1 on, a factor above 1 and a window of at least 1",
            )
        self.loss_scale_value = float(loss_scale_value)
        self.scale_factor, self.scale_window = float(scale_factor), int(scale_window)
        self.cur_iter = Parameter(Tensor(np.zeros((), np.int32), int32), "cur_iter", requires_grad=False)

    def get_loss_scale(self) -> float:
        """Return the first scale."""
        return self.loss_scale_value

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        """Change the scale, a parameter, by whether there was an overflow; return that."""
        finite = logical_not(overflow)
        scale, count = changed_scale(loss_scale, self.cur_iter, finite, self.scale_factor, self.scale_window)
        assign(loss_scale, scale)
        assign(self.cur_iter, count)
        return overflow


class FixedLossScaleUpdateCell(Cell):
    """Keeps a loss scale."""

    def __init__(self, loss_scale_value: float) -> None:
        super().__init__()
        self.loss_scale_value = float(loss_scale_value)

    def get_loss_scale(self) -> float:
        """Return the scale."""
        return self.loss_scale_value

    def construct(self, loss_scale: Any, overflow: Any) -> Any:
        """Return whether there was an overflow."""
        return overflow


class TrainOneStepWithLossScaleCell(TrainOneStepCell):
    """One step of training with a scaled loss; parameters and states stay as they are where gradients overflow.

    Args:
        network: A network that gives a loss.
        optimizer: What changes the parameters.
        scale_sense: A cell that changes the scale, such as ``DynamicLossScaleUpdateCell``; or a scale, a tensor.
    """

    def __init__(self, network: Cell, optimizer: Optimizer, scale_sense: Any) -> None:
        super().__init__(network, optimizer)
        self.loss_scaling_manager = scale_sense if isinstance(scale_sense, Cell) else None
        if self.loss_scaling_manager is None and not isinstance(scale_sense, Tensor):
            raise ArgumentTypeError(f"scale_sense is a {type(scale_sense).__name__}", "give a cell or a tensor")
        first: Any = scale_sense if self.loss_scaling_manager is None else scale_sense.get_loss_scale()
        self.scale_sense = Parameter(Tensor(first, float32).reshape(()), "scale_sense", requires_grad=False)

    def construct(self, *inputs: Any) -> tuple[Any, Any, Any]:
        """Return the loss before the step, whether gradients overflowed, and the scale."""
        scale = self.scale_sense

        def scaled(*given: Any) -> tuple[Any, Any]:
            loss = self.network(*given)
            return mul(loss, scale), loss

        (_, loss), gradients = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        gradients = self.grad_reducer(tuple(div(each, scale) for each in gradients))
        finite = all_finite(gradients)
        used = mul(scale, 1.0)
        changed_where(finite, lambda: self.optimizer(gradients))
        overflow = logical_not(finite)
        if self.loss_scaling_manager is not None:
            overflow = depend(overflow, self.loss_scaling_manager(scale, overflow))
        return loss, overflow, used

    def set_sense_scale(self, sens: Any) -> None:
        """Set the scale."""
        self.scale_sense.set_data(Tensor(sens, float32).reshape(()))


def changed_where(condition: Tensor, change: Callable[[], Any]) -> None:
    """Let a function assign to parameters in a trace; where the condition is false they stay as they are."""
    states = need_states()
    before = {id(parameter): symbol for parameter, symbol in states.outputs}
    change()
    for parameter, symbol in states.outputs:
        old = before.get(id(parameter), states.first(parameter))
        if old is not symbol:
            kept = where(condition, Tensor.of(symbol), Tensor.of(old))
            states.write(parameter, kept.symbol)  # type: ignore[arg-type]


__all__ = names.public(vars(), Cell)
