"""Numbers of few bits lie in packed bytes where kernels look for them."""

from __future__ import annotations

import numpy as np
import pytest

from opbuild.families.matmul_nbits_integer.lowering import _parts_together
from opbuild.graph.types import Array


def numbers(packed: Array, bits: int) -> Array:
    """Return the numbers of bytes, along a last axis, those in the lowest bits first."""
    return packed[..., np.newaxis] >> np.arange(0, 8, bits, dtype=np.uint8) & (1 << bits) - 1


@pytest.mark.parametrize("block", [16, 32, 64, 128, 256])
@pytest.mark.parametrize("bits", [2, 4])
@pytest.mark.parametrize("rows", [1, 5])
def test_a_byte_has_a_number_of_each_part_of_its_block(bits: int, block: int, rows: int) -> None:
    """The first part's in its lowest bits, for each block that the operator may have."""
    parts, blocks = 8 // bits, 3
    given = np.random.default_rng(block).integers(0, 256, (rows, blocks * block // parts), np.uint8)
    found = numbers(_parts_together(given, block, bits).reshape(rows, blocks, -1), bits)
    of_parts = numbers(given, bits).reshape(rows, blocks, parts, -1)
    np.testing.assert_array_equal(found, of_parts.swapaxes(2, 3))
