"""The code of products for NVIDIA's GPUs, as far as it can be judged without one: registers, spills, wide accesses."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from opbuild.families.fitting import Place
from opbuild.families.matmul import family as matmul
from opbuild.families.matmul.cuda import TURNED
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import ACC, arg
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS
from support.compiled_kernels import MOST_REGISTERS, MOST_SHARED, usage

SHORT = 64
"""Rows of tiles below which a thread has less than 16 bytes to write."""


class Gate(NamedTuple):
    """The limits of a kernel's code.

    Attributes:
        dtype: Element type.
        size: Rows, columns and products of a sum, by which the variant is chosen.
        tile: Rows and columns of the tile that is.
        units: What multiplies: tensor cores by ``groups`` of warps, tensor cores by warps (``products``), or neither.
        is_turned: Whether neighbours of the right operand along K are adjacent, not those of a row.
        is_wide: Whether all copies to shared memory have 16 bytes, or reads where there are none, and writes.
        spills: Registers that may be spilled.
        registers: Registers that a thread may have.
    """

    dtype: str
    size: tuple[int, int, int]
    tile: tuple[int, int]
    units: str
    is_turned: bool = True
    is_wide: bool = True
    spills: int = 0
    registers: int = MOST_REGISTERS


GATES = {
    "large": Gate("bfloat16", (4096, 4096, 1024), (128, 256), "groups", registers=200),
    "medium, weights as MatMul has them": Gate("float16", (2048, 1024, 1024), (128, 128), "groups", is_turned=False),
    "few rows": Gate("bfloat16", (16, 768, 768), (16, 32), "products", registers=128),
    "one row": Gate("bfloat16", (1, 768, 768), (1, 4), "", registers=128),
    # All addresses are kept in registers: that it spills none is what decides its tile.
    "any alignment": Gate("bfloat16", (2047, 1023, 1023), (128, 128), "groups", is_wide=False),
    # IEEE's float32: tensor cores would drop digits.
    "float32": Gate("float32", (4096, 4096, 1024), (128, 128), "", registers=240),
    "float64": Gate("float64", (4096, 4096, 1024), (64, 64), "products"),
}


def best(gate: Gate) -> OpDesc:
    """Return the descriptor of the kernel for a gate: dense operands, a bias for each column, and ReLU."""
    m, n, k = gate.size
    places = [
        Place(0, ((k, 1), (m, k))),
        Place(0, ((k, 1), (n, k)) if gate.is_turned else ((n, 1), (k, n))),
        Place(0, ((n, 1), (m, 0))),
        Place(0, ((n, 1), (m, n))),
    ]
    operands = [
        Operand(name, gate.dtype, tuple(Dim(stride=step) if step == 1 else Dim() for _, step in place.dims))
        for name, place in zip(("lhs", "rhs", "e0", "out"), places, strict=True)
    ]
    if gate.is_turned:
        operands[1] = replace(operands[1], format=TURNED)
    attrs = {"rhs": "rows", "epilogue": ("relu", ("add", ACC, arg(0)))}
    variant = {"rows": 1, "columns": 32, "stage": False}
    desc = matmul.FAMILY.desc(("MatMul", "Add", "Relu"), tuple(operands[:3]), tuple(operands[3:]), attrs, variant)
    return CLASS.fit(CLASS.kernel(desc), places)


@pytest.mark.parametrize("name", GATES)
def test_the_code_of_a_product_is_what_its_tile_was_chosen_for(name: str) -> None:
    """Registers, spills, shared memory, tensor cores and accesses of 16 bytes are within the table."""
    gate = GATES[name]
    desc = best(gate)
    assert (desc.variant["rows"], desc.variant["columns"]) == gate.tile
    used = usage(desc)
    assert used.registers <= gate.registers, used
    assert used.spills <= gate.spills, used
    assert used.shared <= MOST_SHARED
    assert "".join(unit for unit in ("groups", "products") if getattr(used, unit)) == gate.units, used
    if gate.is_wide:
        assert used.wide_copies == used.copies, used
        assert max(used.wide_copies, used.wide_loads) > 0, used
        assert used.wide_stores == used.stores or gate.tile[0] < SHORT, used
