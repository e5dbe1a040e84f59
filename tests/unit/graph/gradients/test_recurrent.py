"""Gradients of RNN, GRU and LSTM: numerical differences of every form, and torch's layers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from opbuild.graph.gradients.reverse import ExtendedGraph, differentiate
from opbuild.graph.graph_builder import GraphBuilder
from opbuild.graph.recurrent import GATES
from opbuild.graph.types import Array
from support.gradient_checks import check, draw, one_node, told
from support.graph_runner import run_graph

__all__ = ["told"]

KINDS = ("RNN", "GRU", "LSTM")

ACTIVATIONS = {
    "RNN": ("Tanh", "LeakyRelu"),
    "GRU": ("Sigmoid", "Tanh", "HardSigmoid", "Softsign"),
    "LSTM": ("Sigmoid", "Tanh", "Tanh", "HardSigmoid", "Affine", "ScaledTanh"),
}
"""Others for each direction."""


def _inputs(
    kind: str, steps: int, batch: int, directions: int, *, lengths: list[int] | None = None, bias: bool = True,
    states: bool = True, peepholes: bool = False, layout: int = 0
) -> list[Array | None]:  # fmt: skip
    size, hidden, gates = 2, 3, GATES[kind]
    state = (batch, directions, hidden) if layout else (directions, batch, hidden)
    given: list[Array | None] = [
        draw(*((batch, steps) if layout else (steps, batch)), size),
        draw(directions, gates * hidden, size, seed=1),
        draw(directions, gates * hidden, hidden, seed=2),
        draw(directions, 2 * gates * hidden, seed=3) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        draw(*state, seed=4) if states else None,
    ]
    if kind == "LSTM":
        given.append(draw(*state, seed=5) if states else None)
        given.append(draw(directions, 3 * hidden, seed=6) if peepholes else None)
    while given[-1] is None:
        given.pop()
    return given


def _check(kind: str, steps: int = 4, batch: int = 2, directions: int = 1, **given: Any) -> None:
    """Compare the gradients of a layer whose outputs all count."""
    own = {name: given.pop(name) for name in ("lengths", "bias", "states", "peepholes") if name in given}
    inputs = _inputs(kind, steps, batch, directions, layout=given.get("layout", 0), **own)
    check(kind, *inputs, outputs=3 if kind == "LSTM" else 2, hidden_size=3, **given)


FORMS: dict[str, dict[str, Any]] = {
    "forward": {},
    "reverse": {"direction": "reverse"},
    "bidirectional": {"directions": 2, "direction": "bidirectional"},
    "of_one_step": {"steps": 1},
    "of_one_sequence": {"batch": 1, "steps": 5},
    "without_states_and_biases": {"states": False, "bias": False},
    "by_sequences": {"layout": 1, "directions": 2, "direction": "bidirectional"},
    "of_lengths": {"batch": 3, "lengths": [4, 2, 0]},
    "of_lengths_in_both_directions": {
        "batch": 3, "lengths": [1, 4, 3], "directions": 2, "direction": "bidirectional",
    },
    "clipped": {"clip": 0.6},
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_recurrent_layers_gradients_are_its_numerical_differences(kind: str, form: str) -> None:
    """By sequences, weights, biases and first states, from all states, the last one and the last cell."""
    _check(kind, **FORMS[form])


@pytest.mark.parametrize("kind", KINDS)
def test_directions_may_have_other_activations(kind: str) -> None:
    """Each is differentiated by its own; those that take parameters get theirs."""
    numbers = {"activation_alpha": (0.3, 1.2, 0.9), "activation_beta": (0.5, 0.3, 0.8)}
    if kind != "LSTM":
        numbers = {"activation_alpha": (0.3,), "activation_beta": (0.5,)}
    for layout in (0, 1):
        _check(kind, directions=2, direction="bidirectional", activations=ACTIVATIONS[kind], layout=layout, **numbers)


@pytest.mark.parametrize("form", ["forward", "of_lengths_in_both_directions", "clipped"])
def test_a_gru_may_reset_products(form: str) -> None:
    """What the candidate's bias of the state gets is reset, too."""
    _check("GRU", linear_before_reset=1, **FORMS[form])


@pytest.mark.parametrize("form", ["forward", "of_lengths_in_both_directions", "clipped", "without_states_and_biases"])
@pytest.mark.parametrize("coupled", [0, 1])
def test_an_lstms_gates_may_see_its_cell(form: str, coupled: int) -> None:
    """Peepholes have gradients; a coupled cell forgets what it does not take in, and its forget gate gets nothing."""
    _check("LSTM", peepholes=True, input_forget=coupled, **FORMS[form])
    _check("LSTM", input_forget=coupled, **FORMS[form])


