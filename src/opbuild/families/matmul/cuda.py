"""Products of matrices on NVIDIA's GPUs: what kernels there are, and which of them is taken."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from opbuild.dtypes import itemsize
from opbuild.families.cuda import CORES, MOST, has_code, is_plain, on_device
from opbuild.families.family import Variant
from opbuild.families.fitting import ALIGNED, Divided, Place, fitted
from opbuild.graph.extents import example_value, is_one, is_open
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import ACC, from_json
from opbuild.platform.records import NamedTuple, replace
from opbuild.target.devices import ConstantLayout, DeviceCost

COST = DeviceCost(call=3000.0, byte=1 / 2400, product=1 / 20_000)
"""20 TFLOP/s of float32: an estimate, as are the times of tiles. Nothing was measured yet."""

TYPES = frozenset({"float16", "bfloat16", "float32", "float64"})

TURNED = "turned"
"""The format of a right operand whose dimensions are (K, N), not (N, K)."""


class Tile(NamedTuple):
    """A tile, and how it is computed.

    Attributes:
        rows: Rows of the output.
        columns: Its columns.
        depth: Products of a sum that pass at once.
        warps: Warps that compute it.
        stages: Steps along K that are under way at once.
        slower: The time that an element takes relative to the best tile.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int
    slower: float


TILES = {
    2: (
        Tile(128, 256, 64, 8, 3, 1.0),
        Tile(128, 128, 64, 8, 4, 1.1),
        Tile(64, 128, 64, 4, 4, 1.4),
        Tile(64, 64, 64, 4, 4, 1.8),
        Tile(16, 64, 128, 4, 4, 4.0),
        Tile(16, 32, 256, 4, 3, 4.8),
    ),
    4: (
        Tile(128, 128, 16, 8, 3, 1.0),
        Tile(64, 64, 32, 4, 3, 1.3),
        Tile(16, 64, 32, 4, 3, 2.0),
        Tile(16, 32, 64, 4, 4, 2.4),
    ),
    8: (Tile(64, 64, 16, 4, 3, 1.0), Tile(16, 32, 32, 4, 3, 2.0)),
}
"""Tiles by the bytes of the elements that are multiplied. Each is legal for any extents."""

UNALIGNED = {2: 1, 4: 0, 8: 0}
"""The first of them where addresses are kept of each element: of the one before it 329 registers are spilled."""

SUMMED = Tile(1, 256, 1, 4, 1, 1.0)
"""Elements at once for which parts of sums are added up."""

MOST_PARTS, LEAST_PART = 8, 512
"""Parts into which a sum is divided at most, and the products of each at least."""

WIDEST_DIVIDED = 4
"""Bytes of elements whose sums are divided: their parts are float32."""

STEP = 2048
"""The time that a tile takes besides, in elements."""


def choose(batches: int, m: int, n: int, item: int, *, is_aligned: bool) -> Tile:
    """Return the tile for extents and the bytes of an element: the one that is likely to be fast."""
    return fastest(TILES[item][0 if is_aligned else UNALIGNED[item] :], batches, m, n)


