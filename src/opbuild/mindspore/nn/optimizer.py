"""Optimizers, cells that change parameters by their gradients, and learning rates that change."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, allowed
from opbuild.mindspore.dtype import float32, int32
from opbuild.mindspore.execution import cast
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, layer
from opbuild.mindspore.ops.declaration import formula
from opbuild.mindspore.ops.reduction import reduce
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.tensor import Tensor

_KEYS = ("params", "lr", "weight_decay", "grad_centralization", "order_params")


class LearningRateSchedule(Cell):
    """A learning rate that follows from the number of steps before; subclasses have ``construct(global_step)``."""


_HINT, _SAYS = "give numbers above 0", "{owner} was given {0}, {1}, {2}"
_DECAY: dict[str, Any] = {"base": LearningRateSchedule, "checks": {"learning_rate decay_rate decay_steps": allowed(
    lambda rate, factor, steps: rate > 0 and factor > 0 and steps >= 1, _HINT, _SAYS)}}  # fmt: skip


def _passed(global_step: Tensor, decay_steps: int, is_stair: bool) -> Tensor:
    """Return the number of times that ``decay_steps`` have passed."""
    share = ops.div(cast(global_step, "float32"), float(decay_steps))
    return ops.floor(share) if is_stair else share


ExponentialDecayLR = layer(
    lambda global_step, *, learning_rate, decay_rate, decay_steps, is_stair=False: ops.mul(
        ops.pow(Tensor(float(decay_rate)), _passed(global_step, decay_steps, is_stair)), float(learning_rate)),
    "``learning_rate * decay_rate ** (step / decay_steps)``.", **_DECAY)  # fmt: skip
NaturalExpDecayLR = layer(
    lambda global_step, *, learning_rate, decay_rate, decay_steps, is_stair=False: ops.mul(
        ops.pow(Tensor(math.exp(-decay_rate)), _passed(global_step, decay_steps, is_stair)), float(learning_rate)),
    "``learning_rate * e ** (-decay_rate * step / decay_steps)``.", **_DECAY)  # fmt: skip
InverseDecayLR = layer(
    lambda global_step, *, learning_rate, decay_rate, decay_steps, is_stair=False: ops.div(
        Tensor(float(learning_rate)),
        ops.add(ops.mul(_passed(global_step, decay_steps, is_stair), float(decay_rate)), 1.0)),
    "``learning_rate / (1 + decay_rate * step / decay_steps)``.", **_DECAY)  # fmt: skip
WarmUpLR = layer(
    lambda global_step, *, learning_rate, warmup_steps: ops.mul(
        ops.div(ops.minimum(cast(global_step, "float32"), float(warmup_steps)), float(warmup_steps)),
        float(learning_rate)),
    "From 0 to ``learning_rate`` in equal steps, which stays.", base=LearningRateSchedule,
    checks={"learning_rate warmup_steps": allowed(
        lambda rate, steps: rate > 0 and steps >= 1, _HINT, "{owner} was given {0}, {1}")})  # fmt: skip


@cell(LearningRateSchedule, {"min_lr max_lr decay_steps": allowed(
    lambda low, high, steps: 0 <= low < high and steps >= 1, "give 0 <= min_lr < max_lr, and at least one step",
    _SAYS)})  # fmt: skip
def CosineDecayLR(global_step: Tensor, *, min_lr: float, max_lr: float, decay_steps: int) -> Tensor:
    """From ``max_lr`` to ``min_lr`` along half a wave of a cosine."""
    passed = ops.minimum(cast(global_step, "float32"), float(decay_steps))
    wave = ops.add(ops.cos(ops.mul(passed, math.pi / decay_steps)), 1.0)
    return ops.add(ops.mul(wave, 0.5 * (max_lr - min_lr)), float(min_lr))


@cell(LearningRateSchedule, {"learning_rate end_learning_rate decay_steps power": allowed(
    lambda rate, end, steps, power: rate > 0 and end >= 0 and steps >= 1 and power > 0, _HINT,
    _SAYS + ", {3}")})  # fmt: skip
def PolynomialDecayLR(global_step: Tensor, *, learning_rate: float, end_learning_rate: float, decay_steps: int,
                      power: float, update_decay_steps: bool = False) -> Tensor:  # fmt: skip
    """From ``learning_rate`` to ``end_learning_rate`` by a power of the steps that are left.

    With ``update_decay_steps`` it begins anew, over twice, three times as many steps and so on.
    """
    step, steps = cast(global_step, "float32"), Tensor(float(decay_steps))
    if update_decay_steps:
        steps = ops.mul(steps, ops.maximum(ops.ceil(ops.div(step, steps)), 1.0))
    left, end = ops.sub(1.0, ops.div(ops.minimum(step, steps), steps)), float(end_learning_rate)
    return ops.add(ops.mul(ops.pow(left, float(power)), float(learning_rate) - end), end)


def piecewise_constant_lr(milestone: Sequence[int], learning_rates: Sequence[float]) -> list[float]:
    """Return a rate for each step: ``learning_rates[i]`` up to step ``milestone[i]``."""
    if len(milestone) != len(learning_rates) or list(milestone) != sorted(set(milestone)):
        raise ArgumentValueError(f"piecewise_constant_lr was given the milestones {list(milestone)}",
                                 "give rising numbers, as many as rates")  # fmt: skip
    spans = zip(learning_rates, (0, *milestone), milestone, strict=False)
    return [float(rate) for rate, start, end in spans for _ in range(start, end)]


def _by_epoch(total_step: int, step_per_epoch: int, rate: Callable[[int], float]) -> list[float]:
    return [float(rate(step // step_per_epoch)) for step in range(total_step)]


exponential_decay_lr = formula("``learning_rate * decay_rate ** (epoch / decay_epoch)`` for each step",
    lambda learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False: _by_epoch(
        total_step, step_per_epoch, lambda epoch:
            learning_rate * decay_rate ** (epoch // decay_epoch if is_stair else epoch / decay_epoch)))  # fmt: skip
natural_exp_decay_lr = formula(
    "``learning_rate * e ** (-decay_rate * epoch)`` for each step; by stairs of ``decay_epoch`` epochs",
    lambda learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False: _by_epoch(
        total_step, step_per_epoch, lambda epoch: learning_rate * math.exp(
            -decay_rate * (epoch // decay_epoch * decay_epoch if is_stair else epoch))))  # fmt: skip
inverse_decay_lr = formula("``learning_rate / (1 + decay_rate * epoch / decay_epoch)`` for each step",
    lambda learning_rate, decay_rate, total_step, step_per_epoch, decay_epoch, is_stair=False: _by_epoch(
        total_step, step_per_epoch, lambda epoch: learning_rate / (
            1 + decay_rate * (epoch // decay_epoch if is_stair else epoch / decay_epoch))))  # fmt: skip
warmup_lr = formula("rates that rise from 0 to ``learning_rate`` over ``warmup_epoch`` epochs, for each step",
    lambda learning_rate, total_step, step_per_epoch, warmup_epoch: _by_epoch(
        total_step, step_per_epoch, lambda epoch:
            learning_rate * min(epoch, warmup_epoch) / warmup_epoch if warmup_epoch else learning_rate))  # fmt: skip
cosine_decay_lr = formula("rates from ``max_lr`` to ``min_lr`` along half a wave of a cosine, for each step",
    lambda min_lr, max_lr, total_step, step_per_epoch, decay_epoch: _by_epoch(
        total_step, step_per_epoch, lambda epoch: min_lr + 0.5 * (max_lr - min_lr) * (
            1 + math.cos(math.pi * min(epoch, decay_epoch) / decay_epoch))))  # fmt: skip


def polynomial_decay_lr(learning_rate: float, end_learning_rate: float, total_step: int, step_per_epoch: int,
                        decay_epoch: int, power: float, update_decay_epoch: bool = False) -> list[float]:  # fmt: skip
    """Return rates from ``learning_rate`` to ``end_learning_rate`` by a power of the epochs that are left."""

    def rate(epoch: int) -> float:
        epochs = decay_epoch * max(math.ceil(epoch / decay_epoch), 1) if update_decay_epoch else decay_epoch
        left = 1 - min(epoch, epochs) / epochs
        return (learning_rate - end_learning_rate) * float(left**power) + end_learning_rate

    return _by_epoch(total_step, step_per_epoch, rate)


class Optimizer(Cell):
    """The base of optimizers: a call with the gradients changes the parameters, whose states it keeps.

    Args:
        learning_rate: A number; one for each step (a list or a tensor; the last one stays); or a
            ``LearningRateSchedule``.
        parameters: Parameters; or groups of them, dictionaries of ``params`` and ``lr``, ``weight_decay``,
            ``grad_centralization``. One may have ``order_params`` alone: all parameters, in the order that gradients
            have.
        weight_decay: What of each parameter is added to its gradient. As in MindSpore it passes by parameters whose
            names have ``beta`` or ``gamma``, unless groups are given.
        loss_scale: What gradients are divided by.
    """

    _is_step = True

    def __init__(self, learning_rate: Any, parameters: Any, weight_decay: float = 0.0, loss_scale: float = 1.0) -> None:
        super().__init__(auto_prefix=False)
        given = list(parameters)
        self.is_group = bool(given) and isinstance(given[0], Mapping)
        groups, order = _groups(given) if self.is_group else ([{"params": given}], None)
        if loss_scale <= 0 or weight_decay < 0:
            raise ArgumentValueError(
                f"{type(self).__name__} was given weight_decay={weight_decay}, loss_scale={loss_scale}",
                "give a weight_decay of at least 0, and a loss_scale above 0",
            )
        self.loss_scale = float(loss_scale)
        self.global_step = Parameter(Tensor([0], int32), "global_step", requires_grad=False)
        chosen: list[tuple[Parameter, Any, float, bool]] = []
        for number, group in enumerate(groups):
            rate = self._rate(group.get("lr", learning_rate), number)
            for parameter in group["params"]:
                if not isinstance(parameter, Parameter):
                    raise ArgumentTypeError(f"{type(self).__name__} was given a {type(parameter).__name__}",
                                            "give net.trainable_params()")  # fmt: skip
                passed_by = not self.is_group and any(part in parameter.name for part in ("beta", "gamma"))
                decay = 0.0 if passed_by else float(group.get("weight_decay", weight_decay))
                chosen.append((parameter, rate, decay, bool(group.get("grad_centralization"))))
        if not chosen:
            raise ArgumentTypeError(f"{type(self).__name__} was given no parameters", "give net.trainable_params()")
        if order is not None:
            if sorted(map(id, order)) != sorted(id(each[0]) for each in chosen):
                raise ArgumentValueError("order_params are not the parameters of the groups", "list all, each once")
            places = {id(each): place for place, each in enumerate(order)}
            chosen.sort(key=lambda each: places[id(each[0])])
        object.__setattr__(self, "parameters", ParameterTuple(each[0] for each in chosen))
        self._rates: list[Any] = [each[1] for each in chosen]
        self._decays = [each[2] for each in chosen]
        self._centred = [each[3] for each in chosen]

    parameters: ParameterTuple

    def _rate(self, given: Any, number: int) -> Any:
        if isinstance(given, LearningRateSchedule):
            setattr(self, f"schedule_{number}", given)
            return given
        if isinstance(given, Iterable) and not isinstance(given, Tensor):
            given = [float(each) for each in given]
        rates = Tensor(given, float32)
        if rates.ndim > 1 or not rates.size or (rates.asnumpy() < 0).any():
            raise ArgumentValueError(f"the learning_rate of {type(self).__name__} is {given}", "give numbers from 0 on")
        name = "learning_rate" if not number else f"learning_rate_{number}"
        parameter = Parameter(rates, name, requires_grad=False)
        setattr(self, name, parameter)
        return parameter

    def get_lr(self) -> Any:
        """Return the learning rate of the next step, of each parameter if they are in groups."""
        return tuple(self._now(rate) for rate in self._rates) if self.is_group else self._now(self._rates[0])

    def _now(self, rate: Any) -> Tensor:
        if isinstance(rate, LearningRateSchedule):
            found: Tensor = rate(self._step())
            return found
        if rate.ndim == 0:
            plain: Tensor = rate
            return plain
        return ops.gather(rate, ops.minimum(self._step(), rate.size - 1), 0)

    def _step(self) -> Tensor:
        """Return the number of steps before this one."""
        return reshaped(self.global_step, ())

    def states(self, name: str, start: float = 0.0) -> ParameterTuple:
        """Return a state for each parameter, of its shape."""
        made = ParameterTuple(
            Parameter(Tensor(np.full(each.shape, start, each.type.dtype)), f"{name}.{each.name}", requires_grad=False)
            for each in self.parameters
        )
        setattr(self, name, made)
        return made

    def number(self, name: str, value: float) -> Parameter:
        """Return a number that MindSpore keeps among the states, so that its files and these have the same names."""
        return Parameter(Tensor(value, float32), name, requires_grad=False)

    def construct(self, gradients: Sequence[Tensor]) -> Tensor:
        """Change the parameters by their gradients, in the parameters' order."""
        if len(gradients) != len(self.parameters):
            raise ArgumentValueError(
                f"{type(self).__name__} was given {len(gradients)} gradients",
                f"it has {len(self.parameters)} parameters",
            )
        rates = {id(rate): self._now(rate) for rate in self._rates}
        prepared = self._prepared()
        for index, (parameter, gradient) in enumerate(zip(self.parameters, gradients, strict=True)):
            given = gradient if self.loss_scale == 1.0 else ops.mul(gradient, 1.0 / self.loss_scale)
            given = self._decayed(index, parameter, given)
            if self._centred[index] and given.ndim > 1:
                given = ops.sub(given, reduce("ReduceMean", given, range(1, given.ndim), True))
            rate = cast(rates[id(self._rates[index])], parameter.type.dtype)
            self._update(index, parameter, given, rate, prepared)
        return ops.assign_add(self.global_step, Tensor([1], int32))

    def _decayed(self, index: int, parameter: Parameter, gradient: Tensor) -> Tensor:
        """Return a gradient with the weight's decay."""
        decay = self._decays[index]
        return ops.add(gradient, ops.mul(parameter, decay)) if decay else gradient

    def _prepared(self) -> Any:
        """Return the values that the updates of all parameters share."""
        return None

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        """Change one parameter; every optimizer has its own."""
        raise ArgumentTypeError(f"{type(self).__name__} has no update", "use nn.SGD or another optimizer")


