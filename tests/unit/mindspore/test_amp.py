"""Mixed precision: what is computed in which type, scaled losses, steps that are left out; and LAMB."""

from __future__ import annotations

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Parameter, Tensor, amp, nn, ops
from support.lenet import losses, pair
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture(params=["graph", "pynative"])
def mode(request, graphs):  # noqa: F811
    """Both modes."""
    ms.set_context(mode=ms.GRAPH_MODE if request.param == "graph" else ms.PYNATIVE_MODE)
    return graphs


class Types(nn.Cell):
    """Notes the types of what it is given, between layers."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Dense(4, 4), nn.BatchNorm1d(4), nn.Dense(4, 2)
        self.seen = None

    def construct(self, x):
        first = self.first(x)
        normed = self.norm(first)
        object.__setattr__(self, "seen", [each.type.dtype for each in (x, first, normed)])
        return ops.relu(self.last(normed))


@pytest.mark.parametrize(
    ("level", "wanted"),
    [
        ("O0", ["float32", "float32", "float32"]),
        ("O1", ["float32", "float32", "float32"]),
        ("O2", ["float16", "float16", "float16"]),
        ("O3", ["float16", "float16", "float16"]),
    ],
)
def test_levels_say_what_is_computed_in_16_bits(mode, level, wanted):
    """Results and parameters are float32 at each; at O1 only layers of the white list are narrow inside."""
    ms.set_seed(1)  # with other weights all results may be the zeros of relu
    net = Types()
    x = Tensor(np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32))
    plain = net(x).asnumpy()
    assert amp.auto_mixed_precision(net, level) is net
    found = net(x)
    assert found.dtype == ms.float32
    assert net.seen == wanted
    assert all(parameter.dtype == ms.float32 for parameter in net.get_parameters())
    np.testing.assert_allclose(found.asnumpy(), plain, rtol=2e-2, atol=2e-2)
    assert (np.abs(found.asnumpy() - plain).max() > 0) == (level != "O0")


def test_cells_compute_in_the_type_that_they_are_told(mode):
    """``to_float`` holds for the cells below, which may say otherwise; gradients are float32."""
    net = nn.SequentialCell(nn.Dense(4, 4), nn.Dense(4, 2).to_float(ms.float32)).to_float(ms.bfloat16)
    x = Tensor(np.ones((3, 4), np.float32))
    assert net[0](x).dtype == ms.float32
    assert net(x).dtype == ms.float32
    assert nn.SequentialCell(net[0]).to_float(ms.float16)(x).dtype == ms.float16
    (weight, _, _, _) = ms.grad(lambda x: net(x).sum(), None, net.trainable_params())(x)
    assert weight.dtype == ms.float32
    with pytest.raises(ValueError, match="to_float"):
        net.to_float(ms.int32)


@pytest.mark.parametrize("level", ["O0", "O1", "O2", "O3"])
def test_lenet_trains_at_each_level(graphs, level):  # noqa: F811
    """The losses are those of float32 within what float16 rounds; O2 scales the loss, and each is one network."""
    wanted = losses(_step("O0"), 8)
    step = _step(level)
    step.set_train()
    dynamic = level == "O2"
    found = [float(out[0] if dynamic else out) for out in _outputs(step, 8)]
    np.testing.assert_allclose(found, wanted, rtol=5e-2, atol=2e-2)
    assert found[-1] < found[0]


def _step(level: str) -> nn.Cell:
    net, _ = pair()
    options = {"loss_scale_manager": amp.DynamicLossScaleManager(1024, 2, 1000)} if level == "O2" else {}
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    return amp.build_train_network(net, optimizer, nn.CrossEntropyLoss(), level, **options)


def _outputs(step: nn.Cell, count: int):
    from support.lenet import batch

    return [step(*map(Tensor, batch(number))) for number in range(count)]


def _scaled(manager) -> tuple[nn.Cell, nn.Cell]:
    ms.set_seed(0)
    net = nn.Dense(2, 1, has_bias=False)
    optimizer = nn.Momentum(net.trainable_params(), 0.01, 0.9)
    return net, amp.build_train_network(net, optimizer, nn.MSELoss(), "O0", loss_scale_manager=manager)


def test_a_step_whose_gradients_overflow_changes_nothing(mode):
    """Neither weights nor the optimizer's states nor its number of steps; the scale is halved, and grows later."""
    net, step = _scaled(amp.DynamicLossScaleManager(2.0**10, 2, 2))
    good, bad = (Tensor(np.full((3, 2), value, np.float32)) for value in (1.0, np.inf))
    y = Tensor(np.ones((3, 1), np.float32))
    before = net.weight.asnumpy().copy()
    seen = []
    for x in (bad, good, good, good):
        _, overflow, scale = step(x, y)
        seen.append((bool(overflow), float(scale)))
        if x is bad:
            np.testing.assert_array_equal(net.weight.asnumpy(), before)
            assert not step.optimizer.moments[0].asnumpy().any()
            assert step.optimizer.global_step.asnumpy() == 0
    assert seen == [(True, 1024), (False, 512), (False, 512), (False, 1024)]
    assert step.optimizer.global_step.asnumpy() == 3
    assert np.abs(net.weight.asnumpy() - before).max() > 0


