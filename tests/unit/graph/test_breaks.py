"""Networks in segments: where they break, what each break awaits, and that segments compute what the network does."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import parser

from opbuild.backend.evaluate import evaluate
from opbuild.errors import RunError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.breaks import GraphBreak
from opbuild.graph.types import Node
from opbuild.pipeline.segmented import MOST_VALUES
from support.segments_runner import SegmentsRunner
from support.walk_runner import WalkRunner

RNG = np.random.default_rng(84)
F = np.float32


def model(text: str) -> onnx.ModelProto:
    """Return a model in ONNX's own text form."""
    return parser.parse_model(f'<ir_version: 10, opset_import: ["" : 21]> {text}')


def ints(*values: int) -> NDArray[Any]:
    """Return a list of sizes or axes."""
    return np.array(values, np.int64)


def floats(*shape: int) -> NDArray[Any]:
    """Return random numbers."""
    return RNG.standard_normal(shape).astype(F)


def same(proto: onnx.ModelProto, runner: WalkRunner, **feeds: Any) -> list[Any]:
    """Run a model in segments and by ONNX Runtime; both must agree."""
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    got, wanted = runner(**feeds), session.run(None, feeds)
    for one, other in zip(got, wanted, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, strict=True)
    return got


SUM = model("g (float[2,3,4] x, int64[n] axes) => (float[] y) { a = Abs(x) y = ReduceSum(a, axes) }")


def test_an_input_that_decides_a_shape_is_a_constant_of_the_network_for_its_value() -> None:
    """Each value is bound once, and nothing is computed twice."""
    runner = WalkRunner(SUM)
    x = floats(2, 3, 4)
    for axes in (ints(0), ints(1, 2), ints(0), ints()):
        same(SUM, runner, x=x, axes=axes)
    assert runner.breaks == ["values ReduceSum", "end"] * 2


def test_an_input_that_decides_a_shape_is_waited_for_once_whatever_the_sizes_are() -> None:
    """What waits for it computes nothing, and is bound with the first size; what comes behind it with each."""
    proto = model("g (float[n,6] x, int64[2] s) => (float[] y) { a = Abs(x)  y = Reshape(a, s) }")
    runner = SegmentsRunner(proto)
    for rows in (2, 4, 6, 8):
        x = floats(rows, 6)
        (got,) = runner(x=x, s=ints(3, rows * 2))
        np.testing.assert_array_equal(got, np.abs(x).reshape(3, rows * 2))
    assert sorted(runner.bound.values()) == [1, 4]
    assert sorted(runner.programs_made.values()) == [1, 1]


def test_a_computed_value_that_decides_a_shape_breaks_the_network_before_the_node() -> None:
    """What comes before runs once; the rest is bound for each value."""
    proto = model("""g (float[2,6] x, int64[2] s) => (float[] y, float[2,6] a) <int64[2] one = {1, 1}> {
        a = Abs(x)  t = Mul(s, one)  r = Reshape(a, t)  y = Exp(r) }""")
    runner = WalkRunner(proto)
    x = floats(2, 6)
    for shape in (ints(3, 4), ints(12, 1), ints(3, 4), ints(-1, 2)):
        same(proto, runner, x=x, s=shape)
    assert runner.breaks == ["values Reshape", "end", "end", "end"]


def test_results_whose_shapes_the_data_decide_are_evaluated_on_the_host() -> None:
    """What follows is bound for their shapes, not for their values."""
    proto = model("""g (float[3,4] x) => (float[] y, int64[] n) <float zero = {0}, int64[1] back = {-1}> {
        m = Greater(x, zero)  n = NonZero(m)  i = Transpose(n)  v = GatherND(x, i)  w = Neg(v)
        y = Reshape(w, back) }""")
    runner = WalkRunner(proto)
    same(proto, runner, x=floats(3, 4))
    one = np.full((3, 4), -1, F)
    for place in ((0, 0), (1, 2), (2, 3)):
        other = one.copy()
        other[place] = 1
        same(proto, runner, x=other)
    assert runner.breaks == ["data NonZero", "end", "end"]
    assert same(proto, runner, x=one)[0].shape == (0,)


