"""Cells that train: a network with its loss, one step of an optimizer, on several ranks, with a scaled loss."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from opbuild.frontend.cell import current
from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, positive
from opbuild.mindspore.communication import GlobalComm, get_group_size
from opbuild.mindspore.context import fusion, get_auto_parallel_context, is_data_parallel
from opbuild.mindspore.dtype import float32, int32
from opbuild.mindspore.functions import value_and_grad
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.optimizer import Optimizer
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.parameter import Parameter, need_states
from opbuild.mindspore.tensor import Tensor

BUCKET = 25 << 20
"""Bytes of gradients that go into one operator: with more of them nothing is saved, and buffers become larger."""


class DistributedGradReducer(Cell):
    """The sum, or the mean, of each gradient over all ranks.

    Gradients of one element type are joined and go through ``AllReduce`` together.

    Args:
        parameters: The parameters, in the gradients' order.
        mean: Whether to take the mean; by default as ``gradients_mean`` of ``set_auto_parallel_context`` says.
        degree: What a mean divides by; the number of ranks by default.
        fusion_type: Kept for programs that give it.
        group: The group of all ranks.
    """

    def __init__(self, parameters: Sequence[Any], mean: bool | None = None, degree: int | None = None,
                 fusion_type: int = 1, group: str = GlobalComm.WORLD_COMM_GROUP) -> None:  # fmt: skip
        super().__init__(auto_prefix=False)
        self.mean = bool(get_auto_parallel_context("gradients_mean") if mean is None else mean)
        size, told = get_group_size(), get_auto_parallel_context("device_num")
        if told not in (None, size):
            raise ArgumentValueError(f"device_num is {told}", f"the job has {size} ranks: leave it out")
        self.degree = size if degree is None else positive(degree, "degree of DistributedGradReducer")
        self.count = len(parameters)
        self.all_reduce = ops.AllReduce(group=group)

    def construct(self, grads: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Return the gradients of all ranks combined, in their order."""
        if len(grads) != self.count:
            raise ArgumentTypeError(f"DistributedGradReducer was given {len(grads)} gradients", f"not {self.count}")
        reduced = dict(pair for bucket in _buckets(grads) for pair in self._together(grads, bucket))
        return tuple(reduced[place] for place in range(len(grads)))

    def _together(self, grads: Sequence[Tensor], places: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        flat = [reshaped(grads[place], (grads[place].size,)) for place in places]
        whole = self.all_reduce(ops.concat(flat) if len(flat) > 1 else flat[0])
        if self.mean and self.degree > 1:
            whole = ops.mul(whole, 1.0 / self.degree)
        parts = ops.split(whole, [each.size for each in flat]) if len(flat) > 1 else [whole]
        for place, part in zip(places, parts, strict=True):
            yield place, reshaped(part, grads[place].shape)


def combining(parameters: Sequence[Any], network: Cell) -> Callable[[Any], Any]:
    """Return the step's operation on its gradients: the one that ``set_auto_parallel_context`` asks for.

    With ``parameter_broadcast`` the network gets the parameters of rank 0.
    """
    if not is_data_parallel():
        return tuple
    if get_auto_parallel_context("parameter_broadcast"):
        first = ops.Broadcast(0)
        for parameter in network.get_parameters():
            parameter.set_data(first((parameter,))[0])
    return DistributedGradReducer(parameters)


def _buckets(grads: Sequence[Tensor]) -> list[list[int]]:
    """Return places of gradients that go together, those first that the backward pass computes first."""
    depths, (most, bounds) = _depths(grads), fusion()
    most = BUCKET if most is None else most
    open_: dict[tuple[str, int], tuple[list[int], int]] = {}
    full: list[list[int]] = []
    for place in sorted(range(len(grads)), key=lambda place: (depths[place], -place)):
        kind, size = (grads[place].type.dtype, bisect_right(bounds, place)), grads[place].nbytes
        places, held = open_.get(kind, ([], 0))
        if places and held + size > most and not bounds:
            full.append(places)
            places, held = [], 0
        open_[kind] = [*places, place], held + size
    return full + [places for places, _ in open_.values()]


def _depths(grads: Sequence[Tensor]) -> list[int]:
    """Return the least number of operators of a trace before each gradient, one behind the other."""
    trace = current()
    depths: dict[str, int] = {}
    for node in () if trace is None else trace.nodes:
        depth = 1 + max((depths.get(name, 0) for name in node.inputs), default=0)
        depths.update(dict.fromkeys(node.outputs, depth))
    return [0 if each.symbol is None else depths.get(each.symbol.name, 0) for each in grads]


class WithLossCell(Cell):
    """A network and its loss: ``construct(data, label)`` gives the loss."""

    def __init__(self, backbone: Cell, loss_fn: Any) -> None:
        super().__init__(auto_prefix=False)
        self._backbone = backbone
        self._loss_fn = loss_fn

    def construct(self, data: Any, label: Any) -> Tensor:
        """Return the loss."""
        loss: Tensor = self._loss_fn(self._backbone(data), label)
        return loss

    @property
    def backbone_network(self) -> Cell:
        """The network."""
        return self._backbone


class WithEvalCell(Cell):
    """A network and its loss, to measure with: ``construct(data, label)`` gives loss, output and label."""

    def __init__(self, network: Cell, loss_fn: Any, add_cast_fp32: bool = False) -> None:
        super().__init__(auto_prefix=False)
        self._network = network
        self._loss_fn = loss_fn

    def construct(self, data: Any, label: Any) -> tuple[Tensor, Tensor, Any]:
        """Return the loss, the results of the network, and the label."""
        outputs = self._network(data)
        return self._loss_fn(outputs, label), outputs, label


class ForwardValueAndGrad(Cell):
    """A network and its gradients: ``construct(*inputs)`` gives the network's outputs, and the gradients.

    Args:
        weights: The parameters to differentiate by, with ``get_by_list``; default: those of the network.
        get_all: Whether to differentiate by all inputs; else by the first one.
        get_by_list: Whether to differentiate by parameters: instead of the first input, or beside all.
        sens_param: Whether the last input is the gradient of the loss.
    """

    _is_step = True

    def __init__(self, network: Cell, weights: Any = None, get_all: bool = False, get_by_list: bool = False,
                 sens_param: bool = False) -> None:  # fmt: skip
        super().__init__(auto_prefix=False)
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"the network of ForwardValueAndGrad is a {type(network).__name__}", "give a Cell")
        self.network = network
        self._weights = network.trainable_params() if get_by_list and weights is None else weights
        self.get_all, self.get_by_list, self.sens_param = get_all, get_by_list, sens_param

    def construct(self, *inputs: Any) -> tuple[Any, Any]:
        """Return the results of the network, and the gradients."""
        given, sens = (inputs[:-1], inputs[-1]) if self.sens_param else (inputs, None)

        def weighted(*args: Any) -> tuple[Any, Any]:
            loss = self.network(*args)
            return (loss if sens is None else ops.mul(loss, ops.stop_gradient(sens))), loss

        position = tuple(range(len(given))) if self.get_all else None if self.get_by_list else 0
        weights = self._weights if self.get_by_list else None
        (_, loss), gradients = value_and_grad(weighted, position, weights, has_aux=True)(*given)
        return loss, gradients


