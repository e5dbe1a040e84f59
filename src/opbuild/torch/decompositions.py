"""Operators that torch writes out in simpler ones before the rules see them, and those that it does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import lru_cache, partial
from math import inf
from typing import Any

import torch
from torch._C import DispatchKey
from torch._decomp import core_aten_decompositions
from torch._decomp.decompositions import upsample_compute_output_size
from torch.nn import functional as F  # noqa: N812 - as everybody calls it
from torch.nn.attention import SDPBackend, sdpa_kernel

from opbuild.frontend.torch.builder import rule_of


@lru_cache(maxsize=1)
def decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the core decompositions, but of operators that have a rule of their own."""
    table: dict[Any, Callable[..., Any]] = dict(core_aten_decompositions())
    for overload in list(table):
        if isinstance(overload, torch._ops.OpOverload) and rule_of(str(overload)) is not None:
            del table[overload]
    table[torch.ops.aten._transformer_encoder_layer_fwd.default] = _encoder_layer
    return table


def _encoder_layer(
    x: torch.Tensor,
    width: int,
    heads: int,
    in_weight: torch.Tensor,
    in_bias: torch.Tensor,
    out_weight: torch.Tensor,
    out_bias: torch.Tensor,
    uses_gelu: bool,
    norm_first: bool,
    eps: float,
    *rest: Any,
) -> torch.Tensor:
    """Compute a layer of a transformer's encoder, which torch has an operator for where no gradients are needed."""
    first, second = ((width,), *rest[:2], eps), ((width,), *rest[2:4], eps)
    up, down, (mask, kind) = rest[4:6], rest[6:8], (*rest[8:], None, None)[:2]
    if mask is not None:
        mask = mask.bool()
        if kind == _PADDING:
            mask = mask[:, None, None]

    def attention(x: torch.Tensor) -> torch.Tensor:
        q, k, v = F.linear(x, in_weight, in_bias).view(*x.shape[:2], 3, heads, -1).permute(2, 0, 3, 1, 4)
        scores = q * (width // heads) ** -0.5 @ k.transpose(-2, -1)
        shares = (scores if mask is None else scores.masked_fill(mask, -inf)).softmax(-1)
        return F.linear((shares @ v).transpose(1, 2).flatten(2), out_weight, out_bias)

    def network(x: torch.Tensor) -> torch.Tensor:
        hidden = F.linear(x, *up)
        return F.linear(F.gelu(hidden) if uses_gelu else F.relu(hidden), *down)

    if norm_first:
        x = x + attention(F.layer_norm(x, *first))
        return x + network(F.layer_norm(x, *second))
    x = F.layer_norm(x + attention(x), *first)
    return F.layer_norm(x + network(x), *second)


_PADDING = 1
"""A mask's kind: it has a row of keys for each sequence."""


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
