"""The schedule of whole definitions of users."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.rows import divide_loops
from opbuild.errors import CompileError
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

VECTOR = 8


def schedule(definition: Definition, desc: OpDesc, _machine: Machine) -> None:
    """Call the user's schedule; without one vectorise the innermost dimension, guarded, and divide the outermost.

    Raises:
        CompileError: If the user's schedule fails.
    """
    (out,) = definition.outputs
    name = desc.attrs["schedule"]
    if name:
        try:
            definition.variables["scope"][name](out, *definition.inputs)
        except Exception as error:
            raise CompileError(f"schedule function {name} fails: {type(error).__name__}: {error}") from error
        return
    index = out.args()
    if index:
        out.vectorize(index[0], VECTOR, hl.TailStrategy.GuardWithIf)
    if len(index) > 1:
        extent = out.output_buffer().dim(len(index) - 1).extent()
        divide_loops(out, [(index[-1], extent, 1)], definition.tasks)