class TrainOneStepCell(Cell):
    """One step of training: a call computes the loss and its gradients, lets the optimizer change the parameters.

    Forward pass, backward pass and optimizer are one network, whose parameters are its states.

    Args:
        network: A network that gives a loss, such as ``WithLossCell``.
        sens: What the loss is multiplied by before its gradients are taken.
        return_grad: Whether to return the gradients by name, behind the loss.
    """

    _is_step = True

    def __init__(
        self, network: Cell, optimizer: Optimizer, sens: float | None = None, return_grad: bool = False
    ) -> None:
        super().__init__(auto_prefix=False)
        if not isinstance(optimizer, Optimizer):
            raise ArgumentTypeError(f"the optimizer of TrainOneStepCell is a {type(optimizer).__name__}")
        self.network = network
        self.optimizer = optimizer
        self.weights = optimizer.parameters
        self.sens = 1.0 if sens is None else float(sens)
        self.return_grad = return_grad
        self.grad_reducer = combining(self.weights, network)
        self.network.set_train()

    def construct(self, *inputs: Any) -> Any:
        """Return the loss before the step."""
        (_, loss), gradients = value_and_grad(self._scaled, None, self.weights, has_aux=True)(*inputs)
        gradients = self.grad_reducer(gradients)
        loss = ops.depend(loss, self.optimizer(gradients))
        if not self.return_grad:
            return loss
        return loss, {each.name: part for each, part in zip(self.weights, gradients, strict=True)}

    def _scaled(self, *inputs: Any) -> tuple[Any, Any]:
        loss = self.network(*inputs)
        return (loss if self.sens == 1.0 else loss * self.sens), loss


def all_finite(inputs: Any, status: Any = None) -> Tensor:
    """Return whether no element of any tensor is infinite or no number."""
    tensors = [inputs] if isinstance(inputs, Tensor) else list(inputs)
    return reduce(ops.logical_and, [ops.all(ops.isfinite(each)) for each in tensors])


def change_scale(scale: Any, count: Any, finite: Any, factor: float, window: int) -> None:
    """Change a loss scale after a step, and the number of steps without overflow since it changed last."""
    counted = ops.where(finite, ops.add(count, 1), 0)
    grows = ops.greater_equal(counted, window)
    kept = ops.where(grows, ops.mul(scale, factor), scale)
    changed, held = ops.where(finite, kept, ops.maximum(ops.div(scale, factor), 1.0)), ops.where(grows, 0, counted)
    ops.assign(scale, changed)
    ops.assign(count, held)


class DynamicLossScaleUpdateCell(Cell):
    """Changes a loss scale: divided at an overflow, multiplied after ``scale_window`` steps without one."""

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
        finite = ops.logical_not(overflow)
        change_scale(loss_scale, self.cur_iter, finite, self.scale_factor, self.scale_window)
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
            return ops.mul(loss, scale), loss

        (_, loss), gradients = value_and_grad(scaled, None, self.weights, has_aux=True)(*inputs)
        gradients = self.grad_reducer(tuple(ops.div(each, scale) for each in gradients))
        finite = all_finite(gradients)
        used = ops.mul(scale, 1.0)
        changed_where(finite, lambda: self.optimizer(gradients))
        overflow = ops.logical_not(finite)
        if self.loss_scaling_manager is not None:
            overflow = ops.depend(overflow, self.loss_scaling_manager(scale, overflow))
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
            kept = ops.where(condition, Tensor.of(symbol), Tensor.of(old))
            states.write(parameter, kept.symbol)  # type: ignore[arg-type]


names.export(vars(), but="all_finite change_scale changed_where combining")
