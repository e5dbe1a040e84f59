"""Cells that train: a network with its loss, and one step of an optimizer."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.gradients import value_and_grad
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.distributed import combining
from opbuild.mindspore.nn.optimizer import Optimizer
from opbuild.mindspore.ops.arithmetic import mul
from opbuild.mindspore.ops.assignment import depend, stop_gradient
from opbuild.mindspore.tensor import Tensor


class WithLossCell(Cell):
    """A network and its loss: ``construct(data, label)`` gives the loss.

    Args:
        backbone: The network.
        loss_fn: The loss, of what the network gives and the label.
    """

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
    """A network and its gradients: ``construct(*inputs)`` gives what the network does, and the gradients.

    Args:
        network: A network that gives a loss.
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
            return (loss if sens is None else mul(loss, stop_gradient(sens))), loss

        position = tuple(range(len(given))) if self.get_all else None if self.get_by_list else 0
        weights = self._weights if self.get_by_list else None
        (_, loss), gradients = value_and_grad(weighted, position, weights, has_aux=True)(*given)
        return loss, gradients


class TrainOneStepCell(Cell):
    """One step of training: a call computes the loss and its gradients, lets the optimizer change the parameters.

    Forward pass, backward pass and optimizer are one network, whose parameters are its states.

    Args:
        network: A network that gives a loss, such as ``WithLossCell``.
        optimizer: What changes the parameters.
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
        loss = depend(loss, self.optimizer(gradients))
        if not self.return_grad:
            return loss
        return loss, {each.name: part for each, part in zip(self.weights, gradients, strict=True)}

    def _scaled(self, *inputs: Any) -> tuple[Any, Any]:
        loss = self.network(*inputs)
        return (loss if self.sens == 1.0 else loss * self.sens), loss


__all__ = names.public(vars(), Cell)
