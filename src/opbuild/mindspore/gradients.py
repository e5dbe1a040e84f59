"""``grad`` and ``value_and_grad``: functions that return gradients, as one network with what they differentiate."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from opbuild.frontend.cell import Trace, current, location
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.closures import state_of
from opbuild.mindspore.execution import emit, symbol_of
from opbuild.mindspore.networks import Networks
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.states import need_states
from opbuild.mindspore.tensor import Tensor

__all__ = ["grad", "value_and_grad"]


def value_and_grad(fn: Callable[..., Any], grad_position: int | Sequence[int] | None = 0,
                   weights: Any = None, has_aux: bool = False) -> Callable[..., Any]:  # fmt: skip
    """Return a function that returns what ``fn`` does, and gradients of the first result, the sum of its elements.

    Args:
        fn: A function of tensors, or a cell. What it computes is traced in both modes: its Python runs once for each
            signature.
        grad_position: Which arguments to differentiate by, one or several; None for none.
        weights: Parameters to differentiate by: a list, a ``ParameterTuple``, or one.
        has_aux: Whether results behind the first one are only passed on: nothing flows back through them.

    Returns:
        A function that returns ``(result, gradients)``: a tensor for one position or one parameter, a tuple for
        several, and ``(of positions, of weights)`` where both are asked for.

    Raises:
        ArgumentValueError: If neither arguments nor weights are to be differentiated by.
    """
    if grad_position is None and weights is None:
        raise ArgumentValueError("grad was given neither a grad_position nor weights", "give one of them")
    differentiated = _Differentiated(fn, grad_position, weights, has_aux)
    networks = Networks(getattr(fn, "__name__", type(fn).__name__), differentiated, has_states=True)

    @functools.wraps(fn.construct if isinstance(fn, Cell) else fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if current() is not None:
            return differentiated(*args, **kwargs)
        state = state_of(fn)
        return networks.call(args, kwargs, state)

    return call


def grad(fn: Callable[..., Any], grad_position: int | Sequence[int] | None = 0, weights: Any = None,
         has_aux: bool = False) -> Callable[..., Any]:  # fmt: skip
    """Return ``value_and_grad`` without the value; with ``has_aux`` the results behind the first one stay.

    Args:
        fn: As of ``value_and_grad``, as the others.
        grad_position: See there.
        weights: See there.
        has_aux: See there.
    """
    both = value_and_grad(fn, grad_position, weights, has_aux)

    @functools.wraps(both)
    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1:]) if has_aux else gradients

    return call


class _Differentiated:
    """What is traced: the function, and behind it the gradients."""

    def __init__(
        self, fn: Callable[..., Any], position: int | Sequence[int] | None, weights: Any, has_aux: bool
    ) -> None:
        self._fn, self._has_aux = fn, has_aux
        self._is_one = isinstance(position, int), isinstance(weights, Parameter)
        self._positions = () if position is None else (position,) if isinstance(position, int) else tuple(position)
        self._weights = () if weights is None else (weights,) if isinstance(weights, Parameter) else tuple(weights)
        self._by = position is not None, weights is not None
        if not all(isinstance(each, Parameter) for each in self._weights):
            raise ArgumentTypeError("the weights of grad are no parameters", "give cell.trainable_params()")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        states = need_states()
        trace = states.trace
        given = list(args)
        for position in self._positions:
            given[position] = emit("Identity", self._argument(args, position))  # two arguments may be one value
        wanted = [symbol_of(trace, given[position]) for position in self._positions]
        wanted += [states.read(parameter) for parameter in self._weights]
        start = len(trace.nodes)
        result = self._fn(*given, **kwargs)
        return result, self._gradients(trace, start, result, wanted)

    @staticmethod
    def _argument(args: Sequence[Any], position: int) -> Tensor:
        if not -len(args) <= position < len(args) or not isinstance(args[position], Tensor):
            raise ArgumentTypeError(f"grad by argument {position}{location()}, which is no tensor")
        found: Tensor = args[position]
        return found

    def _gradients(self, trace: Trace, start: int, result: Any, wanted: Sequence[Any]) -> Any:
        from opbuild.frontend.cell_gradients import record_gradients

        loss = result[0] if isinstance(result, (tuple, list)) else result
        if not isinstance(loss, Tensor):
            raise ArgumentTypeError(f"grad of a function that returns a {type(loss).__name__}{location()}")
        found = [Tensor.of(each) for each in record_gradients(trace, start, symbol_of(trace, loss), wanted)]
        count = len(self._positions)
        inputs: Any = found[0] if self._is_one[0] else tuple(found[:count])
        weights: Any = found[count] if self._is_one[1] else tuple(found[count:])
        return (inputs, weights) if all(self._by) else inputs if self._by[0] else weights
