"""user: a whole definition that a user wrote, taken from the descriptor's source."""

from __future__ import annotations

import halide as hl

from opbuild.backend.halide.definition import TYPES, Definition, constrain_output, parameters
from opbuild.backend.halide.rows import divide_loops
from opbuild.backend.halide.user_source import functions
from opbuild.errors import CompileError
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Call the user's function ``attrs["function"]`` with the parameters and ``attrs["arguments"]``.

    Raises:
        CompileError: If it fails, or does not return a function of the output's type and rank.
    """
    name = desc.attrs["function"]
    scope, inputs = functions(desc.source), parameters(desc)
    try:
        out = scope[name](*inputs, **desc.attrs["arguments"])
    except Exception as error:
        raise CompileError(f"operator function {name} fails: {type(error).__name__}: {error}") from error
    wanted = desc.outputs[0]
    if not isinstance(out, hl.Func) or not out.defined():
        raise CompileError(f"operator function {name} returned {type(out).__name__}, not a defined halide.Func")
    if out.type() != TYPES[wanted.dtype] or out.dimensions() != len(wanted.dims):
        raise CompileError(
            f"operator function {name} returned a Func of {out.type()} with {out.dimensions()} dimensions; its shape "
            f"function promised {wanted.dtype} with {len(wanted.dims)}"
        )
    constrain_output(out, wanted)
    return Definition(inputs, [out], {"scope": scope})


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
