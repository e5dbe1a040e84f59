"""Local response normalization across channels of blocked values.

``x (16, W, H, C1)``, ``out`` alike; lanes beyond the channels must hold zero. The squares of a block and its two
neighbours are laid out in a row of 48 numbers, so that a window of channels is a sum of shifted vectors.
In the mode ``high_precision`` all of it is float64.
"""

from __future__ import annotations

from typing import Any

import halide as hl

from opbuild.backend.halide.definition import Definition, computed, parameter, variables
from opbuild.backend.halide.division import divide_plane
from opbuild.backend.halide.mathematics import FLOAT32, FLOAT64, bounded
from opbuild.backend.halide.transcendental import exp2_double, log2_double
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine


def define(desc: OpDesc) -> Definition:
    """Define it: ``attrs`` has ``size``, ``alpha``, ``beta`` and ``bias`` as ONNX has them; ``size`` is at most 33."""
    size, alpha, beta, bias = (desc.attrs[name] for name in ("size", "alpha", "beta", "bias"))
    x = parameter(desc.inputs[0])
    lane, ox, oy, block, place = variables("lane ox oy block place")
    blocks = x.dim(3).extent()
    squares = hl.Func("squares")
    neighbour = block - 1 + place // 16
    kind = FLOAT64 if desc.is_precise else FLOAT32
    value = hl.cast(kind, x[place % 16, ox, oy, hl.clamp(neighbour, 0, blocks - 1)])
    inside = (neighbour >= 0) & (neighbour < blocks)
    squares[place, ox, oy, block] = hl.select(inside, value * value, hl.cast(kind, 0))
    before = (size - 1) // 2
    total: Any = None
    for step in range(size):
        square = squares[16 + lane + (step - before), ox, oy, block]
        total = square if total is None else total + square
    scale = hl.cast(kind, hl.f64(bias)) + hl.cast(kind, hl.f64(alpha / size)) * total
    value = hl.cast(kind, x[lane, ox, oy, block])
    value = hl.cast(FLOAT32, value / _power(scale, beta))
    return computed(desc, [x], (lane, ox, oy, block), value, {"squares": squares}, loops=[place])


def _power(value: Any, exponent: float) -> Any:
    """Return ``value ** exponent``; the exponents that networks use need only square roots."""
    if exponent == 0.75:
        root = hl.sqrt(value)
        return root * hl.sqrt(root)
    if exponent == 0.5:
        return hl.sqrt(value)
    if exponent == 1.0:
        return value
    if value.type() == FLOAT64:
        return hl.strict_float(exp2_double(bounded(hl.f64(exponent) * log2_double(value), -200.0, 200.0)))
    return hl.pow(value, hl.f32(exponent))


TOGETHER = 16
"""Positions whose squares are made before they are added up."""


def schedule(definition: Definition, _desc: OpDesc, _machine: Machine) -> None:
    """Schedule it, divided as convolutions are."""
    out, names, squares = definition.outputs[0], definition.variables, definition.functions["squares"]
    xo = hl.Var("xo")
    out.split(names["ox"], xo, names["ox"], TOGETHER, hl.TailStrategy.GuardWithIf).vectorize(names["lane"])
    divide_plane(out, names["oy"], names["block"], definition.tasks)
    place = names["place"]
    squares.compute_at(out, xo).bound(place, 0, 48).vectorize(place, 16).unroll(place)
    squares.store_in(hl.MemoryType.Stack)
