"""Losses as cells, forward."""

from __future__ import annotations

import math
from typing import Any

from opbuild.mindspore import names, ops
from opbuild.mindspore.arguments import ArgumentTypeError, allowed, one_of
from opbuild.mindspore.execution import cast
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import cell, layer
from opbuild.mindspore.nn.layers import get_activation
from opbuild.mindspore.ops import loss
from opbuild.mindspore.ops.shaping import in_range, reshaped
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class LossBase(Cell):
    """The base of losses: ``reduction`` is ``mean``, ``sum`` or ``none``. Own losses may derive from it."""

    _constructor_takes = ("reduction",)

    def __init__(self, reduction: str = "mean") -> None:
        super().__init__()
        self.reduction = one_of(reduction, loss.REDUCTIONS, f"reduction of {type(self).__name__}")

    def get_axis(self, x: Tensor) -> tuple[int, ...]:
        """Return all axes of a tensor."""
        return tuple(range(x.ndim))

    def get_loss(self, x: Tensor, weights: Any = 1.0) -> Tensor:
        """Return weighted losses, reduced."""
        weighted = ops.mul(cast(x, "float32"), weights)
        return cast(loss.reduced(weighted, self.reduction, type(self).__name__), x.type.dtype)


@cell(LossBase)
def SoftmaxCrossEntropyWithLogits(self: Any, logits: Tensor, labels: Tensor, *, sparse: bool = False,
                                  reduction: str = "none") -> Any:  # fmt: skip
    """The cross entropy of rows of logits and probabilities, or classes if ``sparse``."""
    if sparse:
        labels = cast(ops.one_hot(in_range(labels, logits.shape[-1]), logits.shape[-1], 1.0, 0.0), "float32")
    return self.get_loss(loss.softmax_cross_entropy(logits, labels)[0])


class GaussianNLLLoss(LossBase):
    """The negative log-likelihood under normal distributions."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction)
        self.full, self.eps = full, eps

    def construct(self, logits: Tensor, labels: Tensor, var: Tensor) -> Tensor:
        """Return the loss."""
        return loss.gaussian_nll_loss(logits, labels, var, self.full, self.eps, self.reduction)


@cell(LossBase)
def PoissonNLLLoss(self: Any, input: Tensor, target: Tensor, *, log_input: bool = True, full: bool = False,
                   eps: float = 1e-08, reduction: str = "mean") -> Any:  # fmt: skip
    """The negative log-likelihood under Poisson distributions."""
    rate, log = (ops.exp(input), input) if log_input else (input, ops.log(ops.add(input, eps)))
    losses = ops.sub(rate, ops.mul(target, log))
    if full:
        safe = ops.where(ops.greater(target, 1), target, 1.0)
        most = ops.sub(ops.mul(safe, ops.log(safe)), safe)
        stirling = ops.add(most, ops.mul(ops.log(ops.mul(safe, 2 * math.pi)), 0.5))
        losses = ops.add(losses, ops.where(ops.greater(target, 1), stirling, 0.0))
    return self.get_loss(losses)


@cell(LossBase)
def DiceLoss(logits: Tensor, label: Tensor, *, smooth: float = 1e-5) -> Tensor:
    """One less the Dice coefficient of two tensors."""
    x, y = ops.ravel(logits), ops.ravel(label)
    both = ops.add(ops.add(ops.sum(ops.square(x)), ops.sum(ops.square(y))), smooth)
    return ops.sub(1, ops.div(ops.mul(ops.sum(ops.mul(x, y)), 2), both))


@cell(LossBase, made={
    "binarydiceloss": lambda self: DiceLoss(1e-5),
    "activation": lambda self: get_activation(self.activation) if isinstance(self.activation, str) else self.activation,
})  # fmt: skip
def MultiClassDiceLoss(self: Any, logits: Any, label: Any, *, weights: Tensor | None = None,
                       ignore_indiex: int | None = None, activation: Any = "softmax") -> Any:  # fmt: skip
    """The mean over the channels of their Dice losses."""
    x = logits if activation is None else activation(logits)
    total: Any = 0
    for channel in range(label.shape[1]):
        if channel != ignore_indiex:
            part = self.binarydiceloss(x[:, channel], label[:, channel])
            total = total + (part if weights is None else part * weights[channel])  # type: ignore[index]
    return total / label.shape[1]


@cell(LossBase, checks={"weight": allowed(
    lambda weight: weight is None or weight.ndim == 1, "give one for each class", "{what} has the shape {0.shape}",
)})  # fmt: skip
def FocalLoss(self: Any, logits: Tensor, labels: Tensor, *, weight: Tensor | None = None, gamma: float = 2.0,
              reduction: str = "mean") -> Any:  # fmt: skip
    """The cross entropy, less for samples that are well classified."""
    x, y = (reshaped(item, (*item.shape[:2], item.size // (item.shape[0] * item.shape[1])))
            for item in (logits, labels))  # fmt: skip
    logs = ops.log_softmax(x, 1)
    scaled = logs if weight is None else ops.mul(logs, reshaped(weight, (weight.size, 1)))
    sparse = labels.shape[1] == 1
    if sparse:
        places = cast(y, "int32")
        logs, scaled = (ops.squeeze(ops.gather_elements(item, 1, places), 1) for item in (logs, scaled))
    terms = ops.neg(ops.mul(ops.pow(ops.sub(1.0, ops.exp(logs)), gamma), scaled))
    return self.get_loss(ops.mean(terms, 1) if sparse else ops.mean(ops.mul(terms, y), -1))


@cell(LossBase, made={"distance_function": lambda self: self.distance_function or _distance})
def TripletMarginWithDistanceLoss(x: Tensor, positive: Tensor, negative: Tensor, *, distance_function: Any = None,
                                  swap: bool = False, reduction: str = "mean",
                                  margin: float = 1.0) -> Tensor:  # fmt: skip
    """``TripletMarginLoss`` with a distance of one's own; by default the Euclidean one."""
    near, far = distance_function(x, positive), distance_function(x, negative)
    far = ops.minimum(far, distance_function(positive, negative)) if swap else far
    losses = ops.clamp(ops.add(ops.sub(near, far), margin), 0.0, None)
    return loss.reduced(losses, reduction, "TripletMarginWithDistanceLoss")


