"""Kernels in Triton whose extents and strides are arguments: one binary serves every size.

Sums are float32. Where a tensor has no elements nothing is launched, so that each extent here is at least 1, but for
those that are summed over: the sum over nothing is 0.
"""

import triton
import triton.language as tl


@triton.jit
def tile_of(program, m, n, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP: tl.constexpr):
    """Return a program's tile: ``GROUP`` rows of tiles are computed column by column, so that they share operands."""
    rows_of_tiles = tl.cdiv(m, BLOCK_M)
    in_group = GROUP * tl.cdiv(n, BLOCK_N)
    first = program // in_group * GROUP
    rows = tl.minimum(rows_of_tiles - first, GROUP)
    return first + program % in_group % rows, program % in_group // rows


@triton.jit
def activate(x, ACTIVATION: tl.constexpr):
    """Return the values behind an activation."""
    if ACTIVATION == "gelu":
        x = 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
    return x


@triton.jit
def matmul(
    a, b, bias, out, m, n, k, a_stride, b_stride, out_stride,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
    ACTIVATION: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """``out[m, n] = activation(a[m, k] @ b[k, n] + bias[n])``; a row's elements lie side by side."""
    row, column = tile_of(tl.program_id(0), m, n, BLOCK_M, BLOCK_N, GROUP)
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    # Rows and columns beyond the edge read those at 0: only the inner extent needs a mask in the loop.
    from_a = a + tl.where(rows < m, rows, 0).to(tl.int64)[:, None] * a_stride + inner[None, :]
    from_b = b + inner.to(tl.int64)[:, None] * b_stride + tl.where(columns < n, columns, 0)[None, :]
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, k, BLOCK_K):
        left = tl.load(from_a, mask=inner[None, :] < k - start, other=0.0)
        right = tl.load(from_b, mask=inner[:, None] < k - start, other=0.0)
        total = tl.dot(left, right, total, input_precision=PRECISION)
        from_a += BLOCK_K
        from_b += BLOCK_K * b_stride
    total += tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
    to = out + rows.to(tl.int64)[:, None] * out_stride + columns[None, :]
    inside = (rows < m)[:, None] & (columns < n)[None, :]
    tl.store(to, activate(total, ACTIVATION).to(out.dtype.element_ty), mask=inside)


@triton.jit
def matmul_tma(
    a, b, bias, out, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr, PROGRAMS: tl.constexpr,
):  # fmt: skip
    """``out[m, n] = a[m, k] @ b[n, k].T + bias[n]``; tensor maps bring the tiles, ``PROGRAMS`` programs share them."""
    for tile in tl.range(tl.program_id(0), tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N), PROGRAMS, flatten=False):
        row, column = tile_of(tile, m, n, BLOCK_M, BLOCK_N, GROUP)
        total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
        for start in range(0, k, BLOCK_K):
            left = a.load([row * BLOCK_M, start])
            right = b.load([column * BLOCK_N, start])
            total = tl.dot(left, right.T, total)
        columns = column * BLOCK_N + tl.arange(0, BLOCK_N)
        total += tl.load(bias + columns, mask=columns < n, other=0.0).to(tl.float32)[None, :]
        out.store([row * BLOCK_M, column * BLOCK_N], total.to(out.dtype))


@triton.jit
def softmax(x, out, columns, x_stride, out_stride, BLOCK: tl.constexpr):
    """Softmax of a row: its maximum and sum in one pass over blocks, its values in a second."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    largest = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        values = tl.load(x + row * x_stride + start + at, mask=inside, other=float("-inf")).to(tl.float32)
        above = tl.maximum(largest, values, propagate_nan=tl.PropagateNan.ALL)
        base = tl.where(above == float("-inf"), 0.0, above)
        total = total * tl.exp(largest - base) + tl.exp(values - base)
        largest = above
    top = tl.max(largest, 0)
    base = tl.where(largest == float("-inf"), top, largest)  # lanes that saw nothing have no sum
    whole = tl.sum(total * tl.exp(base - top), 0)
    for start in range(0, columns, BLOCK):
        inside = start + at < columns
        values = tl.load(x + row * x_stride + start + at, mask=inside, other=0.0).to(tl.float32)
        tl.store(
            out + row * out_stride + start + at, (tl.exp(values - top) / whole).to(out.dtype.element_ty), mask=inside
        )


@triton.jit
def add_layer_norm(
    x, other, scale, bias, out, columns, x_stride, other_stride, out_stride, epsilon, BLOCK: tl.constexpr
):
    """Layer normalization of a row of ``x + other``, of at most ``BLOCK`` elements."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < columns
    values = tl.load(x + row * x_stride + at, mask=inside, other=0.0).to(tl.float32)
    values += tl.load(other + row * other_stride + at, mask=inside, other=0.0).to(tl.float32)
    centred = tl.where(inside, values - tl.sum(values, 0) / columns, 0.0)
    normal = centred * tl.rsqrt(tl.sum(centred * centred, 0) / columns + epsilon)
    normal *= tl.load(scale + at, mask=inside, other=0.0).to(tl.float32)
    normal += tl.load(bias + at, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + row * out_stride + at, normal.to(out.dtype.element_ty), mask=inside)


