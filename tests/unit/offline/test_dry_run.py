"""Dry runs of networks in segments: which segments made-up values lead to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from onnx import parser

from opbuild.backend.host.evaluate import evaluate_native
from opbuild.frontend.models.memory import ModelMemory
from opbuild.frontend.models.source import open_model
from opbuild.graph.types import Array, Graph, Node
from opbuild.offline.dry_run import LONGEST, VisitedSegment, dry_run
from opbuild.pipeline import segmented
from opbuild.pipeline.source import FirstSegment
from opbuild.platform.files.trust import PRIVATE
from opbuild.report import Clock

_HEAD = '<ir_version: 10, opset_import: ["" : 21]>\n'


def met_by(text: str) -> list[VisitedSegment]:
    """Return the segments of a network whose inputs are static."""
    memory = ModelMemory(Path("meta"), PRIVATE, reads=False, writes=False, keeps_times=False)
    source = open_model(parser.parse_model(_HEAD + text), memory)
    source.keeps = True
    shapes = tuple(each.shape or () for each in source.declaration.inputs)
    return dry_run(source, FirstSegment(source, shapes), [shapes])


def graphs_of(segments: list[VisitedSegment], *, certain: bool = False) -> list[Graph]:
    """Return the graphs of all segments at the sizes at which they were met, or those that are certain."""
    return [
        each.source.graph(shapes, Clock()) for each in segments for shapes in (each.certain if certain else each.breaks)
    ]


def nodes_of(segments: list[VisitedSegment], *, certain: bool) -> set[str]:
    """Return the types of the nodes in all segments, or in those that are certain."""
    return {node.op_type for graph in graphs_of(segments, certain=certain) for node in graph.nodes}


def test_both_branches_are_met_however_deep_they_stand() -> None:
    """All of them are certain: a call that takes a branch has this very part."""
    met = met_by("""g (float[4] x, bool a, bool b) => (float[] y) {
        y = If <then_branch = t () => (float[] p) {
                    p = If <then_branch = tt () => (float[] q) { q = Relu(x) },
                            else_branch = te () => (float[] r) { r = Exp(x) }> (b) },
                else_branch = e () => (float[] s) { s = Abs(x) }> (a) }""")
    assert {"Relu", "Exp", "Abs"} <= nodes_of(met, certain=True)


def test_a_number_beyond_all_extents_is_met() -> None:
    """As that of all tokens is, where there are keys for those before."""
    met = met_by("""g (float[4,9] x, int64[1] total) => (float[] y) <int64[1] zero = {0}, int64[1] at = {1}> {
        s = Shape(x)
        d = Gather(s, at)
        least = Max(total, d)
        more = Sub(least, d)
        pads = Concat <axis = 0> (zero, zero, zero, more)
        y = Pad(x, pads) }""")
    extents = {graph.types[graph.outputs[0]].shape[-1] for graph in graphs_of(met) if graph.outputs}
    assert {9, 13} <= extents


def test_what_follows_data_is_met_with_none_some_and_all_elements() -> None:
    """It is not certain: other data give other shapes."""
    met = met_by("""g (float[3,7] x) => (float[] y) <float zero = {0}> {
        m = Greater(x, zero)  f = NonZero(m)  i = Transpose(f)  v = GatherND(x, i)  y = Neg(v) }""")
    found = [graph for graph in graphs_of(met) if any(node.op_type == "Neg" for node in graph.nodes)]
    counts = {graph.types[graph.outputs[0]].shape[0] for graph in found}
    assert {0, 21} < counts
    assert "Neg" not in nodes_of(met, certain=True)


@pytest.mark.parametrize("turns", ["", "turns"])
def test_a_loop_that_need_not_end_is_left(turns: str) -> None:
    """The condition is made up in each turn; what follows the loop is met too."""
    met = met_by(f"""g (float[4] x, bool go) => (float[4] y) <int64 turns = {{{LONGEST * 1000}}}> {{
        h = Loop <body = b (int64 k, bool c, float[4] u) => (bool d, float[4] v) {{
            s = ReduceSum <keepdims = 0> (u)  d = Cast <to = 9> (s)  v = Sin(u) }}> ({turns}, go, x)
        y = Exp(h) }}""")
    assert {"Sin", "Exp"} <= nodes_of(met, certain=False)
    assert "Sin" in nodes_of(met, certain=True)


def test_values_that_must_fit_are_guessed() -> None:
    """Lengths of a split must sum up, places must be inside, k must not be more than there are."""
    met = met_by("""g (float[6,4] x, int64[3] sizes, int64[2] shape, int64[1] k)
        => (float[] y, float[] z, float[] w) <int64 zero = {0}> {
        s = SplitToSequence <axis = 0> (x, sizes)  a = SequenceAt(s, zero)  y = Relu(a)
        t = Add(shape, shape)  r = Reshape(x, t)  z = Exp(r)
        kk = Add(k, k)  v, i = TopK(x, kk)  w = Sin(v) }""")
    assert {"Relu", "Exp", "Sin"} <= nodes_of(met, certain=False)


def test_a_dry_run_computes_nothing_of_a_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product of matrices that takes a minute in numpy is only typed."""
    asked: list[str] = []

    def asking(node: Node, inputs: Sequence[Array | None], opset: int) -> list[Array]:
        asked.append(node.op_type)
        return evaluate_native(node, inputs, opset)

    monkeypatch.setattr(segmented, "evaluate", asking)
    met = met_by(
        """g (float[512,9000] x) => (float[] y, int64[] f) <float zero = {0}> {
        t = Transpose(x)  p = MatMul(x, t)  s = ReduceSum <keepdims = 1> (p)  m = Greater(s, zero)  f = NonZero(m)
        i = Transpose(f)  v = GatherND(s, i)  y = Exp(v) }"""
    )
    assert {*asked} == {"NonZero"}
    assert "Exp" in nodes_of(met, certain=False)
