"""``EarlyStopping``: ends a run that no longer gets better."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import ArgumentValueError, one_of
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor
from opbuild.mindspore.train.callback import Callback, RunContext, loss_of

__all__ = ["EarlyStopping"]


class EarlyStopping(Callback):
    """Ends the run when a number has not become better for some epochs.

    Args:
        monitor: ``loss``, of training, or a metric of ``Model.fit``: ``eval_loss`` or ``loss`` and others by name.
        min_delta: By how much it must be better at least.
        patience: For how many epochs it may be no better.
        verbose: Whether to print why the run ends.
        mode: ``min``, ``max``, or ``auto``: by the name, ``max`` where it has ``acc``.
        baseline: What it must be better than at first.
        restore_best_weights: Whether the weights of the best epoch come back at the end.
    """

    def __init__(self, monitor: str = "eval_loss", min_delta: float = 0, patience: int = 0, verbose: bool = False,
                 mode: str = "auto", baseline: float | None = None,
                 restore_best_weights: bool = False) -> None:  # fmt: skip
        one_of(mode, ("auto", "min", "max"), "the mode of EarlyStopping")
        if min_delta < 0 or patience < 0:
            raise ArgumentValueError(f"EarlyStopping with min_delta={min_delta}, patience={patience}",
                                     "give numbers from 0 on")  # fmt: skip
        rises = mode == "max" or (mode == "auto" and "acc" in monitor)
        self._monitor, self._sign = monitor, 1.0 if rises else -1.0
        self._delta, self._patience, self._verbose = float(min_delta), patience, verbose
        self._baseline, self._restores = baseline, restore_best_weights
        self._best = -np.inf
        self._waited = 0
        self._weights: list[tuple[Parameter, Array]] = []
        self.stopped_epoch = 0

    def on_train_begin(self, run_context: RunContext) -> None:
        """Begin to count."""
        self._waited, self.stopped_epoch, self._weights = 0, 0, []
        self._best = -np.inf if self._baseline is None else self._sign * self._baseline

    def on_train_epoch_end(self, run_context: RunContext) -> None:
        """Compare, and end the run if it is time."""
        state = run_context.original_args()
        value = self._sign * self._value(state)
        if value - self._delta > self._best:
            self._best, self._waited = value, 0
            if self._restores:
                self._weights = [(each, each.asnumpy().copy()) for each in state.train_network.get_parameters()]
            return
        self._waited += 1
        if self._waited > self._patience - 1:
            self.stopped_epoch = state.cur_epoch_num
            run_context.request_stop()

    def on_train_end(self, run_context: RunContext) -> None:
        """Bring the best weights back."""
        for parameter, array in self._weights if self.stopped_epoch else ():
            parameter.set_data(Tensor(array))
        if self.stopped_epoch and self._verbose:
            print(f"Epoch {self.stopped_epoch}: early stopping: {self._monitor} was best at {self._sign * self._best}")

    def _value(self, state: Any) -> float:
        results = getattr(state, "eval_results", {})
        known = {"loss": loss_of(state.net_outputs), **{f"eval_{name}": each for name, each in results.items()}}
        for name in (self._monitor, f"eval_{self._monitor}"):
            if known.get(name) is not None:
                return float(known[name])
        raise ArgumentValueError(f"EarlyStopping watches {self._monitor!r}",
                                 f"there are {', '.join(sorted(known))}: Model.fit measures metrics")  # fmt: skip
