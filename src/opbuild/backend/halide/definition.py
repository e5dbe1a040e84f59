"""Definition: a family's algorithm before its schedule, and the operands' Halide parameters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import halide as hl

from opbuild.dtypes import CODED
from opbuild.kernel.opdesc import FREE, OpDesc, Operand

TYPES: dict[str, Any] = {
    "bool": hl.UInt(8),
    "uint8": hl.UInt(8),
    "uint16": hl.UInt(16),
    "uint32": hl.UInt(32),
    "uint64": hl.UInt(64),
    "int8": hl.Int(8),
    "int16": hl.Int(16),
    "int32": hl.Int(32),
    "int64": hl.Int(64),
    "float16": hl.Float(16),
    "float32": hl.Float(32),
    "float64": hl.Float(64),
    "bfloat16": hl.BFloat(16),
    **dict.fromkeys(CODED, hl.UInt(8)),
}
"""Halide's type of a buffer's elements by numpy name; a bool is stored as a byte that is 0 or 1."""

CHECKED = "checked"
"""Field of a variant: bounds are checked, so a definition must not read beyond an operand's extents (option oom)."""


@dataclass
class Definition:
    """The algorithm of a kernel: its inputs, outputs, functions and variables.

    Attributes:
        inputs: Parameters in argument order.
        outputs: Output functions in argument order.
        variables: Variables of the outputs by name, for the schedule.
        functions: Intermediate functions by name, for the schedule.
        domains: Reduction domains by name, for the schedule.
        tasks: Into how many tasks a call is to be divided, int32, at least 1: every kernel's first argument.
        dots: Whether sums of products of bytes or bfloat16 take most of the time, for which levels have instructions.
    """

    inputs: list[Any]
    outputs: list[Any]
    variables: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, Any] = field(default_factory=dict)
    domains: dict[str, Any] = field(default_factory=dict)
    tasks: Any = field(default_factory=lambda: hl.Param(hl.Int(32), "tasks"))
    dots: bool = False

    @property
    def arguments(self) -> list[Any]:
        """The kernel's arguments but its outputs, in order."""
        return [self.tasks, *self.inputs]


def variables(names: str) -> list[Any]:
    """Return Halide variables of the names given, separated by spaces."""
    return [hl.Var(name) for name in names.split()]


def named(names: Iterable[Any]) -> dict[str, Any]:
    """Return variables by their names, as ``Definition.variables`` has them."""
    return {variable.name(): variable for variable in names}


def output_indices(desc: OpDesc) -> list[Any]:
    """Return a variable for each dimension of the output, innermost first: ``i0``, ``i1``, ..."""
    return [hl.Var(f"i{number}") for number in range(len(desc.outputs[0].dims))]


def parameter(operand: Operand) -> Any:
    """Return an input operand's parameter; numbers that the descriptor fixes become constants of the code."""
    param = hl.ImageParam(TYPES[operand.dtype], len(operand.dims), operand.name)
    _constrain(param, operand)
    return param


def parameters(desc: OpDesc) -> list[Any]:
    """Return the parameters of all input operands, in argument order."""
    return [parameter(operand) for operand in desc.inputs]


def constrain_output(function: Any, operand: Operand) -> None:
    """Apply the numbers that the descriptor fixes to an output function."""
    _constrain(function.output_buffer(), operand)
    for index, dim in enumerate(operand.dims):
        if dim.extent != FREE:
            function.bound(function.args()[index], 0, dim.extent)


def computed(
    desc: OpDesc,
    inputs: Sequence[Any],
    index: Sequence[Any],
    value: Any,
    functions: Mapping[str, Any] = MappingProxyType({}),
    domains: Mapping[str, Any] = MappingProxyType({}),
    *,
    loops: Iterable[Any] = (),
    dots: bool = False,
) -> Definition:
    """Return the definition of a kernel whose only output, ``out``, has a value at each index.

    Args:
        desc: The operator.
        inputs: Parameters in argument order.
        index: The output's variables, innermost first.
        value: What it has there.
        functions: As in ``Definition``.
        domains: As there.
        loops: Variables of other functions that the schedule asks for.
        dots: As in ``Definition``.
    """
    out = hl.Func("out")
    out[tuple(index)] = value
    constrain_output(out, desc.outputs[0])
    return Definition([*inputs], [out], named((*index, *loops)), {**functions}, {**domains}, dots=dots)


def _constrain(buffer: Any, operand: Operand) -> None:
    for index, dim in enumerate(operand.dims):
        constraint = buffer.dim(index)
        constraint.set_min(0)
        if dim.extent != FREE:
            constraint.set_extent(dim.extent)
        # Halide assumes stride 1 of dimension 0 unless told otherwise; None frees it.
        if dim.stride != FREE:
            constraint.set_stride(dim.stride)
        elif index == 0:
            constraint.set_stride(hl.Expr())
