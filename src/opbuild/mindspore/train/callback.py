"""Callbacks: the hooks of a program while ``Model`` trains or measures; those that save and that end the run."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, natural, one_of
from opbuild.mindspore.checkpoint import save_checkpoint
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor
from opbuild.platform.paths import Path

_METHODS = ("begin", "epoch_begin", "epoch_end", "step_begin", "step_end", "end")


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
    """Callbacks, one, several or none, called one after the other."""

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
        self._each, self._last = natural(per_print_times, "per_print_times of LossMonitor", 0), 0

    def step_end(self, run_context: RunContext) -> None:
        """Print the loss of the step."""
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


class CheckpointConfig:
    """When to save, and what to keep.

    Args:
        save_checkpoint_steps: After how many steps; 0 or None: not by steps.
        save_checkpoint_seconds: After how many seconds, where steps are not given.
        keep_checkpoint_max: How many files to keep; 0 or None: all.
        keep_checkpoint_per_n_minutes: Keep one file of so many minutes, where ``keep_checkpoint_max`` is not given.
        integrated_save, enc_mode: Kept for programs that give them.
        async_save: Kept for programs that give it: files are written when the call returns.
        saved_network: The cell to save; by default the step of training, with the optimizer's states.
        append_info: ``epoch_num``, ``step_num`` and dictionaries, to save with it.
        enc_key: Not supported.
        exception_save: Whether to save when the run ends by an exception.
        options: MindSpore's further options; ``format`` is one of ``ckpt`` and ``safetensors``.
    """

    def __init__(self, save_checkpoint_steps: int | None = 1, save_checkpoint_seconds: int | None = 0,
                 keep_checkpoint_max: int | None = 5, keep_checkpoint_per_n_minutes: int | None = 0,
                 integrated_save: bool = True, async_save: Any = False, saved_network: Cell | None = None,
                 append_info: Sequence[Any] | None = None, enc_key: bytes | None = None, enc_mode: str = "AES-GCM",
                 exception_save: bool = False, **options: Any) -> None:  # fmt: skip
        numbers = (save_checkpoint_steps, save_checkpoint_seconds, keep_checkpoint_max, keep_checkpoint_per_n_minutes)
        if any(number is not None and (isinstance(number, bool) or number < 0) for number in numbers):
            raise ArgumentValueError(f"CheckpointConfig was given {numbers}", "give numbers from 0 on")
        if not save_checkpoint_steps and not save_checkpoint_seconds:
            raise ArgumentValueError("CheckpointConfig says neither steps nor seconds", "give one of them")
        if enc_key is not None:
            raise ArgumentValueError("CheckpointConfig was given enc_key", "files are not encrypted here")
        if saved_network is not None and not isinstance(saved_network, Cell):
            raise ArgumentTypeError(f"saved_network is a {type(saved_network).__name__}", "give a Cell")
        self.save_checkpoint_steps, self.save_checkpoint_seconds = save_checkpoint_steps, save_checkpoint_seconds
        self.keep_checkpoint_max = keep_checkpoint_max
        self.keep_checkpoint_per_n_minutes = 0 if keep_checkpoint_max else keep_checkpoint_per_n_minutes or 0
        self.saved_network, self.append_info = saved_network, list(append_info or ())
        self.exception_save, self.format = exception_save, options.get("format", "ckpt")


class ModelCheckpoint(Callback):
    """Saves files called ``<prefix>-<epoch>_<step>.ckpt``; if there are such files already, ``<prefix>_1-...``.

    Args:
        prefix: How names begin.
        directory: The folder; it is made. The working folder by default.
        config: When to save, and what to keep.
    """

    def __init__(self, prefix: str = "CKP", directory: str | None = None,
                 config: CheckpointConfig | None = None) -> None:  # fmt: skip
        if not isinstance(prefix, str) or "/" in prefix:
            raise ArgumentValueError(f"prefix of ModelCheckpoint is {prefix!r}", "give a name without /")
        self._prefix, self._folder = prefix, Path(directory or ".")
        self._config = config or CheckpointConfig()
        self._files: list[Path] = []
        self._last_step = 0
        self._last_time = self._last_kept = time.monotonic()
        self._state: Any = None

    @property
    def latest_ckpt_file_name(self) -> str:
        """The file that was written last; empty before the first."""
        return str(self._files[-1]) if self._files else ""

    def on_train_begin(self, run_context: RunContext) -> None:
        """Choose names that nothing has."""
        self._folder.mkdir(parents=True, exist_ok=True)
        if not self._files:
            self._prefix = _free(self._folder, self._prefix)
        self._state = run_context.original_args()
        self._last_step = self._state.cur_step_num

    def on_train_step_end(self, run_context: RunContext) -> None:
        """Save, if it is time."""
        state, config = run_context.original_args(), self._config
        by_steps = config.save_checkpoint_steps
        if by_steps:
            due = state.cur_step_num - self._last_step >= by_steps
        else:
            due = time.monotonic() - self._last_time >= (config.save_checkpoint_seconds or 0)
        if due:
            self._save(state)

    def on_train_end(self, run_context: RunContext) -> None:
        """Save the changes of the last steps."""
        state = run_context.original_args()
        if state.cur_step_num > self._last_step:
            self._save(state)

    def __exit__(self, *details: object) -> None:
        if details[0] is not None and self._config.exception_save and self._state is not None:
            self._save(self._state, "_breakpoint")

    def _save(self, state: Any, mark: str = "") -> None:
        step = (state.cur_step_num - 1) % state.batch_num + 1
        path = self._folder / f"{self._prefix}-{state.cur_epoch_num}_{step}{mark}.{self._config.format}"
        network = self._config.saved_network or state.train_network
        save_checkpoint(network, str(path), append_dict=self._appended(state), format=self._config.format)
        self._files = [*(each for each in self._files if each != path), path]
        self._last_step, self._last_time = state.cur_step_num, time.monotonic()
        self._thin_out()

    def _appended(self, state: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for each in self._config.append_info:
            if each in ("epoch_num", "step_num"):
                found[each] = getattr(state, f"cur_{each}")
            elif isinstance(each, dict):
                found.update(each)
            else:
                raise ArgumentValueError(f"append_info has {each!r}", "give epoch_num, step_num or dictionaries")
        return found

    def _thin_out(self) -> None:
        config = self._config
        if config.keep_checkpoint_max:
            while len(self._files) > config.keep_checkpoint_max:
                self._files.pop(0).unlink(missing_ok=True)
        elif config.keep_checkpoint_per_n_minutes and len(self._files) > 1:
            if self._last_time - self._last_kept < 60 * config.keep_checkpoint_per_n_minutes:
                self._files.pop(-2).unlink(missing_ok=True)
            else:
                self._last_kept = self._last_time


def _free(folder: Path, prefix: str) -> str:
    """Return a prefix that no file of the folder has: with the number behind the greatest one."""
    pattern = re.compile(re.escape(prefix) + r"(?:_(\d+))?-\d+_\d+.*\.(?:ckpt|safetensors)")
    taken = [int(found[1] or 0) for path in folder.iterdir() if (found := pattern.fullmatch(path.name))]
    return f"{prefix}_{max(taken) + 1}" if taken else prefix


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


names.export(vars(), but="Callbacks loss_of")
