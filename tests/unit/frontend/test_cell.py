# ruff: noqa: D103, PT012 - scripts and cases stay on one line
"""Tracing: what a trace records, and what it refuses."""

from __future__ import annotations

import numpy as np
import pytest

from opbuild.errors import InvalidModelError, ShapeError
from opbuild.frontend.cell import Trace, current, location
from opbuild.graph.passes.infer import infer_node
from opbuild.graph.types import TensorType
from support.graph_runner import run_graph

VECTOR = TensorType("float32", (3,))


def new_trace() -> Trace:
    return Trace("Net", infer_node)


def test_a_trace_becomes_the_graph_of_what_was_applied():
    """Operators stand in the order in which they were applied, with inferred types and names of their scopes."""
    trace = new_trace()
    x = trace.input(VECTOR)
    with trace.scope("block"):
        (y,) = trace.apply("Add", (x, trace.constant(np.float32([1, 2, 3]))), {})
    (z,) = trace.apply("Relu", (y,), {})
    graph = trace.finish([z])
    assert [node.op_type for node in graph.nodes] == ["Add", "Relu"]
    assert graph.nodes[0].name == "block/Add-0"
    assert graph.types[graph.outputs[0]] == VECTOR
    assert graph.inputs == ("x0",)
    assert set(graph.types) == {"x0", "v0", "v1", *graph.constants}


def test_what_no_output_needs_is_left_out():
    """An operator whose result is thrown away is not part of the network."""
    trace = new_trace()
    x = trace.input(VECTOR)
    trace.apply("Exp", (x,), {})
    graph = trace.finish(trace.apply("Relu", (x,), {}))
    assert [node.op_type for node in graph.nodes] == ["Relu"]


def test_an_input_and_a_value_twice_can_be_outputs():
    """An output that is an input, a constant or another output is a copy: no two outputs share a value."""
    trace = new_trace()
    x = trace.input(VECTOR)
    (y,) = trace.apply("Relu", (x,), {})
    graph = trace.finish([x, y, y, trace.constant(np.float32([7]))])
    assert len(set(graph.outputs)) == 4
    assert not set(graph.outputs) & {*graph.inputs, *graph.constants}
    first, second, third, fourth = run_graph(graph, {"x0": np.float32([-1, 0, 2])})
    assert first.tolist() == [-1, 0, 2]
    assert second.tolist() == third.tolist() == [0, 0, 2]
    assert fourth.tolist() == [7]


def test_equal_scalars_are_one_constant():
    """A number used in many places is stored once; large arrays are told apart by identity."""
    trace = new_trace()
    assert trace.constant(np.float32(2)).name == trace.constant(np.float32(2)).name
    assert trace.constant(np.float32(2)).name != trace.constant(np.float64(2)).name
    large = np.zeros(1000, np.float32)
    assert trace.constant(large).name == trace.constant(large).name
    assert trace.constant(large).name != trace.constant(large.copy()).name


def test_constants_of_one_name_are_told_apart():
    """Two parameters of one name do not overwrite each other."""
    trace = new_trace()
    names = {trace.constant(np.zeros(100, np.float32), "weight").name for _ in range(2)}
    assert len(names) == 2


def test_a_symbol_of_another_trace_is_refused():
    """A value kept from an earlier call has no meaning in this one."""
    kept = new_trace().input(VECTOR)
    with pytest.raises(InvalidModelError, match="another call"):
        new_trace().apply("Relu", (kept,), {})


def test_shapes_that_do_not_fit_are_refused_while_tracing():
    """The error comes where the operator is applied, not when the network is built."""
    trace = new_trace()
    a, b = trace.input(VECTOR), trace.input(TensorType("float32", (4,)))
    with pytest.raises(ShapeError):
        trace.apply("Add", (a, b), {})


def test_the_active_trace_is_that_of_the_innermost_block():
    """Leaving a block restores what was active before, also after an error."""
    outer, inner = new_trace(), new_trace()
    assert current() is None
    with outer.active():
        with pytest.raises(ZeroDivisionError), inner.active():
            assert current() is inner
            raise ZeroDivisionError
        assert current() is outer
    assert current() is None


def test_a_location_names_the_users_line():
    """The place in a message is the innermost line outside opbuild."""
    assert "test_cell.py" in location()
    assert "in test_a_location_names_the_users_line" in location()
