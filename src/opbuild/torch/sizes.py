"""For which sizes the parts of some code were built first: what Dynamo hands over again is lowered at those."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from torch._guards import CompileContext

from opbuild.frontend.torch.program import Program
from opbuild.kernel.opdesc import FREE
from opbuild.runtime.binding import Shapes

Role = Literal["inference", "forward", "backward"]
"""What a graph is of some code: all of it, or where gradients are needed one of two."""

_BUILT: dict[tuple[int, Role], Mapping[str, Shapes]] = {}


def built_before(programs: Mapping[str, Program], role: Role) -> Mapping[str, Shapes] | None:
    """Return the shapes for which the parts of a graph were built, when Dynamo handed over the same code first.

    Args:
        programs: The parts by name.
        role: What the graph is of the code.

    Returns:
        By name the shapes of what a part is given, empty if they are not known; None if it is the first time.
    """
    compile_id = CompileContext.current_compile_id()
    if compile_id is None or compile_id.frame_id is None:
        return None
    if not compile_id.frame_compile_id:
        _BUILT[compile_id.frame_id, role] = {name: _shapes(each) for name, each in programs.items()}
        return None
    first = _BUILT.get((compile_id.frame_id, role), {})
    return {name: _as_given(each, first.get(name, ())) for name, each in programs.items()}


def _shapes(program: Program) -> Shapes:
    return tuple(program.declared(index).shape for index in program.given)


def _as_given(program: Program, first: Shapes) -> Shapes:
    """Return shapes if a program may be given them."""
    declared = _shapes(program)
    fits = [len(each) for each in declared] == [len(each) for each in first] and all(
        extent != FREE and wanted in (FREE, extent)
        for each, shape in zip(declared, first, strict=True)
        for wanted, extent in zip(each, shape, strict=True)
    )
    return first if fits else ()
