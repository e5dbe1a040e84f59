"""The machine that tests run on, as families choose for it, and the levels whose code it runs."""

from opbuild.families.family import for_machine
from opbuild.target.host import host_level, host_problem
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine
from support.fuzzing import CAMPAIGN

HERE = Machine.of(host_level())
choose_here = for_machine(HERE)

RUNNABLE = tuple(level for level in LEVELS if host_problem(level) is None)
"""The levels whose code this machine runs."""


def has_own(level: Level) -> bool:
    """Return whether no higher level that this machine runs has the same machine, so that it chooses the same."""
    same = [other for other in RUNNABLE if Machine.of(other) == Machine.of(level)]
    return level == same[-1]


TRIED = tuple(level for level in RUNNABLE if CAMPAIGN or has_own(level))
"""In the suite one level of those that have the same machine; in a campaign all."""
