"""The parts of attention in Triton that are the same whatever the scores are made of."""

from __future__ import annotations

import triton
import triton.language as tl

from opbuild.backend.triton.rows import rounded

LEAST = tl.constexpr(-float.fromhex("0x1.fffffep127"))
NOTHING = tl.constexpr(1e-30)
"""More than the sum of a row of which no weight is seen, and less than that of any other one."""


@triton.jit
def dispatch(
    q, k, v, out, others, seen, spans,
    size, rows, keys, columns, first, chunk, q_at, q_row, k_key, k_at, v_at, v_key, out_at, out_row,
    ROWS: tl.constexpr, KEYS: tl.constexpr, SCORED: tl.constexpr,
    SHOWS: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
    part, parts, IS_PART: tl.constexpr,
):  # fmt: skip
    """Attend as heads are: in vectors of 16 bytes, and of 16 bits with at most 64 or 128 elements, or any others.

    Products of float32 are no tensor cores'; they keep all that they sum up in registers: 32 elements of a head.
    """
    VECTOR: tl.constexpr = 128 // q.dtype.element_ty.primitive_bitwidth
    near = (q_at == 1) & (k_at == 1) & (v_at == 1)
    in_vectors = (size | columns | q_row | k_key | v_key) % VECTOR == 0
    addresses = q.to(tl.int64, bitcast=True) | k.to(tl.int64, bitcast=True) | v.to(tl.int64, bitcast=True)
    is_whole = near & in_vectors & (addresses % 16 == 0)
    q_whole, k_whole, v_whole = q_row // VECTOR * VECTOR, k_key // VECTOR * VECTOR, v_key // VECTOR * VECTOR
    size_whole, columns_whole = size // VECTOR * VECTOR, columns // VECTOR * VECTOR
    if q.dtype.element_ty == tl.float32:
        if is_whole & (columns <= 64):
            _attend(_aligned(q), _aligned(k), _aligned(v), out, others, seen, spans,
                    size_whole, rows, keys, columns_whole, first, 0, 1, q_whole,
                    k_whole, 1, 1, v_whole, out_at, out_row,
                    ROWS, KEYS, 32, 64, False, SCORED, SHOWS, ZEROS, ROUNDS, part, parts, IS_PART)  # fmt: skip
        else:
            _attend(q, k, v, out, others, seen, spans,
                    size, rows, keys, columns, first, chunk, q_at, q_row,
                    k_key, k_at, v_at, v_key, out_at, out_row,
                    ROWS, KEYS, 32, 64, False, SCORED, SHOWS, ZEROS, ROUNDS, part, parts, IS_PART)  # fmt: skip
    elif is_whole & (size <= 64) & (columns <= 64):
        _attend(_aligned(q), _aligned(k), _aligned(v), out, others, seen, spans,
                size_whole, rows, keys, columns_whole, first, 0, 1, q_whole,
                k_whole, 1, 1, v_whole, out_at, out_row,
                ROWS, KEYS, 64, 64, True, SCORED, SHOWS, ZEROS, ROUNDS, part, parts, IS_PART)  # fmt: skip
    elif is_whole & (size <= 128) & (columns <= 128):
        if chunk == 0:
            _attend(_aligned(q), _aligned(k), _aligned(v), out, others, seen, spans,
                    size_whole, rows, keys, columns_whole, first, 0, 1, q_whole,
                    k_whole, 1, 1, v_whole, out_at, out_row,
                    ROWS, KEYS, 128, 128, True, SCORED, SHOWS, ZEROS, ROUNDS, part, parts, IS_PART)  # fmt: skip
    else:
        _attend(q, k, v, out, others, seen, spans,
                size, rows, keys, columns, first, chunk, q_at, q_row,
                k_key, k_at, v_at, v_key, out_at, out_row,
                ROWS, KEYS // 2, 32, 64, False, SCORED, SHOWS, ZEROS, ROUNDS, part, parts, IS_PART)  # fmt: skip


@triton.jit
def _aligned(pointer):
    """Return an address that is a multiple of 16, as the compiler believes it."""
    whole = (pointer.to(tl.int64, bitcast=True) // 16 * 16).to(pointer.dtype, bitcast=True)
    return tl.multiple_of(whole, 16)


@triton.jit
def _attend(
    q, k, v, out, others, seen, spans,
    size, rows, keys, columns, first, chunk, q_at, q_row, k_key, k_at, v_at, v_key, out_at, out_row,
    ROWS: tl.constexpr, KEYS: tl.constexpr, CHUNK: tl.constexpr, WIDE: tl.constexpr, IS_WHOLE: tl.constexpr,
    SCORED: tl.constexpr, SHOWS: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
    part, parts, IS_PART: tl.constexpr,
):  # fmt: skip
    """Compute ``WIDE`` columns of a block of queries; heads have at most ``CHUNK`` elements if ``IS_WHOLE``.

    If ``IS_PART`` it is of one of as many parts of the keys, and what ``merge`` needs of each is written.
    """
    TWICE: tl.constexpr = ROUNDS != "" and v.dtype.element_ty == tl.float32
    row = tl.minimum(first + tl.arange(0, ROWS), rows - 1)[:, None].to(tl.int64)
    feature = tl.arange(0, CHUNK)[None, :]
    q += row * q_row
    query = tl.load(q + feature * q_at, mask=feature < size, other=0.0)
    columns_of = chunk + tl.arange(0, WIDE)[None, :]
    v += columns_of * v_at
    low, high, low_value, high_value, low_all, high_all = spans
    begin, end = low // KEYS * KEYS, high
    begin_all, end_all = low_all // KEYS * KEYS, high_all
    if IS_PART:
        begin, end = _part_of(begin, end, part, parts, KEYS)
        begin_all, end_all = _part_of(begin_all, end_all, part, parts, KEYS)
    largest = tl.full((ROWS, 1), LEAST if ZEROS != "" else float("-inf"), tl.float32)
    whole = tl.zeros((ROWS, 1), tl.float32)
    total = tl.zeros((ROWS, WIDE), tl.float32)
    scale = _scale(keys) if v.dtype.element_ty == tl.float32 else 1.0
    factor = whole
    for turn in tl.static_range(2 if TWICE else 1):
        MODE: tl.constexpr = "both" if not TWICE else "sums" if turn == 0 else "values"
        for start in range(begin, end, KEYS):
            at = start + tl.arange(0, KEYS)
            here = (at >= low) & (at < high)
            there = here & (at >= low_value) & (at < high_value)
            largest, whole, total = _step(
                largest, whole, total, factor, scale, q, query, k, v, others, seen, at, here, there, row,
                size, columns, columns_of, q_at, k_key, k_at, v_key, CHUNK, IS_WHOLE, SCORED, ZEROS, ROUNDS, MODE,
            )  # fmt: skip
        if SHOWS:
            # What is hidden shows where it is not finite: as many keys of those that were left out count, too.
            for start in range(begin_all, end_all, KEYS):
                at = start + tl.arange(0, KEYS)
                here = (at >= low_all) & (at < high_all) & ((at < low) | (at >= high))
                there = here & (at >= low_value) & (at < high_value)
                if (start < low) | (start + KEYS > high):
                    if _is_infinite(k, v, at, here, there, size, columns, columns_of, k_key, k_at, v_key, CHUNK):
                        largest, whole, total = _step(
                            largest, whole, total, factor, scale, q, query, k, v, others, seen, at, here, there, row,
                            size, columns, columns_of, q_at, k_key, k_at, v_key,
                            CHUNK, IS_WHOLE, SCORED, ZEROS, ROUNDS, MODE,
                        )  # fmt: skip
        factor = _inverse(whole, ZEROS)
    here = first + tl.arange(0, ROWS)[:, None] < rows
    inside = here & (columns_of < columns)
    to = out + row * out_row
    at = to + columns_of.to(tl.int64) * out_at
    if IS_PART:
        tl.store(at, total, mask=inside)
        tl.store(to + columns * out_at, largest, mask=here & (chunk == 0))
        tl.store(to + (columns + 1) * out_at, whole, mask=here & (chunk == 0))
    else:
        result = total if TWICE else total * factor
        tl.store(at, rounded(result, ROUNDS).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _part_of(begin, end, part, parts, KEYS: tl.constexpr):
    """Return one of as many parts of a range of keys, in whole tiles from its begin."""
    step = tl.cdiv(tl.cdiv(tl.maximum(end - begin, 0), KEYS), parts) * KEYS
    begin = begin + part * step
    return begin, tl.minimum(end, begin + step)


@triton.jit
def _inverse(whole, ZEROS: tl.constexpr):
    """Return the factor of sums of values, given the sum of powers: 0 where no weight is seen and that is to be 0."""
    factor = 1.0 / whole
    if ZEROS != "":
        factor = tl.where(whole < NOTHING, 0.0, factor)
    return factor


@triton.jit
def merge(
    sums, out, columns, parts, sums_at, sums_part, out_at, chunk,
    WIDE: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
):  # fmt: skip
    """Compute ``WIDE`` columns of one query from what was found of each part of the keys, in their order."""
    columns_of = chunk + tl.arange(0, WIDE)
    inside = columns_of < columns
    largest = tl.full((1,), LEAST if ZEROS != "" else float("-inf"), tl.float32)
    whole = tl.zeros((1,), tl.float32)
    total = tl.zeros((WIDE,), tl.float32)
    one = tl.zeros((1,), tl.int32)
    for _ in range(parts):
        greatest = tl.load(sums + columns * sums_at + one)
        powers = tl.load(sums + (columns + 1) * sums_at + one)
        values = tl.load(sums + columns_of.to(tl.int64) * sums_at, mask=inside, other=0.0)
        above = tl.maximum(largest, greatest)
        base = tl.where(above == float("-inf"), 0.0, above)
        before = tl.where(largest == above, 1.0, tl.exp(largest - base))
        after = tl.where(greatest == above, 1.0, tl.exp(greatest - base))
        whole = whole * before + powers * after
        total = total * before + values * after
        largest = above
        sums += sums_part
    result = total * _inverse(whole, ZEROS)
    tl.store(out + columns_of.to(tl.int64) * out_at, rounded(result, ROUNDS).to(out.dtype.element_ty), mask=inside)


@triton.jit
def _scale(keys):
    """Return the inverse of the least power of two that is more than the number of keys."""
    scale = 1.0
    while keys > 0:
        keys = keys // 2
        scale = scale * 0.5
    return scale


@triton.jit
def _is_infinite(
    k, v, at, here, there, size, columns, columns_of, k_key, k_at, v_key, CHUNK: tl.constexpr
):  # fmt: skip
    """Return whether a key or a value of a tile is not finite, of those that are looked at."""
    found = tl.zeros((1,), tl.int32)
    row = k + at[:, None].to(tl.int64) * k_key
    feature = tl.arange(0, CHUNK)[None, :]
    for start in range(0, size, CHUNK):
        inside = there[:, None] & (start + feature < size)
        key = tl.load(row + (start + feature).to(tl.int64) * k_at, mask=inside, other=0.0).to(tl.float32)
        found = tl.maximum(found, tl.max(tl.max((tl.abs(key) < float("inf")).to(tl.int32) ^ 1, 1), 0))
    inside = there[:, None] & (columns_of < columns)
    value = tl.load(v + at[:, None].to(tl.int64) * v_key, mask=inside, other=0.0).to(tl.float32)
    found = tl.maximum(found, tl.max(tl.max((tl.abs(value) < float("inf")).to(tl.int32) ^ 1, 1), 0))
    return tl.max(found, 0) > 0


@triton.jit
def _step(
    largest, whole, total, factor, scale, q, query, k, v, others, seen, at, here, there, row,
    size, columns, columns_of, q_at, k_key, k_at, v_key,
    CHUNK: tl.constexpr, IS_WHOLE: tl.constexpr, SCORED: tl.constexpr, ZEROS: tl.constexpr, ROUNDS: tl.constexpr,
    MODE: tl.constexpr,
):  # fmt: skip
    """Return greatest scores, sums of powers and of values with a tile of keys more.

    ``MODE``: ``both`` together, or first ``sums`` and then ``values``, whose weights can be rounded.
    """
    feature = tl.arange(0, CHUNK)[None, :]
    near = k + at[:, None].to(tl.int64) * k_key
    key = tl.load(near + feature * k_at, mask=here[:, None] & (feature < size), other=0.0)
    scores = tl.dot(query, tl.trans(key), input_precision="ieee")
    if not IS_WHOLE:
        for start in range(CHUNK, size, CHUNK):
            inside = start + feature < size
            part = tl.load(q + (start + feature).to(tl.int64) * q_at, mask=inside, other=0.0)
            key = tl.load(near + (start + feature).to(tl.int64) * k_at, mask=here[:, None] & inside, other=0.0)
            scores = tl.dot(part, tl.trans(key), scores, input_precision="ieee")
    scores = SCORED(scores, at[None, :], row, here[None, :], seen, others)
    if ZEROS == "nan":
        scores = tl.where(scores != scores, float("inf"), scores)
    scores = tl.where(here[None, :], scores, float("-inf"))
    if MODE != "values":
        above = tl.maximum(largest, tl.max(scores, 1)[:, None])
    else:
        above = largest
    base = tl.where(above == float("-inf"), 0.0, above)
    shifted = scores - base
    powers = tl.exp(shifted) * scale
    if ZEROS == "nan":
        powers = tl.where(shifted != shifted, 0.0, powers)
    if MODE != "values":
        shrink = tl.where(largest == above, 1.0, tl.exp(largest - base))
        whole = whole * shrink + tl.sum(powers, 1)[:, None]
    if MODE == "values":
        powers = rounded(powers * factor, ROUNDS)
    elif MODE == "both":
        total = total * shrink
    if MODE != "sums":
        inside = there[:, None] & (columns_of < columns)
        value = tl.load(v + at[:, None].to(tl.int64) * v_key, mask=inside, other=0.0)
        total = tl.dot(powers.to(value.dtype), value, total, input_precision="ieee")
    return above, whole, total
