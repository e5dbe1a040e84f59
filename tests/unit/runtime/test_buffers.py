"""Where an array lies is found for every kind of array that a caller may give."""

from __future__ import annotations

import gc
import sys

import ml_dtypes
import numpy as np
import pytest

from opbuild.runtime.devices.cpu.library import address_of


@pytest.mark.parametrize("dtype", ["float32", "bool", "int64", "float16", ml_dtypes.bfloat16])
@pytest.mark.parametrize("shape", [(), (0, 3), (2, 3)])
@pytest.mark.parametrize("is_writeable", [True, False])
def test_an_address_is_numpys(dtype: object, shape: tuple[int, ...], is_writeable: bool) -> None:
    """Of arrays of every type, also empty, scalar and read-only ones, and of a part of one."""
    array = np.zeros((2, *shape), dtype)  # type: ignore[call-overload]
    array.flags.writeable = is_writeable
    for each in (array, array[1:]):
        assert address_of(each) == each.ctypes.data


def test_an_array_is_not_kept() -> None:
    """Whoever asked holds nothing of it afterwards."""
    array = np.zeros(3)
    before = sys.getrefcount(array)
    for _ in range(10):
        address_of(array)
    gc.collect()
    assert sys.getrefcount(array) == before
