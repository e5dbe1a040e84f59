"""A build's work grows as its model does: steps are counted, of which there may be about n log n for n nodes."""

from __future__ import annotations

from math import log

import pytest

from generated import growing
from opbuild.backend.evaluate import evaluate
from opbuild.errors import InvalidModelError, ModelError
from opbuild.frontend.onnx_model import load_model
from opbuild.lowering.lower import lower
from opbuild.pipeline.stages import planned
from opbuild.pipeline.steps import optimize_graph
from opbuild.runtime.memory_plan import plan
from opbuild.target.level import LEVELS
from support.fuzzing import CAMPAIGN, check_seeds
from support.line_counter import lines_of
from support.tiers import few, spans

SMALL = 200 if CAMPAIGN else 40
LARGE = 4 * SMALL
MOST = 1.25 * LARGE * log(LARGE) / (SMALL * log(SMALL))
"""Times as many steps as the smaller model needs that one of four times its size may need."""


def build(data: bytes) -> None:
    """Take a model through all steps before the first kernel is compiled, or to the error that it ends with."""
    try:
        model = load_model(data)
        graph = model.walk({}, evaluate).graph
        program = lower(optimize_graph(graph), LEVELS[0])
        planned([graph], [program])
        plan(program)
    except ModelError:
        pass


def growth(make: growing.Make) -> float:
    """Return how many times the steps are that a model takes of four times the size."""
    small, large = (make(n).SerializeToString() for n in (SMALL, LARGE))
    build(small)  # what is imported and remembered
    build(large)
    return lines_of(lambda: build(large)) / lines_of(lambda: build(small))


@pytest.mark.slow
@pytest.mark.parametrize("shape", few(growing.SHAPES, 6))
def test_work_grows_with_the_model_and_no_faster(shape: str) -> None:
    """Four times as many nodes, names, values, attributes or characters: about four times the steps."""
    assert growth(growing.SHAPES[shape]) <= MOST


@pytest.mark.parametrize("seeds", spans(8, 2))
def test_work_of_random_shapes_grows_with_the_model(seeds: range) -> None:
    """Random operators that read near or far, few values or many, with equal names or long ones."""

    def one(seed: int) -> tuple[str, str]:
        found = growth(growing.mixed(seed))
        return ("linear", "") if found <= MOST else ("wrong", f"{found:.1f} times the steps for 4 times the nodes")

    check_seeds("growing models", one, seeds)


@pytest.mark.parametrize("levels", [19, 64, 1000])
def test_functions_that_double_at_each_level_are_refused_before_they_are_expanded(levels: int) -> None:
    """The error names the function and how many nodes it becomes; the model has one for each level."""
    data = growing.nested_functions(levels).SerializeToString()
    with pytest.raises(InvalidModelError, match="function 'F18' of domain 'own' becomes 262144 nodes"):
        load_model(data)
    assert lines_of(lambda: build(data)) < 3000 * levels


def test_calls_of_a_function_count_together() -> None:
    """What many calls of one function become counts as what one call becomes; the node that is too many is named."""
    function = growing.nested_functions(11)
    nodes = growing.chain(129, "F10")
    for each in nodes:
        each.domain = "own"
    data = growing.model(nodes, ["y"], functions=function.functions).SerializeToString()
    with pytest.raises(InvalidModelError, match="node 'F10_128' becomes 132096 nodes"):
        load_model(data)


def test_functions_that_call_themselves_are_refused() -> None:
    """The error names them in the order of their calls."""
    functions = growing.nested_functions(3).functions
    functions[0].node[0].CopyFrom(growing.node("F2", ["a"], ["b"], domain="own"))
    data = growing.model([growing.node("F2", ["x"], ["y"], domain="own")], ["y"], functions=functions)
    with pytest.raises(InvalidModelError, match="functions call themselves: 'F"):
        load_model(data.SerializeToString())
