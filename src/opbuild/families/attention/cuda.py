"""attention on NVIDIA's GPUs."""

from __future__ import annotations

from collections.abc import Collection

from opbuild.families.cuda import has_code, is_plain, on_device
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json
from opbuild.target.devices import DeviceCost

LAYOUTS: Collection[str] = ()
COST = DeviceCost(call=5000.0, byte=1 / 2400, product=1 / 15_000)

TYPES = {"float16", "bfloat16", "float32"}
NUMBERS = ("seen", "since", "bound", "start")
"""Attributes that are expressions: numbers of keys."""

NARROW, SINGLE = {"rows": 64, "keys": 64, "warps": 8}, {"rows": 32, "keys": 32, "warps": 8}
"""Tiles for 16 bits, which tensor cores multiply, and for float32: queries, keys, and warps."""


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
