"""Training in MindSpore's style, its networks evaluated on the host: gradients, optimizers, states."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import opbuild.mindspore as ms
from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.gradients.registry import RULES
from opbuild.mindspore import Parameter, Tensor, nn, ops
from support.lenet import LeNet, batch, losses, pair, torch_losses
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture(params=["graph", "pynative"])
def mode(request, graphs):  # noqa: F811
    """Both modes, which give the same numbers."""
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return graphs


def _x(*shape: int) -> Tensor:
    return Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))


def test_grad_gives_one_gradient_or_as_many_as_are_asked_for(mode):
    """Of one argument, of several, and of a value used as two arguments."""
    x, y = _x(2, 3), _x(3)

    def function(a, b):
        return ops.sin(a) * b

    np.testing.assert_allclose(ms.grad(function)(x, y).asnumpy(), np.cos(x.asnumpy()) * y.asnumpy(), rtol=1e-6)
    both = ms.grad(function, (0, 1))(x, y)
    np.testing.assert_allclose(both[1].asnumpy(), np.sin(x.asnumpy()).sum(0), rtol=1e-5)
    same = ms.grad(lambda a, b: a * b, (0, 1))(y, y)
    assert all((part.asnumpy() == y.asnumpy()).all() for part in same)


def test_value_and_grad_gives_the_weights_gradients_of_a_cell(mode):
    """Beside the value; with ``has_aux`` what else the function returns."""
    net, x = nn.Dense(3, 2), _x(4, 3)

    def forward(x):
        y = net(x)
        return (y * y).sum(), y

    (value, y), parts = ms.value_and_grad(forward, None, net.trainable_params(), has_aux=True)(x)
    np.testing.assert_allclose(value.asnumpy(), np.square(y.asnumpy()).sum(), rtol=1e-5)
    np.testing.assert_allclose(parts[0].asnumpy(), 2 * y.asnumpy().T @ x.asnumpy(), rtol=1e-4)
    inputs, weights = ms.grad(lambda x: forward(x)[0], 0, net.weight)(x)
    np.testing.assert_allclose(inputs.asnumpy(), 2 * y.asnumpy() @ net.weight.asnumpy(), rtol=1e-4)
    assert weights.shape == net.weight.shape


def test_nothing_flows_through_stop_gradient(mode):
    """What is behind it is a constant."""
    x = _x(3)
    found = ms.grad(lambda x: ops.stop_gradient(x) * x)(x)
    np.testing.assert_array_equal(found.asnumpy(), x.asnumpy())


def test_a_gradient_of_gradients_is_one_too(mode):
    """What gradients are made of has gradients."""
    x = _x(5)
    second = ms.grad(ms.grad(ops.tanh))(x)
    tanh = np.tanh(x.asnumpy())
    np.testing.assert_allclose(second.asnumpy(), -2 * tanh * (1 - tanh**2), rtol=1e-4, atol=1e-6)


def test_gradients_through_cells_that_are_computed_again_are_the_same(mode):
    """Where a cell in a recomputed cell is recomputed itself too; gradients of gradients add up in another order."""

    class Block(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.SequentialCell(nn.Dense(4, 8), nn.Tanh(), nn.Dense(8, 4))

        def construct(self, x):
            return x + ops.softmax(self.inner(ops.gelu(x)), -1)

    ms.set_seed(5)
    net = nn.SequentialCell(Block(), Block())
    x = _x(3, 4)

    def found():
        by_weights = ms.grad(net, None, net.trainable_params())(x)
        return [each.asnumpy() for each in (*by_weights, ms.grad(ms.grad(lambda x: ops.tanh(net(x))))(x))]

    kept = found()
    for cell in (net[0], net[0].inner, net[1].inner):
        cell.recompute(mp_comm_recompute=False)
    for one, other in zip(found(), kept, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


def test_a_function_that_can_not_be_differentiated_names_the_operator(mode, monkeypatch):
    """Nothing is wrong without a gradient there."""
    monkeypatch.delitem(RULES, ("", "LSTM"))
    layer = nn.LSTM(2, 3)
    with pytest.raises(UnsupportedOperatorError, match=r"LSTM.*no gradient"):
        ms.grad(lambda x: layer(x)[0])(_x(4, 1, 2))


OPTIMIZERS: dict[str, tuple[Callable[[Any], nn.Cell], Callable[[Any], torch.optim.Optimizer]]] = {
    "sgd": (lambda p: nn.SGD(p, 0.05), lambda p: torch.optim.SGD(p, 0.05)),
    "sgd_nesterov": (
        lambda p: nn.SGD(p, 0.05, momentum=0.9, nesterov=True, weight_decay=0.01),
        lambda p: torch.optim.SGD(_decayed(p, 0.01), 0.05, 0.9, nesterov=True),
    ),
    "sgd_dampened": (
        lambda p: nn.SGD(p, 0.05, momentum=0.9, dampening=0.5),
        lambda p: torch.optim.SGD(p, 0.05, 0.9, dampening=0.5),
    ),
    "momentum": (
        lambda p: nn.Momentum(p, 0.05, 0.9, loss_scale=1.0),
        lambda p: torch.optim.SGD(p, 0.05, 0.9),
    ),
    "adam": (lambda p: nn.Adam(p, 0.01), lambda p: torch.optim.Adam(p, 0.01)),
    "rmsprop": (
        lambda p: nn.RMSProp(p, 0.001, 0.9, 0.5, epsilon=1e-16),
        lambda p: torch.optim.RMSprop(p, 0.001, 0.9, 1e-8, momentum=0.5),
    ),
}


def _decayed(parameters: Any, decay: float) -> list[dict[str, Any]]:
    """Return torch's groups: MindSpore lets decay pass by scale and shift of normalizations."""
    listed = list(parameters)
    norms = [each for index, each in enumerate(listed) if index in (1, 2)]
    others = [each for each in listed if all(each is not norm for norm in norms)]
    return [{"params": others, "weight_decay": decay}, {"params": norms}]


