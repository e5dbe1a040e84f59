"""What Dynamo would hand over with open sizes, guessed from the program of fixed ones; only kernels are built by it.

A program of fixed sizes has masks and positions as constants. With open sizes they are computed, by kernels that
nothing in the fixed program asks for. Which of its numbers are sizes is not known: those are taken that stand where
torch takes a size, and are equal to an extent of an input, as Dynamo itself takes equal extents for one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.frontend.torch.program import Input, Program, Ref, Step, refs
from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.torch.overloads import overload

_PLACED = frozenset(("aten.view.default", "aten.reshape.default", "aten._unsafe_view.default"))
"""Operators for which -1 is the extent that is left over."""


def opened(program: Program) -> Program | None:
    """Return a program as it probably is with open sizes.

    Args:
        program: One of fixed sizes.

    Returns:
        The program, whose given inputs are in the same order; None if sizes decide no constant of it.
    """
    places: dict[int, tuple[int, int]] = {}
    for index in program.given:
        for axis, extent in enumerate(program.inputs[index].type.shape):
            if extent > 1:  # torch has a graph of its own for 0 and 1
                places.setdefault(extent, (index, axis))
    names = {extent: f"opened_{extent}" for extent in places}
    steps = tuple(_opened(step, names) for step in program.steps)
    if not _decides_constants(program, steps):
        return None
    inputs = tuple(
        each._replace(type=_free(each.type)) if index in program.given else each
        for index, each in enumerate(program.inputs)
    )
    sizes = tuple(Input(names[extent], "size", TensorType("uint8", ()), (), place) for extent, place in places.items())
    return Program(program.name, (*inputs, *sizes), steps, program.outputs)


def _decides_constants(program: Program, steps: tuple[Step, ...]) -> bool:
    """Return whether a size stands where nothing that the program is given is read."""
    read = {program.inputs[index].name for index in program.given}
    decides = False
    for before, after in zip(program.steps, steps, strict=True):
        if read.intersection(refs((before.args, before.kwargs))):
            read.add(before.name)
        else:
            decides = decides or (after.args, after.kwargs) != (before.args, before.kwargs)
    return decides


def _free(kind: TensorType) -> TensorType:
    return TensorType(kind.dtype, tuple(FREE if extent > 1 else extent for extent in kind.shape))


def _opened(step: Step, names: Mapping[int, str]) -> Step:
    kinds = _kinds(step)
    sizes = ("SymIntType",) if refs(step.args) else ("SymIntType", "NumberType")  # factors are seldom sizes
    leaves_over = step.target in _PLACED
    args = tuple(
        _as_size(each, names, leaves_over) if kind in sizes else each
        for each, kind in zip(step.args, kinds.values(), strict=False)
    )
    kwargs = {
        name: _as_size(each, names, leaves_over) if kinds.get(name) in sizes else each
        for name, each in step.kwargs.items()
    }
    types = tuple(None if each is None else _free(each) for each in step.types)
    return Step(step.target, step.name, args, kwargs, types)


def _kinds(step: Step) -> Mapping[str, str]:
    """Return the kinds of an operator's arguments, by name and in their order; those of a function of integers too."""
    if step.target.startswith("sym."):
        return {str(place): "IntType" for place in range(len(step.args))}
    schema = overload(step.target, None)._schema
    return {each.name: _kind(each.real_type) for each in schema.arguments}


def _kind(kind: Any) -> str:
    while kind.kind() in ("ListType", "OptionalType"):
        kind = kind.getElementType()
    return str(kind.kind())


def _as_size(value: Any, names: Mapping[int, str], leaves_over: bool) -> Any:
    if isinstance(value, tuple) and not isinstance(value, Ref):
        sizes = [_as_size(each, names, False) for each in value]
        if leaves_over and -1 not in sizes:
            products = (i for i, each in enumerate(sizes) if type(each) is int and any(not each % n for n in names))
            place = next(products, None)
            sizes = [-1 if index == place else each for index, each in enumerate(sizes)]
        return tuple(sizes)
    return Ref(names[value]) if type(value) is int and value in names else value
