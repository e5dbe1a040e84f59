# ruff: noqa: F811, E501 - a fixture is imported; texts stay as MindSpore prints them
"""Tensors: data, element types, printing, indexing, and errors of operators."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.errors import OpbuildError
from opbuild.mindspore import Parameter, Tensor, ops
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.mark.parametrize(
    ("data", "dtype"),
    [([1, 2], "Int64"), ([1.5, 2], "Float32"), (2.5, "Float32"), (True, "Bool"), ([[True]], "Bool"), (np.zeros(2), "Float64"),
     (np.int8(3), "Int8"), (np.zeros((2, 0), np.float16), "Float16"), (Tensor([1.0]), "Float32")],
)  # fmt: skip
def test_the_element_type_follows_the_data(data, dtype):
    """Python floats are float32, Python integers int64, numpy data keep their type."""
    assert str(Tensor(data).dtype) == dtype


def test_a_tensor_owns_its_data_and_from_numpy_shares():
    """Changing the array later changes only a tensor that shares it."""
    array = np.float32([1, 2])
    own, shared = Tensor(array), Tensor.from_numpy(array)
    array[0] = 9
    assert own.tolist() == [1, 2]
    assert shared.tolist() == [9, 2]
    assert shared.asnumpy() is array or np.shares_memory(shared.asnumpy(), array)


@pytest.mark.parametrize("data", ["abc", None, {}, [[1], [1, 2]], np.array(["a"]), np.array([1j])])
def test_what_is_no_tensor_is_refused(data):
    """With a TypeError or ValueError that is opbuild's own."""
    with pytest.raises((TypeError, ValueError)) as caught:
        Tensor(data)
    assert isinstance(caught.value, OpbuildError)


@pytest.mark.parametrize(
    ("tensor", "text"),
    [
        (Tensor(np.float32([1, 16, 81])), "Tensor(shape=[3], dtype=Float32, value= [ 1.00000000e+00,  1.60000000e+01,  8.10000000e+01])"),
        (Tensor([[1, 2], [3, 4]]), "Tensor(shape=[2, 2], dtype=Int64, value=\n[[1, 2],\n [3, 4]])"),
        (Tensor(1.5), "Tensor(shape=[], dtype=Float32, value= 1.5)"),
        (Tensor(np.float32(-1 / 3)), "Tensor(shape=[], dtype=Float32, value= -0.333333)"),
        (Tensor([True, False]), "Tensor(shape=[2], dtype=Bool, value= [ True, False])"),
        (Tensor(np.float16([1.5, -3])), "Tensor(shape=[2], dtype=Float16, value= [ 1.5000e+00, -3.0000e+00])"),
        (Tensor(np.zeros((0, 3), np.float32)), "Tensor(shape=[0, 3], dtype=Float32, value=\n)"),
        (Tensor(np.float32([[1.5, -2], [np.nan, np.inf]])),
         "Tensor(shape=[2, 2], dtype=Float32, value=\n[[ 1.50000000e+00, -2.00000000e+00],\n [            nan,             inf]])"),
        (Tensor(np.arange(8).reshape(2, 2, 2)),
         "Tensor(shape=[2, 2, 2], dtype=Int64, value=\n[[[0, 1],\n  [2, 3]],\n [[4, 5],\n  [6, 7]]])"),
    ],
)  # fmt: skip
def test_repr_is_mindspores(tensor, text):
    """Every text was printed by MindSpore 2.10."""
    assert repr(tensor) == text


def test_str_is_numpys():
    """What print shows, as MindSpore does."""
    assert str(Tensor(np.float32([1, 16, 81]))) == "[ 1. 16. 81.]"
    assert f"{Tensor(np.float32(2)):.2f}" == "2.00"
    assert (
        str(Parameter(np.zeros(2, np.float32), name="w"))
        == "Parameter (name=w, shape=(2,), dtype=Float32, requires_grad=True)"
    )


def test_element_types_compare_print_and_convert():
    """mindspore.float32 and its kin."""
    assert ms.float32 == ms.dtype.single
    assert ms.float32 != np.float32
    assert repr(ms.int8) == "mindspore.int8"
    assert ms.dtype_to_nptype(ms.bool_) is np.bool_
    assert ms.dtype_to_pytype(ms.uint8) is int
    assert pickle.loads(pickle.dumps(ms.float16)) == ms.float16
    with pytest.raises(TypeError):
        Tensor([1], "complex64")