SIGNS = ("adam", "rmsprop")
"""Optimizers that divide gradients by their size: they make noise of float32 in small ones as great as steps."""


@pytest.mark.slow
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_lenet_trains_to_torchs_losses(graphs, name):  # noqa: F811
    """Fifty steps with batch normalization, whose running statistics are torch's as well; one network is built."""
    ours, theirs = OPTIMIZERS[name]
    steps = 10 if name in SIGNS else 50
    net, other = pair()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), ours(net.trainable_params()))
    found = losses(step, steps)
    wanted = torch_losses(other, theirs(other.parameters()), steps)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4)
    assert found[-1] < 0.97 * found[0]
    assert len(graphs) == 1
    np.testing.assert_allclose(net.norm.moving_mean.asnumpy(), other.norm.running_mean.numpy(), rtol=1e-2, atol=1e-3)
    np.testing.assert_allclose(net.norm.moving_variance.asnumpy(), other.norm.running_var.numpy(), rtol=1e-2)


@pytest.mark.parametrize("name", SIGNS)
def test_optimizers_take_torchs_steps(graphs, name):  # noqa: F811
    """Forty steps down a bowl, along gradients that are never small."""
    ours, theirs = OPTIMIZERS[name]
    start, scale = np.linspace(2.0, 5.0, 7, dtype=np.float32), Tensor(np.linspace(0.5, 3.0, 7, dtype=np.float32))
    weight, leaf = Parameter(Tensor(start), "weight"), torch.tensor(start.copy(), requires_grad=True)
    mine, other = ours([weight]), theirs([leaf])

    def bowl():
        return (weight * weight * scale).sum()

    differentiated = ms.value_and_grad(bowl, None, [weight])
    for _ in range(40):
        mine(differentiated()[1])
        other.zero_grad()
        (leaf * leaf * torch.tensor(scale.asnumpy())).sum().backward()
        other.step()
    np.testing.assert_allclose(weight.asnumpy(), leaf.detach().numpy(), rtol=1e-5)


