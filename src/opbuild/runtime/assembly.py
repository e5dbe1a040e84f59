"""Assembly: from a lowered, built and planned network to the record from which it runs, checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.dtypes import itemsize
from opbuild.errors import BuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.program import HostCall, KernelCall, Program
from opbuild.runtime.indices import check_step
from opbuild.runtime.memory_plan import MemoryPlan
from opbuild.runtime.record import Constant, KernelStep, Places, Record, Steps, Storage, Storages
from opbuild.runtime.soundness import problem


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
        program: The network.
        symbols: The kernel symbol of each descriptor.
        memory: Where temporaries lie.
        constant_of: For each constant buffer its index in ``constants``.
        constants: Where constants' bytes are.
        notes: JSON values for the report.

    Raises:
        BuildError: If a kernel may not run on the views it was given, or a view leaves its buffer. Kernels check
            nothing while they run; this is where it is checked.
    """
    ports = {port.buffer: index for index, port in enumerate(program.outputs)}
    ports.update({port.buffer: index for index, port in enumerate(program.inputs)})
    places = {**ports, **memory.offsets, **constant_of}
    record = Record(
        name=program.name,
        buffers=Storages.of(
            Storage(buffer.kind, buffer.dtype, buffer.size, places.get(index, 0))
            for index, buffer in enumerate(program.buffers)
        ),
        steps=Steps.of(
            _step(symbols[call.desc], call, program) if isinstance(call, KernelCall) else _host_step(call, symbols)
            for call in program.calls
            if not _writes_nothing(call)
        ),
        inputs=program.inputs,
        outputs=program.outputs,
        arena_size=memory.size,
        constants=Places.of(constants),
        notes=notes,
        zeroed=memory.zeroed,
    )
    for call in program.calls:
        if isinstance(call, KernelCall) and not _writes_nothing(call):
            _check_kernel(call, program)
    wrong = problem(record)
    if wrong:
        raise BuildError(f"network {program.name}: {wrong}", "this is an error in opbuild; please report it")
    return record


def _step(symbol: str, call: KernelCall, program: Program) -> KernelStep:
    types, writes = _other_types(call, program), len(call.desc.outputs)
    return KernelStep(symbol, call.views, call.nodes, types, call.work, writes)


def _host_step(call: HostCall, symbols: Mapping[OpDesc, str]) -> KernelStep | HostCall:
    """Return a call of the host; what refuses indices is in the network's library, if it has one."""
    return (check_step(call) if symbols else None) or call


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
    if wrong:
        raise BuildError(
            f"node {', '.join(call.nodes)}: operator {call.desc.op_type} may not run here: {wrong}",
            "this is an error in opbuild; please report it",
        )
