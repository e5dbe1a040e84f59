"""Losses with a margin, forward: of rankings, distances and several labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import abs as absolute
from opbuild.mindspore.ops.arithmetic import add, clamp, div, minimum, mul, need_tensor, neg, sqrt, square, sub
from opbuild.mindspore.ops.arithmetic import pow as power
from opbuild.mindspore.ops.comparison import equal, greater, less, where
from opbuild.mindspore.ops.gathering import gather, gather_elements, one_hot
from opbuild.mindspore.ops.loss import reduced
from opbuild.mindspore.ops.reduction import mean, sum
from opbuild.mindspore.ops.shaping import expand_dims
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "cosine_embedding_loss", "hinge_embedding_loss", "margin_ranking_loss", "multi_margin_loss",
    "multilabel_margin_loss", "multilabel_soft_margin_loss", "soft_margin_loss", "triplet_margin_loss",
]  # fmt: skip


def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return ``1 - cosine`` where the target is 1, and what the cosine is above ``margin`` where it is -1, reduced."""
    if not -1 <= margin <= 1:
        raise ArgumentValueError(f"margin of cosine_embedding_loss is {margin}", "give a number from -1 to 1")
    lengths = [sqrt(sum(square(item), 1)) for item in (input1, input2)]
    cosine = div(sum(mul(input1, input2), 1), mul(*lengths))
    same = where(equal(target, 1), sub(1.0, cosine), 0.0)
    other = where(equal(target, -1), clamp(sub(cosine, float(margin)), 0.0, None), 0.0)
    return reduced(add(same, other), reduction, "cosine_embedding_loss")


def margin_ranking_loss(input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean") -> Tensor:
    """Return ``max(0, margin - target * (input1 - input2))``, reduced."""
    losses = clamp(add(mul(neg(target), sub(input1, input2)), margin), 0.0, None)
    return reduced(losses, reduction, "margin_ranking_loss")


def hinge_embedding_loss(inputs: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return ``inputs`` where the target is 1, and ``max(0, margin - inputs)`` where it is -1, reduced."""
    x = need_tensor(inputs, "hinge_embedding_loss")
    far = clamp(sub(float(margin), x), 0.0, None)
    losses = add(where(greater(targets, 0), x, 0.0), where(less(targets, 0), far, 0.0))
    return reduced(losses, reduction, "hinge_embedding_loss")


def soft_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return ``log(1 + exp(-target * input))``, reduced."""
    return reduced(emit("Softplus", neg(mul(target, input))), reduction, "soft_margin_loss")


def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: Any = 1.0, p: int = 2, eps: float = 1e-06,
                        swap: bool = False, reduction: str = "mean") -> Tensor:  # fmt: skip
    """Return how much nearer ``negative`` is than ``positive`` plus a margin, reduced; distances of order ``p``."""

    def distance(first: Any, second: Any) -> Tensor:
        apart = add(absolute(sub(first, second)), eps)
        if p == 2:
            return sqrt(sum(square(apart), -1))
        return power(sum(power(apart, float(p)), -1), 1 / p)

    far = distance(anchor, negative)
    if swap:
        far = minimum(far, distance(positive, negative))
    losses = clamp(add(sub(distance(anchor, positive), far), margin), 0.0, None)
    return reduced(losses, reduction, "triplet_margin_loss")


def multi_margin_loss(input: Any, target: Any, p: int = 1, margin: float = 1, weight: Any = None,
                      reduction: str = "mean") -> Tensor:  # fmt: skip
    """Return how much every other class comes within a margin of the right one, reduced."""
    x = need_tensor(input, "multi_margin_loss")
    classes = x.shape[1]
    right = gather_elements(x, 1, expand_dims(target, 1))
    over = clamp(add(sub(x, right), float(margin)), 0.0, None)
    terms = over if p == 1 else square(over)
    terms = terms if weight is None else mul(terms, expand_dims(gather(weight, target, 0), 1))
    hot = one_hot(target, classes, 1.0, 0.0)
    losses = div(sum(mul(terms, sub(1.0, cast(hot, x.type.dtype))), 1), float(classes))
    return reduced(losses, reduction, "multi_margin_loss")


def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return how much the other classes come within a margin of 1 of the right ones, reduced.

    Args:
        input: Scores, (N, C) or (C).
        target: Of each row the right classes, followed by -1.
        reduction: ``mean``, ``sum`` or ``none``.
    """
    return multilabel_margin(input, target, reduction)[0]


def multilabel_margin(x: Any, target: Any, reduction: str = "mean") -> tuple[Tensor, Tensor]:
    """Return ``multilabel_margin_loss``, and 1 where a class is right."""
    scores, classes = need_tensor(x, "multilabel_margin_loss"), need_tensor(target, "multilabel_margin_loss")
    count = scores.shape[-1]
    ended = emit("CumSum", cast(less(classes, 0), "int32"), np.asarray(classes.ndim - 1, np.int64))
    listed = cast(equal(ended, 0), "float32")
    hot = cast(one_hot(clamp(classes, 0, None), count, 1.0, 0.0), "float32")
    right = minimum(sum(mul(hot, expand_dims(listed, -1)), -2), 1.0)
    over = clamp(sub(1.0, sub(expand_dims(scores, -1), expand_dims(scores, -2))), 0.0, None)
    pairs = mul(expand_dims(right, -1), expand_dims(sub(1.0, right), -2))
    losses = div(sum(sum(mul(over, cast(pairs, scores.type.dtype)), -1), -1), float(count))
    return reduced(losses, reduction, "multilabel_margin_loss"), cast(right, "int32")


def multilabel_soft_margin_loss(input: Any, target: Any, weight: Any = None,
                                reduction: str = "mean") -> Tensor:  # fmt: skip
    """Return the mean over the classes of the cross entropy of each, reduced."""
    x = need_tensor(input, "multilabel_soft_margin_loss")
    right = mul(target, emit("Softplus", neg(x)))
    losses = add(right, mul(sub(1, target), emit("Softplus", x)))
    losses = losses if weight is None else mul(losses, weight)
    return reduced(mean(losses, -1), reduction, "multilabel_soft_margin_loss")
