"""The machine that tests run on, as families choose for it."""

from opbuild.families.family import for_machine
from opbuild.kernel.machine import machine_of
from opbuild.kernel.target import host_target

HERE = machine_of(host_target())
choose_here = for_machine(HERE)