def test_a_fixed_scale_leaves_steps_out_or_not(mode):
    """The weights after a step are those without a scale."""
    x, y = Tensor(np.ones((3, 2), np.float32)), Tensor(np.ones((3, 1), np.float32))
    net, step = _scaled(None)
    step(x, y)
    for drops in (True, False):
        ms.set_seed(0)
        other = nn.Dense(2, 1, has_bias=False)
        optimizer = nn.Momentum(other.trainable_params(), 0.01, 0.9, loss_scale=1.0 if drops else 64.0)
        manager = amp.FixedLossScaleManager(64.0, drops)
        amp.build_train_network(other, optimizer, nn.MSELoss(), loss_scale_manager=manager)(x, y)
        np.testing.assert_allclose(other.weight.asnumpy(), net.weight.asnumpy(), rtol=1e-6)


def test_scalers_serve_functions(mode):
    """The style with functions: scale, unscale, ``all_finite`` and ``adjust``, also inside ``jit``."""
    scaler = amp.DynamicLossScaler(8.0, 2, 2)
    x = Tensor(np.array([1.0, 2.0], np.float32))
    assert scaler.scale(x).asnumpy().tolist() == [8, 16]
    assert [each.asnumpy().tolist() for each in scaler.unscale((x, x))] == [[0.125, 0.25]] * 2
    infinite = Tensor(np.array([1.0, np.inf], np.float32))
    assert bool(amp.all_finite((x, x)))
    assert not bool(amp.all_finite([x, infinite]))
    adjusted = ms.jit(lambda given: scaler.adjust(amp.all_finite([given])))
    adjusted(infinite)
    assert float(scaler.scale_value) == 4
    for wanted in (4, 8):
        scaler.adjust(amp.all_finite([x]))
        assert float(scaler.scale_value) == wanted
    assert amp.StaticLossScaler(4).adjust(True) is False


def test_lamb_steps_as_far_as_the_parameter_is_long(mode):
    """Against its formula in float64, for two steps with decay."""
    start, slope = np.array([3.0, -4.0]), np.array([0.5, 0.25])
    weight = Parameter(Tensor(start.astype(np.float32)), "weight")
    optimizer = nn.Lamb([weight], 0.1, weight_decay=0.01)
    mean = spread = np.zeros(2)
    for number in (1, 2):
        optimizer((Tensor(slope.astype(np.float32)),))
        mean, spread = 0.9 * mean + 0.1 * slope, 0.999 * spread + 0.001 * slope**2
        first, second = mean / (1 - 0.9**number), spread / (1 - 0.999**number)
        inside = first / np.sqrt(second + 1e-6) + 0.01 * start
        trust = min(np.linalg.norm(start) / np.linalg.norm(inside), 10.0)
        start = start - trust * 0.1 * (first / (np.sqrt(second) + 1e-6) + 0.01 * start)
    np.testing.assert_allclose(weight.asnumpy(), start, rtol=1e-5)


CLIPS = {
    "value": lambda parts: [ops.clip_by_value(part, -0.1, 0.1) for part in parts],
    "global norm": lambda parts: ops.clip_by_global_norm(parts, 0.5),
    "norm": lambda parts: ops.clip_by_norm(list(parts), 0.5),
}


@pytest.mark.parametrize("name", CLIPS)
def test_gradients_are_clipped_inside_a_step(mode, name):
    """What the optimizer gets is as long as it may be, whatever the loss is multiplied by."""
    net = nn.Dense(3, 2)
    optimizer = nn.SGD(net.trainable_params(), 1.0)
    before = [parameter.asnumpy().copy() for parameter in net.trainable_params()]
    differentiated = ms.value_and_grad(lambda x: (net(x) * 100).sum(), None, net.trainable_params())

    @ms.jit
    def step(x):
        value, parts = differentiated(x)
        optimizer(tuple(CLIPS[name](parts)))
        return value

    step(Tensor(np.ones((4, 3), np.float32)))
    moved = [old - each.asnumpy() for old, each in zip(before, net.trainable_params(), strict=True)]
    if name == "value":
        assert all(np.allclose(np.abs(part), 0.1) for part in moved)
    else:
        np.testing.assert_allclose(np.sqrt(sum(np.square(part).sum() for part in moved)), 0.5, rtol=1e-4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: amp.auto_mixed_precision(3), "int"),
        (lambda: amp.auto_mixed_precision(nn.ReLU(), "O9"), "amp_level"),
        (lambda: amp.custom_mixed_precision(nn.ReLU()), "white_list"),
        (lambda: amp.DynamicLossScaleManager(0.5), "loss scale"),
        (lambda: amp.DynamicLossScaler(1, 1, 1), "factor"),
        (lambda: amp.FixedLossScaleManager(0), "loss_scale"),
        (lambda: nn.TrainOneStepWithLossScaleCell(*_net_and_optimizer(), 3), "scale_sense"),
    ],
)
def test_wrong_arguments_are_named(call, says):
    """Levels, lists, scales."""
    with pytest.raises((ValueError, TypeError)) as caught:
        call()
    assert says in str(caught.value)


def _net_and_optimizer():
    net = nn.Dense(1, 1)
    return nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params())
