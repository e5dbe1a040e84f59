"""Callbacks: the hooks of a program while ``Model`` trains or measures."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from types import SimpleNamespace
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "Callback", "History", "LambdaCallback", "LearningRateScheduler", "LossMonitor", "RunContext", "TimeMonitor",
]  # fmt: skip


class RunContext:
    """The context of a callback: the state of the run, and a way to end it.

    Args:
        original_args: The state: ``cur_epoch_num``, ``cur_step_num``, ``net_outputs``, ``train_network`` and so on.
    """

    def __init__(self, original_args: SimpleNamespace) -> None:
        self._args = original_args
        self._stops = False

    def original_args(self) -> SimpleNamespace:
        """Return the state."""
        return self._args

    def request_stop(self) -> None:
        """End the run after this step or epoch."""
        self._stops = True

    def get_stop_requested(self) -> bool:
        """Return whether a callback asked for the end."""
        return self._stops


_METHODS = ("begin", "epoch_begin", "epoch_end", "step_begin", "step_end", "end")


class Callback:
    """Does nothing at each of its times: programs derive their own.

    A subclass may have ``on_train_...`` and ``on_eval_...`` instead of a method for both, each of ``begin``,
    ``epoch_begin``, ``epoch_end``, ``step_begin``, ``step_end`` and ``end``.
    """

    def __enter__(self) -> Callback:
        return self

    def __exit__(self, *details: object) -> None:
        return None


def _both(name: str) -> Callable[[Callback, RunContext], None]:
    def method(self: Callback, run_context: RunContext) -> None:
        """Do nothing."""

    method.__name__ = name
    return method


def _one(name: str) -> Callable[[Callback, RunContext], None]:
    def method(self: Callback, run_context: RunContext) -> None:
        """Call the method for both."""
        getattr(self, name)(run_context)

    return method


for _name in _METHODS:
    setattr(Callback, _name, _both(_name))
    for _kind in ("on_train", "on_eval"):
        setattr(Callback, f"{_kind}_{_name}", _one(_name))


class Callbacks:
    """Several callbacks, called one after the other.

    Args:
        given: A callback, several, or None.
    """

    def __init__(self, given: Any) -> None:
        self.all: list[Callback] = [] if given is None else list(given) if isinstance(given, Iterable) else [given]
        for each in self.all:
            if not isinstance(each, Callback):
                raise ArgumentTypeError(f"a {type(each).__name__} is among the callbacks", "derive it from Callback")

    def call(self, kind: str, time: str, context: RunContext) -> None:
        """Call the method of a time: ``train`` or ``eval``, and ``begin`` and so on."""
        for each in self.all:
            getattr(each, f"on_{kind}_{time}")(context)


def loss_of(outputs: Any) -> Any:
    """Return the loss among the results of a step: a number, if it is one; else None."""
    first = outputs[0] if isinstance(outputs, (tuple, list)) and outputs else outputs
    if isinstance(first, Tensor):
        return float(np.mean(first.asnumpy()))
    return float(first) if isinstance(first, (int, float)) else None


class LossMonitor(Callback):
    """Prints the loss, and ends the run where it is no number.

    Args:
        per_print_times: After how many steps.
    """

    def __init__(self, per_print_times: int = 1) -> None:
        if isinstance(per_print_times, bool) or not isinstance(per_print_times, int) or per_print_times < 0:
            raise ArgumentValueError(f"per_print_times of LossMonitor is {per_print_times!r}", "give an integer from 0")
        self._each, self._last = per_print_times, 0

    def step_end(self, run_context: RunContext) -> None:
        """Print the loss of the step.

        Raises:
            ArgumentValueError: If it is infinite or no number.
        """
        state = run_context.original_args()
        loss = loss_of(state.net_outputs)
        step = (state.cur_step_num - 1) % state.batch_num + 1
        if loss is not None and not math.isfinite(loss):
            raise ArgumentValueError(
                f"the loss of epoch {state.cur_epoch_num}, step {step} is {loss}",
                "lower the learning rate, or clip gradients",
            )
        if self._each and (state.cur_step_num - self._last) >= self._each:
            self._last = state.cur_step_num
            print(f"epoch: {state.cur_epoch_num} step: {step}, loss is {loss}", flush=True)

    on_eval_step_end = Callback.begin  # type: ignore[attr-defined]

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Print the measurements of ``Model.fit``, if it made any."""
        state = run_context.original_args()
        if getattr(state, "eval_results", None):
            print(f"Eval result: epoch {state.cur_epoch_num}, metrics: {state.eval_results}", flush=True)


class TimeMonitor(Callback):
    """Prints how long an epoch took, and a step.

    Args:
        data_size: The number of steps in an epoch; by default that of the data set.
    """

    def __init__(self, data_size: int | None = None) -> None:
        self._size = data_size
        self._began = 0.0

    def epoch_begin(self, run_context: RunContext) -> None:
        """Look at the clock."""
        self._began = time.monotonic()

    def epoch_end(self, run_context: RunContext) -> None:
        """Print the time since."""
        state = run_context.original_args()
        took = 1e3 * (time.monotonic() - self._began)
        each = took / (self._size or state.batch_num)
        print(f"{state.mode.capitalize()} epoch time: {took:5.3f} ms, per step time: {each:5.3f} ms", flush=True)


class LambdaCallback(Callback):
    """Functions of the context for any of the times, by the methods' names."""

    def __init__(self, **functions: Callable[[RunContext], None] | None) -> None:
        for name, function in functions.items():
            if not hasattr(Callback, name):
                raise ArgumentValueError(f"LambdaCallback was given {name}", "give names of methods of Callback")
            if function is not None:
                setattr(self, name, function)


class History(Callback):
    """Keeps the losses and metrics of each epoch: ``epoch``, and ``history`` by name."""

    def __init__(self) -> None:
        self.epoch: dict[str, list[int]] = {"epoch": []}
        self.history: dict[str, list[Any]] = {}

    def begin(self, run_context: RunContext) -> None:
        """Begin again."""
        self.epoch = {"epoch": []}

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Keep the values at the end of the epoch."""
        state = run_context.original_args()
        self.epoch["epoch"].append(state.cur_epoch_num)
        found = {"net_output": state.net_outputs, **getattr(state, "eval_results", {})}
        for name, value in found.items():
            self.history.setdefault(name, []).append(value)


class LearningRateScheduler(Callback):
    """Sets the learning rate before each step.

    Args:
        learning_rate_function: Given the rate and the number of the step; returns the new rate.
    """

    def __init__(self, learning_rate_function: Callable[[float, int], float]) -> None:
        self._function = learning_rate_function

    def on_train_step_begin(self, run_context: RunContext) -> None:
        """Set the rate."""
        state = run_context.original_args()
        rate = state.optimizer.learning_rate
        if not isinstance(rate, Parameter) or rate.ndim:
            raise ArgumentValueError("LearningRateScheduler with a rate for each step", "give the optimizer one number")
        new = self._function(float(rate.asnumpy()), state.cur_step_num)
        rate.set_data(Tensor(new, rate.dtype))
