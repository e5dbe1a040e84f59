"""Packing constants in threads, whatever they are: the same bytes, places and order as in one."""

from __future__ import annotations

from collections.abc import Hashable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from opbuild.dtypes import numpy_dtype
from opbuild.families.layouts import PANEL
from opbuild.families.matmul.lowering import panels
from opbuild.graph.types import Array, TensorType
from opbuild.lowering.context import Lowering
from opbuild.program import Buffer, Program
from opbuild.runtime import weights
from opbuild.runtime.weights import SMALL, Packer, pack_constants


class _Packed:
    """As much of a lowering as packing panels asks for."""

    def __init__(self, array: Array) -> None:
        self._array = array

    def type(self, _: str) -> TensorType:
        return TensorType(self._array.dtype.name, self._array.shape)

    def constant(self, _: str) -> Array:
        return self._array

    def packed(self, _: Any, recipe: str, shape: tuple[int, ...], dtype: str, pack: Any) -> Any:
        return SimpleNamespace(recipe=recipe, shape=shape, dtype=dtype, array=pack())


@given(st.integers(1, 200), st.integers(1, 100), st.booleans(), st.booleans(), st.sampled_from(["float32", "bfloat16"]))
def test_panels_are_what_plain_indexing_makes_of_the_matrix(
    k: int, n: int, transposed: bool, in_pairs: bool, dtype: str
) -> None:
    """Element by element, zeros beyond the matrix, whole panels and rests alike."""
    values = np.random.default_rng(k * 1000 + n).standard_normal((n, k) if transposed else (k, n))
    array = values.astype(numpy_dtype(dtype))
    found = cast("Any", panels(cast("Lowering", _Packed(array)), "w", transposed, in_pairs))
    group = 2 if in_pairs else 1
    count, groups = -(-n // PANEL), -(-k // group)
    expected = np.zeros((count, groups, PANEL, group), array.dtype)
    for row, column in np.ndindex(k, n):
        value = array[column, row] if transposed else array[row, column]
        expected[column // PANEL, row // group, column % PANEL, row % group] = value
    assert found.array.shape == found.shape
    assert found.array.tobytes() == expected.tobytes()


def _buffer(nbytes: int, seed: int, source: Hashable | None) -> Buffer:
    contents = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
    return Buffer("constant", "uint8", nbytes, pack=lambda: contents, source=None if source is None else lambda: source)


@given(
    st.lists(st.tuples(st.sampled_from([1, 63, 64, 1000, SMALL, SMALL + 5]), st.integers(0, 3), st.booleans())),
    st.integers(2, 8),
)
def test_threads_pack_the_same_constants_as_one(chosen: list[tuple[int, int, bool]], threads: int) -> None:
    """Equal sources once; each buffer's bytes are its own, and the record's places do not depend on the threads."""

    def packed(cores: int) -> tuple[weights.PackedConstants, list[tuple[int, int]], int]:
        buffers = tuple(_buffer(nbytes, seed, (nbytes, seed) if known else None) for nbytes, seed, known in chosen)
        program = cast("Program", SimpleNamespace(buffers=buffers))
        told: list[tuple[int, int]] = []
        packer = Packer()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(weights, "available_cores", lambda: cores)
            constants = pack_constants(program, packer, lambda done, total: told.append((done, total)))
        return constants, told, packer.packed

    alone, together = packed(1), packed(threads)
    assert together[0].positions == alone[0].positions
    assert together[0].places == alone[0].places
    assert together[0].small.tobytes() == alone[0].small.tobytes()
    different = {each if each[2] else (number,) for number, each in enumerate(chosen)}
    assert together[2] == alone[2] == len(different)
    for number, (nbytes, seed, _) in enumerate(chosen):
        expected = np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)
        assert together[0].arrays[together[0].positions[number]].tobytes() == expected.tobytes()
    done = [each for each, _ in together[1]]
    assert done == sorted(done)
    assert not done or together[1][-1] == (done[-1], done[-1])