def _groups(given: Sequence[Any]) -> tuple[list[Any], list[Parameter] | None]:
    """Return the groups among an optimizer's parameters, and the order of these if one says it."""
    groups, order = [], None
    for group in given:
        if not isinstance(group, Mapping):
            raise ArgumentTypeError(f"a {type(group).__name__} is among groups of parameters", "give dictionaries only")
        unknown = [key for key in group if key not in _KEYS]
        if unknown or ("params" in group) == ("order_params" in group):
            raise ArgumentValueError(f"a group of parameters has {sorted(group)}", f"it may have {', '.join(_KEYS)}")
        if "order_params" in group:
            order = list(group["order_params"])
        else:
            groups.append(group)
    return groups, order


class SGD(Optimizer):
    """Stochastic gradient descent with momentum: ``v = momentum * v + (1 - dampening) * g``, at first ``v = g``.

    Args:
        momentum: What of ``v`` stays.
        dampening: What of a gradient does not go into ``v``.
        nesterov: Whether to step by ``g + momentum * v``.
    """

    def __init__(self, params: Any, learning_rate: Any = 0.1, momentum: float = 0.0, dampening: float = 0.0,
                 weight_decay: float = 0.0, nesterov: bool = False, loss_scale: float = 1.0) -> None:  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if momentum < 0 or (nesterov and (not momentum or dampening)):
            raise ArgumentValueError(f"SGD was given momentum={momentum}, dampening={dampening}, nesterov={nesterov}",
                                     "nesterov needs a momentum above 0 and no dampening")  # fmt: skip
        self.momentum, self.dampening, self.nesterov = self.number("momentum", momentum), float(dampening), nesterov
        self._has_momentum = momentum > 0
        self.accum, self.stat = self.states("accum"), self.states("stat", 1.0)

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        if not self._has_momentum:
            ops.assign_sub(parameter, ops.mul(gradient, rate))
            return
        part: Any = gradient
        if self.dampening:  # the first gradient goes into it whole: MindSpore's ``stat`` is 1 before it, 0 after it
            part = ops.mul(gradient, ops.add(ops.mul(self.stat[index], self.dampening), 1.0 - self.dampening))
        momentum = cast(self.momentum, parameter.type.dtype)
        speed = ops.assign(self.accum[index], ops.add(ops.mul(self.accum[index], momentum), part))
        ops.assign(self.stat[index], ops.mul(self.stat[index], 0.0))
        step = ops.add(gradient, ops.mul(speed, momentum)) if self.nesterov else speed
        ops.assign_sub(parameter, ops.mul(step, rate))


