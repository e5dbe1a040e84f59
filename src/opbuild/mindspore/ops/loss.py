"""Losses, forward: the distance of a network's outputs from the right ones, some with a margin."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.dtypes import NARROW_FLOATS
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, TensorShapeError, one_of
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops.arithmetic import abs as absolute
from opbuild.mindspore.ops.arithmetic import (
    add,
    clamp,
    div,
    equal,
    greater,
    less,
    log,
    log_softmax,
    masked_fill,
    maximum,
    minimum,
    mul,
    neg,
    sqrt,
    square,
    sub,
    where,
)
from opbuild.mindspore.ops.arithmetic import pow as power
from opbuild.mindspore.ops.declaration import formula, need_tensor
from opbuild.mindspore.ops.reduction import mean, sum
from opbuild.mindspore.ops.shaping import expand_dims, gather, gather_elements, in_range, one_hot, reshaped, squeeze
from opbuild.mindspore.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")
LEAST = 1e-12
"""What logarithms of probabilities are taken of at least."""


def reduced(losses: Tensor, reduction: str, name: str, weight: Any = None) -> Tensor:
    """Return the mean or the sum of weighted losses, or these; float16 and bfloat16 are summed as float32."""
    one_of(reduction, REDUCTIONS, f"the reduction of {name}")
    losses = losses if weight is None else mul(losses, weight)
    if reduction == "none":
        return losses
    wide = cast(losses, "float32") if losses.type.dtype in NARROW_FLOATS else losses
    return cast(mean(wide) if reduction == "mean" else sum(wide), losses.type.dtype)


def mse_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return ``(input - target) ** 2``, reduced; integers give float32."""
    squares = square(sub(input, target))
    squares = squares if squares.is_floating_point() else cast(squares, "float32")
    return reduced(squares, reduction, "mse_loss")


def smooth_l1_loss(input: Any, target: Any, beta: float = 1.0, reduction: str = "none") -> Tensor:
    """Return ``|d| - beta / 2`` of the differences, and ``d ** 2 / (2 * beta)`` where they are below ``beta``."""
    distance = absolute(sub(input, target))
    if beta:
        near = mul(square(distance), 0.5 / beta)
        distance = where(less(distance, beta), near, sub(distance, 0.5 * beta))
    return reduced(distance, reduction, "smooth_l1_loss")


def huber_loss(input: Any, target: Any, reduction: str = "mean", delta: float = 1.0) -> Tensor:
    """Return ``delta * (|d| - delta / 2)`` of the differences, and ``d ** 2 / 2`` where they are below ``delta``."""
    distance = absolute(sub(input, target))
    far = mul(sub(distance, 0.5 * delta), delta)
    losses = where(less(distance, delta), mul(square(distance), 0.5), far)
    return reduced(losses, reduction, "huber_loss")


def binary_cross_entropy(logits: Any, labels: Any, weight: Any = None, reduction: str = "mean") -> Tensor:
    """Return the cross entropy of probabilities (``logits``, in spite of the name) and labels, reduced."""
    x, y = need_tensor(logits, "binary_cross_entropy"), need_tensor(labels, "binary_cross_entropy")
    right = mul(y, log(clamp(x, LEAST, None)))
    wrong = mul(sub(1, y), log(clamp(sub(1, x), LEAST, None)))
    return reduced(neg(add(right, wrong)), reduction, "binary_cross_entropy", weight)


def binary_cross_entropy_with_logits(input: Any, target: Any, weight: Any = None, pos_weight: Any = None,
                                     reduction: str = "mean") -> Tensor:  # fmt: skip
    """Return the cross entropy of ``sigmoid(input)`` and labels, reduced, without overflow."""
    x, y = need_tensor(input, "binary_cross_entropy_with_logits"), target
    soft = emit("Softplus", neg(x))
    if pos_weight is not None:
        soft = mul(soft, add(mul(sub(pos_weight, 1), y), 1))
    return reduced(add(mul(sub(1, y), x), soft), reduction, "binary_cross_entropy_with_logits", weight)


def kl_div(logits: Any, labels: Any, reduction: str = "mean") -> Tensor:
    """Return ``labels * (log(labels) - logits)``, reduced; ``batchmean`` divides the sum by the batch."""
    x, y = need_tensor(logits, "kl_div"), need_tensor(labels, "kl_div")
    one_of(reduction, (*REDUCTIONS, "batchmean"), "the reduction of kl_div")
    positive = greater(y, 0)
    losses = where(positive, mul(y, sub(log(where(positive, y, 1.0)), x)), 0.0)
    if reduction == "batchmean":
        return div(sum(losses), float(x.shape[0]))
    return reduced(losses, reduction, "kl_div")


