"""Lowering with symbolic extents: the queries of families, so that they can be asked again for another size."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import copy
from typing import Any

from opbuild.families.family import Family
from opbuild.graph.extents import SymbolicExtent, example_value, typical_value
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.lowering.context import Chooser
from opbuild.lowering.operands import Made
from opbuild.platform.records import replace
from opbuild.program import VariantChoice, View


class ChoiceRecording(Chooser):
    """Gives the answers of families and of tuning for the example size, and keeps the queries.

    Args:
        chosen: Answers for that size.

    Attributes:
        choices: What was asked, and answered.
    """

    def __init__(self, chosen: Chooser) -> None:
        self._chosen = chosen
        self.choices: list[VariantChoice] = []

    def serve(self, desc: OpDesc, views: tuple[View, ...]) -> Made:
        """Return the very call; a descriptor's open extents hold of this size alone."""
        inputs, outputs = (tuple(map(_fixed_operand, side)) for side in (desc.inputs, desc.outputs))
        return replace(desc, inputs=inputs, outputs=outputs, attrs=_fixed(desc.attrs)), views

    def choose(self, site: tuple[str, ...], family: Family, arguments: tuple[Any, ...]) -> Any:
        """Return the variant for the size at hand, or for another one where it is not for that; it decides nothing."""
        if self.is_elsewhere:
            found = family.choose(*_filled(arguments, typical_value))
        else:
            found = self._chosen.choose(site, family, _filled(arguments, example_value))
        answer = copy(found)  # by which the question is known of what it answers
        self.choices.append(VariantChoice(family.name, arguments[:-1], answer))
        return answer


def _fixed_operand(operand: Operand) -> Operand:
    dims = (Dim(int(d.extent), int(d.stride), int(d.min), int(d.max), int(d.multiple)) for d in operand.dims)
    return replace(operand, dims=tuple(dims))


def _fixed(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _fixed(each) for name, each in value.items()}
    if isinstance(value, (tuple, list)):
        return type(value)(map(_fixed, value))
    return int(value) if isinstance(value, SymbolicExtent) else value


def _filled(value: Any, fill: Callable[[SymbolicExtent], int]) -> Any:
    if isinstance(value, tuple):
        return tuple(_filled(each, fill) for each in value)
    return fill(value) if isinstance(value, SymbolicExtent) else value
