"""Shape rules of operators by which ranks communicate; their attribute ``ranks`` is the number of ranks."""

from __future__ import annotations

from opbuild.graph.shape_rules import Call, Types, rule
from opbuild.graph.types import COLLECTIVES, TensorType
from opbuild.text.plural import counted

REDUCED = ("int8", "uint8", "int16", "int32", "int64", "float16", "float32", "float64")
"""Element types that are reduced over ranks."""


@rule("AllReduce", domain=COLLECTIVES)
def all_reduce(call: Call) -> Types:
    """The input's type."""
    return (_reduced(call),)


@rule("Broadcast", domain=COLLECTIVES)
def broadcast(call: Call) -> Types:
    """The input's type."""
    return (call.type(0),)


@rule("AllGather", domain=COLLECTIVES)
def all_gather(call: Call) -> Types:
    """The inputs of all ranks, one after the other in the first dimension."""
    shape = call.rank(0, least=1)
    return (TensorType(call.dtype(0), (shape[0] * int(call.attr("ranks", 1)), *shape[1:])),)


@rule("ReduceScatter", domain=COLLECTIVES)
def reduce_scatter(call: Call) -> Types:
    """One rank's part of the first dimension."""
    shape, ranks = call.rank(0, least=1), int(call.attr("ranks", 1))
    if shape[0] % ranks:
        call.fail(
            f"{counted(shape[0], 'row')} can not be divided among {counted(ranks, 'rank')}", "pad the first dimension"
        )
    return (TensorType(_reduced(call).dtype, (shape[0] // ranks, *shape[1:])),)


def _reduced(call: Call) -> TensorType:
    if call.dtype(0) not in REDUCED:
        call.fail_dtype(f"{call.dtype(0)} is not reduced over ranks")
    return call.type(0)
