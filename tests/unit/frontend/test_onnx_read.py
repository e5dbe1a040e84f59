"""Tensors of a model to arrays: numbers that are stored one by one, and raw bytes, as onnx itself reads them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from opbuild.errors import InvalidModelError
from opbuild.frontend.onnx_read import DataFiles, to_array
from opbuild.graph.shape_rules import ONNX_DTYPES

NUMBERS = [number for number, name in ONNX_DTYPES.items() if name != "object"]


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: str(TensorProto.DataType.Name(number)))
@pytest.mark.parametrize("shape", [(), (0,), (4,), (2, 3)])
def test_numbers_one_by_one_are_read_as_onnx_reads_them(number: int, shape: tuple[int, ...]) -> None:
    """Each element type has a field of its own, or shares one in which it is stored by its bits."""
    values = np.resize([1, 0, 0, 1, 1, 0], shape).ravel()
    tensor = helper.make_tensor("t", number, shape, values)
    found, wanted = to_array(tensor, DataFiles()), np.asarray(numpy_helper.to_array(tensor))
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    assert found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("number", "values"),
    [
        (TensorProto.INT8, [-128, 127]), (TensorProto.UINT8, [0, 255]), (TensorProto.INT64, [-(2**63), 2**63 - 1]),
        (TensorProto.UINT64, [0, 2**64 - 1]), (TensorProto.UINT32, [0, 2**32 - 1]), (TensorProto.FLOAT, [1e-45, -3e38]),
        (TensorProto.FLOAT16, [6e-8, -65504]), (TensorProto.DOUBLE, [5e-324, 1e308]), (TensorProto.INT16, [-32768, 1]),
    ],
)  # fmt: skip
def test_the_ends_of_each_types_range_survive(number: int, values: list[float]) -> None:
    """No number passes through a type that cannot hold it."""
    tensor = helper.make_tensor("t", number, (2,), values)
    assert to_array(tensor, DataFiles()).tobytes() == np.asarray(numpy_helper.to_array(tensor)).tobytes()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_or_too_many_numbers_are_refused(count: int) -> None:
    """The message names the tensor."""
    tensor = TensorProto(name="bias", data_type=TensorProto.FLOAT, dims=[2], float_data=[1.0] * count)
    with pytest.raises(InvalidModelError, match="'bias' has data that does not fit its shape"):
        to_array(tensor, DataFiles())
