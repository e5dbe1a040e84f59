"""Operators that torch writes out in simpler ones before the rules see them, and those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions
from torch._decomp.decompositions import upsample_compute_output_size
from torch.nn.attention import SDPBackend, sdpa_kernel

from opbuild.frontend.torch.builder import rule_of


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the core decompositions, but of operators that have a rule of their own."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for overload in list(table):
        if isinstance(overload, torch._ops.OpOverload) and rule_of(str(overload)) is not None:
            del table[overload]
    return table


def attention_written_out(inputs: Sequence[Any]) -> AbstractContextManager[Any]:
    """Return a context in which torch traces attention as products and softmax, if gradients are needed.

    Its own operator for CPUs keeps the logarithms of sums for one of the backward pass; written out, what is kept is
    chosen with everything else.

    Args:
        inputs: What the graph is given.
    """
    needed = any(isinstance(each, torch.Tensor) and each.requires_grad for each in inputs)
    found: AbstractContextManager[Any] = sdpa_kernel(SDPBackend.MATH)
    return found if needed and torch.is_grad_enabled() else nullcontext()


@contextmanager
def kept_whole() -> Iterator[None]:
    """Let torch keep images resized to the nearest elements whole while it traces.

    It has them written out before decompositions are asked for, by kernels in Python for every device. Tables of
    places would come of that, with other operators for open sizes than for fixed ones.
    """
    packets = [getattr(torch.ops.aten, f"upsample_nearest{rank}d") for rank in (1, 2, 3)]
    kept = [getattr(packet, name) for packet in packets for name in ("vec", "default")]
    changed = [(overload, dict(overload.py_kernels)) for overload in kept]
    for overload, kernels in changed:
        for key in _WRITTEN_OUT & kernels.keys():
            if overload._overloadname == "vec":
                overload.py_kernels[key] = partial(_with_sizes, overload.overloadpacket.default)
            else:
                del overload.py_kernels[key]
        overload._dispatch_cache.clear()
    try:
        yield
    finally:
        for overload, kernels in changed:
            overload.py_kernels.update(kernels)
            overload._dispatch_cache.clear()


_WRITTEN_OUT = {DispatchKey.CompositeImplicitAutograd, DispatchKey.Autograd}
"""The keys of kernels that torch calls in the place of operators while it traces."""


def _with_sizes(resized: Any, x: torch.Tensor, sizes: Any, factors: Any) -> torch.Tensor:
    """Resize an image, given its size or factors; torch's own in C++ would fix a size that is open."""
    compute: Callable[..., Any] = upsample_compute_output_size
    wanted = compute(x.size(), sizes, factors)
    found: torch.Tensor = resized(x, wanted, *(factors or (None,) * (x.dim() - 2)))
    return found
