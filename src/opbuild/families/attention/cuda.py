"""attention on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from opbuild.families.cuda import CORES, MOST, has_code, is_plain, on_device
from opbuild.families.fitting import Divided, Place
from opbuild.graph.extents import is_open
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import from_json
from opbuild.platform.records import replace
from opbuild.target.devices import DeviceCost

COST = DeviceCost(call=5000.0, byte=1 / 2400, product=1 / 15_000)

TYPES = {"float16", "bfloat16", "float32"}
NUMBERS = ("seen", "since", "bound", "start")
"""Attributes that are expressions: numbers of keys."""

NARROW, SINGLE = {"rows": 64, "keys": 64, "warps": 8}, {"rows": 32, "keys": 32, "warps": 8}
"""Tiles for 16 bits, which tensor cores multiply, and for float32: queries, keys, and warps."""


FEW = 16
"""Queries for which the keys are divided: the rows of a tensor core's least tile."""
NARROW_PART = {"rows": FEW, "keys": 64, "warps": 4, "parts": 1}
SINGLE_PART = {"rows": FEW, "keys": 32, "warps": 8, "parts": 1}
"""Tiles for a part of the keys; with other ones float32 spills registers."""
MERGE = {"merge": 1, "warps": 2}
MOST_PARTS, LEAST_PART = 64, 128
"""Parts of one head's keys at most, and keys of a part at least."""


def divide(desc: OpDesc, places: Sequence[Place]) -> Divided | None:
    """Return an attention of few queries in parts of the keys, where heads alone would not fill the card.

    What a query sees is divided when it runs, into parts of as many keys; they are merged in their order.
    """
    (size, rows, *batch), (keys, *_), (columns, *_) = ([extent for extent, _ in each.dims] for each in places[:3])
    if "parts" in desc.variant or is_open((size, rows, keys, columns, *batch)) or rows > FEW:
        return None
    if desc.attrs.get("rounds") and desc.inputs[2].dtype == "float32":  # which passes all keys twice
        return None
    parts = min(MOST_PARTS, keys // LEAST_PART, CORES // prod(batch))
    return None if parts < 2 else _divided(desc, places, (columns + 2, rows, *batch, parts))


def _divided(desc: OpDesc, places: Sequence[Place], extents: Sequence[int]) -> Divided:
    """Return the parts: of each the sums of a query's values, and behind them its greatest score and sum of powers."""
    steps = [prod(extents[:axis]) for axis in range(len(extents))]
    found = Place(0, tuple(zip(extents, steps, strict=True)))
    sums = Operand("out", "float32", (Dim(stride=1, max=MOST), *[Dim(max=MOST)] * (len(extents) - 1)))
    first = replace(desc, outputs=(sums,), variant=SINGLE_PART if desc.inputs[0].dtype == "float32" else NARROW_PART)
    attrs = {name: desc.attrs[name] for name in ("zeros", "rounds") if name in desc.attrs}
    second = replace(desc, inputs=(replace(sums, name="sums"),), attrs=attrs, variant=MERGE)
    return Divided(first, (*places[:-1], found), second, found, len(desc.inputs))


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor; None if there is no code for a type or for an operation."""
    q, k, v, *others = desc.inputs
    if not is_plain(desc) or not {each.dtype for each in (q, k, v, *desc.outputs)} <= TYPES:
        return None
    if len({q.dtype, k.dtype, v.dtype}) > 1:
        return None
    dtypes = [each.dtype for each in others]
    scores = from_json(list(desc.attrs["epilogue"]))
    numbers = [from_json(list(desc.attrs[name])) for name in NUMBERS if name in desc.attrs]
    places = ["int32", "int32"] if "seen" in desc.attrs else []
    if not has_code(scores, [*dtypes, *places]) or not all(has_code(each, dtypes) for each in numbers):
        return None
    return on_device(desc, SINGLE if q.dtype == "float32" else NARROW)
