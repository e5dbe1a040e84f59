"""Dropout: what is zeroed is drawn on the host, before each call of a network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.frontend.cell import current
from opbuild.graph.types import Array, TensorType
from opbuild.mindspore import initializer
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.execution import cast
from opbuild.mindspore.ops.arithmetic import mul
from opbuild.mindspore.ops.comparison import greater
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.shaping import broadcast_to
from opbuild.mindspore.states import Drawn, need_states
from opbuild.mindspore.tensor import Tensor

__all__ = ["dropout", "dropout1d", "dropout2d", "dropout3d"]


def dropout(input: Any, p: float = 0.5, training: bool = True, seed: int | None = None) -> Tensor:
    """Return the tensor, in training with elements zeroed at random and the others divided by ``1 - p``.

    Args:
        input: The tensor.
        p: The probability that an element is zeroed.
        training: Whether anything is zeroed.
        seed: Draws the same elements in each call; None draws others, from the generator of ``set_seed``.

    Raises:
        ArgumentValueError: If ``p`` is not between 0 and 1.
    """
    tensor = need_tensor(input, "dropout")
    return mul(tensor, _kept(tensor, tensor.shape, p, seed)) if training and p else tensor


def _of_channels(rank: int) -> Callable[..., Tensor]:
    def function(input: Any, p: float = 0.5, training: bool = True) -> Tensor:
        tensor = need_tensor(input, function.__name__)
        if not training or not p:
            return tensor
        lead = tensor.shape[: max(tensor.ndim - rank, 0)]
        return mul(tensor, _kept(tensor, (*lead, *[1] * (tensor.ndim - len(lead))), p))

    function.__name__ = function.__qualname__ = f"dropout{rank}d"
    function.__doc__ = f"Return the tensor, in training with whole channels of {rank} dimensions zeroed."
    return function


dropout1d, dropout2d, dropout3d = map(_of_channels, (1, 2, 3))


def dropped(x: Any, keep_prob: float, mask: str, rank: int = 0) -> tuple[Tensor, Tensor]:
    """Return the tensor with elements, or channels of ``rank`` dimensions, zeroed, and a mask of those kept."""
    tensor = need_tensor(x, "Dropout")
    share = _kept(tensor, (*tensor.shape[: tensor.ndim - rank], *[1] * rank), 1.0 - keep_prob)
    return mul(tensor, share), cast(broadcast_to(greater(share, 0), tensor.shape), mask)


def _kept(tensor: Tensor, shape: Sequence[int], p: float, seed: int | None = None) -> Tensor:
    """Return, in the tensor's element type, 0 with probability ``p``, and else what keeps the mean.

    In a network it is an input that is drawn before each call, so both modes draw the same.
    """
    if not 0 <= p <= 1:
        raise ArgumentValueError(f"p of dropout is {p}", "give a number from 0 to 1")
    type_ = TensorType(tensor.type.dtype, tuple(shape))

    def draw() -> Array:
        generator = initializer.generator() if seed is None else np.random.default_rng(seed)
        kept = generator.random(type_.shape, np.float32) >= np.float32(p)
        return np.asarray(kept * np.float32(0 if p == 1 else 1 / (1 - p))).astype(type_.dtype)

    drawn = Drawn(type_, draw)
    if current() is not None:
        return Tensor.of(need_states().draw(drawn))
    return Tensor.of(drawn.asnumpy())