@pytest.mark.parametrize("shape", [(0, 2), (3, 0)])
def test_layers_of_nothing_have_gradients_of_zero(shape: tuple[int, int]) -> None:
    """No steps, or no sequences."""
    for kind in KINDS:
        graph, feeds = one_node(kind, _inputs(kind, *shape, 1), {"hidden_size": 3})
        for name, found in zip(feeds, run_graph(differentiate(graph, tuple(feeds)), feeds)[1:], strict=True):
            assert found.shape == feeds[name].shape
            assert not found.any()


def test_what_stands_behind_a_sequences_end_does_not_count() -> None:
    """NaN there leaves all gradients finite, and gets none itself."""
    x, *others = _inputs("LSTM", 4, 2, 1, lengths=[2, 4])
    assert x is not None
    x[2:, 0] = np.nan
    graph, feeds = one_node("LSTM", (x, *others), {"hidden_size": 3}, outputs=2)
    found = run_graph(differentiate(graph, tuple(feeds), "y1"), feeds)[2:]
    assert all(np.isfinite(each).all() for each in found)
    assert not found[0][2:, 0].any()


@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_layers_gradients_are_torchs(kind: str, steps: int) -> None:
    """In both directions, with first states, from what it gives at each step and at the end."""
    torch.manual_seed(0)
    layer = getattr(torch.nn, kind)(2, 3, bidirectional=True, dtype=torch.float64)
    x, states = torch.randn(steps, 4, 2, dtype=torch.float64), torch.randn(2, 2, 4, 3, dtype=torch.float64)
    leaves = [x.requires_grad_(), *(each.clone().requires_grad_() for each in states[: 1 + (kind == "LSTM")])]
    every, last = layer(leaves[0], tuple(leaves[1:]) if kind == "LSTM" else leaves[1])
    last = torch.cat(last) if kind == "LSTM" else last
    (every.sin().sum() + last.cos().sum()).backward()
    weights = dict(layer.named_parameters())
    order = {"RNN": (0,), "GRU": (1, 0, 2), "LSTM": (0, 3, 1, 2)}[kind]

    def given(name: str, of: str) -> Array:
        both = [weights[f"{name}_l0{suffix}"] for suffix in ("", "_reverse")]
        rows = [(each.grad if of == "grad" else each.detach()).chunk(len(order)) for each in both]  # type: ignore[union-attr]
        return torch.stack([torch.cat([each[gate] for gate in order]) for each in rows]).numpy()

    def inputs(of: str) -> list[Array | None]:
        own = [(each.grad if of == "grad" else each.detach()).numpy() for each in leaves]  # type: ignore[union-attr]
        bias = np.concatenate([given("bias_ih", of), given("bias_hh", of)], 1)
        return [own[0], given("weight_ih", of), given("weight_hh", of), bias, None, *own[1:]]

    attrs: dict[str, Any] = {"hidden_size": 3, "direction": "bidirectional"}
    attrs |= {"linear_before_reset": 1} if kind == "GRU" else {}
    graph, feeds = one_node(kind, inputs(""), attrs, outputs=2 + (kind == "LSTM"))
    scope = ExtendedGraph(graph)
    of = GraphBuilder("loss", scope)
    every, *ends = (of.value(name) for name in graph.outputs)
    parts = [of("ReduceSum", part, keepdims=0) for part in (of("Sin", every), *(of("Cos", end) for end in ends))]
    total = of("Sum", *parts).name
    loss = scope.graph(graph).with_(outputs=(total,))
    found = run_graph(differentiate(loss, tuple(feeds)), feeds)[1:]
    wanted = [each for each in inputs("grad") if each is not None]
    for name, own, other in zip(feeds, found, wanted, strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-8, atol=1e-10, err_msg=name)


@pytest.mark.parametrize(("kind", "attrs", "most"), [
    ("RNN", {}, 3), ("GRU", {"linear_before_reset": 1}, 7), ("GRU", {}, 14), ("LSTM", {}, 11),
])  # fmt: skip
def test_a_step_costs_a_few_operators(kind: str, attrs: dict[str, Any], most: int) -> None:
    """A step more is as many operators more, whatever the number of steps is."""
    counts = []
    for steps in (20, 21, 22):
        graph, feeds = one_node(kind, _inputs(kind, steps, 2, 1), {"hidden_size": 3, **attrs})
        counts.append(len(differentiate(graph, tuple(feeds)).nodes))
    assert counts[2] - counts[1] == counts[1] - counts[0] <= most
