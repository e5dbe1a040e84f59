"""The machine that tests run on, as families choose for it."""

from opbuild.families.family import for_machine
from opbuild.kernel.host import host_level
from opbuild.kernel.machine import Machine

HERE = Machine.of(host_level())
choose_here = for_machine(HERE)
