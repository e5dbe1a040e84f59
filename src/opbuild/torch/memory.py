"""Torch's tensors as arrays, and arrays as torch's tensors, on the same memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import Array

_CODES = {torch.bfloat16: (torch.int16, "bfloat16")}
"""Types that numpy does not have: those of the same bytes that both have, and the name of the type."""


def to_array(tensor: torch.Tensor, order: Sequence[int]) -> Array:
    """Return a tensor's memory as an array, its dimensions in the order given; copied only if it is not dense there."""
    value = tensor.detach()
    if value.is_neg() or value.is_conj():
        value = value.resolve_neg().resolve_conj()
    value = value.permute(tuple(order))
    if not value.is_contiguous():
        value = value.contiguous()
    code = _CODES.get(value.dtype)
    if code is None:
        return np.asarray(value.numpy())
    return np.asarray(value.view(code[0]).numpy().view(numpy_dtype(code[1])))


def to_tensor(array: Array, order: Sequence[int]) -> torch.Tensor:
    """Return an array's memory as a tensor, whose dimensions lie in the order given."""
    code = next((each for each, (_, name) in _CODES.items() if name == array.dtype.name), None)
    found = torch.from_numpy(array) if code is None else torch.from_numpy(array.view(np.int16)).view(code)
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return found.permute(back) if back != sorted(back) else found
