"""elementwise: an expression of operands that broadcast together, one element at a time.

Schedule: rows as vectors, the outermost loops divided among the tasks.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, computed, output_indices, parameters
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.rows import schedule
from opbuild.backend.halide.user_source import elementwise_functions
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json

__all__ = ["define", "schedule"]


def define(desc: OpDesc) -> Definition:
    """Define ``out = attrs["expression"](inputs)``.

    All operands have the output's extents; an operand that is broadcast has stride 0 there. Operators of the user are
    in the descriptor's ``source``.
    """
    inputs = parameters(desc)
    index = output_indices(desc)
    args: list[Any] = [x[index] for x in inputs]
    expression, functions = from_json(list(desc.attrs["expression"])), elementwise_functions(desc.source)
    dtypes = [operand.dtype for operand in desc.inputs]
    value = compile_expression(expression, args, index, user=functions, refined=desc.is_precise, dtypes=dtypes)
    kind = TYPES[desc.outputs[0].dtype]
    return computed(desc, inputs, index, value if value.type() == kind else hl.cast(kind, value))
