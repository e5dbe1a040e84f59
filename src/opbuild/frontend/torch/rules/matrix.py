"""Products of matrices, attention as torch computes it on CPUs, and recurrent layers.

Torch writes a linear layer of three dimensions as a product of two between two views; the views are taken back here, so
that the product is that of the module, as other front ends have it. Attention is products and softmax, which a pass
joins again. Recurrent layers are handed over where ``torch._dynamo.config.allow_rnn`` is set.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod, sqrt
from typing import Any

import numpy as np

from opbuild.frontend.torch.builder import RULES, StepBuilder, Value, category, rule
from opbuild.graph.extents import is_open
from opbuild.graph.types import Node


def product(of: StepBuilder, x: Value, other: Value) -> Value:
    """Write ``x @ other`` of two matrices, in the shape that ``x`` had before it was viewed as one."""
    of.refuse_if(category(x.dtype) < 2, "products of integers")
    whole = of.reshaped_from(x)
    for count in range(2, len(whole.shape)):
        if prod(whole.shape[:count]) == x.shape[0]:  # heads that were joined stay so
            return of("MatMul", of.reshape(x, (*whole.shape[:count], x.shape[1])), other)
    return of("MatMul", x, other)


def linear(of: StepBuilder, x: Value, weight: Value, bias: Any, alpha: Any = 1, beta: Any = 1) -> Value:
    """Write ``beta * bias + alpha * x @ weight`` as a matrix."""
    rows, columns = x.shape[0], weight.shape[1]
    result = _scaled(of, product(of, x, weight), alpha)
    if bias is not None and beta != 0:
        bias = _scaled(of, bias, beta)
        if len(bias.shape) > 1 and len(result.shape) > 2:
            result = of.reshape(result, (rows, columns))
        result = of("Add", result, bias)
    return of.reshape(result, (rows, columns))


@rule("bmm.default")
def bmm(of: StepBuilder, x: Value, other: Value) -> Value:
    """A batch of products; batches that were viewed as one are taken apart again."""
    of.refuse_if(category(x.dtype) < 2, "products of integers")
    shape = (x.shape[0], x.shape[1], other.shape[2])
    first, second = of.reshaped_from(x), of.reshaped_from(other)
    are_matrices = (first.shape[-2:], second.shape[-2:]) == (x.shape[-2:], other.shape[-2:])
    if len(first.shape) == len(second.shape) > 3 and first.shape[:-2] == second.shape[:-2] and are_matrices:
        x, other = first, second
    return of.reshape(of("MatMul", x, other), shape)


@rule("mv.default", "dot.default", "matmul.default")
def matmul(of: StepBuilder, x: Value, other: Value) -> Value:
    """``x @ other``."""
    of.refuse_if(category(x.dtype) < 2, "products of integers")
    return of("MatMul", x, other)


def _scaled(of: StepBuilder, value: Value, factor: Any) -> Value:
    return value if factor == 1 else of("Mul", value, of.constant(factor, of.dtype))


def _added(multiply: Callable[[StepBuilder, Value, Value], Value]) -> Callable[..., Value]:
    """Return the rule of ``beta * bias + alpha * product``."""

    def write(of: StepBuilder, bias: Value, x: Value, other: Value, beta: Any = 1, alpha: Any = 1) -> Value:
        result = _scaled(of, multiply(of, x, other), alpha)
        return result if beta == 0 else of("Add", result, _scaled(of, bias, beta))

    return write


@rule("_scaled_dot_product_flash_attention_for_cpu.default")
def attention(
    of: StepBuilder,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    attn_mask: Value | None = None,
    scale: float | None = None,
) -> tuple[Value, None]:
    """Softmax of scaled and masked scores, times the values; without their logarithms.

    Where heads of queries share keys, they are rows of one product: keys are not repeated. Queries with scores of -inf
    alone get 0, whether a mask hides all keys or the scores overflowed.
    """
    of.refuse_if(dropout, "dropout")
    batch, heads, rows, size = query.shape
    shared, columns = key.shape[1], key.shape[2]
    grouped = heads != shared
    if grouped:
        query = of.reshape(query, (batch, shared, heads // shared * rows, size))
    scores = of("MatMul", query, of.transpose(key, (0, 1, 3, 2)))
    if grouped:
        scores = of.reshape(scores, (batch, heads, rows, columns))
    factor = scale if scale is not None else 1 / sqrt(size)
    scores = of("Mul", scores, of.constant(factor, query.dtype))
    if is_causal:
        scores = of("Add", scores, causal_mask(of, rows, columns, query.dtype))
    if attn_mask is not None:
        if attn_mask.dtype == "bool":
            hidden = of.constant(-np.inf, query.dtype)
            attn_mask = of("Where", attn_mask, of.constant(0, query.dtype), hidden)
        scores = of("Add", scores, of.cast(attn_mask, query.dtype))
    weights = of("Softmax", scores, axis=-1, zeros="hidden")
    if not grouped:
        return of("MatMul", weights, value), None
    result = of("MatMul", of.reshape(weights, (batch, shared, heads // shared * rows, columns)), value)
    return of.reshape(result, (batch, heads, rows, value.shape[3])), None


@rule("_scaled_dot_product_flash_attention.default")
def flash_attention(
    of: StepBuilder,
    query: Value,
    key: Value,
    value: Value,
    dropout: float = 0.0,
    is_causal: bool = False,
    with_mask: bool = False,
    scale: float | None = None,
) -> tuple[Value, None]:
    """``attention`` as torch computes it on GPUs in 16 bits where there is no mask."""
    return attention(of, query, key, value, dropout, is_causal, None, scale)


@rule("_scaled_dot_product_efficient_attention.default", "_scaled_dot_product_cudnn_attention.default")
def masked_attention(
    of: StepBuilder,
    query: Value,
    key: Value,
    value: Value,
    mask: Value | None,
    with_logarithms: bool,
    dropout: float = 0.0,
    is_causal: bool = False,
    with_mask: bool = False,
    scale: float | None = None,
) -> tuple[Value, None]:
    """``attention`` as torch computes it on GPUs otherwise."""
    return attention(of, query, key, value, dropout, is_causal, mask, scale)


def causal_mask(of: StepBuilder, rows: Any, columns: Any, dtype: str) -> Value:
    """Return the mask that hides the keys that come after each query."""
    if is_open((rows, columns)):
        rows_at, columns_at = (
            of("Range", of.constant(0, "int64"), of("Squeeze", of.ints(each), of.ints(0)), of.constant(1, "int64"))
            for each in (rows, columns)
        )
        shown = of("GreaterOrEqual", of.reshape(rows_at, (rows, 1)), columns_at)
        return of("Where", shown, of.constant(0, dtype), of.constant(-np.inf, dtype))
    return of.constant(np.triu(np.full((rows, columns), -np.inf), 1), dtype)


RULES.register_all(
    {
        "mm.default": lambda of, x, other: linear(of, x, other, None),
        "addmm.default": lambda of, bias, x, other, beta=1, alpha=1: linear(of, x, other, bias, alpha, beta),
        "baddbmm.default": _added(bmm),
        "addmv.default": _added(matmul),
        "addbmm.default": _added(lambda of, x, other: of.sum(bmm(of, x, other), [0])),
    },
    domain="aten",
)


_LSTM = 2
_GATES = (0, 3, 1, 2)
"""Torch's gates (input, forget, cell, output) in ONNX's order (input, output, forget, cell)."""

_BACK = (0, 2, 3, 1)
"""ONNX's in torch's."""


@rule("mkldnn_rnn_layer.default")
def lstm_layer(
    of: StepBuilder,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value,
    recurrent_bias: Value,
    hidden: Value,
    cell: Value,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    size: int,
    layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> tuple[Value | None, ...]:
    """One direction of one layer of an LSTM: ``(steps, batch, inputs)`` to ``(steps, batch, size)``."""
    _require(of, mode, batch_sizes, layers, bidirectional, batch_first, train)
    inputs = _inputs(of, x, (weight, recurrence, bias, recurrent_bias), (hidden, cell), size)
    results = of.several("LSTM", 3, *inputs, **_attributes(size, reverse))
    shapes = ((*x.shape[:2], size), hidden.shape, cell.shape)
    workspace = of.constant(np.zeros(0, np.uint8)) if of.is_read(3) else None  # the backward pass needs none
    return *(of.reshape(each, shape) for each, shape in zip(results, shapes, strict=True)), workspace


@rule("mkldnn_rnn_layer_backward.default")
def lstm_layer_backward(
    of: StepBuilder,
    x: Value,
    weight: Value,
    recurrence: Value,
    bias: Value,
    recurrent_bias: Value,
    hidden: Value,
    cell: Value,
    every: Value,
    _last_hidden: Value,
    _last_cell: Value,
    flow: Value | None,
    hidden_flow: Value | None,
    cell_flow: Value | None,
    reverse: bool,
    mode: int,
    size: int,
    layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Value,
) -> tuple[Value | None, ...]:
    """The gradients of that layer's inputs, weights, biases, which get the same, and first states."""
    from opbuild.graph.gradients.recurrent import recurrent
    from opbuild.graph.gradients.registry import Backward

    _require(of, mode, batch_sizes, layers, bidirectional, batch_first, train)
    steps, batch = x.shape[:2]
    inputs = _inputs(of, x, (weight, recurrence, bias, recurrent_bias), (hidden, cell), size)
    state = (1, batch, size)
    flows = tuple(
        None if each is None else of.reshape(each, shape)
        for each, shape in ((flow, (steps, *state)), (hidden_flow, state), (cell_flow, state))
    )
    outputs = of.reshape(every, (steps, *state)).name, "", ""
    names = tuple("" if each is None else each.name for each in inputs)
    node = Node("LSTM", names, outputs, _attributes(size, reverse), of.name)
    layer = Backward(f"{of.name}/gradient", of.scope, node, flows, [each is not None for each in inputs])
    of_x, of_w, of_r, of_b, _, *of_states = recurrent(layer, apart=True)
    of_bias = of("Slice", _require_gradient(of_b), of.ints(0), of.ints(4 * size), of.ints(1), of.ints(1))
    back = [_reordered(of, of.reshape(_require_gradient(each), model.shape), size, _BACK, model.shape)
            for each, model in ((of_w, weight), (of_r, recurrence), (of_bias, bias))]  # fmt: skip
    states = (
        of.reshape(_require_gradient(each), model.shape) for each, model in zip(of_states, (hidden, cell), strict=True)
    )
    return _require_gradient(of_x), *back, back[2], *states