def _distance(first: Tensor, second: Tensor) -> Tensor:
    return ops.sqrt(ops.sum(ops.square(ops.sub(first, second)), 1))


L1Loss = layer(loss.l1_loss, "The absolute difference.", "logits labels", LossBase, reduction="mean")
SmoothL1Loss = layer(loss.smooth_l1_loss, "The absolute difference, and a square of it where it is below ``beta``.",
    "logits labels", LossBase, beta=1.0, reduction="none")  # fmt: skip
HuberLoss = layer(loss.huber_loss, "The absolute difference, and a square of it where it is below ``delta``.",
    "logits labels", LossBase, reduction="mean", delta=1.0)  # fmt: skip
BCELoss = layer(loss.binary_cross_entropy, "The cross entropy of probabilities and labels.", base=LossBase, weight=None,
    reduction="mean")  # fmt: skip
NLLLoss = layer(loss.nll_loss, "The negative log-probability of the right class.", "logits labels", LossBase,
    weight=None, ignore_index=-100, reduction="mean")  # fmt: skip
CrossEntropyLoss = layer(loss.cross_entropy,
    "The cross entropy of logits and classes or probabilities: ``ops.cross_entropy``.", "logits labels", LossBase,
    weight=None, ignore_index=-100, reduction="mean", label_smoothing=0.0)  # fmt: skip
KLDivLoss = layer(loss.kl_div,
    "The Kullback-Leibler divergence of log-probabilities from probabilities; ``batchmean`` is a reduction too.",
    checks={"reduction": lambda value, what: one_of(value, (*loss.REDUCTIONS, "batchmean"), what)},
    reduction="mean")  # fmt: skip
CosineEmbeddingLoss = layer(loss.cosine_embedding_loss,
                            "How far vectors point apart, or together where the label is -1.",
                            "logits_x1 logits_x2 labels", LossBase, margin=0.0, reduction="mean")  # fmt: skip
MSELoss = layer(lambda self, logits, labels: self.get_loss(ops.square(ops.sub(logits, labels))),
    "The square of the difference.", base=LossBase, reduction="mean")  # fmt: skip
RMSELoss = layer(lambda self, logits, label: ops.sqrt(self.get_loss(ops.square(ops.sub(logits, label)))),
    "The root of the mean square of the difference.", base=LossBase)  # fmt: skip
MAELoss = layer(lambda self, logits, label: self.get_loss(ops.abs(ops.sub(logits, label))), "The absolute difference.",
    base=LossBase, reduction="mean")  # fmt: skip
BCEWithLogitsLoss = layer(loss.binary_cross_entropy_with_logits, "The cross entropy of logits and labels.",
                          base=LossBase, checks={"weight pos_weight": allowed(
                              lambda *given: not any(isinstance(each, Parameter) for each in given), "give a Tensor",
                              "{owner} was given a Parameter as a weight", ArgumentTypeError)},
                          reduction="mean", weight=None, pos_weight=None)  # fmt: skip
MarginRankingLoss = layer(loss.margin_ranking_loss, "How much two inputs are in the wrong order.", base=LossBase,
    margin=0.0, reduction="mean")  # fmt: skip
HingeEmbeddingLoss = layer(loss.hinge_embedding_loss,
                           "Distances of what is alike, and what others are within a margin.", "logits labels",
                           LossBase, margin=1.0, reduction="mean")  # fmt: skip
SoftMarginLoss = layer(loss.soft_margin_loss, "The logistic loss.", "logits labels", LossBase, reduction="mean")
MultiLabelSoftMarginLoss = layer(loss.multilabel_soft_margin_loss, "The logistic loss of several labels.", "x target",
    LossBase, weight=None, reduction="mean")  # fmt: skip
MultilabelMarginLoss = layer(loss.multilabel_margin_loss,
    "How much the other classes come within a margin of the right ones, which are listed and followed by -1.",
    "x target", LossBase, reduction="mean")  # fmt: skip
MultiMarginLoss = layer(
    lambda self, x, target, weight=None: loss.multi_margin_loss(
        x, target, self.p, self.margin, self.weight if weight is None else weight, self.reduction),
    "How much other classes come within a margin of the right one.", base=LossBase,
    p=1, margin=1.0, reduction="mean", weight=None)  # fmt: skip
TripletMarginLoss = layer(
    lambda self, x, positive, negative, margin=1.0: loss.triplet_margin_loss(
        x, positive, negative, self.margin if self.margin != 1.0 else margin, self.p, self.eps, self.swap,
        self.reduction),
    "How much nearer the negative is than the positive.", base=LossBase,
    p=2, swap=False, eps=1e-06, reduction="mean", margin=1.0)  # fmt: skip

names.export(vars())