class Momentum(Optimizer):
    """Gradient descent with momentum: ``v = momentum * v + g``."""

    def __init__(self, params: Any, learning_rate: Any, momentum: float, weight_decay: float = 0.0,
                 loss_scale: float = 1.0, use_nesterov: bool = False) -> None:  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if momentum < 0:
            raise ArgumentValueError(f"the momentum of Momentum is {momentum}", "give a number from 0 on")
        self.momentum, self.use_nesterov = self.number("momentum", momentum), use_nesterov
        self.moments = self.states("moments")

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        momentum = cast(self.momentum, parameter.type.dtype)
        speed = ops.assign(self.moments[index], ops.add(ops.mul(self.moments[index], momentum), gradient))
        step = ops.add(gradient, ops.mul(speed, momentum)) if self.use_nesterov else speed
        ops.assign_sub(parameter, ops.mul(step, rate))


def _running(state: Parameter, value: Tensor, stays: float) -> Tensor:
    return ops.assign(state, ops.add(ops.mul(state, stays), ops.mul(value, 1.0 - stays)))


class _Moments(Optimizer):
    """The base of the Adams: running means of gradients and of their squares, whose names are each one's own."""

    _means = ("moment1", "moment2")

    def __init__(self, params: Any, learning_rate: Any, beta1: float, beta2: float, eps: float, weight_decay: float,
                 loss_scale: float = 1.0) -> None:  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if not (0 < beta1 < 1 and 0 < beta2 < 1 and eps > 0):
            raise ArgumentValueError(f"{type(self).__name__} was given beta1={beta1}, beta2={beta2}, eps={eps}",
                                     "give betas between 0 and 1, and an eps above 0")  # fmt: skip
        self.beta1, self.beta2, self.eps = float(beta1), float(beta2), float(eps)
        self.moment1, self.moment2 = (self.states(name) for name in self._means)

    def _updated(self, index: int, gradient: Tensor) -> tuple[Tensor, Tensor]:
        """Take a gradient into the running means and return them."""
        mean = _running(self.moment1[index], gradient, self.beta1)
        return mean, _running(self.moment2[index], ops.square(gradient), self.beta2)

    def _moved(self, index: int, gradient: Tensor) -> Tensor:
        """Take a gradient into the running means; return the one over the root of the other."""
        mean, spread = self._updated(index, gradient)
        return ops.div(mean, ops.add(ops.sqrt(spread), self.eps))


