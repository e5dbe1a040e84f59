"""Each binary on fresh random data against float64, with canaries, at whole, odd, single and empty extents."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import references
from arrays import Array, Arrays, Memory, numbers, stored
from calls import CALLS, Tensor
from cases import CASES

TOLERANCE = {"fp16": 2e-3, "bf16": 1.6e-2, "fp32": 5e-6}
"""Largest error of an element, of the largest element's size: four roundings of the element type, or a float32 sum."""

TF32 = 2e-3
"""The same where operands are rounded to TF32's 10 bits."""

EPSILON = 1e-5

SMALL: dict[str, list[tuple[int, ...]]] = {
    "matmul": [(128, 128, 64), (1, 16, 16), (33, 48, 272), (145, 144, 80), (0, 16, 16), (5, 0, 16), (3, 16, 0)],
    "matmul_unaligned": [(37, 53, 71), (1, 1, 1), (129, 3, 65), (0, 3, 2), (2, 0, 2), (2, 3, 0)],
    "matmul_tma": [(128, 256, 64), (1, 16, 16), (130, 272, 80), (0, 16, 16)],
    "softmax": [(3, 64), (1, 16), (5, 1040), (2, 3008), (0, 16), (3, 0)],
    "add_layer_norm": [(3, 768), (1, 16), (2, 1024), (0, 16), (3, 0)],
    "multiply_add": [(2, 3, 5), (1, 1, 1), (3, 17, 65), (0, 2, 3), (2, 3, 0)],
    "reduce_sum": [(3, 64), (1, 16), (2, 3008), (0, 16), (3, 0)],
    "attention": [(1, 2, 128, 64), (2, 1, 1, 1), (1, 2, 130, 67), (1, 1, 5, 200), (1, 1, 0, 4), (1, 2, 4, 0)],
    "gather": [(50, 64, 7), (1, 16, 1), (9, 2048, 3), (5, 16, 0), (5, 0, 3), (0, 16, 2)],
}
"""Extents, by kernel."""

LARGE: dict[str, list[tuple[int, ...]]] = {
    "matmul": [(1024, 1024, 1024), (8, 3072, 768)],
    "matmul_unaligned": [(1023, 511, 767)],
    "matmul_tma": [(1024, 1024, 1024), (700, 1040, 528)],
    "softmax": [(1000, 30528)],
    "add_layer_norm": [(4096, 768)],
    "multiply_add": [(64, 129, 333)],
    "reduce_sum": [(1000, 30528)],
    "attention": [(2, 12, 512, 512), (1, 4, 1000, 777)],
    "gather": [(30522, 768, 4096)],
}
"""Further extents, for a GPU."""


class WrongError(AssertionError):
    """A kernel's result is wrong."""


def check(memory: Memory, name: str, large: bool = False, element: str = "", seed: int = 0) -> dict[str, float]:
    """Try a binary at all its extents and return the largest relative error of each.

    Args:
        memory: Where it runs.
        name: The binary.
        large: Whether the further extents are tried too.
        element: Another element type than the binary's, for what interprets its source.
        seed: Of the random data.

    Raises:
        WrongError: If a result is off, not a number, or something else was written.
    """
    case = CASES[name]
    kind = "matmul_unaligned" if name.endswith("unaligned") else case.kernel
    errors = {}
    for extents in SMALL[kind] + (LARGE[kind] if large else []):
        where = f"{name} of {'x'.join(map(str, extents))}"
        with Arrays(memory) as arrays:
            rng = np.random.default_rng([seed, *extents])
            trial = TRIALS[case.kernel](arrays, name, element or case.element, extents, rng)
            operands, outputs = next(trial)
            memory.launch(CALLS[case.kernel](name, *operands))
            memory.synchronize()
            wanted = next(trial)
            errors["x".join(map(str, extents))] = max(
                (_error(where, arrays, output, want, case) for output, want in zip(outputs, wanted, strict=True)),
                default=0.0,
            )
    return errors


