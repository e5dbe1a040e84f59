"""The further parts of a record for several input signatures, as plain data."""

from __future__ import annotations

from typing import Any

from opbuild.graph.formulas import Formulas
from opbuild.graph.tables import Table
from opbuild.graph.types import Array
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import NamedTuple, dataclass

Argument = tuple[str, Any]
"""``place`` and the index of a number, ``value`` and a JSON scalar, or ``tuple`` and such pairs."""

NONE = -1


class SymbolicChoice(NamedTuple):
    """The query of a family for a signature.

    Attributes:
        family: Its name.
        arguments: What it is asked with.
        answered: Whether it had an answer when the network was lowered.
    """

    family: str
    arguments: tuple[Argument, ...]
    answered: bool


class Decided(NamedTuple):
    """Calls for which one kernel is chosen: those of a kind.

    Attributes:
        desc: The kernel that was asked for in the size at which the network was lowered.
        choice: Which choice is its variant; ``NONE``: none's.
    """

    desc: OpDesc
    choice: int


class Padding(NamedTuple):
    """A buffer whose padding must be zero, and its geometry, as ``program.Buffer.zeroed``."""

    buffer: int
    name: str
    geometry: tuple[int, ...]


class Repetition(NamedTuple):
    """Calls next to each other that are run in turn.

    Attributes:
        first: The first of these steps.
        end: The step behind the last.
        times: The place of how often they are run.
    """

    first: int
    end: int
    times: int


@dataclass(frozen=True, eq=False)
class Symbolic:
    """See the module.

    Attributes:
        formulas: The numbers.
        variables: For each symbolic extent, where it stands in the shapes of the inputs: input and dimension; the first
            of those that are equal.
        values: Numbers that decide besides the shapes of the inputs, as further shapes.
        decided: What the first kinds of steps stand for; others are of checks of indices.
        choices: What families are to be asked.
        repetitions: Steps that are repeated, in order.
        more: For each argument of a kernel how many elements later it begins each time; empty if nothing is repeated.
        tables: Constants that are worked out for a signature; they come behind the record's own.
        padding: Buffers whose padding must be zero.
        one: The place of the number 1.
        zero: The place of the number 0.
    """

    formulas: Formulas
    variables: tuple[tuple[int, int], ...]
    values: tuple[tuple[int, ...], ...]
    decided: tuple[Decided, ...]
    choices: tuple[SymbolicChoice, ...]
    repetitions: tuple[Repetition, ...]
    more: Array
    tables: tuple[Table, ...]
    padding: tuple[Padding, ...]
    one: int
    zero: int