class Adam(_Moments):
    """Adam; means that begin with zeros are corrected by the learning rate, as in MindSpore.

    Args:
        beta1: What of the mean of gradients stays.
        beta2: What of the mean of their squares stays.
        eps: Added to the root of the mean of squares, before it is corrected.
        use_locking: Kept for programs that give it.
    """

    def __init__(self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999,
                 eps: float = 1e-8, use_locking: bool = False, *, weight_decay: float = 0.0,
                 loss_scale: float = 1.0) -> None:  # fmt: skip
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay, loss_scale)
        self.beta1_power, self.beta2_power = self.number("beta1_power", 1.0), self.number("beta2_power", 1.0)

    def _prepared(self) -> Tensor:
        """Return the factor of this step's learning rate."""
        one = ops.assign(self.beta1_power, ops.mul(self.beta1_power, self.beta1))
        two = ops.assign(self.beta2_power, ops.mul(self.beta2_power, self.beta2))
        return ops.div(ops.sqrt(ops.sub(1.0, two)), ops.sub(1.0, one))

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        factor = ops.mul(rate, cast(prepared, parameter.type.dtype))
        ops.assign_sub(parameter, ops.mul(self._moved(index, gradient), factor))


class _Decoupled(_Moments):
    """The base of those whose decay of weights goes past the means."""

    def _decayed(self, index: int, parameter: Parameter, gradient: Tensor) -> Tensor:
        return gradient


