"""Shape rules of operators of ``com.microsoft`` that the host computes: each step depends on the one before."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Types, UnknownTypeError, rule

MICROSOFT = "com.microsoft"


@rule("Inverse", domain=MICROSOFT)
def inverse(call: Call) -> Types:
    """The type of the square matrices."""
    *_, rows, columns = call.rank(0, least=2)
    if rows != columns:
        call.fail(f"matrices of {rows} rows and {columns} columns have no inverse")
    return (call.type(0),)


@rule("BifurcationDetector", "DynamicTimeWarping", domain=MICROSOFT)
def found_by_data(call: Call) -> Types:
    """The data decide how long the results are."""
    raise UnknownTypeError(
        f"{call.node.op_type} node {call.node.name!r}: its data decide the shape of its output",
        "make its inputs constants; only static shapes are supported",
    )
