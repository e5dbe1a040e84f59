"""Reductions of segments: rows that have the same id are reduced to one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore.ops.arithmetic import need_tensor
from opbuild.mindspore.ops.scattering import at_vectors
from opbuild.mindspore.ops.selection import segment
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.tensor import Tensor

__all__ = [
    "unsorted_segment_max", "unsorted_segment_min", "unsorted_segment_prod", "unsorted_segment_sum",
]  # fmt: skip

segment_sum, segment_mean = segment("segment_sum", np.sum, 0), segment("segment_mean", np.mean, 0)
segment_prod = segment("segment_prod", np.prod, 1)
segment_max, segment_min = segment("segment_max", np.max, 0), segment("segment_min", np.min, 0)


def _limit(dtype: str, greatest: bool) -> Any:
    kind = np.finfo(dtype) if dtype.startswith("float") else np.iinfo(dtype)
    return kind.max if greatest else kind.min


def _unsorted(how: str, first: Callable[[str], Any], label: str) -> Callable[[Any, Any, int], Tensor]:
    def function(x: Any, segment_ids: Any, num_segments: int) -> Tensor:
        tensor, ids = need_tensor(x, label), need_tensor(segment_ids, label)
        rest, dtype = tensor.shape[ids.ndim :], tensor.type.dtype
        empty = Tensor.of(np.full((int(num_segments), *rest), first(dtype), dtype))
        rows = reshaped(tensor, (ids.size, *rest))
        return at_vectors(empty, reshaped(ids, (ids.size, 1)), rows, how, label)

    function.__name__ = function.__qualname__ = label
    function.__doc__ = f"Return the rows of each segment reduced by {how}; those without one have its neutral number."
    return function


unsorted_segment_sum = _unsorted("add", lambda dtype: 0, "unsorted_segment_sum")
unsorted_segment_prod = _unsorted("mul", lambda dtype: 1, "unsorted_segment_prod")
unsorted_segment_max = _unsorted("max", lambda dtype: _limit(dtype, False), "unsorted_segment_max")
unsorted_segment_min = _unsorted("min", lambda dtype: _limit(dtype, True), "unsorted_segment_min")