@triton.jit
def multiply_add(a, b, c, out, d1, d2, size, a0, a1, a2, b0, b1, b2, c0, c1, c2, out0, out1, out2, BLOCK: tl.constexpr):
    """``a * b + c`` over three axes with any strides, those of 0 (broadcasting) among them."""
    flat = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = flat < size
    i, j, k = flat // d2 // d1, flat // d2 % d1, flat % d2
    left = tl.load(a + i * a0 + j * a1 + k * a2, mask=inside, other=0.0).to(tl.float32)
    right = tl.load(b + i * b0 + j * b1 + k * b2, mask=inside, other=0.0).to(tl.float32)
    added = tl.load(c + i * c0 + j * c1 + k * c2, mask=inside, other=0.0).to(tl.float32)
    to = out + i * out0 + j * out1 + k * out2
    tl.store(to, (left * right + added).to(out.dtype.element_ty), mask=inside)


@triton.jit
def reduce_sum(x, out, columns, x_stride, BLOCK: tl.constexpr):
    """The sum of a row."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.load(x + row * x_stride + start + at, mask=start + at < columns, other=0.0).to(tl.float32)
    tl.store(out + row, tl.sum(total, 0).to(out.dtype.element_ty))


@triton.jit
def attention(
    q, k, v, out, scale, heads, queries, keys,
    q_batch, q_head, q_row, k_batch, k_head, k_row, v_batch, v_head, v_row, out_batch, out_head, out_row,
    WIDTH: tl.constexpr, BLOCK_Q: tl.constexpr, BLOCK_K: tl.constexpr, CAUSAL: tl.constexpr,
):  # fmt: skip
    """Scaled dot-product attention of a block of queries, with an online softmax (Dao 2023, FlashAttention-2)."""
    first = tl.program_id(0) * BLOCK_Q
    batch, head = (tl.program_id(1) // heads).to(tl.int64), (tl.program_id(1) % heads).to(tl.int64)
    rows, columns, features = first + tl.arange(0, BLOCK_Q), tl.arange(0, BLOCK_K), tl.arange(0, WIDTH)
    query = tl.load(
        q + batch * q_batch + head * q_head + rows.to(tl.int64)[:, None] * q_row + features[None, :],
        mask=rows[:, None] < queries, other=0.0,
    )  # fmt: skip
    k += batch * k_batch + head * k_head
    v += batch * v_batch + head * v_head
    largest = tl.full((BLOCK_Q,), float("-inf"), tl.float32)
    whole = tl.zeros((BLOCK_Q,), tl.float32)
    total = tl.zeros((BLOCK_Q, WIDTH), tl.float32)
    end = tl.minimum(keys, first + BLOCK_Q) if CAUSAL else keys
    for start in range(0, end, BLOCK_K):
        at = start + columns
        key = tl.load(k + at.to(tl.int64)[None, :] * k_row + features[:, None], mask=at[None, :] < keys, other=0.0)
        scores = tl.dot(query, key) * (scale * 1.4426950408889634)  # powers of 2
        seen = at[None, :] < keys
        if CAUSAL:
            seen &= at[None, :] <= rows[:, None]
        scores = tl.where(seen, scores, float("-inf"))
        above = tl.maximum(largest, tl.max(scores, 1))
        base = tl.where(above == float("-inf"), 0.0, above)
        shares = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(largest - base)
        whole = whole * shrink + tl.sum(shares, 1)
        value = tl.load(v + at.to(tl.int64)[:, None] * v_row + features[None, :], mask=at[:, None] < keys, other=0.0)
        total = tl.dot(shares.to(value.dtype), value, total * shrink[:, None])
        largest = above
    total = total / tl.where(whole == 0.0, 1.0, whole)[:, None]  # a query that sees no key gets 0
    to = out + batch * out_batch + head * out_head + rows.to(tl.int64)[:, None] * out_row + features[None, :]
    tl.store(to, total.to(out.dtype.element_ty), mask=rows[:, None] < queries)


@triton.jit
def gather(table, indices, out, fault, rows, columns, table_stride, out_stride, BLOCK: tl.constexpr):
    """A row of a table by its index; one that is out of range is noted in ``fault`` and gives zeros."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    index = tl.load(indices + row)
    valid = (index >= -rows) & (index < rows)
    if not valid:
        tl.store(fault, 1)
    index = tl.where(index < 0, index + rows, index)
    values = tl.load(table + index * table_stride + at, mask=(at < columns) & valid, other=0.0)
    tl.store(out + row * out_stride + at, values, mask=at < columns)
