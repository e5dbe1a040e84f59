"""Recurrent layers of MindSpore's face train, their networks evaluated on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, ops
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture(params=["graph", "pynative"])
def mode(request, graphs):  # noqa: F811
    """Both modes, which give the same numbers."""
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return graphs


def _x(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


LAYERS: dict[str, tuple[dict[str, Any], int]] = {
    "RNN": ({"nonlinearity": "relu"}, 1),
    "GRU": ({"bidirectional": True}, 2),
    "LSTM": ({"num_layers": 2, "bidirectional": True}, 4),
}
"""What is asked of each layer, and how many weights of a kind it then has."""


@pytest.mark.parametrize("kind", LAYERS)
def test_a_recurrent_layer_trains_as_torchs(mode, kind):
    """Gradients of all its weights, and of its input, from what it gives at each step and from its last states."""
    attrs, count = LAYERS[kind]
    layer, other = getattr(nn, kind)(2, 3, **attrs), getattr(torch.nn, kind)(2, 3, **attrs)
    for parameter in layer.trainable_params():
        getattr(other, parameter.name).data = torch.tensor(parameter.asnumpy())
    x = _x(5, 4, 2)

    def forward(x):
        every, last = layer(x)
        last = ops.concat(last) if kind == "LSTM" else last
        return ops.sin(every).sum() + ops.cos(last).sum()

    value, (by_input, by_weights) = ms.value_and_grad(forward, 0, layer.trainable_params())(x)
    given = torch.tensor(x.asnumpy(), requires_grad=True)
    every, last = other(given)
    wanted = every.sin().sum() + (torch.cat(last) if kind == "LSTM" else last).cos().sum()
    wanted.backward()
    np.testing.assert_allclose(value.asnumpy(), wanted.detach().numpy(), rtol=1e-5)
    np.testing.assert_allclose(by_input.asnumpy(), given.grad.numpy(), rtol=1e-4, atol=1e-5)
    assert len(by_weights) == 4 * count
    for parameter, found in zip(layer.trainable_params(), by_weights, strict=True):
        other_grad = getattr(other, parameter.name).grad.numpy()
        np.testing.assert_allclose(found.asnumpy(), other_grad, rtol=1e-4, atol=1e-5, err_msg=parameter.name)


def test_a_recurrent_layers_steps_change_its_weights(mode):
    """A step of training, and then another one, which sees what the first one wrote; inference sees both."""
    layer = nn.LSTM(2, 3)
    optimizer = nn.SGD(layer.trainable_params(), 0.1)
    forward = ms.value_and_grad(lambda x: ops.square(layer(x)[0]).mean(), None, layer.trainable_params())
    x, losses = _x(4, 2, 2), []
    for _ in range(3):
        before = float(ops.square(layer(x)[0]).mean())
        loss, gradients = forward(x)
        assert float(loss) == pytest.approx(before, rel=1e-6)
        optimizer(gradients)
        losses.append(float(loss))
    assert losses[0] > losses[1] > losses[2]


def test_sequences_of_lengths_train(mode):
    """What stands behind a sequence's end has no gradient."""
    layer, x = nn.GRU(2, 3), _x(4, 2, 2)
    found = ms.grad(lambda x: layer(x, None, Tensor(np.array([2, 4], np.int32)))[0].sum())(x).asnumpy()
    assert found[:2].all()
    assert not found[2:, 0].any()


@pytest.mark.parametrize("kind", ["RNNCell", "GRUCell", "LSTMCell"])
def test_a_cell_trains_as_torchs(mode, kind):
    """One step of each, by its weights and its states."""
    cell, other = getattr(nn, kind)(2, 3), getattr(torch.nn, kind)(2, 3)
    for parameter in cell.trainable_params():
        getattr(other, parameter.name).data = torch.tensor(parameter.asnumpy())
    x, state = _x(4, 2), _x(4, 3)
    two = kind == "LSTMCell"

    def forward(x, state):
        found = cell(x, (state, state) if two else state)
        return ops.sin(ops.concat(found) if two else found).sum()

    by_inputs, by_weights = ms.grad(forward, (0, 1), cell.trainable_params())(x, state)
    given = [torch.tensor(each.asnumpy(), requires_grad=True) for each in (x, state)]
    found = other(given[0], (given[1], given[1]) if two else given[1])
    (torch.cat(found) if two else found).sin().sum().backward()
    for own, leaf in zip(by_inputs, given, strict=True):
        np.testing.assert_allclose(own.asnumpy(), leaf.grad.numpy(), rtol=1e-4, atol=1e-6)
    for parameter, own in zip(cell.trainable_params(), by_weights, strict=True):
        wanted = getattr(other, parameter.name).grad.numpy()
        np.testing.assert_allclose(own.asnumpy(), wanted, rtol=1e-4, atol=1e-6, err_msg=parameter.name)