def fastest(tiles: Sequence[Tile], batches: int, m: int, n: int) -> Tile:
    """Return the tile that is likely to be fast for extents.

    Each core takes some of the tiles, one after the other; what a last tile computes in vain is counted.
    """

    def time(tile: Tile) -> float:
        count = batches * -(-m // tile.rows) * -(-n // tile.columns)
        return -(-count // CORES) * (tile.rows * tile.columns * tile.slower + STEP)

    return min(tiles, key=time)


def divide(desc: OpDesc, places: Sequence[Place]) -> Divided | None:
    """Return a product in parts of K, if it is worth it: where tiles are few each core would wait for one long sum.

    Parts are added up in their order, so that the same operands give the same result.
    """
    number = _parts(desc, places)
    return _divided(desc, places, number) if number > 1 else None


def _parts(desc: OpDesc, places: Sequence[Place]) -> int:
    (n, m, *batch), (k, *_) = ([extent for extent, _ in places[number].dims] for number in (-1, 0))
    if batch or is_open((m, n, k)) or m == 1 or desc.attrs["rhs"] == "panels" or item_of(desc) > WIDEST_DIVIDED:
        return 1
    tile = choose(1, m, n, item_of(desc), is_aligned=True)
    count = -(-m // tile.rows) * -(-n // tile.columns)
    number = MOST_PARTS
    while number > 1 and (count * number > CORES or k % (number * ALIGNED) or k < number * LEAST_PART):
        number //= 2
    return number


def _divided(desc: OpDesc, places: Sequence[Place], number: int) -> Divided:
    (k, along), row = places[0].dims
    step = k // number
    of_k = 0 if desc.inputs[1].format == TURNED else 1
    rhs_dims = list(places[1].dims)
    rhs_dims[of_k] = (step, rhs_dims[of_k][1])
    n, m = (extent for extent, _ in places[-1].dims)
    views = [
        Place(places[0].offset, ((step, along), row, (number, step * along))),
        Place(places[1].offset, (*rhs_dims, (number, step * rhs_dims[of_k][1]))),
        Place(0, ((n, 1), (m, n), (number, m * n))),
    ]
    lhs, right, *others = desc.inputs
    batch = (Dim(max=MOST),)
    sums = Operand("out", "float32", (Dim(stride=1, max=MOST), Dim(max=MOST), *batch))
    factors = tuple(replace(each, dims=(*each.dims, *batch)) for each in (lhs, right))
    attrs = {**desc.attrs, "epilogue": ACC}
    products = replace(desc, op_types=("MatMul",), inputs=factors, outputs=(sums,), attrs=attrs)
    added = Operand("lhs", "float32", (Dim(max=MOST), Dim(stride=1, max=MOST), Dim(max=MOST)))
    total = replace(desc, inputs=(added, *others), attrs={**desc.attrs, "rhs": "parts"}, variant=of_tile(SUMMED))
    return Divided(fit(products, views), views, total, Place(0, ((number, m * n), (n, 1), (m, n))), 2)


def line(k: int, item: int, *, is_along_k: bool) -> Variant:
    """Return the variant for dot products of rows: rows whose products are added up at once, and how many of each.

    128 threads read 16 bytes each at once, along K or, where that is how they are adjacent, along rows.

    Args:
        k: Products of a row.
        item: Bytes of an element.
        is_along_k: Whether neighbours along K are adjacent.
    """
    whole = 2048 // item
    shorter = (depth for depth in (whole // 16, whole // 4) if k <= depth or not is_along_k)
    depth = next(shorter, whole)
    return {"columns": 4 * whole // depth, "depth": depth, "warps": 4, "stages": 3, "aligned": ""}


def serve(desc: OpDesc) -> OpDesc | None:
    """Return the device's descriptor, of a kernel without limits; None if the CPU computes it."""
    if desc.attrs["rhs"] == "pairs" or not are_served(desc):
        return None
    rhs = "panels" if desc.attrs["rhs"] == "panels" else "plain"
    desc = replace(desc, attrs={**desc.attrs, "rhs": rhs})
    return on_device(desc, of_tile(TILES[item_of(desc)][UNALIGNED[item_of(desc)]]))


def are_served(desc: OpDesc) -> bool:
    """Return whether a kernel takes a product's operands: floats, any in the epilogue."""
    epilogue = from_json(list(desc.attrs["epilogue"]))
    types = {each.dtype for each in desc.inputs[:2]}
    return is_plain(desc) and types <= TYPES and has_code(epilogue, [each.dtype for each in desc.inputs[2:]])


def constant(desc: OpDesc, number: int) -> ConstantLayout | None:
    """Return the layout of a constant right operand: neighbours along K are adjacent.

    Kernels of few rows then read whole lines of it, and those of many rows lose nothing.
    """
    is_matrix = number == 1 and len(desc.inputs[1].dims) == 2
    return ConstantLayout(TURNED, lambda shape: shape[::-1], lambda matrix: matrix.T) if is_matrix else None


def fit(desc: OpDesc, places: Sequence[Place]) -> OpDesc:
    """Return the descriptor of the kernel that is likely to be fast on a call's operands."""
    others = [each.name for each in desc.inputs[1:]]
    if desc.attrs["rhs"] == "parts":
        desc, aligned = fitted(desc, places, {"lhs": "pnm", "out": "nm", **dict.fromkeys(others, "nm")})
        return replace(desc, variant={**desc.variant, "aligned": " ".join(aligned)})
    if desc.attrs["rhs"] == "panels":
        axes = {"lhs": "kmbc", "out": "nmbc"}
    else:
        axes = {"lhs": "kmbc", "rhs": "knbc" if desc.inputs[1].format == TURNED else "nkbc", "out": "nmbc"}
    axes.update(dict.fromkeys(others[1:], "nmbc"))
    (n, m, *batch), (k, *_) = ([extent for extent, _ in places[number].dims] for number in (-1, 0))
    desc, aligned = fitted(desc, places, axes)
    if is_one(m) and desc.attrs["rhs"] != "panels":
        along = desc.inputs[1].dims[axes["rhs"].index("k")].stride == 1
        variant = {**line(example_value(k), item_of(desc), is_along_k=along), "rows": 1}
    else:
        sizes = prod(map(example_value, batch)), example_value(m), example_value(n)
        variant = of_tile(choose(*sizes, item_of(desc), is_aligned={"lhs", "rhs"} <= {*aligned}))
    return replace(desc, variant={**variant, "aligned": " ".join(aligned)})


def item_of(desc: OpDesc) -> int:
    """Return the bytes of an element as it is multiplied."""
    return max(itemsize(each.dtype) for each in desc.inputs[:2])


def of_tile(tile: Tile) -> dict[str, Any]:
    """Return the variant that computes tiles."""
    names = ("rows", "columns", "depth", "warps", "stages")
    return {**{name: getattr(tile, name) for name in names}, "group": 8, "aligned": ""}