def test_adam_with_weight_decay_goes_past_the_means(mode):
    """AdamWeightDecay: no correction, and the decay in the step."""
    start, slope = np.array([1.0, -2.0], np.float32), np.array([0.5, 4.0], np.float32)
    weight = Parameter(Tensor(start), "weight")
    optimizer = nn.AdamWeightDecay([weight], 0.1, 0.9, 0.999, 1e-6, weight_decay=0.01)
    optimizer((Tensor(slope),))
    step = 0.1 * slope / (np.sqrt(0.001 * slope**2) + 1e-6) + 0.01 * start
    np.testing.assert_allclose(weight.asnumpy(), start - 0.1 * step, rtol=1e-5)


RATES = {
    "list": ([0.1, 0.2, 0.4], [0.1, 0.2, 0.4, 0.4]),
    "exponential": (nn.ExponentialDecayLR(0.1, 0.5, 2), [0.1 * 0.5 ** (i / 2) for i in range(4)]),
    "stairs": (nn.ExponentialDecayLR(0.1, 0.5, 2, is_stair=True), [0.1, 0.1, 0.05, 0.05]),
    "natural": (nn.NaturalExpDecayLR(0.1, 0.5, 2), [0.1 * np.exp(-0.25 * i) for i in range(4)]),
    "inverse": (nn.InverseDecayLR(0.1, 0.5, 2), [0.1 / (1 + 0.25 * i) for i in range(4)]),
    "cosine": (nn.CosineDecayLR(0.0, 0.1, 3), [0.05 * (1 + np.cos(np.pi * i / 3)) for i in range(4)]),
    "warm up": (nn.WarmUpLR(0.1, 2), [0.0, 0.05, 0.1, 0.1]),
    "pieces": (nn.piecewise_constant_lr([1, 3], [0.1, 0.2]), [0.1, 0.2, 0.2, 0.2]),
    "exponential list": (nn.exponential_decay_lr(0.1, 0.5, 4, 2, 1), [0.1, 0.1, 0.05, 0.05]),
    "cosine list": (nn.cosine_decay_lr(0.0, 0.1, 4, 1, 2), [0.1, 0.05, 0.0, 0.0]),
}


@pytest.mark.parametrize("name", RATES)
def test_a_learning_rate_follows_its_schedule(graphs, name):  # noqa: F811
    """Four steps against a gradient of 1, all by one network."""
    given, wanted = RATES[name]
    weight = Parameter(Tensor(np.zeros(1, np.float32)), "weight")
    optimizer = nn.SGD([weight], given)
    before, moved = 0.0, []
    for _ in range(4):
        optimizer((Tensor(np.ones(1, np.float32)),))
        now = float(weight.asnumpy()[0])
        moved.append(before - now)
        before = now
    np.testing.assert_allclose(moved, wanted, rtol=1e-5, atol=1e-7)
    assert len(graphs) == 1


def test_groups_have_their_own_rates_and_decays(graphs):  # noqa: F811
    """A group's decay holds for all of its parameters, whatever they are called."""
    one, two = (Parameter(Tensor(np.ones(2, np.float32)), name) for name in ("gamma", "weight"))
    groups = [{"params": [one], "lr": 0.5, "weight_decay": 0.1}, {"params": [two]}]
    nn.SGD(groups, 0.25)((Tensor(np.zeros(2, np.float32)), Tensor(np.ones(2, np.float32))))
    np.testing.assert_allclose(one.asnumpy(), [0.95, 0.95])
    np.testing.assert_allclose(two.asnumpy(), [0.75, 0.75])


def test_a_function_with_jit_may_take_the_step_itself(graphs):  # noqa: F811
    """The style with functions: value_and_grad and an optimizer inside ``jit`` are one network, called many times."""
    net = nn.Dense(3, 1)
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    x, label = _x(8, 3), Tensor(np.ones((8, 1), np.float32))
    differentiated = ms.value_and_grad(lambda x, y: nn.MSELoss()(net(x), y), None, net.trainable_params())

    @ms.jit
    def train_step(x, y):
        loss, gradients = differentiated(x, y)
        optimizer(gradients)
        return loss

    found = [float(train_step(x, label).asnumpy()) for _ in range(5)]
    assert found == sorted(found, reverse=True)
    assert len(graphs) == 1
    again = float(differentiated(x, label)[0].asnumpy())
    assert again < found[-1]


