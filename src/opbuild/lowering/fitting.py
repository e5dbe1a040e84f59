"""The kernels of a device's calls once all views are known: those that fit them best, two where sums have parts."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.fitting import Divided, Place
from opbuild.platform.records import replace
from opbuild.program import Buffer, Call, KernelCall, Program, View
from opbuild.target.devices import device_class
from opbuild.target.level import CPU


def fit(program: Program, device: str) -> Program:
    """Return a program whose calls on a device have the kernels that the class says are best for their operands."""
    own, buffers, calls = device_class(device), list(program.buffers), list[Call]()
    for call in program.calls:
        if not isinstance(call, KernelCall) or call.desc.device == CPU:
            calls.append(call)
            continue
        divided = own.divide(call.desc, _places(call.views))
        if divided is None:
            calls.append(replace(call, desc=own.fit(call.desc, _places(call.views))))
        else:
            sums = divided.places[-1].dims
            buffers.append(Buffer("temporary", "float32", prod(extent for extent, _ in sums), device=device))
            calls += _in_parts(call, divided, len(buffers) - 1)
    return replace(program, buffers=tuple(buffers), calls=tuple(calls))


def _places(views: Sequence[View]) -> list[Place]:
    return [Place(view.offset, view.dims) for view in views]


def _in_parts(call: KernelCall, divided: Divided, buffer: int) -> list[KernelCall]:
    """Return the call of parts, which is written to a buffer, and the one that puts them together."""
    where = (*(view.buffer for view in call.views[: divided.taken]), buffer)
    parts = tuple(View(number, *place) for number, place in zip(where, divided.places, strict=True))
    whole = (View(buffer, *divided.parts), *call.views[divided.taken :])
    desc = device_class(call.desc.device).fit(divided.second, _places(whole))
    return [replace(call, desc=divided.first, views=parts), replace(call, desc=desc, views=whole)]
