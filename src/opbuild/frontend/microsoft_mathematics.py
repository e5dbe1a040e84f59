"""Distances, transforms and other mathematics of ``com.microsoft``, as ONNX's operators."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node


@writes("CDist")
def _distances(of: Rewriting) -> Sequence[Node]:
    """The distance of each row of one matrix to each of another one, from their lengths and products."""
    metric = of.node.text("metric", "sqeuclidean")
    if metric not in ("sqeuclidean", "euclidean"):
        of.refuse(f"the metric {metric!r} is not served, 'sqeuclidean' and 'euclidean' are")
    first, second = (of("ReduceSumSquare", of.input(index), of.ints(1), keepdims=1) for index in (0, 1))
    products = of("MatMul", of.input(0), of("Transpose", of.input(1), perm=(1, 0)))
    lengths = of("Add", first, of("Transpose", second, perm=(1, 0)))
    squares = of("Max", of("Sub", lengths, of("Mul", products, of.floats(2))), of.floats(0))
    return of.finish(of("Sqrt", squares) if metric == "euclidean" else squares)


@writes("ComplexMul", "ComplexMulConj")
def _complex_product(of: Rewriting) -> Sequence[Node]:
    """The product of complex numbers, or that with the conjugate of the second one; pairs are the last axis."""
    sign = -1.0 if of.node.op_type == "ComplexMulConj" else 1.0
    a, b = (of.several("Split", 2, of.input(index), axis=-1, num_outputs=2) for index in (0, 1))
    other = of("Mul", b[1], of.floats(sign))
    real = of("Sub", of("Mul", a[0], b[0]), of("Mul", a[1], other))
    imaginary = of("Add", of("Mul", a[0], other), of("Mul", a[1], b[0]))
    return of.finish(of("Concat", real, imaginary, axis=-1))


@writes("IsAllFinite")
def _all_finite(of: Rewriting) -> Sequence[Node]:
    nan, inf = (bool(of.attr(name, 0)) for name in ("isnan_only", "isinf_only"))
    wrong = [of("IsNaN", name) for name in of.node.inputs if not inf]
    wrong += [of("IsInf", name) for name in of.node.inputs if not nan]
    counts = [of("ReduceMax", of.cast(each, "int32"), keepdims=0) for each in wrong]
    return of.finish(of("Not", of.cast(of("Max", *counts), "bool")))


@writes("Rfft", "Irfft")
def _real_transform(of: Rewriting) -> Sequence[Node]:
    """The transform of a real signal, of which half is there, and back; neither is divided by the number of samples."""
    if int(of.attr("signal_ndim", 1)) != 1 or not of.attr("onesided", 1) or of.attr("normalized", 0):
        of.refuse("transforms along more than one axis, of both sides, or that are normalised are not served")
    if of.node.op_type == "Rfft":
        pairs = of("Unsqueeze", of.input(0), of.ints(-1))
        return of.finish(of("DFT", pairs, "", of.number(-2), onesided=1))
    count = of.shape(0)[-2]
    mirrored = of("Slice", of.input(0), of.ints(count - 2), of.ints(0), of.ints(-2), of.ints(-1))
    signs = of.floats([1.0, -1.0])
    whole = of("Concat", of.input(0), of("Mul", mirrored, signs), axis=-2)
    found = of("DFT", whole, "", of.number(-2), inverse=1)
    real = of("Squeeze", of("Slice", found, of.ints(0), of.ints(1), of.ints(-1)), of.ints(-1))
    return of.finish(of("Mul", real, of.floats(2 * count - 2)))
