"""Losses with a margin as cells, forward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.nn.loss import LossBase
from opbuild.mindspore.ops import loss, margin_loss
from opbuild.mindspore.ops.arithmetic import add, clamp, minimum, sqrt, square, sub
from opbuild.mindspore.ops.reduction import sum
from opbuild.mindspore.tensor import Tensor

MarginRankingLoss = layer("MarginRankingLoss", margin_loss.margin_ranking_loss,
                          "How much two inputs are in the wrong order.", base=LossBase,
                          margin=0.0, reduction="mean")  # fmt: skip
HingeEmbeddingLoss = layer(
    "HingeEmbeddingLoss", margin_loss.hinge_embedding_loss,
    "Distances of what is alike, and what others are within a margin.", "logits labels", LossBase,
    margin=1.0, reduction="mean",
)  # fmt: skip
SoftMarginLoss = layer("SoftMarginLoss", margin_loss.soft_margin_loss, "The logistic loss.", "logits labels", LossBase,
                       reduction="mean")  # fmt: skip
MultiLabelSoftMarginLoss = layer(
    "MultiLabelSoftMarginLoss", margin_loss.multilabel_soft_margin_loss, "The logistic loss of several labels.",
    "x target", LossBase, weight=None, reduction="mean",
)  # fmt: skip
MultilabelMarginLoss = layer(
    "MultilabelMarginLoss", margin_loss.multilabel_margin_loss,
    "How much the other classes come within a margin of the right ones, which are listed and followed by -1.",
    "x target", LossBase, reduction="mean",
)  # fmt: skip


class MultiMarginLoss(LossBase):
    """How much other classes come within a margin of the right one."""

    def __init__(self, p: int = 1, margin: float = 1.0, reduction: str = "mean",
                 weight: Tensor | None = None) -> None:  # fmt: skip
        super().__init__(reduction)
        self.p, self.margin, self.weight = p, margin, weight

    def construct(self, x: Tensor, target: Tensor, weight: Tensor | None = None) -> Tensor:
        """Return the loss."""
        chosen = self.weight if weight is None else weight
        return margin_loss.multi_margin_loss(x, target, self.p, self.margin, chosen, self.reduction)


class TripletMarginLoss(LossBase):
    """How much nearer the negative is than the positive."""

    def __init__(self, p: int = 2, swap: bool = False, eps: float = 1e-06, reduction: str = "mean",
                 margin: float = 1.0) -> None:  # fmt: skip
        super().__init__(reduction)
        self.p, self.swap, self.eps, self.margin = p, swap, eps, margin

    def construct(self, x: Tensor, positive: Tensor, negative: Tensor, margin: Any = 1.0) -> Tensor:
        """Return the loss."""
        margin = self.margin if self.margin != 1.0 else margin
        return margin_loss.triplet_margin_loss(
            x, positive, negative, margin, self.p, self.eps, self.swap, self.reduction
        )


class TripletMarginWithDistanceLoss(LossBase):
    """``TripletMarginLoss`` with a distance of one's own; by default the Euclidean one."""

    def __init__(self, distance_function: Callable[[Tensor, Tensor], Tensor] | None = None, swap: bool = False,
                 reduction: str = "mean", margin: float = 1.0) -> None:  # fmt: skip
        super().__init__(reduction)
        self.distance_function = distance_function or _distance
        self.swap, self.margin = swap, margin

    def construct(self, x: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
        """Return the loss."""
        near, far = self.distance_function(x, positive), self.distance_function(x, negative)
        if self.swap:
            far = minimum(far, self.distance_function(positive, negative))
        losses = clamp(add(sub(near, far), self.margin), 0.0, None)
        return loss.reduced(losses, self.reduction, "TripletMarginWithDistanceLoss")


def _distance(first: Tensor, second: Tensor) -> Tensor:
    return sqrt(sum(square(sub(first, second)), 1))


__all__ = names.public(vars(), Cell)
