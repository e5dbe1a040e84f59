"""The kernels of a device's calls once all views are known: the variants that fit them best."""

from __future__ import annotations

from opbuild.families.fitting import Place
from opbuild.platform.records import replace
from opbuild.program import KernelCall, Program
from opbuild.target.devices import device_class
from opbuild.target.level import CPU


def fit(program: Program, device: str) -> Program:
    """Return a program whose calls on a device have the kernels that the class says are best for their operands."""
    own = device_class(device)

    def fitted(call: KernelCall) -> KernelCall:
        places = [Place(view.offset, view.dims) for view in call.views]
        return replace(call, desc=own.fit(call.desc, places))

    return replace(
        program,
        calls=tuple(
            fitted(call) if isinstance(call, KernelCall) and call.desc.device != CPU else call for call in program.calls
        ),
    )
