"""Convolutions on NVIDIA's GPUs: what kernels there are, and which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.families.cuda import has_code, is_plain, on_device
from opbuild.families.family import Variant
from opbuild.families.fitting import Place, fitted
from opbuild.families.matmul import cuda
from opbuild.families.matmul.cuda import Tile, fastest, item_of, of_tile
from opbuild.graph.extents import example_value
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import from_json
from opbuild.platform.records import replace

COST = cuda.COST

TYPES = frozenset({"float16", "bfloat16", "float32"})

ALIGNED = {
    2: (
        Tile(128, 256, 64, 8, 3, 1.0),
        Tile(128, 128, 64, 8, 3, 1.1),
        Tile(128, 64, 64, 4, 3, 1.3),
        Tile(64, 64, 64, 4, 4, 1.8),
        Tile(64, 32, 64, 4, 4, 2.4),
        Tile(16, 64, 128, 4, 3, 4.0),
    ),
    4: (Tile(128, 128, 16, 8, 3, 1.0), Tile(64, 64, 32, 4, 3, 1.3), Tile(16, 64, 32, 4, 3, 2.0)),
}
"""Tiles by the bytes of the elements that are multiplied: rows are positions, columns output channels."""

OTHERS = {
    2: (
        Tile(128, 128, 32, 8, 3, 1.0),
        Tile(128, 64, 32, 8, 3, 1.1),
        Tile(64, 64, 32, 4, 3, 1.3),
        Tile(16, 64, 64, 4, 3, 3.0),
    ),
    4: (Tile(128, 128, 16, 8, 3, 1.0), Tile(64, 64, 16, 4, 3, 1.3), Tile(16, 64, 32, 4, 3, 2.0)),
}
"""The same where channels are not read in vectors: twice the products of a step spill 76 registers."""

WIDEST, MOST = 64, 1024
"""Channels that a program of a depthwise convolution computes at most, and all of its outputs: eight a thread."""

WARPS = 4
"""Warps of such a program."""


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor, of a kernel without limits; None for blocks and other types."""
    epilogue = from_json(list(desc.attrs["epilogue"]))
    is_served = {each.format for each in desc.operands} == {"ND"} and is_plain(desc)
    is_served = is_served and {each.dtype for each in desc.inputs[:2]} <= TYPES
    if not is_served or not has_code(epilogue, [each.dtype for each in desc.inputs[2:]]):
        return None
    return on_device(desc, _of_channels(1) if desc.attrs["is_depthwise"] else of_tile(OTHERS[item_of(desc)][-2]))


def fit(desc: OpDesc, places: Sequence[Place]) -> OpDesc:
    """Return the descriptor of the kernel that is likely to be fast on a call's operands."""
    axes = {"x": "igxynr", "w": "kog"}
    axes.update(dict.fromkeys((each.name for each in (*desc.inputs[2:], *desc.outputs)), "oguvn"))
    desc, aligned = fitted(desc, places, axes)
    o, g, *_ = (example_value(extent) for extent, _ in places[-1].dims)
    if desc.attrs["is_depthwise"]:
        is_last = desc.inputs[0].dims[1].stride == desc.outputs[0].dims[1].stride == 1
        variant = _of_channels(g if is_last else 1)
    else:
        is_whole = {"x", "w"} <= {*aligned} and desc.inputs[0].dims[0].stride == 1
        tiles = (ALIGNED if is_whole else OTHERS)[item_of(desc)]
        variant = of_tile(fastest(tiles, g, example_value(places[0].dims[-1][0]), o))
    return replace(desc, variant={**variant, "aligned": " ".join(aligned)})


def _of_channels(channels: int) -> Variant:
    """Return the variant of a depthwise convolution: so many channels side by side, or else positions alone."""
    columns = min(WIDEST, 1 << max(0, channels - 1).bit_length())
    return {"columns": columns, "rows": MOST // columns, "warps": WARPS, "stages": 1, "aligned": ""}