def test_what_was_trained_is_what_predicts(graphs):  # noqa: F811
    """The network for inference is built again with the new weights, and has them as constants."""
    net, _ = pair()
    x = _x(2, 1, 8, 8)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.SGD(net.trainable_params(), 0.5))
    net.set_train(False)
    before = net(x).asnumpy()
    step.set_train()
    losses(step, 1)
    net.set_train(False)
    after = net(x).asnumpy()
    assert np.abs(after - before).max() > 1e-3
    assert (net(x).asnumpy() == after).all()
    assert isinstance(net, LeNet)


def test_training_goes_on_from_a_checkpoint(graphs, tmp_path):  # noqa: F811
    """Weights, running statistics, the optimizer's states and its number of steps are in the file of a step."""

    def made():
        net, _ = pair()
        return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), nn.Adam(net.trainable_params(), 0.01))

    whole = losses(made(), 6)
    first, second = made(), made()
    losses(first, 3)
    ms.save_checkpoint(first, str(tmp_path / "step.ckpt"))
    missing, _ = ms.load_param_into_net(second, ms.load_checkpoint(str(tmp_path / "step.ckpt")))
    assert not missing
    found = [float(second(*map(Tensor, batch(number))).asnumpy()) for number in range(3, 6)]
    np.testing.assert_allclose(found, whole[3:], rtol=1e-6)


STATES = {
    "sgd": (lambda p: nn.SGD(p, 0.1), ["accum.weight", "momentum", "stat.weight"]),
    "momentum": (lambda p: nn.Momentum(p, 0.1, 0.9), ["moments.weight", "momentum"]),
    "adam": (lambda p: nn.Adam(p, 0.1), ["beta1_power", "beta2_power", "moment1.weight", "moment2.weight"]),
    "adam with decay": (lambda p: nn.AdamWeightDecay(p, 0.1), ["adam_m.weight", "adam_v.weight"]),
    "lamb": (lambda p: nn.Lamb(p, 0.1), ["lamb_m.weight", "lamb_v.weight"]),
    "rmsprop": (lambda p: nn.RMSProp(p, 0.1), ["mean_square.weight", "moment.weight"]),
}


@pytest.mark.parametrize("name", STATES)
def test_states_are_called_what_mindspore_calls_them(name, tmp_path):
    """A step's file has the names that MindSpore 2.10 writes, neither more nor fewer, so each loads the other's."""
    make, own = STATES[name]
    net = nn.Dense(2, 1, has_bias=False)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), make(net.trainable_params()))
    ms.save_checkpoint(step, str(tmp_path / "step.ckpt"))
    assert sorted(ms.load_checkpoint(str(tmp_path / "step.ckpt"))) == sorted(
        ["weight", "global_step", "learning_rate", *own]
    )


def test_sgd_that_goes_on_elsewhere_keeps_its_momentum(mode):
    """``stat`` is 0 after the first step: with 1 MindSpore takes the next gradient for the first."""
    weight = Parameter(Tensor(np.ones(2, np.float32)), "weight")
    optimizer = nn.SGD([weight], 0.1, momentum=0.9)
    assert optimizer.stat[0].asnumpy().tolist() == [1, 1]
    optimizer((Tensor(np.ones(2, np.float32)),))
    assert optimizer.stat[0].asnumpy().tolist() == [0, 0]


