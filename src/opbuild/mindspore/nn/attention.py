"""Multi-head attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.frontend.cell import location
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, positive
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.execution import cast
from opbuild.mindspore.initializer import HeUniform, Uniform, XavierNormal, XavierUniform, initializer
from opbuild.mindspore.nn.basic import Dense
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.activation import softmax
from opbuild.mindspore.ops.arithmetic import add, logical_or, mul, where
from opbuild.mindspore.ops.linear import dense, matmul
from opbuild.mindspore.ops.random import dropout
from opbuild.mindspore.ops.reduction import mean
from opbuild.mindspore.ops.shaping import concat, expand_dims, pad, reshaped, split, squeeze, swapaxes, tile, transpose
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor

NEVER = float("-inf")


class MultiheadAttention(Cell):
    """Attention of queries to keys and values, in several heads.

    Args:
        embed_dim: Extent of the queries' last axis, and of the output's.
        num_heads: Heads; ``embed_dim`` is a multiple.
        dropout: The probability that training drops a weight.
        has_bias: Whether the projections have biases.
        add_bias_kv: Whether a learned key and value are added to the sequences.
        add_zero_attn: Whether a key and value of zeros are added to the sequences.
        kdim: Extent of the keys' last axis; by default ``embed_dim``.
        vdim: Extent of the values' last axis; by default ``embed_dim``.
        batch_first: Whether tensors are (batch, steps, channels) and not (steps, batch, channels).
        dtype: Element type of the parameters.
    """

    def __init__(self, embed_dim: int, num_heads: int, dropout: float = 0.0, has_bias: bool = True,
                 add_bias_kv: bool = False, add_zero_attn: bool = False, kdim: int | None = None,
                 vdim: int | None = None, batch_first: bool = False, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.embed_dim = positive(embed_dim, "embed_dim of MultiheadAttention")
        self.num_heads = positive(num_heads, "num_heads of MultiheadAttention")
        if embed_dim % num_heads:
            raise ArgumentValueError(
                f"MultiheadAttention of {embed_dim} channels in {num_heads} heads", "the heads must be equal"
            )
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        self.dropout, self.batch_first, self.add_zero_attn = dropout, batch_first, add_zero_attn
        self.head_dim = embed_dim // num_heads
        self.dtype = float32 if dtype is None else dtype
        self._make_parameters(has_bias, add_bias_kv)

    def _make_parameters(self, has_bias: bool, add_bias_kv: bool) -> None:
        size, dtype = self.embed_dim, self.dtype

        def weight(name: str, shape: tuple[int, ...], start: Any) -> Parameter:
            return Parameter(initializer(start, shape, dtype), name)

        together = self.kdim == self.vdim == size
        columns = {} if together else {"q": size, "k": self.kdim, "v": self.vdim}
        for letter in "qkv":
            name = f"{letter}_proj_weight"
            parameter = weight(name, (size, columns[letter]), XavierUniform()) if columns else None
            setattr(self, name, parameter)
        self.in_proj_weight = weight("in_proj_weight", (3 * size, size), XavierUniform()) if together else None
        self.in_proj_bias = weight("in_proj_bias", (3 * size,), "zeros") if has_bias else None
        self.out_proj = Dense(size, size, has_bias=has_bias, weight_init=HeUniform(math.sqrt(5)),
                              bias_init=Uniform(1 / math.sqrt(size)), dtype=dtype)  # fmt: skip
        self.bias_k = weight("bias_k", (1, 1, size), XavierNormal()) if add_bias_kv else None
        self.bias_v = weight("bias_v", (1, 1, size), XavierNormal()) if add_bias_kv else None

    def construct(self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None = None,
                  need_weights: bool = True, attn_mask: Tensor | None = None,
                  average_attn_weights: bool = True) -> tuple[Tensor, ...]:  # fmt: skip
        """Return the output, and the attention's weights if they are needed.

        Args:
            query: Shape (steps, batch, embed_dim), or without a batch.
            key: Shape (source steps, batch, kdim).
            value: Shape (source steps, batch, vdim).
            key_padding_mask: Shape (batch, source steps): True, or a number that is added, for keys to pass over.
            need_weights: Whether the weights are returned.
            attn_mask: Shape (steps, source steps), or one for each batch and head: as ``key_padding_mask``.
            average_attn_weights: Whether the weights are averaged over the heads.
        """
        batched = query.ndim == 3
        tensors = [self._steps_first(item, batched) for item in (query, key, value)]
        if key_padding_mask is not None and not batched:
            key_padding_mask = expand_dims(key_padding_mask, 0)
        q, k, v = self._projected(*tensors)
        masks = [attn_mask, key_padding_mask]
        k, v, masks = self._extended(k, v, masks)
        output, weights = self._attended(q, k, v, self._mask(masks, q, k))
        output = squeeze(output, 1) if not batched else swapaxes(output, 0, 1) if self.batch_first else output
        if not need_weights:
            return (output,)
        weights = mean(weights, 1) if average_attn_weights else weights
        return output, weights if batched else squeeze(weights, 0)

    def _steps_first(self, tensor: Tensor, batched: bool) -> Tensor:
        if tensor.ndim != (3 if batched else 2):
            raise TensorShapeError(
                f"MultiheadAttention of shape {tensor.shape}{location()}",
                "query, key and value all have 3 dimensions, or all 2",
            )
        if not batched:
            return expand_dims(tensor, 1)
        return swapaxes(tensor, 0, 1) if self.batch_first else tensor

    def _projected(self, query: Tensor, key: Tensor, value: Tensor) -> list[Tensor]:
        weights: Any = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)  # type: ignore[attr-defined]
        if self.in_proj_weight is not None:
            weights = split(self.in_proj_weight, self.embed_dim, 0)
        biases: Any = (None,) * 3 if self.in_proj_bias is None else split(self.in_proj_bias, self.embed_dim, 0)
        return [
            dense(tensor, weight, bias)
            for tensor, weight, bias in zip((query, key, value), weights, biases, strict=True)
        ]

    def _extended(self, k: Tensor, v: Tensor, masks: list[Tensor | None]) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Return keys, values and masks with the learned step and the step of zeros, where they are asked for."""
        batch = k.shape[1]
        if self.bias_k is not None and self.bias_v is not None:
            k, v = concat((k, tile(self.bias_k, (1, batch, 1)))), concat((v, tile(self.bias_v, (1, batch, 1))))
            masks = [_wider(mask) for mask in masks]
        if self.add_zero_attn:
            k, v = pad(k, (0, 0, 0, 0, 0, 1)), pad(v, (0, 0, 0, 0, 0, 1))
            masks = [_wider(mask) for mask in masks]
        return k, v, masks

    def _mask(self, masks: list[Tensor | None], q: Tensor, k: Tensor) -> Tensor | None:
        """Return the addend of the scores, of shape (batch or 1, heads or 1, steps or 1, source steps)."""
        steps, batch, _ = q.shape
        source = k.shape[0]
        attn, padding = (None if mask is None else _truth_or_float(mask) for mask in masks)
        if attn is not None:
            allowed = {2: (steps, source), 3: (batch * self.num_heads, steps, source)}
            if attn.shape != allowed.get(attn.ndim):
                raise TensorShapeError(
                    f"attn_mask of shape {attn.shape}{location()}", f"it must be one of {[*allowed.values()]}"
                )
            lead = (1, 1) if attn.ndim == 2 else (batch, self.num_heads)
            attn = reshaped(attn, (*lead, steps, source))
        if padding is not None:
            if padding.shape != (batch, source):
                raise TensorShapeError(
                    f"key_padding_mask of shape {padding.shape}{location()}", f"it must be {(batch, source)}"
                )
            padding = reshaped(padding, (batch, 1, 1, source))
        return _combined(attn, padding, q.type.dtype)

    def _attended(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        steps, batch, _ = q.shape
        heads = [reshaped(item, (item.shape[0], batch, self.num_heads, self.head_dim)) for item in (q, k, v)]
        q = transpose(heads[0], (1, 2, 0, 3))
        k = transpose(heads[1], (1, 2, 3, 0))
        v = transpose(heads[2], (1, 2, 0, 3))
        scores = matmul(mul(q, 1 / math.sqrt(self.head_dim)), k)
        weights = softmax(scores if mask is None else add(scores, mask), -1)
        weights = dropout(weights, self.dropout, self.training)
        joined = transpose(matmul(weights, v), (2, 0, 1, 3))
        return self.out_proj(reshaped(joined, (steps, batch, self.embed_dim))), weights


def _truth_or_float(mask: Tensor) -> Tensor:
    dtype = mask.type.dtype
    if dtype == "uint8":
        return cast(mask, "bool")
    if dtype != "bool" and not mask.is_floating_point():
        raise ArgumentTypeError(f"a mask of {dtype}{location()}", "give truth values or floats")
    return mask


def _wider(mask: Tensor | None) -> Tensor | None:
    """Return the mask with one more key, which is not passed over."""
    if mask is None:
        return None
    return concat((mask, Tensor.of(np.zeros((*mask.shape[:-1], 1), mask.type.dtype))), -1)


def _combined(first: Tensor | None, second: Tensor | None, dtype: str) -> Tensor | None:
    masks = [mask for mask in (first, second) if mask is not None]
    if not masks:
        return None
    if len(masks) == 2 and all(mask.type.dtype == "bool" for mask in masks):
        masks = [logical_or(*masks)]
    added = [_added(mask, dtype) for mask in masks]
    return added[0] if len(added) == 1 else add(*added)


def _added(mask: Tensor, dtype: str) -> Tensor:
    if mask.type.dtype != "bool":
        return mask
    never, zero = (Tensor.of(np.asarray(value, dtype)) for value in (NEVER, 0))
    return where(mask, never, zero)


__all__ = names.public(vars(), Cell)
