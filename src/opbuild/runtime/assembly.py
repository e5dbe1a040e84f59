"""Assembly: from a lowered, built and planned network to the record from which it runs, checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from opbuild.dtypes import itemsize
from opbuild.errors import BuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.program import HostCall, KernelCall, Program
from opbuild.runtime.indices import check_step
from opbuild.runtime.memory_plan import MemoryPlan
from opbuild.runtime.record import Constant, KernelStep, Places, Ports, Record, Steps, Storage, Storages
from opbuild.runtime.soundness import problem
from opbuild.target.level import CPU


def make_record(
    program: Program,
    symbols: Mapping[OpDesc, str],
    memory: MemoryPlan,
    *,
    constant_of: Mapping[int, int],
    constants: Sequence[Constant],
    notes: Mapping[str, Any],
) -> Record:
    """Put a lowered, built and planned network together.

    Kernel calls that write nothing, because every output has an empty dimension, are left out.

    Args:
        program: The network, for one input signature; see ``numbering`` for one that is for several.
        symbols: The kernel symbol of each descriptor.
        memory: Where temporaries lie.
        constant_of: For each constant buffer its index in ``constants``.
        constants: Where constants' bytes are.
        notes: JSON values for the report.

    Raises:
        BuildError: If a kernel may not run on the views it was given, or a view leaves its buffer. Kernels check
            nothing while they run; this is where it is checked.
    """
    calls = [call for call in program.calls if not _writes_nothing(call)]
    has_library = any(desc.device == CPU for desc in symbols)
    record = Record(
        name=program.name,
        buffers=storages(program, constant_of, memory.offsets.tolist()),
        steps=Steps.of(
            _step(symbols[call.desc], call, program)
            if isinstance(call, KernelCall)
            else host_step(call, has_library=has_library)
            for call in calls
        ),
        inputs=Ports.of(program.inputs),
        outputs=Ports.of(program.outputs),
        arena_size=memory.size,
        constants=Places.of(constants),
        notes=notes,
        zeroed=memory.zeroed,
        arenas=memory.others,
    )
    for call in calls:
        if isinstance(call, KernelCall):
            _check_kernel(call, program)
    wrong = problem(record)
    if wrong:
        raise BuildError(f"network {program.name}: {wrong}", "this is an error in opbuild; please report it")
    return record


def storages(
    program: Program, constant_of: Mapping[int, int], offsets: Sequence[int], size: Callable[[int], int] = int
) -> Storages:
    """Return a program's buffers as columns.

    Args:
        program: The program.
        constant_of: For each constant its index.
        offsets: For each temporary buffer its first byte.
        size: Returns what is written of a buffer's size.
    """
    places = {port.buffer: index for index, port in enumerate(program.outputs)}
    places |= {port.buffer: index for index, port in enumerate(program.inputs)} | {**constant_of}
    return Storages.of(
        Storage(each.kind, each.dtype, size(each.size), places.get(index, offsets[index]), each.device)
        for index, each in enumerate(program.buffers)
    )


def _step(symbol: str, call: KernelCall, program: Program) -> KernelStep:
    types, writes = _other_types(call, program), len(call.desc.outputs)
    return KernelStep(symbol, call.views, call.nodes, types, call.work, writes)


def host_step(call: HostCall, *, has_library: bool) -> KernelStep | HostCall:
    """Return a call of the host; a check of indices is in the network's library, if it has one."""
    return (check_step(call) if has_library else None) or call


def _writes_nothing(call: KernelCall | HostCall) -> bool:
    if not isinstance(call, KernelCall):
        return False
    return all(any(extent == 0 for extent, _ in view.dims) for view in call.outputs)


def _other_types(call: KernelCall, program: Program) -> tuple[str, ...]:
    """Return the arguments' element types, bools as the bytes they are, if some are not those of their buffers."""
    types = tuple("uint8" if operand.dtype == "bool" else operand.dtype for operand in call.desc.operands)
    return () if types == tuple(program.buffers[view.buffer].dtype for view in call.views) else types


def _check_kernel(call: KernelCall, program: Program) -> None:
    """Refuse a kernel whose schedule is not legal for the real extents: it would write outside its buffers."""
    wrong = call.desc.problem([view.dims for view in call.views])
    if wrong is None:
        for operand, view in zip(call.desc.operands, call.views, strict=True):
            held = program.buffers[view.buffer].dtype
            if itemsize(held) != itemsize(operand.dtype):
                wrong = f"{operand.name} is {operand.dtype}, its buffer holds {held}"
            if program.buffers[view.buffer].device != call.desc.device:
                wrong = f"{operand.name} lies on {program.buffers[view.buffer].device}"
    if wrong:
        raise BuildError(
            f"node {', '.join(call.nodes)}: operator {call.desc.op_type} may not run here: {wrong}",
            "this is an error in opbuild; please report it",
        )