def test_a_step_returns_gradients_if_they_are_asked_for(mode):
    """By the parameters' names; a scaled loss is not what is returned."""
    net = nn.Dense(3, 2, has_bias=False)
    x, y = _x(4, 3), Tensor(np.zeros((4, 2), np.float32))
    start = net.weight.asnumpy().copy()
    optimizer = nn.SGD(net.trainable_params(), 1.0, loss_scale=8.0)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer, sens=8.0, return_grad=True)
    loss, parts = step(x, y)
    output = x.asnumpy() @ start.T
    np.testing.assert_allclose(loss.asnumpy(), np.square(output).mean(), rtol=1e-5)
    slope = 2 * output.T @ x.asnumpy() / output.size
    np.testing.assert_allclose(parts["weight"].asnumpy(), 8 * slope, rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(net.weight.asnumpy(), start - slope, rtol=1e-4, atol=1e-6)


LOSSES = {
    "mse": (nn.MSELoss(), torch.nn.MSELoss()),
    "l1": (nn.L1Loss(), torch.nn.L1Loss()),
    "smooth": (nn.SmoothL1Loss(reduction="mean"), torch.nn.SmoothL1Loss()),
    "huber": (nn.HuberLoss(), torch.nn.HuberLoss()),
    "bce": (nn.BCEWithLogitsLoss(), torch.nn.BCEWithLogitsLoss()),
    "cross entropy": (nn.CrossEntropyLoss(), torch.nn.CrossEntropyLoss()),
    "softmax": (nn.SoftmaxCrossEntropyWithLogits(reduction="mean"), torch.nn.CrossEntropyLoss()),
}


@pytest.mark.parametrize("name", LOSSES)
def test_a_losses_gradient_is_torchs(graphs, name):  # noqa: F811
    """By the logits, with probabilities as labels."""
    ours, theirs = LOSSES[name]
    x = _x(4, 5)
    labels = np.random.default_rng(1).dirichlet(np.ones(5), 4).astype(np.float32)
    leaf = torch.tensor(x.asnumpy(), requires_grad=True)
    theirs(leaf, torch.tensor(labels)).backward()
    found = ms.grad(ours)(x, Tensor(labels))
    assert leaf.grad is not None
    np.testing.assert_allclose(found.asnumpy(), leaf.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_wrong_arguments_of_training_are_named(graphs):  # noqa: F811
    """Nothing to differentiate by, weights that are none, no parameters, a negative rate."""
    with pytest.raises(ValueError, match="neither"):
        ms.grad(lambda x: x, None)
    with pytest.raises(TypeError, match="no parameters"):
        ms.grad(lambda x: x, None, [1])
    with pytest.raises(TypeError, match="no parameters"):
        nn.SGD([], 0.1)
    with pytest.raises(ValueError, match="learning_rate"):
        nn.SGD([Parameter(Tensor([1.0]), "w")], -0.1)
    with pytest.raises(TypeError, match="no tensor"):
        ms.grad(lambda x: x)(1.0)


@pytest.mark.parametrize("shape", [(4, 3, 5, 2), (6, 3), (1, 3, 4)])
def test_batch_normalization_in_training_is_torchs(mode, shape):
    """Its output, its gradients, and the running statistics, whose variance has no bias."""
    norm, x = (nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d)(3), _x(*shape)
    norm.set_train()
    slope = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    norm.gamma.set_data(Tensor(np.array([0.5, 1.5, -2], np.float32)))
    other = torch.tensor(x.asnumpy(), dtype=torch.float64, requires_grad=True)
    layer = (torch.nn.BatchNorm2d if len(shape) == 4 else torch.nn.BatchNorm1d)(3).double()
    with torch.no_grad():
        layer.weight.copy_(torch.tensor(norm.gamma.asnumpy()))
    loss = (layer(other) * torch.tensor(slope)).sum()
    loss.backward()
    forward = ms.value_and_grad(lambda x: (norm(x) * Tensor(slope)).sum(), 0, norm.trainable_params())
    value, (data, (scale, shift)) = forward(x)
    found = (value, data, scale, shift, norm.moving_mean, norm.moving_variance)
    wanted = (loss, other.grad, layer.weight.grad, layer.bias.grad, layer.running_mean, layer.running_var)
    for one, number in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.asnumpy(), number.detach().numpy(), rtol=1e-4, atol=1e-5)
