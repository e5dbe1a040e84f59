"""Sequences, optional values and text as inputs and outputs of a network, and between its parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, parser

import opbuild
from opbuild.errors import InputError

pytestmark = pytest.mark.usefixtures("kept_objects")


def model(text: str) -> onnx.ModelProto:
    """Return a model in ONNX's own text form."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def test_a_sequence_goes_in_and_out(tmp_path: Path) -> None:
    """Its elements may have different shapes; what is computed with one of them has kernels."""
    net = opbuild.compile(
        model("""g (seq(float[]) s, int64 i) => (seq(float[]) t, float[] y) {
            x = SequenceAt(s, i)  a = Exp(x)  y = Neg(a)  t = SequenceInsert(s, y) }"""),
        cache_path=tmp_path,
    )
    parts = [np.float32([1, 2]), np.float32([[3, 4, 5]])]
    for index in (0, 1):
        t, y = net(parts, np.array(index))
        np.testing.assert_allclose(y, -np.exp(parts[index]), rtol=1e-6)
        assert [each.shape for each in t] == [(2,), (1, 3), parts[index].shape]
        assert not any(np.shares_memory(one, other) for one in t for other in (*parts, y))
    assert net.report.host == {"SequenceAt": 1, "SequenceInsert": 1}
    assert [(port.dtype.name, port.shape) for port in net.inputs] == [("object", ()), ("int64", ())]


def test_an_optional_value_may_be_none(tmp_path: Path) -> None:
    """Whether there is one is a condition like any other."""
    proto = model("""g (optional(float[2]) o, float[2] x) => (float[2] y) {
        h = OptionalHasElement(o)
        y = If <then_branch = a () => (float[2] p) { e = OptionalGetElement(o)  p = Add(e, x) },
                else_branch = b () => (float[2] q) { q = Neg(x) }> (h) }""")
    net = opbuild.compile(proto, cache_path=tmp_path)
    x = np.float32([1, 2])
    np.testing.assert_array_equal(net(None, x), -x)
    np.testing.assert_array_equal(net(x, x), 2 * x)


def test_a_loop_may_carry_a_sequence(tmp_path: Path) -> None:
    """It grows with each turn."""
    proto = model("""g (float[2] x, int64 n) => (float[] y) <int64 axis = {0}> {
        none = SequenceEmpty()
        s = Loop <body = b (int64 i, bool c, seq(float[]) u) => (bool d, seq(float[]) v) {
            d = Identity(c)  f = Cast <to = 1> (i)  z = Mul(x, f)  v = SequenceInsert(u, z) }> (n, , none)
        y = ConcatFromSequence <axis = 0> (s) }""")
    net = opbuild.compile(proto, cache_path=tmp_path)
    for turns in (1, 3):
        np.testing.assert_array_equal(net(np.float32([1, 2]), np.array(turns)), np.outer(range(turns), [1, 2]).ravel())


def test_text_is_an_array_of_strings(tmp_path: Path) -> None:
    """Arrays of numpy's own text are taken too."""
    info = [helper.make_tensor_value_info(name, TensorProto.STRING, [2]) for name in "abc"]
    graph = helper.make_graph([helper.make_node("StringConcat", ["a", "b"], ["c"])], "g", info[:2], info[2:])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    net = opbuild.compile(proto, cache_path=tmp_path)
    for kind in (object, str):
        assert net(np.array(["x", "ü"], kind), np.array(["1", "2"], kind)).tolist() == ["x1", "ü2"]


@pytest.mark.parametrize("given", [None, [np.zeros(2, np.float32)], "text"])
def test_a_tensor_is_asked_for_where_the_model_has_one(tmp_path: Path, given: Any) -> None:
    """Values that are no tensors are taken only where the model declares them."""
    net = opbuild.compile(model("g (float[2] x) => (float[2] y) { y = Neg(x) }"), cache_path=tmp_path)
    with pytest.raises(InputError):
        net(given)
