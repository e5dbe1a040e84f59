"""The descriptor of the compiler's runtime library, for objects that call more of it than a network has by itself.

Such are objects with checks or messages, to be debugged. It is compiled by the same compiler for the same level, and
stored and keyed like an operator, but it is nobody's operator: it has no operands and no kernel symbol, and networks
link it once beside all their kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from opbuild.kernel.opdesc import OpDesc

RUNTIME_FAMILY = "runtime"

_RUNTIME_PREFIX = "halide_"


def runtime_desc() -> OpDesc:
    """Return the descriptor of the compiler's runtime library."""
    return OpDesc(op_types=("HalideRuntime",), family=RUNTIME_FAMILY, inputs=(), outputs=())


def needs_runtime(undefined: Iterable[str], provided: Collection[str] = ()) -> bool:
    """Return whether an object must be linked with the runtime library.

    Args:
        undefined: The object's undefined symbols.
        provided: Symbols that networks have without it.
    """
    return any(symbol.startswith(_RUNTIME_PREFIX) and symbol not in provided for symbol in undefined)