@pytest.mark.parametrize(
    "index",
    [0, -1, slice(1, None), slice(None, None, -1), (slice(None), 1), (Ellipsis, 0), (None, 1), (1, None, slice(0, 2)),
     (slice(0, 3, 2), slice(1, 1)), np.array([2, 0]), ([0, 2, 1],), (slice(None), [1, 0]), ([1, 2], 0),
     np.array([True, False, True]), (np.array([0, 1]), np.array([2, 1]))],
    ids=str,
)  # fmt: skip
def test_indexing_is_numpys_at_once_and_traced(graphs, index):
    """The same index gives the same part outside and inside a network."""
    data = np.arange(3 * 4 * 5, dtype=np.float32).reshape(3, 4, 5)
    expected = data[index]
    assert np.array_equal(Tensor(data)[index].asnumpy(), expected)
    traced = ms.jit(lambda x: x[index])(Tensor(data)).asnumpy()
    assert traced.shape == expected.shape
    assert np.array_equal(traced, expected)


def test_an_index_out_of_range_is_an_index_error(graphs):
    """At once and traced; iteration ends where the tensor does."""
    x = Tensor(np.float32([1, 2]))
    with pytest.raises(IndexError):
        x[2]
    with pytest.raises(IndexError):
        ms.jit(lambda t: t[2])(x)
    assert [item.item() for item in x] == [1, 2]


def test_a_computed_mask_is_refused_while_tracing(graphs):
    """How many elements it selects is not known; the error names ops.where."""
    with pytest.raises(OpbuildError, match=r"ops\.where"):
        ms.jit(lambda x: x[x > 0])(Tensor(np.float32([1, -1])))


@pytest.mark.parametrize(
    ("call", "kind"),
    [
        (lambda: ops.add(Tensor([1, 2]), Tensor([1, 2, 3])), ValueError),
        (lambda: ops.matmul(Tensor(np.ones((2, 3))), Tensor(np.ones((2, 3)))), ValueError),
        (lambda: ops.Square()("x"), TypeError),
        (lambda: ops.Softmax(axis=5)(Tensor(np.ones((2, 2), np.float32))), ValueError),
        (lambda: ops.reshape(Tensor([1, 2, 3]), (2, 2)), ValueError),
        (lambda: ops.concat([]), TypeError),
        (lambda: ops.ReduceSum(foo=1), TypeError),
        (lambda: ops.Conv2D(4), TypeError),
        (lambda: Tensor(np.uint16([1])) + Tensor(np.uint32([1])), TypeError),
        (lambda: bool(Tensor([1, 2])), ValueError),
        (lambda: Tensor([1, 2]) + "a", TypeError),
        (lambda: ops.dropout(Tensor(np.ones(2, np.float32)), 1.5), ValueError),
        (lambda: ops.clip(Tensor([1.0])), ValueError),
    ],
)
def test_misuse_is_the_builtin_error_and_opbuilds(graphs, call, kind):
    """Programs that catch TypeError or ValueError, as MindSpore raises them, go on working."""
    with pytest.raises(kind) as caught:
        call()
    assert isinstance(caught.value, OpbuildError)


def test_primitives_keep_their_attributes():
    """Positional and by name, printed as MindSpore does."""
    assert repr(ops.Square()) == "Prim[Square]"
    assert repr(ops.ReduceSum(True)) == "Prim[ReduceSum]<keep_dims=True, skip_mode=False>"
    assert ops.Softmax(axis=1).attributes == {"axis": 1}
    assert ops.Square().name == "Square"


def test_equal_operators_of_equal_types_are_built_once(graphs):
    """Eager operators are cached by operator, attributes, types and static values."""
    x = Tensor(np.float32([1, 2]))
    for _ in range(2):
        ops.softmax(x + 1, 0)
    assert len(graphs) == 2
    ops.softmax(x + 2, -1)
    assert len(graphs) == 4


def test_reshapes_at_once_copy_nothing(graphs):
    """Outside a network a reshape is a view and builds nothing."""
    x = Tensor(np.arange(6, dtype=np.float32))
    y = x.reshape(2, 3).expand_dims(0).squeeze()
    assert np.shares_memory(x.asnumpy(), y.asnumpy())
    assert graphs == []


def test_the_silly_truth_of_comparison_with_none(graphs):
    """A tensor equals no None and no text; both are plain truth values."""
    x = Tensor([1.0])
    assert (x == None) is False  # noqa: E711
    assert (x != "a") is True
    assert x in [x]


def test_kinds_of_types_are_no_element_types():
    """``float_`` names floats of any width: a tensor needs one."""
    with pytest.raises(TypeError, match=r"Tensor was given mindspore\.float\b"):
        Tensor([1.0], ms.float_)
