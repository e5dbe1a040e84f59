"""Torch's tensors as arrays on the same memory, and back; and whether those that a network took are unchanged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import torch

from opbuild.dtypes import numpy_dtype
from opbuild.graph.types import Array

_CODES = {torch.bfloat16: (torch.int16, "bfloat16")}
"""Types that numpy does not have: those of the same bytes that both have, and the name of the type."""


def dense(tensor: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Return a contiguous tensor, its dimensions in the order given; copied only if it is not dense there."""
    value = tensor.detach()
    if value.is_neg() or value.is_conj():
        value = value.resolve_neg().resolve_conj()
    value = value.permute(tuple(order))
    return value if value.is_contiguous() else value.contiguous()


def to_array(tensor: torch.Tensor, order: Sequence[int]) -> Array:
    """Return a tensor's memory as an array, as ``dense``; one on a device is copied to the host."""
    value = dense(tensor, order).cpu()
    code = _CODES.get(value.dtype)
    if code is None:
        return np.asarray(value.numpy())
    return np.asarray(value.view(code[0]).numpy().view(numpy_dtype(code[1])))


def to_tensor(array: Array, order: Sequence[int]) -> torch.Tensor:
    """Return an array's memory as a tensor, whose dimensions lie in the order given."""
    code = next((each for each, (_, name) in _CODES.items() if name == array.dtype.name), None)
    found = torch.from_numpy(array) if code is None else torch.from_numpy(array.view(np.int16)).view(code)
    return turned_back(found, order)


def turned_back(found: torch.Tensor, order: Sequence[int]) -> torch.Tensor:
    """Return a tensor whose dimensions lie in the order given as it is to be seen."""
    back = [0] * len(order)
    for place, axis in enumerate(order):
        back[axis] = place
    return found.permute(back) if back != sorted(back) else found


_SAMPLED = 8
"""Elements of each tensor that are compared at each call."""

_INTEGERS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Weights:
    """The values of some tensors when a network took them.

    A tensor is another one if it lies elsewhere, or if torch counted a change of it. What is written through ``data``
    or through an array on the same memory is counted nowhere: so some elements of each are compared too, which shows
    whatever changes a tensor as a whole. Those of tensors on a device are read at once, for which it is awaited.

    Args:
        tensors: The tensors, as they are now.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        self._counted = [not each.is_inference() for each in tensors]
        self._addresses = [each.data_ptr() for each in tensors]
        self._versions = self._count(tensors)
        groups = defaultdict[tuple[int, str], list[torch.Tensor]](list)
        for each in tensors:
            if each.numel():
                groups[each.element_size(), each.device.type].append(_sampled(each))
        self._groups = [[each.numpy() for each in group] for (_, kind), group in groups.items() if kind == "cpu"]
        self._elsewhere = [group for (_, kind), group in groups.items() if kind != "cpu"]
        self._sample = self._read()

    def are(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return whether tensors are still the same and have the same values."""
        return (
            [each.data_ptr() for each in tensors] == self._addresses
            and self._count(tensors) == self._versions
            and self._read() == self._sample
        )

    def changed(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        """Return the positions of those that lie elsewhere, or of which a change was counted."""
        versions = self._count(tensors)
        return [
            index
            for index, each in enumerate(tensors)
            if each.data_ptr() != self._addresses[index] or versions[index] != self._versions[index]
        ]

    def _count(self, tensors: Sequence[torch.Tensor]) -> list[int]:
        return [each._version if counted else 0 for each, counted in zip(tensors, self._counted, strict=True)]

    def _read(self) -> bytes:
        found = [np.concatenate(group) for group in self._groups]
        found += [torch.cat(group).cpu().numpy() for group in self._elsewhere]
        return b"".join([each.tobytes() for each in found])


def _sampled(tensor: torch.Tensor) -> torch.Tensor:
    """Return some elements of a tensor, on its memory, as integers."""
    longest = max(range(tensor.dim()), key=tensor.size, default=0)
    line = tensor.detach().reshape(1) if not tensor.dim() else tensor.detach()
    for axis in reversed(range(line.dim())):
        if axis != longest:
            line = line.select(axis, line.size(axis) // 2)
    line = line[:: max(1, line.numel() // _SAMPLED)][: _SAMPLED + 1]
    return line.view(_INTEGERS[tensor.element_size()])