def test_both_branches_of_an_if_lead_to_one_rest() -> None:
    """A chain of conditions would otherwise have as many rests as there are ways through it."""
    then, other = ("() => (float[2] {2}{0}) {{ {2}{0} = {3}({1}) }}".replace("{2}", n) for n in "te")
    branches = f"then_branch = a {then.replace('{3}', 'Neg')}, else_branch = b {other.replace('{3}', 'Abs')}"
    ifs, value = "", "x"
    for index in range(4):
        ifs += f"c{index} = Gather(c, i{index})  v{index} = If <{branches.format(index, value)}> (c{index}) "
        value = f"v{index}"
    constants = ", ".join(f"int64 i{index} = {{{index}}}" for index in range(4))
    proto = model(f"g (float[2] x, bool[4] c) => (float[2] y) <{constants}> {{ {ifs} y = Exp({value}) }}")
    runner = WalkRunner(proto)
    x = floats(2)
    for number in range(16):
        same(proto, runner, x=x, c=np.array([number >> bit & 1 for bit in range(4)], bool))
    assert len(runner.breaks) == 1 + 2 * 4


def test_a_node_that_waits_for_ever_new_values_is_evaluated_on_the_host() -> None:
    """Then its results' shapes decide, of which there are fewer; nothing grows without end."""
    proto = model("""g (float[40] x, int64[1] s) => (float[] y) <int64[1] w = {2}> {
        e = Add(s, w)  p = Slice(x, s, e)  y = Neg(p) }""")
    runner = WalkRunner(proto)
    x = floats(40)
    for start in range(20):
        same(proto, runner, x=x, s=ints(start))
    bound = len(runner.breaks)
    for start in range(20, 38):
        same(proto, runner, x=x, s=ints(start))
    assert len(runner.breaks) == bound
    assert bound <= 2 * MOST_VALUES + 4


LOOP = """g (float[2,3] x, int64 n, bool go) => (float[2,3] y, float[] all, int64[] turns) {
    y, all, turns = Loop <body = b (int64 i, bool c, float[2,3] v) => (bool d, float[2,3] w, float[3] s, int64 k) <
        int64 first = {0}, float[3] bias = {1, 2, 3}, float limit = {50}> {
        u = Add(v, bias)  w = Add(u, x)  s = Gather(w, first)  k = Identity(i)
        m = ReduceMax <keepdims = 0> (w)  d = Less(m, limit) }> (n, go, x) }"""


def test_the_body_of_a_loop_is_bound_once_and_run_turn_by_turn() -> None:
    """Its turns end by number or condition; it reads values from outside; what the turns give is stacked."""
    proto = model(LOOP)
    runner = WalkRunner(proto)
    x = np.abs(floats(2, 3))
    for turns, go in ((3, True), (0, True), (100, True), (2, False)):
        y, stacked, numbers = same(proto, runner, x=x, n=np.array(turns), go=np.array(go))
        assert stacked.shape == (len(numbers), 3)
        assert y.shape == (2, 3)
    assert runner.breaks == ["repeat Loop", "end"]


def test_a_loop_may_carry_values_that_grow() -> None:
    """The body is bound for each shape; so is what follows."""
    proto = model("""g (float[2] x, int64 n) => (float[] y) {
        v = Loop <body = b (int64 i, bool c, float[k] a) => (bool d, float[m] e) {
            d = Identity(c)  e = Concat <axis = 0> (a, x) }> (n, , x)
        y = Neg(v) }""")
    runner = WalkRunner(proto)
    for turns in (0, 1, 5):
        got = same(proto, runner, x=floats(2), n=np.array(turns))
        assert got[0].shape == (2 + 2 * turns,)


