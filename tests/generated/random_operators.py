"""The operators of random networks, each a function that applies it, with random attributes, to values there are."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from generated.random_elementwise import (
    arithmetic,
    bits,
    cast,
    clip,
    compare,
    divide,
    integer_unary,
    logic,
    power,
    prelu,
    steps,
    unary,
    variadic,
    where,
)
from generated.random_movement import (
    concat,
    depth_to_space,
    dynamic_reshape,
    expand,
    gather,
    pad,
    reshape,
    resize,
    slice_,
    split,
    transpose,
)
from generated.random_networks import Maker
from generated.random_products import conv, conv_transpose, gemm, global_pool, lrn, matmul, pool
from generated.random_quantized import conv_integer, dequantize, matmul_integer, quantize, recurrent
from generated.random_reductions import arg_reduction, normalization, reduction, softmax
from generated.random_selection import (
    einsum,
    grid_sample,
    hard_max,
    indexed_pool,
    length_normalization,
    length_pool,
    one_hot,
    reversed_rows,
    running_sum,
    scatter_elements,
    scatter_nd,
    top_k,
    triangle,
)

OPERATORS: Sequence[Sequence[Callable[[Maker], None]]] = (
    (unary, unary, unary, arithmetic, arithmetic, arithmetic, variadic, divide, power, prelu, clip, where, cast),
    (steps, integer_unary, compare, logic, bits, cast, arithmetic, where),
    (conv, conv, conv_transpose, matmul, gemm, pool, global_pool, lrn),
    (reduction, reduction, arg_reduction, softmax, normalization),
    (reshape, transpose, expand, slice_, split, concat, pad, depth_to_space, gather, resize, dynamic_reshape),
    (top_k, scatter_elements, scatter_nd, triangle, running_sum, one_hot, hard_max, reversed_rows, indexed_pool),
    (einsum, length_normalization, length_pool, grid_sample, recurrent),
    (quantize, quantize, dequantize, matmul_integer, conv_integer),
)
"""Operators in classes that are drawn equally often."""

FOR_SPECIAL: Sequence[Sequence[Callable[[Maker], None]]] = (
    (unary, arithmetic, variadic, divide, power, prelu, clip, where),
    (steps, compare, arithmetic, where, reduction, matmul),
    (reshape, transpose, expand, slice_, split, concat, pad, gather),
)
"""Operators whose results the standard gives for NaN and infinity too."""
