"""Losses as primitives."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.ops import loss, margin_loss
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.primitive import Primitive, primitive
from opbuild.mindspore.ops.reduction import sum
from opbuild.mindspore.tensor import Tensor


def _with_logits(x: Any, y: Any, weight: Any = None, pos_weight: Any = None, *, reduction: str) -> Tensor:
    """Return the cross entropy of ``sigmoid(x)`` and labels, reduced."""
    return loss.binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction)


def _triplet(x: Any, positive: Any, negative: Any, margin: Any, *, p: int, swap: bool, eps: float,
             reduction: str) -> Tensor:  # fmt: skip
    """Return how much nearer the negative is than the positive plus a margin, reduced."""
    return margin_loss.triplet_margin_loss(x, positive, negative, margin, p, eps, swap, reduction)


def _nll(x: Any, y: Any, weight: Any, *, reduction: str, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the loss and the weights that count."""
    used = gather(weight, y, 0)
    return loss.nll_loss(x, y, weight, ignore_index, reduction), sum(used)


BCEWithLogitsLoss = primitive("BCEWithLogitsLoss", _with_logits, reduction="mean")
BinaryCrossEntropy = primitive("BinaryCrossEntropy", loss.binary_cross_entropy, reduction="mean")
KLDivLoss = primitive("KLDivLoss", loss.kl_div, reduction="mean")
NLLLoss = primitive("NLLLoss", _nll, reduction="mean", ignore_index=-100)
MultiMarginLoss = primitive(
    "MultiMarginLoss", lambda x, target, weight=None, *, p, margin, reduction: margin_loss.multi_margin_loss(
        x, target, p, margin, weight, reduction),
    p=1, margin=1.0, reduction="mean",
)  # fmt: skip
MultilabelMarginLoss = primitive("MultilabelMarginLoss", margin_loss.multilabel_margin, reduction="mean")
SigmoidCrossEntropyWithLogits = primitive(
    "SigmoidCrossEntropyWithLogits", lambda x, y: loss.binary_cross_entropy_with_logits(x, y, reduction="none")
)
SmoothL1Loss = primitive("SmoothL1Loss", loss.smooth_l1_loss, beta=1.0, reduction="none")
SoftMarginLoss = primitive("SoftMarginLoss", margin_loss.soft_margin_loss, reduction="mean")
SoftmaxCrossEntropyWithLogits = primitive("SoftmaxCrossEntropyWithLogits", loss.softmax_cross_entropy)
SparseSoftmaxCrossEntropyWithLogits = primitive(
    "SparseSoftmaxCrossEntropyWithLogits", lambda x, y, is_grad: loss.sparse_softmax_cross_entropy(x, y), is_grad=False
)
TripletMarginLoss = primitive("TripletMarginLoss", _triplet, p=2, swap=False, eps=1e-6, reduction="mean")

__all__ = names.public(vars(), Primitive)