def test_loops_stand_in_loops_and_in_branches() -> None:
    """Each turn of the outer one may run the inner one another number of turns."""
    proto = model("""g (float[2] x, int64 n) => (float[2] y) <int64 three = {3}> {
        y = Loop <body = b (int64 i, bool c, float[2] a) => (bool d, float[2] e) {
            d = Identity(c)
            odd = Greater(i, three)
            e = If <then_branch = t () => (float[2] q) { q = Neg(a) }, else_branch = f () => (float[2] r) {
                r = Loop <body = inner (int64 j, bool cc, float[2] g) => (bool dd, float[2] h) {
                    dd = Identity(cc)  jf = Cast <to = 1> (j)  s = Add(g, jf)  h = Add(s, x) }> (i, , a) }> (odd)
        }> (n, , x) }""")
    runner = WalkRunner(proto)
    same(proto, runner, x=floats(2), n=np.array(7))


@pytest.mark.parametrize("reverse", [0, 1])
def test_a_scan_takes_slices_of_its_inputs(reverse: int) -> None:
    """Along any axis and in both directions; its states go from turn to turn."""
    proto = model(f"""g (float[3] s, float[3,4] x, float[4,3] z) => (float[3] t, float[] y) {{
        t, y = Scan <num_scan_inputs = 2, scan_input_axes = [1, 0], scan_output_axes = [-1],
            scan_input_directions = [{reverse}, 0], scan_output_directions = [{reverse}],
            body = b (float[3] a, float[3] p, float[3] q) => (float[3] r, float[3] o) {{
                m = Mul(p, q)  r = Add(a, m)  o = Neg(r) }}> (s, x, z) }}""")
    runner = WalkRunner(proto)
    got = same(proto, runner, s=floats(3), x=floats(3, 4), z=floats(4, 3))
    assert got[1].shape == (3, 4)
    assert runner.breaks == ["repeat Scan", "end"]


def test_results_are_arrays_of_their_own() -> None:
    """An input, a constant or one value twice may be a result; who writes to one changes no other and no later call."""
    proto = model("""g (float[3] x, bool c) => (float[3] a, float[3] b, float[3] k, float[3] v, float[3] w) <
        float[3] one = {1, 2, 3}> {
        a = Identity(x)  b = Identity(x)  k = Identity(one)
        v = If <then_branch = t () => (float[3] q) { q = Neg(x) },
                else_branch = f () => (float[3] r) { r = Exp(x) }> (c)
        w = Identity(v) }""")
    runner = WalkRunner(proto)
    x = floats(3)
    for _ in range(2):
        got = same(proto, runner, x=x, c=np.array(True))
        for one in got:
            assert not any(np.shares_memory(one, other) for other in (x, *(each for each in got if each is not one)))
            one[:] = 7


def test_a_stored_break_that_names_what_nothing_assigns_is_refused() -> None:
    """A damaged record must not end in a KeyError in the middle of a run."""
    assert GraphBreak("end", ("y",)).problem(frozenset(("y",))) == ""
    assert GraphBreak("end", ("y",)).problem(frozenset(("x",)))
    assert GraphBreak("values", ("s",), {"s": "t"}).problem(frozenset(("x",)))
    reader = Node("NonZero", ("z",), ("y",), name="reader")
    assert "reader" in GraphBreak("data", ("z",), {"y": "y"}, nodes=(reader,)).problem(frozenset(("x",)))


def test_turns_that_collect_different_shapes_are_an_error() -> None:
    """They cannot be stacked."""
    proto = model("""g (float[2] x, int64 n) => (float[] y, float[] all) {
        y, all = Loop <body = b (int64 i, bool c, float[k] a) => (bool d, float[m] e, float[l] f) {
            d = Identity(c)  e = Concat <axis = 0> (a, x)  f = Identity(e) }> (n, , x) }""")
    with pytest.raises(RunError, match="Loop"):
        WalkRunner(proto)(x=floats(2), n=np.array(2))


def test_a_function_may_leave_outputs_out_that_nobody_asked_for() -> None:
    """Attention whose fourth output is asked for, and not the two before, is replaced by its function all the same."""
    proto = model("""g (float[1,2,3,4] q, float[1,2,5,4] k, float[1,2,5,4] v) => (float[1,2,3,4] y, float[1,2,3,5] p) {
        y, , , p = Attention(q, k, v) }""")
    proto.opset_import[0].version = 24
    graph = load_model(proto).bind({}, evaluate)
    assert "Attention" not in {node.op_type for node in graph.nodes}