def _require_gradient(value: Value | None) -> Value:
    if value is None:
        raise AssertionError("a gradient that was asked for is missing")
    return value


def _require(of: StepBuilder, mode: int, batch_sizes: Sequence[int], layers: int, *flags: bool) -> None:
    if mode != _LSTM or batch_sizes or layers != 1 or any(flags):
        of.refuse("another layer than one direction of an LSTM")


def _inputs(
    of: StepBuilder, x: Value, weights: Sequence[Value], states: Sequence[Value], size: int
) -> tuple[Value | None, ...]:
    """Return the inputs of ONNX's operator."""
    w, r, *biases = (_reordered(of, each, size, _GATES, (1, *each.shape)) for each in weights)
    first = (of.reshape(each, (1, x.shape[1], size)) for each in states)
    return x, w, r, of("Concat", *biases, axis=1), None, *first


def _attributes(size: int, reverse: bool) -> dict[str, Any]:
    return {"hidden_size": size, "direction": "reverse" if reverse else "forward"}


def _reordered(of: StepBuilder, value: Value, size: int, order: Sequence[int], shape: Sequence[int]) -> Value:
    """Return the gates' values in another order, and in a shape, to which a direction may be added."""
    parts = of.several("Split", 4, value, of.ints(*(size,) * 4), axis=0)
    return of.reshape(of("Concat", *(parts[gate] for gate in order), axis=0), shape)
