"""The descriptor of the runtime library that compiled kernels call: thread pool and allocation.

It is compiled by the same compiler for the same target, and stored and keyed like an operator, but it is nobody's
operator: it has no operands and no kernel symbol, and networks link it once beside all their kernels.
"""

from __future__ import annotations

from collections.abc import Iterable

from opbuild.kernel.opdesc import OpDesc

RUNTIME_FAMILY = "runtime"

_RUNTIME_PREFIX = "halide_"


def runtime_desc() -> OpDesc:
    """Return the descriptor of the compiler's runtime library."""
    return OpDesc(op_types=("HalideRuntime",), family=RUNTIME_FAMILY, inputs=(), outputs=())


def needs_runtime(undefined: Iterable[str]) -> bool:
    """Return whether an object with these undefined symbols must be linked with the runtime library."""
    return any(symbol.startswith(_RUNTIME_PREFIX) for symbol in undefined)