class AdamWeightDecay(_Decoupled):
    """Adam without correction of the means, whose decay of weights goes past them."""

    _means = ("adam_m", "adam_v")

    def __init__(self, params: Any, learning_rate: Any = 1e-3, beta1: float = 0.9, beta2: float = 0.999,
                 eps: float = 1e-6, weight_decay: float = 0.0) -> None:  # fmt: skip
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay)

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        step, decay = self._moved(index, gradient), self._decays[index]
        ops.assign_sub(parameter, ops.mul(ops.add(step, ops.mul(parameter, decay)) if decay else step, rate))


class Lamb(_Decoupled):
    """Adam with corrected means, whose step is as long as the parameter is: for large batches.

    The step of a parameter is scaled by the parameter's norm over the step's, at most by 10 (arXiv:1904.00962).
    """

    _means = ("lamb_m", "lamb_v")

    def __init__(self, params: Any, learning_rate: Any, beta1: float = 0.9, beta2: float = 0.999, eps: float = 1e-6,
                 weight_decay: float = 0.0) -> None:  # fmt: skip
        super().__init__(params, learning_rate, beta1, beta2, eps, weight_decay)

    def _prepared(self) -> list[Tensor]:
        """Return the divisors of the means."""
        step = cast(ops.add(self._step(), 1), "float32")
        return [ops.sub(1.0, ops.pow(Tensor(np.float32(beta)), step)) for beta in (self.beta1, self.beta2)]

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        mean, spread = self._updated(index, gradient)
        first, second = (cast(each, parameter.type.dtype) for each in prepared)
        mean, spread = ops.div(mean, first), ops.div(spread, second)
        decay = self._decays[index]
        shrunk = ops.mul(parameter, decay)
        # MindSpore has eps below the root here, and beside it below.
        inside = ops.div(mean, ops.sqrt(ops.add(spread, self.eps)))
        lengths = [_norm(each) for each in (parameter, gradient, ops.add(inside, shrunk) if decay else inside)]
        some = ops.logical_and(ops.greater(lengths[0], 0), ops.greater(lengths[1], 0))
        trust = ops.minimum(ops.where(some, ops.div(lengths[0], lengths[2]), 1.0), 10.0)
        step = ops.div(mean, ops.add(ops.sqrt(spread), self.eps))
        ops.assign_sub(parameter, ops.mul(ops.add(step, shrunk) if decay else step, ops.mul(trust, rate)))


