"""Grouped convolution of blocked values.

Each lane of a block of 16 output channels belongs to one group, ``group (16, C1 out)``, and ``w (16 out, in, kx, ky, C1
out)`` has its weights for the input channels of that group only. ``channel (C in)`` says at which channel of ``x`` each
input channel lies: channels may lie in another order in memory, e.g. shuffled, at no cost.

Where groups end inside a block, all its groups are accumulated one after the other, ``segments (C1 out)`` of them, each
in its own lanes; so nothing of one group, an infinity say, ever reaches another. Blocks of one group are accumulated as
if there were no others, without choosing lanes.

As for a dense convolution, but a tile has one channel block: neighbouring blocks read different inputs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, parameter, variables
from opbuild.backend.halide.division import divide_plane
from opbuild.backend.halide.epilogue import stored
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``kernel``, ``stride`` and ``dilation`` as (x, y), ``masked``, and ``epilogue``."""
    kernel, stride, dilation = desc.attrs["kernel"], desc.attrs["stride"], desc.attrs["dilation"]
    params = {operand.name: parameter(operand) for operand in desc.inputs}
    x, w, bias, channel, group, segments = (params[n] for n in ("x", "w", "bias", "channel", "group", "segments"))
    lane, ox, oy, block = variables("lane ox oy block")
    inputs, masked = w.dim(1).extent(), desc.attrs["masked"]
    loops = [(0, inputs), (0, kernel[0]), (0, kernel[1])]
    acc, index = hl.Func("acc"), (lane, ox, oy, block)
    acc[index] = bias[lane, block]

    def total(r: Any, current: Any) -> Any:
        """Return the sum with the products of a group at a point of a domain."""
        wanted = hl.unsafe_promise_clamped(current * inputs + r[0], 0, channel.dim(0).extent() - 1)
        place = hl.unsafe_promise_clamped(channel[wanted], 0, x.dim(3).extent() * 16 - 1)
        value = x[place % 16, ox * stride[0] + r[1] * dilation[0], oy * stride[1] + r[2] * dilation[1], place // 16]
        return acc[index] + w[lane, r[0], r[1], r[2], block] * value

    whole, domains = hl.RDom(loops, "r"), dict[str, Any]()
    if masked:
        whole.where(segments[block] == 1)
    acc[index] = total(whole, group[0, block])
    if masked:
        parts = domains["parts"] = hl.RDom([*loops, (0, 16)], "parts")
        parts.where((segments[block] > 1) & (parts[3] < segments[block]))
        current = group[0, block] + parts[3]
        acc[index] = hl.select(group[lane, block] == current, total(parts, current), acc[index])
    found = stored(desc, params, list(index), {"acc": acc}, whole)
    return replace(found, domains={**found.domains, **domains})


def schedule(definition: Definition, desc: OpDesc, machine: Machine) -> None:
    """Schedule by ``variant``: ``width``."""
    accumulate(definition, desc)


def accumulate(definition: Definition, desc: OpDesc) -> Any:
    """Keep ``width`` positions of a row in registers while the input passes; return the last accumulation."""
    width = desc.variant["width"]
    out, acc, domains = definition.outputs[0], definition.functions["acc"], definition.domains.values()
    lane, ox, oy, block = (definition.variables[name] for name in ("lane", "ox", "oy", "block"))
    xo, xi = hl.Var("xo"), hl.Var("xi")
    out.split(ox, xo, xi, width, hl.TailStrategy.ShiftInwards).reorder(lane, xi, xo, oy, block)
    out.vectorize(lane).unroll(xi)
    divide_plane(out, oy, block, definition.tasks)
    acc.compute_at(out, xo).vectorize(lane).unroll(ox).bound_extent(ox, width)
    for number, domain in enumerate(domains):
        loops = (domain[axis] for axis in range(domain.dimensions()))
        acc.update(number).reorder(lane, ox, *loops).vectorize(lane).unroll(ox)
    return acc.update()
