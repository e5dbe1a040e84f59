"""A lowered program as lines of text: what golden files hold, so that a difference reads as what changed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from typing import Any

from opbuild.kernel.opdesc import OpDesc
from opbuild.program import Buffer, HostCall, KernelCall, Program, View


def described(program: Program, *, packed: bool = False) -> dict[str, Any]:
    """Return a program's buffers, descriptors, calls and remarks, each as a list of lines.

    Args:
        program: Any lowered network.
        packed: Whether to show the checksums of packed constants; those that were folded differ between machines.
    """
    numbers = {desc: number for number, desc in enumerate(program.descriptors())}
    return {
        "buffers": [_buffer(number, buffer, packed) for number, buffer in enumerate(program.buffers)],
        "descriptors": [f"d{number} {_descriptor(desc)}" for desc, number in numbers.items()],
        "calls": [_call(call, numbers) for call in program.calls],
        "inputs": [f"{port.name} {port.type.dtype}{list(port.type.shape)} b{port.buffer}" for port in program.inputs],
        "outputs": [f"{port.name} {port.type.dtype}{list(port.type.shape)} b{port.buffer}" for port in program.outputs],
        "notes": [f"{node}: {note}" for node, note in sorted(program.notes.items())],
    }


def in_short(program: Program) -> list[str]:
    """Return a small program as one list: a line for each call, with its whole descriptor."""
    return list(_short_lines(program))


def _short_lines(program: Program) -> Iterator[str]:
    for call in program.calls:
        if isinstance(call, KernelCall):
            yield f"{_descriptor(call.desc)} | {' '.join(map(_view, call.views))}"
        else:
            yield _host(call)
    constants = [buffer for buffer in program.buffers if buffer.kind == "constant"]
    if constants:
        yield "constants " + " ".join(f"{buffer.dtype}[{buffer.size}]" for buffer in constants)


def _buffer(number: int, buffer: Buffer, packed: bool) -> str:
    zeroed = "" if buffer.zeroed is None else f" zeroed {buffer.zeroed!r}"
    content = f"={zlib.crc32(buffer.pack().tobytes()):08x}" if packed and buffer.pack is not None else ""
    return f"b{number} {buffer.kind} {buffer.dtype}[{buffer.size}]{zeroed}{content}"


def _call(call: KernelCall | HostCall, numbers: dict[OpDesc, int]) -> str:
    if isinstance(call, HostCall):
        return _host(call)
    return f"d{numbers[call.desc]} {' '.join(map(_view, call.views))} <- {', '.join(call.nodes)}"


def _host(call: HostCall) -> str:
    inputs, outputs = (" ".join(map(_view, views)) for views in (call.inputs, call.outputs))
    return f"host {call.node.domain}.{call.node.op_type} {inputs} -> {outputs}"


def _view(view: View | None) -> str:
    if view is None:
        return "none"
    offset = f"+{view.offset}" if view.offset else ""
    return f"b{view.buffer}{offset}[{' '.join(f'{extent}:{stride}' for extent, stride in view.dims)}]"


def _descriptor(desc: OpDesc) -> str:
    parts = desc.components()
    attrs, variant = (json.dumps(parts[name], sort_keys=True, separators=(",", ":")) for name in ("attrs", "variant"))
    source = f" source {zlib.crc32(desc.source.encode()):08x}" if desc.source else ""
    operands = [_operand(operand) for operand in (*parts["inputs"], *parts["outputs"])]
    mode = "" if desc.impl_mode == "high_performance" else f" {desc.impl_mode}"
    return f"{'_'.join(desc.op_types)} {desc.family}{mode}{source} {attrs} {variant} {' '.join(operands)}"


def _operand(parts: dict[str, Any]) -> str:
    dims = " ".join(":".join("" if value == -1 else str(value) for value in dim) for dim in parts["dims"])
    shown = "" if parts["format"] == "ND" else f" {parts['format']}"
    return f"{parts['name']} {parts['dtype']}{shown}({dims})"
