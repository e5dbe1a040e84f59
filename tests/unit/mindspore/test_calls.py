"""Calls of MindSpore's names give what the real package gave; ``mindspore_calls`` has the lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import opbuild.mindspore as ms
import opbuild.mindspore.numpy as mnp
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.mindspore import Parameter, Tensor, mint, nn, ops
from support.mindspore_calls import Call, arrays, calls, differences, flat, function, read
from support.mindspore_host import graphs  # noqa: F401 - a fixture

NAMES = {
    "ms": ms, "nn": nn, "ops": ops, "mint": mint, "mnp": mnp, "np": np, "Tensor": Tensor, "Parameter": Parameter,
    "initializer": ms.initializer,
}  # fmt: skip
RESULTS = read()


def problems(each: Call, graph: bool) -> str:
    """Return in which way a call's result is not MindSpore's, or an empty text."""
    run = function(each, dict(NAMES))
    if graph:
        run = type("Case", (nn.Cell,), {"construct": lambda self, *args, f=run: f(*args)})()
    try:
        found = flat(run(*map(Tensor, arrays(each))), Tensor)
    except (OpbuildError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        return f"{type(error).__name__}: {error}"
    return differences(RESULTS[each.key], found)


def compared(chosen: Any, graph: bool) -> str:
    """Return a line for each of the chosen calls that differs."""
    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    return "\n".join(f"{each.text}: {text}" for each in chosen if (text := problems(each, graph)))


def test_every_call_has_a_result_of_the_real_package():
    """Run tests/support/mindspore_calls.py by a Python that has MindSpore after adding calls."""
    assert {each.key for each in calls()} == set(RESULTS)


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
def test_calls_give_what_mindspore_gives(tmp_path, monkeypatch):
    """Results, shapes and element types, each operator at once."""
    monkeypatch.chdir(tmp_path)  # some calls write files
    assert not compared(calls(), False)


@pytest.mark.slow
@pytest.mark.usefixtures("graphs")
def test_calls_in_networks_give_what_mindspore_gives():
    """Those that are made of operators work while a network is traced."""
    assert not compared((each for each in calls() if each.traced), True)


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize("text", ["ops.unique(x)", "ops.svd(x)", "ops.masked_select(x, x > 0)", "ops.nonzero(x)"])
def test_what_needs_data_says_so_in_a_network(text):
    """The message names the function and the line, and says what to do."""
    ms.set_context(mode=ms.GRAPH_MODE)
    run = function(Call(text, ("f32:3,3",), "", False), dict(NAMES))
    cell = type("Case", (nn.Cell,), {"construct": lambda self, x: run(x)})()
    with pytest.raises(InvalidModelError, match="PYNATIVE_MODE") as caught:
        cell(Tensor(np.ones((3, 3), np.float32)))
    assert text[4:].partition("(")[0] in caught.value.message


@pytest.mark.usefixtures("graphs")
def test_random_numbers_in_a_network_are_refused():
    """They would be drawn once, when the network is traced, and be the same in each call."""
    ms.set_context(mode=ms.GRAPH_MODE)
    cell = type("Case", (nn.Cell,), {"construct": lambda self, x: x + ops.randn(3)})()
    with pytest.raises(InvalidModelError, match=r"ops\.randn"):
        cell(Tensor([1.0, 2.0, 3.0]))


def test_random_numbers_repeat_with_a_seed():
    """By set_seed, and by the argument of the call."""
    ms.set_seed(3)
    first = ops.randn(4).asnumpy()
    ms.set_seed(3)
    assert np.array_equal(first, ops.randn(4).asnumpy())
    assert np.array_equal(ops.uniform((4,), 0.0, 1.0, seed=5).asnumpy(), ops.uniform((4,), 0.0, 1.0, seed=5).asnumpy())
    drawn = ops.normal((10000,), 2.0, 3.0, seed=1).asnumpy()
    assert abs(drawn.mean() - 2) < 0.2
    assert abs(drawn.std() - 3) < 0.2


def test_a_state_of_the_generator_gives_the_same_numbers_again():
    """Also if it was kept while other numbers were drawn."""
    ms.manual_seed(7)
    state = ms.get_rng_state()
    first = ops.randn(4).asnumpy()
    assert not np.array_equal(first, ops.randn(4).asnumpy())
    ms.default_generator.set_state(state)
    assert np.array_equal(first, ops.randn(4).asnumpy())


def test_parameters_that_are_changed_are_seen_by_networks():
    """Assign and scatter change the parameter in place and tell networks that hold it."""
    weight = Parameter(Tensor([1.0, 2.0]))
    version = weight.version
    ops.assign(weight, Tensor([3.0, 4.0]))
    ops.scatter_add(weight, Tensor([1]), Tensor([1.0]))
    assert weight.asnumpy().tolist() == [3.0, 5.0]
    assert weight.version > version
