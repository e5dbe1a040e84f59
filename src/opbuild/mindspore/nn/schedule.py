"""Learning rates that change: cells of the step's number, and lists of one number a step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.arithmetic import add, ceil, cos, div, floor, maximum, minimum, mul, sub
from opbuild.mindspore.ops.arithmetic import pow as power
from opbuild.mindspore.tensor import Tensor


class LearningRateSchedule(Cell):
    """A learning rate that follows from the number of steps before; subclasses have ``construct(global_step)``."""


class _Decay(LearningRateSchedule):
    """A rate that decays over ``decay_steps``, by stairs or smoothly."""

    def __init__(self, learning_rate: float, decay_rate: float, decay_steps: int, is_stair: bool = False) -> None:
        super().__init__()
        if learning_rate <= 0 or decay_rate <= 0 or decay_steps < 1:
            raise ArgumentValueError(
                f"{type(self).__name__} was given {learning_rate}, {decay_rate}, {decay_steps}", "give numbers above 0"
            )
        self.learning_rate, self.decay_rate = float(learning_rate), float(decay_rate)
        self.decay_steps, self.is_stair = decay_steps, is_stair

    def passed(self, global_step: Tensor) -> Tensor:
        """Return how often ``decay_steps`` have passed."""
        share = div(cast(global_step, "float32"), float(self.decay_steps))
        return floor(share) if self.is_stair else share


class ExponentialDecayLR(_Decay):
    """``learning_rate * decay_rate ** (step / decay_steps)``."""

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        return mul(power(Tensor(self.decay_rate), self.passed(global_step)), self.learning_rate)


class NaturalExpDecayLR(_Decay):
    """``learning_rate * e ** (-decay_rate * step / decay_steps)``."""

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        return mul(power(Tensor(math.exp(-self.decay_rate)), self.passed(global_step)), self.learning_rate)


class InverseDecayLR(_Decay):
    """``learning_rate / (1 + decay_rate * step / decay_steps)``."""

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        return div(Tensor(self.learning_rate), add(mul(self.passed(global_step), self.decay_rate), 1.0))


class CosineDecayLR(LearningRateSchedule):
    """From ``max_lr`` to ``min_lr`` along half a wave of a cosine."""

    def __init__(self, min_lr: float, max_lr: float, decay_steps: int) -> None:
        super().__init__()
        if min_lr < 0 or min_lr >= max_lr or decay_steps < 1:
            raise ArgumentValueError(f"CosineDecayLR was given {min_lr}, {max_lr}, {decay_steps}",
                                     "give 0 <= min_lr < max_lr, and at least one step")  # fmt: skip
        self.min_lr, self.max_lr, self.decay_steps = float(min_lr), float(max_lr), decay_steps

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        passed = minimum(cast(global_step, "float32"), float(self.decay_steps))
        wave = add(cos(mul(passed, math.pi / self.decay_steps)), 1.0)
        return add(mul(wave, 0.5 * (self.max_lr - self.min_lr)), self.min_lr)


class PolynomialDecayLR(LearningRateSchedule):
    """From ``learning_rate`` to ``end_learning_rate`` by a power of the steps that are left.

    With ``update_decay_steps`` it begins anew, over twice, three times as many steps and so on.
    """

    def __init__(self, learning_rate: float, end_learning_rate: float, decay_steps: int, power: float,
                 update_decay_steps: bool = False) -> None:  # fmt: skip
        super().__init__()
        if learning_rate <= 0 or end_learning_rate < 0 or decay_steps < 1 or power <= 0:
            raise ArgumentValueError(
                f"PolynomialDecayLR was given {learning_rate}, {end_learning_rate}, {decay_steps}, {power}",
                "give numbers above 0",
            )
        self.learning_rate, self.end_learning_rate = float(learning_rate), float(end_learning_rate)
        self.decay_steps, self.power, self.update_decay_steps = decay_steps, float(power), update_decay_steps

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        step, steps = cast(global_step, "float32"), Tensor(float(self.decay_steps))
        if self.update_decay_steps:
            steps = mul(steps, maximum(ceil(div(step, steps)), 1.0))
        left = sub(1.0, div(minimum(step, steps), steps))
        return add(mul(power(left, self.power), self.learning_rate - self.end_learning_rate), self.end_learning_rate)


class WarmUpLR(LearningRateSchedule):
    """From 0 to ``learning_rate`` in equal steps, which stays."""

    def __init__(self, learning_rate: float, warmup_steps: int) -> None:
        super().__init__()
        if learning_rate <= 0 or warmup_steps < 1:
            raise ArgumentValueError(f"WarmUpLR was given {learning_rate}, {warmup_steps}", "give numbers above 0")
        self.learning_rate, self.warmup_steps = float(learning_rate), warmup_steps

    def construct(self, global_step: Tensor) -> Tensor:
        """Return the rate."""
        share = div(minimum(cast(global_step, "float32"), float(self.warmup_steps)), float(self.warmup_steps))
        return mul(share, self.learning_rate)


def piecewise_constant_lr(milestone: Sequence[int], learning_rates: Sequence[float]) -> list[float]:
    """Return a rate for each step: ``learning_rates[i]`` up to step ``milestone[i]``."""
    if len(milestone) != len(learning_rates) or list(milestone) != sorted(set(milestone)):
        raise ArgumentValueError(f"piecewise_constant_lr was given the milestones {list(milestone)}",
                                 "give rising numbers, as many as rates")  # fmt: skip
    starts = (0, *milestone)
    return [
        float(rate)
        for rate, start, end in zip(learning_rates, starts, milestone, strict=False)
        for _ in range(start, end)
    ]


def _by_epoch(rate: Any, total_step: int, step_per_epoch: int) -> list[float]:
    return [float(rate(step // step_per_epoch)) for step in range(total_step)]


def exponential_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                         decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate * decay_rate ** (epoch / decay_epoch)`` for each step."""

    def rate(epoch: int) -> float:
        return learning_rate * decay_rate ** (epoch // decay_epoch if is_stair else epoch / decay_epoch)

    return _by_epoch(rate, total_step, step_per_epoch)


def natural_exp_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                         decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate * e ** (-decay_rate * epoch)`` for each step; by stairs of ``decay_epoch`` epochs."""

    def rate(epoch: int) -> float:
        return learning_rate * math.exp(-decay_rate * (epoch // decay_epoch * decay_epoch if is_stair else epoch))

    return _by_epoch(rate, total_step, step_per_epoch)


def inverse_decay_lr(learning_rate: float, decay_rate: float, total_step: int, step_per_epoch: int,
                     decay_epoch: int, is_stair: bool = False) -> list[float]:  # fmt: skip
    """Return ``learning_rate / (1 + decay_rate * epoch / decay_epoch)`` for each step."""

    def rate(epoch: int) -> float:
        return learning_rate / (1 + decay_rate * (epoch // decay_epoch if is_stair else epoch / decay_epoch))

    return _by_epoch(rate, total_step, step_per_epoch)


def polynomial_decay_lr(learning_rate: float, end_learning_rate: float, total_step: int, step_per_epoch: int,
                        decay_epoch: int, power: float, update_decay_epoch: bool = False) -> list[float]:  # fmt: skip
    """Return rates from ``learning_rate`` to ``end_learning_rate`` by a power of the epochs that are left."""

    def rate(epoch: int) -> float:
        epochs = decay_epoch * max(math.ceil(epoch / decay_epoch), 1) if update_decay_epoch else decay_epoch
        left = 1 - min(epoch, epochs) / epochs
        return (learning_rate - end_learning_rate) * float(left**power) + end_learning_rate

    return _by_epoch(rate, total_step, step_per_epoch)


def warmup_lr(learning_rate: float, total_step: int, step_per_epoch: int, warmup_epoch: int) -> list[float]:
    """Return rates that rise from 0 to ``learning_rate`` over ``warmup_epoch`` epochs, for each step."""
    return _by_epoch(
        lambda epoch: learning_rate * min(epoch, warmup_epoch) / warmup_epoch if warmup_epoch else learning_rate,
        total_step, step_per_epoch,
    )  # fmt: skip


def cosine_decay_lr(min_lr: float, max_lr: float, total_step: int, step_per_epoch: int,
                    decay_epoch: int) -> list[float]:  # fmt: skip
    """Return rates from ``max_lr`` to ``min_lr`` along half a wave of a cosine, for each step."""

    def rate(epoch: int) -> float:
        return min_lr + 0.5 * (max_lr - min_lr) * (1 + math.cos(math.pi * min(epoch, decay_epoch) / decay_epoch))

    return _by_epoch(rate, total_step, step_per_epoch)


__all__ = names.public(vars(), Cell)
__all__ += [
    "cosine_decay_lr", "exponential_decay_lr", "inverse_decay_lr", "natural_exp_decay_lr", "piecewise_constant_lr",
    "polynomial_decay_lr", "warmup_lr",
]  # fmt: skip
