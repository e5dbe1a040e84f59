"""``ModelCheckpoint``: saves the trained network every so many steps or seconds, and keeps the newest files."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.mindspore.checkpoint import save_checkpoint
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.train.callback import Callback, RunContext
from opbuild.platform.paths import Path

__all__ = ["CheckpointConfig", "ModelCheckpoint"]


class CheckpointConfig:
    """When to save, and what to keep.

    Args:
        save_checkpoint_steps: After how many steps; 0 or None: not by steps.
        save_checkpoint_seconds: After how many seconds, where steps are not given.
        keep_checkpoint_max: How many files to keep; 0 or None: all.
        keep_checkpoint_per_n_minutes: Keep one file of so many minutes, where ``keep_checkpoint_max`` is not given.
        integrated_save: Kept for programs that give it.
        async_save: Kept for programs that give it: files are written when the call returns.
        saved_network: The cell to save; by default the step of training, with the optimizer's states.
        append_info: ``epoch_num``, ``step_num`` and dictionaries, to save with it.
        enc_key: Not supported.
        enc_mode: Kept for programs that give it.
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
            if each == "epoch_num":
                found["epoch_num"] = state.cur_epoch_num
            elif each == "step_num":
                found["step_num"] = state.cur_step_num
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
