"""Learning rates that change: cells of the step's number, and lists of one number a step."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell
from opbuild.mindspore.ops.arithmetic import add, ceil, cos, div, floor, maximum, minimum, mul, sub
from opbuild.mindspore.ops.arithmetic import pow as raised
from opbuild.mindspore.tensor import Tensor


class LearningRateSchedule(Cell):
    """A learning rate that follows from the number of steps before; subclasses have ``construct(global_step)``."""


def _wrong(what: str, *given: float) -> ArgumentValueError:
    owner = what.rpartition(" ")[2]
    return ArgumentValueError(f"{owner} was given {', '.join(map(str, given))}", "give numbers above 0")


def _decays(rate: float, factor: float, steps: int, what: str) -> None:
    if rate <= 0 or factor <= 0 or steps < 1:
        raise _wrong(what, rate, factor, steps)


def _falls(rate: float, end: float, steps: int, power: float, what: str) -> None:
    if rate <= 0 or end < 0 or steps < 1 or power <= 0:
        raise _wrong(what, rate, end, steps, power)


def _warms(rate: float, steps: int, what: str) -> None:
    if rate <= 0 or steps < 1:
        raise _wrong(what, rate, steps)


def _waves(low: float, high: float, steps: int, what: str) -> None:
    if low < 0 or low >= high or steps < 1:
        raise ArgumentValueError(f"CosineDecayLR was given {low}, {high}, {steps}",
                                 "give 0 <= min_lr < max_lr, and at least one step")  # fmt: skip


_DECAY: dict[str, Any] = {
    "base": LearningRateSchedule, "checks": {"learning_rate decay_rate decay_steps": _decays},
}  # fmt: skip


def _passed(global_step: Tensor, decay_steps: int, is_stair: bool) -> Tensor:
    """Return the number of times that ``decay_steps`` have passed."""
    share = div(cast(global_step, "float32"), float(decay_steps))
    return floor(share) if is_stair else share


@cell(**_DECAY)
def ExponentialDecayLR(global_step: Tensor, *, learning_rate: float, decay_rate: float, decay_steps: int,
                       is_stair: bool = False) -> Tensor:  # fmt: skip
    """``learning_rate * decay_rate ** (step / decay_steps)``."""
    return mul(raised(Tensor(float(decay_rate)), _passed(global_step, decay_steps, is_stair)), float(learning_rate))


@cell(**_DECAY)
def NaturalExpDecayLR(global_step: Tensor, *, learning_rate: float, decay_rate: float, decay_steps: int,
                      is_stair: bool = False) -> Tensor:  # fmt: skip
    """``learning_rate * e ** (-decay_rate * step / decay_steps)``."""
    base = Tensor(math.exp(-decay_rate))
    return mul(raised(base, _passed(global_step, decay_steps, is_stair)), float(learning_rate))


@cell(**_DECAY)
def InverseDecayLR(global_step: Tensor, *, learning_rate: float, decay_rate: float, decay_steps: int,
                   is_stair: bool = False) -> Tensor:  # fmt: skip
    """``learning_rate / (1 + decay_rate * step / decay_steps)``."""
    grown = add(mul(_passed(global_step, decay_steps, is_stair), float(decay_rate)), 1.0)
    return div(Tensor(float(learning_rate)), grown)


@cell(LearningRateSchedule, {"min_lr max_lr decay_steps": _waves})
def CosineDecayLR(global_step: Tensor, *, min_lr: float, max_lr: float, decay_steps: int) -> Tensor:
    """From ``max_lr`` to ``min_lr`` along half a wave of a cosine."""
    passed = minimum(cast(global_step, "float32"), float(decay_steps))
    wave = add(cos(mul(passed, math.pi / decay_steps)), 1.0)
    return add(mul(wave, 0.5 * (max_lr - min_lr)), float(min_lr))


@cell(LearningRateSchedule, {"learning_rate end_learning_rate decay_steps power": _falls})
def PolynomialDecayLR(global_step: Tensor, *, learning_rate: float, end_learning_rate: float, decay_steps: int,
                      power: float, update_decay_steps: bool = False) -> Tensor:  # fmt: skip
    """From ``learning_rate`` to ``end_learning_rate`` by a power of the steps that are left.

    With ``update_decay_steps`` it begins anew, over twice, three times as many steps and so on.
    """
    step, steps = cast(global_step, "float32"), Tensor(float(decay_steps))
    if update_decay_steps:
        steps = mul(steps, maximum(ceil(div(step, steps)), 1.0))
    left, end = sub(1.0, div(minimum(step, steps), steps)), float(end_learning_rate)
    return add(mul(raised(left, float(power)), float(learning_rate) - end), end)


@cell(LearningRateSchedule, {"learning_rate warmup_steps": _warms})
def WarmUpLR(global_step: Tensor, *, learning_rate: float, warmup_steps: int) -> Tensor:
    """From 0 to ``learning_rate`` in equal steps, which stays."""
    steps = float(warmup_steps)
    return mul(div(minimum(cast(global_step, "float32"), steps), steps), float(learning_rate))


def piecewise_constant_lr(milestone: Sequence[int], learning_rates: Sequence[float]) -> list[float]:
    """Return a rate for each step: ``learning_rates[i]`` up to step ``milestone[i]``."""
    if len(milestone) != len(learning_rates) or list(milestone) != sorted(set(milestone)):
        raise ArgumentValueError(f"piecewise_constant_lr was given the milestones {list(milestone)}",
                                 "give rising numbers, as many as rates")  # fmt: skip
    spans = zip(learning_rates, (0, *milestone), milestone, strict=False)
    return [float(rate) for rate, start, end in spans for _ in range(start, end)]


def _by_epoch(total_step: int, step_per_epoch: int, rate: Callable[[int], float]) -> list[float]:
    return [float(rate(step // step_per_epoch)) for step in range(total_step)]


def exponential_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                         decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate * decay_rate ** (epoch / decay_epoch)`` for each step."""
    return _by_epoch(total_step, step_per_epoch, lambda epoch: (
        learning_rate * decay_rate ** (epoch // decay_epoch if is_stair else epoch / decay_epoch)))  # fmt: skip


def natural_exp_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                         decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate * e ** (-decay_rate * epoch)`` for each step; by stairs of ``decay_epoch`` epochs."""
    return _by_epoch(total_step, step_per_epoch, lambda epoch: learning_rate * math.exp(
        -decay_rate * (epoch // decay_epoch * decay_epoch if is_stair else epoch)))  # fmt: skip


def inverse_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                     decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate / (1 + decay_rate * epoch / decay_epoch)`` for each step."""
    return _by_epoch(total_step, step_per_epoch, lambda epoch: learning_rate / (
        1 + decay_rate * (epoch // decay_epoch if is_stair else epoch / decay_epoch)))  # fmt: skip


def polynomial_decay_lr(learning_rate: float, end_learning_rate: float, total_step: int, step_per_epoch: int,
                        decay_epoch: int, power: float, update_decay_epoch: bool = False) -> list[float]:  # fmt: skip
    """Return rates from ``learning_rate`` to ``end_learning_rate`` by a power of the epochs that are left."""

    def rate(epoch: int) -> float:
        epochs = decay_epoch * max(math.ceil(epoch / decay_epoch), 1) if update_decay_epoch else decay_epoch
        left = 1 - min(epoch, epochs) / epochs
        return (learning_rate - end_learning_rate) * float(left**power) + end_learning_rate

    return _by_epoch(total_step, step_per_epoch, rate)


def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """Return rates that rise from 0 to ``learning_rate`` over ``warmup_epoch`` epochs, for each step."""
    return _by_epoch(total_step, step_per_epoch, lambda epoch: (
        learning_rate * min(epoch, warmup_epoch) / warmup_epoch if warmup_epoch else learning_rate))  # fmt: skip


def cosine_decay_lr(min_lr: float, max_lr: float, total_step: int, step_per_epoch: int,
                    decay_epoch: int) -> list[float]:  # fmt: skip
    """Return rates from ``max_lr`` to ``min_lr`` along half a wave of a cosine, for each step."""
    return _by_epoch(total_step, step_per_epoch, lambda epoch: (
        min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * min(epoch, decay_epoch) / decay_epoch))
    ))  # fmt: skip


__all__ = names.public(vars(), Cell)
__all__ += [
    "cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr",
    "polynomial_decay_lr", "warmup_lr",
]  # fmt: skip