def cross_entropy(input: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
                  label_smoothing: float = 0.0) -> Tensor:  # fmt: skip
    """Return the cross entropy of logits and classes (integers), or of logits and probabilities (floats).

    Args:
        input: Logits of shape (C,), (N, C) or (N, C, ...).
        target: Classes, without the axis C; or probabilities of the shape of ``input``.
        weight: One weight for each class.
        ignore_index: The class whose samples do not count.
        reduction: ``mean``, ``sum`` or ``none``.
        label_smoothing: How much of each label is spread over all classes, from 0 to 1.
    """
    logits, labels = need_tensor(input, "cross_entropy"), need_tensor(target, "cross_entropy")
    if not 0 <= label_smoothing <= 1:
        raise ArgumentValueError(f"label_smoothing of cross_entropy is {label_smoothing}", "give a number from 0 to 1")
    axis = 0 if logits.ndim == 1 else 1
    logs = log_softmax(logits, axis)
    if not labels.is_floating_point():
        return nll_loss(logs, labels, weight, ignore_index, reduction, label_smoothing)
    if labels.shape != logits.shape:
        raise TensorShapeError(
            f"cross_entropy of shapes {logits.shape} and {labels.shape}",
            "probabilities have the shape of the logits; classes are integers",
        )
    classes = logits.shape[axis]
    if label_smoothing:
        labels = add(mul(labels, 1 - label_smoothing), label_smoothing / classes)
    terms = mul(logs, labels)
    if weight is not None:
        terms = mul(terms, _by_class(weight, logits.ndim))
    if reduction == "mean":
        return div(neg(sum(terms)), float(logits.size // classes))
    return neg(sum(terms) if reduction == "sum" else sum(terms, axis))


def nll_loss(inputs: Any, target: Any, weight: Any = None, ignore_index: int = -100, reduction: str = "mean",
             label_smoothing: float = 0.0) -> Tensor:  # fmt: skip
    """Return the negative of each sample's log-probability of its class; arguments as ``cross_entropy``'s."""
    logs, labels = need_tensor(inputs, "nll_loss"), need_tensor(target, "nll_loss")
    one_of(reduction, REDUCTIONS, "the reduction of nll_loss")
    axis = 0 if logs.ndim == 1 else 1
    if labels.shape != logs.shape[:axis] + logs.shape[axis + 1 :]:
        raise TensorShapeError(
            f"nll_loss of shapes {logs.shape} and {labels.shape}",
            "classes have the shape of the logits without the axis of classes",
        )
    ignored = equal(labels, ignore_index)
    places = in_range(masked_fill(labels, ignored, 0), logs.shape[axis])
    scaled = logs if weight is None else mul(logs, _by_class(weight, logs.ndim))
    chosen = squeeze(gather_elements(scaled, axis, expand_dims(places, axis)), axis)
    losses = masked_fill(neg(chosen), ignored, 0)
    smooth = masked_fill(neg(sum(scaled, axis)), ignored, 0) if label_smoothing else None
    if reduction != "none":
        losses, smooth = sum(losses), None if smooth is None else sum(smooth)
    if reduction == "mean":
        ones = where(ignored, 0.0, 1.0) if weight is None else masked_fill(gather(weight, places, 0), ignored, 0)
        count = sum(cast(ones, logs.type.dtype))
        losses, smooth = div(losses, count), None if smooth is None else div(smooth, count)
    if smooth is None:
        return losses
    return add(mul(losses, 1 - label_smoothing), mul(smooth, label_smoothing / logs.shape[axis]))


def _by_class(weight: Any, rank: int) -> Tensor:
    tensor = need_tensor(weight, "cross_entropy")
    return tensor if rank == 1 else reshaped(tensor, (tensor.size,) + (1,) * (rank - 2))


def softmax_cross_entropy(logits: Any, labels: Any) -> tuple[Tensor, Tensor]:
    """Return the cross entropy of each row of logits and probabilities, and its gradient."""
    x, y = need_tensor(logits, "softmax_cross_entropy"), need_tensor(labels, "softmax_cross_entropy")
    logs = log_softmax(x, -1)
    return neg(sum(mul(y, logs), -1)), sub(emit("Exp", logs), y)


def sparse_softmax_cross_entropy(logits: Any, labels: Any) -> Tensor:
    """Return the mean cross entropy of rows of logits and their classes."""
    x = need_tensor(logits, "sparse_softmax_cross_entropy")
    hot = one_hot(in_range(need_tensor(labels, "sparse_softmax_cross_entropy"), x.shape[-1]), x.shape[-1], 1.0, 0.0)
    return mean(softmax_cross_entropy(x, cast(hot, x.type.dtype))[0])


def gaussian_nll_loss(
    x: Any, target: Any, var: Any, full: bool = False, eps: float = 1e-6, reduction: str = "mean"
) -> Tensor:
    """Return the negative log-likelihood of ``target`` under normal distributions, reduced."""
    tensor, spread = need_tensor(x, "gaussian_nll_loss"), need_tensor(var, "gaussian_nll_loss")
    if spread.shape == tensor.shape[:-1]:
        spread = expand_dims(spread, -1)
    spread = maximum(spread, eps)
    losses = mul(add(log(spread), div(square(sub(tensor, target)), spread)), 0.5)
    losses = add(losses, 0.5 * math.log(2 * math.pi)) if full else losses
    return reduced(losses, reduction, "gaussian_nll_loss")


def cosine_embedding_loss(
    input1: Any, input2: Any, target: Any, margin: float = 0.0, reduction: str = "mean"
) -> Tensor:
    """Return ``1 - cosine`` where the target is 1, and the cosine's excess over ``margin`` where it is -1, reduced."""
    if not -1 <= margin <= 1:
        raise ArgumentValueError(f"margin of cosine_embedding_loss is {margin}", "give a number from -1 to 1")
    lengths = [sqrt(sum(square(item), 1)) for item in (input1, input2)]
    cosine = div(sum(mul(input1, input2), 1), mul(*lengths))
    same = where(equal(target, 1), sub(1.0, cosine), 0.0)
    other = where(equal(target, -1), clamp(sub(cosine, float(margin)), 0.0, None), 0.0)
    return reduced(add(same, other), reduction, "cosine_embedding_loss")


def hinge_embedding_loss(inputs: Any, targets: Any, margin: float = 1.0, reduction: str = "mean") -> Tensor:
    """Return ``inputs`` where the target is 1, and ``max(0, margin - inputs)`` where it is -1, reduced."""
    x = need_tensor(inputs, "hinge_embedding_loss")
    far = clamp(sub(float(margin), x), 0.0, None)
    losses = add(where(greater(targets, 0), x, 0.0), where(less(targets, 0), far, 0.0))
    return reduced(losses, reduction, "hinge_embedding_loss")


def triplet_margin_loss(anchor: Any, positive: Any, negative: Any, margin: Any = 1.0, p: int = 2, eps: float = 1e-06,
                        swap: bool = False, reduction: str = "mean") -> Tensor:  # fmt: skip
    """Return the margin loss of triplets: ``negative`` should be farther than ``positive``, in norm ``p``."""

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
    """Return the loss of every other class that comes within a margin of the right one, reduced."""
    x = need_tensor(input, "multi_margin_loss")
    classes = x.shape[1]
    target = in_range(need_tensor(target, "multi_margin_loss"), classes)
    right = gather_elements(x, 1, expand_dims(target, 1))
    over = clamp(add(sub(x, right), float(margin)), 0.0, None)
    terms = over if p == 1 else square(over)
    terms = terms if weight is None else mul(terms, expand_dims(gather(weight, target, 0), 1))
    hot = one_hot(target, classes, 1.0, 0.0)
    losses = div(sum(mul(terms, sub(1.0, cast(hot, x.type.dtype))), 1), float(classes))
    return reduced(losses, reduction, "multi_margin_loss")


def multilabel_margin_loss(input: Any, target: Any, reduction: str = "mean") -> Tensor:
    """Return the loss of the other classes that come within a margin of 1 of the right ones, reduced.

    Rows of ``target`` list the right classes, followed by -1.
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


l1_loss = formula("``|input - target|``, reduced",
    lambda input, target, reduction="mean": reduced(absolute(sub(input, target)), reduction, "l1_loss"))  # fmt: skip
margin_ranking_loss = formula(
    "``max(0, margin - target * (input1 - input2))``, reduced",
    lambda input1, input2, target, margin=0.0, reduction="mean": reduced(
        clamp(add(mul(neg(target), sub(input1, input2)), margin), 0.0, None), reduction,
        "margin_ranking_loss"))  # fmt: skip
soft_margin_loss = formula(
    "``log(1 + exp(-target * input))``, reduced",
    lambda input, target, reduction="mean": reduced(
        emit("Softplus", neg(mul(target, input))), reduction, "soft_margin_loss"))  # fmt: skip

names.export(vars(), but="multilabel_margin reduced softmax_cross_entropy sparse_softmax_cross_entropy")
