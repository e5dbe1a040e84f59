"""Shape rules of operators that ONNX does not have: of ranks, of ``com.microsoft`` on the host, of decision trees."""

from __future__ import annotations

from opbuild.graph.shape_rules import RULES, ShapeCall, Types, UnknownTypeError, like_first, rule
from opbuild.graph.types import COLLECTIVES, TensorType
from opbuild.text.plural import counted

REDUCED = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Element types that are reduced over ranks."""


@rule("AllGather", domain=COLLECTIVES)
def all_gather(call: ShapeCall) -> Types:
    """The inputs of all ranks, one after the other in the first dimension."""
    shape = call.rank(0, least=1)
    return (TensorType(call.dtype(0), (shape[0] * int(call.attr("ranks", 1)), *shape[1:])),)


@rule("ReduceScatter", domain=COLLECTIVES)
def reduce_scatter(call: ShapeCall) -> Types:
    """One rank's part of the first dimension."""
    shape, ranks = call.rank(0, least=1), int(call.attr("ranks", 1))
    if shape[0] % ranks:
        call.fail(
            f"{counted(shape[0], 'row')} cannot be divided among {counted(ranks, 'rank')}", "pad the first dimension"
        )
    return (TensorType(_reduced(call).dtype, (shape[0] // ranks, *shape[1:])),)


def _reduced(call: ShapeCall) -> TensorType:
    if call.dtype(0) not in REDUCED:
        call.fail_dtype(f"{call.dtype(0)} is not reduced over ranks")
    return call.type(0)


MICROSOFT = "com.microsoft"


@rule("Inverse", domain=MICROSOFT)
def inverse(call: ShapeCall) -> Types:
    """The type of the square matrices."""
    *_, rows, columns = call.rank(0, least=2)
    if rows != columns:
        call.fail(f"matrices of {rows} rows and {columns} columns have no inverse")
    return (call.type(0),)


@rule("BifurcationDetector", "DynamicTimeWarping", domain=MICROSOFT)
def found_by_data(call: ShapeCall) -> Types:
    """The data decide how long the results are."""
    raise UnknownTypeError(
        f"{call.node.op_type} node {call.node.name!r}: its data decide the shape of its output",
        "make its inputs constants; only static shapes are supported",
    )


@rule("TreeEnsemble", domain="opbuild")
def _ensemble(call: ShapeCall) -> Types:
    rows, targets, weights = call.rank(0, 2), call.rank(1, 2), call.type(5)
    return (TensorType(weights.dtype, (rows[0], targets[0] * targets[1])),)


RULES.register_all({"AllReduce": lambda call: (_reduced(call),), "Broadcast": like_first}, domain=COLLECTIVES)
RULES.register_all({"ClassNames": lambda call: (TensorType("object", call.shape(0)),)}, domain="opbuild")