def _norm(tensor: Tensor) -> Tensor:
    return ops.sqrt(reduce("ReduceSum", ops.square(tensor), None, False))


class RMSProp(Optimizer):
    """Gradients over the root of the running mean of their squares.

    Args:
        decay: What of the mean of squares stays.
        momentum: What of the last step stays.
        epsilon: Added to the mean below the root.
        use_locking: Kept for programs that give it.
        centered: Whether the square of the running mean of gradients is taken off.
    """

    def __init__(self, params: Any, learning_rate: Any = 0.1, decay: float = 0.9, momentum: float = 0.0,
                 epsilon: float = 1e-10, use_locking: bool = False, centered: bool = False, loss_scale: float = 1.0,
                 weight_decay: float = 0.0) -> None:  # fmt: skip
        super().__init__(learning_rate, params, weight_decay, loss_scale)
        if decay < 0 or momentum < 0 or epsilon <= 0:
            raise ArgumentValueError(f"RMSProp was given decay={decay}, momentum={momentum}, epsilon={epsilon}",
                                     "give a decay and a momentum from 0 on, and an epsilon above 0")  # fmt: skip
        self.decay, self.momentum, self.epsilon = float(decay), float(momentum), float(epsilon)
        self.mean_square, self.moment = self.states("mean_square"), self.states("moment")
        self.mean_grad = self.states("mean_grad") if centered else None

    def _update(self, index: int, parameter: Parameter, gradient: Tensor, rate: Tensor, prepared: Any) -> None:
        spread: Tensor = _running(self.mean_square[index], ops.square(gradient), self.decay)
        if self.mean_grad is not None:
            spread = ops.sub(spread, ops.square(_running(self.mean_grad[index], gradient, self.decay)))
        step = ops.div(ops.mul(gradient, rate), ops.sqrt(ops.add(spread, self.epsilon)))
        moved = ops.assign(self.moment[index], ops.add(ops.mul(self.moment[index], self.momentum), step))
        ops.assign_add(parameter, ops.neg(moved))


names.export(vars())