def _error(where: str, arrays: Arrays, output: Tensor, wanted: Array, case: Any) -> float:
    got, touched = arrays.get(output)
    if touched:
        raise WrongError(f"{where}: {touched} bytes beside the output were written")
    if not got.size:
        return 0.0
    error = float(np.abs(got - wanted).max() / max(float(np.abs(wanted).max()), 1e-30))
    allowed = TF32 if case.constants.get("PRECISION") == "tf32" and output.element == "fp32" else 0.0
    allowed = allowed or TOLERANCE.get(output.element, 0.0)
    if not error <= allowed:  # NaN is not
        raise WrongError(f"{where}: error {error:.2e}, allowed {allowed:.0e}")
    return error


Trial = Iterator[Any]
"""Yields a call's operands with its outputs, then what they must hold."""


def _drawn(rng: np.random.Generator, element: str, *shape: int) -> Array:
    return numbers(stored(rng.standard_normal(shape), element), element)


def _matmul(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    m, n, k = extents
    a, b, bias = _drawn(rng, element, m, k), _drawn(rng, element, k, n), _drawn(rng, element, n)
    transposed = CASES[name].kernel == "matmul_tma"
    out = arrays.blank((m, n), element)
    right = arrays.put(b.T if transposed else b, element)
    yield (arrays.put(a, element), right, arrays.put(bias, element), out), [out]
    yield [references.matmul(a, b, bias, CASES[name].constants.get("ACTIVATION", "none"))]


def _softmax(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    x = 4 * _drawn(rng, element, *extents)
    if x.size:
        x[0, 1::3] = -np.inf
    out = arrays.blank(extents, element)
    yield (arrays.put(x, element), out), [out]
    yield [references.softmax(x)]


def _add_layer_norm(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    x, other = _drawn(rng, element, *extents), _drawn(rng, element, *extents)
    scale, bias = _drawn(rng, element, extents[1]), _drawn(rng, element, extents[1])
    out = arrays.blank(extents, element)
    yield (*(arrays.put(each, element) for each in (x, other, scale, bias)), out, EPSILON), [out]
    yield [references.add_layer_norm(x, other, scale, bias, EPSILON)]


def _multiply_add(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    d0, d1, d2 = extents
    a, b, c = _drawn(rng, element, d0, d1, d2), _drawn(rng, element, d0, 1, d2), _drawn(rng, element, 1, d1, 1)
    out = arrays.blank(extents, element, order=(1, 0, 2))
    yield (arrays.put(a, element, order=(2, 0, 1)), arrays.put(b, element), arrays.put(c, element), out), [out]
    yield [a * b + c]


def _reduce_sum(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    x = _drawn(rng, element, *extents)
    out = arrays.blank(extents[:1], element)
    yield (arrays.put(x, element), out), [out]
    yield [x.sum(-1)]


def _attention(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    batch, heads, queries, keys = extents
    q, k, v = (_drawn(rng, element, batch, heads, rows, 64) for rows in (queries, keys, keys))
    heads_inside = (0, 2, 1, 3)
    out = arrays.blank(q.shape, element, heads_inside)
    yield (*(arrays.put(each, element, heads_inside) for each in (q, k, v)), out, 0.125), [out]
    yield [references.attention(q, k, v, 0.125, CASES[name].constants["CAUSAL"])]


def _gather(arrays: Arrays, name: str, element: str, extents: Sequence[int], rng: np.random.Generator) -> Trial:
    rows, columns, count = extents
    table, indices = _drawn(rng, element, rows, columns), rng.integers(-rows - 1, rows + 1, count)
    out, fault = arrays.blank((count, columns), element), arrays.put(np.zeros(1), "i32")
    wanted, missed = references.gather(table, indices)
    yield (arrays.put(table, element), arrays.put(indices, "i64"), out, fault), [out, fault]
    yield [wanted, np.array([float(missed and columns > 0)])]


TRIALS: dict[str, Callable[..., Trial]] = {
    "matmul": _matmul,
    "matmul_tma": _matmul,
    "softmax": _softmax,
    "add_layer_norm": _add_layer_norm,
    "multiply_add": _multiply_add,
    "reduce_sum": _reduce_sum,
    "attention": _attention,
    "gather": _gather,
}
"""By kernel."""
