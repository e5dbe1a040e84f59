"""Changes of the caller's arrays: the calls that write where an input lies, all or none of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from operator import methodcaller

import numpy as np

from opbuild.errors import ChangesError
from opbuild.graph.types import Array
from opbuild.runtime.devices.device import Step, last_error
from opbuild.runtime.record import Record

_CALL = methodcaller("__call__")


def first_change(record: Record) -> int | None:
    """Return the first step that writes where an input lies; None if none does."""
    changed = {*record.inputs.buffer.tolist()}.intersection(record.outputs.buffer.tolist())
    if not changed:
        return None
    steps = record.steps
    return min(steps.step[steps.wrote & np.isin(steps.buffer, [*changed])].tolist(), default=None)


def writeable(arrays: Sequence[Array], places: Collection[int]) -> list[Array]:
    """Return arrays, those at some places copied if they are read-only."""
    wanted = frozenset(places)
    return [each.copy() if i in wanted and not each.flags.writeable else each for i, each in enumerate(arrays)]


def change(steps: Sequence[Step]) -> None:
    """Run the calls that change inputs, all of them: Python handles no signal before its own code runs again.

    Raises:
        ChangesError: If one fails, which none of these kernels has a reason to.
    """
    calls = [partial(function, *arguments) for function, arguments in steps]
    if any(list(map(_CALL, calls))):
        why = last_error() or "it gave no message"
        raise ChangesError(
            f"a kernel that replaces inputs failed: {why}", "what the network replaces is not to be used"
        )
