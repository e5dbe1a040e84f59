"""Dropout in training: what is zeroed, that seeds decide it, and that both modes draw the same."""

from __future__ import annotations

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, ops
from support.mindspore_host import graphs  # noqa: F401 - a fixture


def _ones(*shape: int) -> Tensor:
    return Tensor(np.ones(shape, np.float32))


def _both_modes(compute) -> list[np.ndarray]:
    """Return the results of a function in each mode, from the same seed."""
    found = []
    for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
        ms.set_context(mode=mode)
        ms.set_seed(3)
        found.append(compute())
    return found


def test_a_share_of_elements_is_zeroed_and_the_mean_stays(graphs):  # noqa: F811
    """Each call draws others, by one network; without training nothing happens."""
    layer = nn.Dropout(p=0.25)
    layer.set_train()

    def calls():
        return np.stack([layer(_ones(100, 100)).asnumpy() for _ in range(2)])

    built, plain = _both_modes(calls)
    np.testing.assert_array_equal(built, plain)
    assert len(graphs) == 2  # a network; and the product that PyNative mode runs
    assert set(np.unique(built)) == {0.0, np.float32(1 / 0.75)}
    assert 0.23 < (built == 0).mean() < 0.27
    assert (built[0] != built[1]).any()
    layer.set_train(False)
    assert (layer(_ones(3, 3)).asnumpy() == 1).all()


@pytest.mark.parametrize(
    ("layer", "shape", "same"),
    [
        (nn.Dropout1d(0.5), (8, 4, 6), (2,)),
        (nn.Dropout2d(0.5), (8, 4, 3, 3), (2, 3)),
        (nn.Dropout3d(0.5), (8, 4, 2, 2, 2), (2, 3, 4)),
    ],
)
def test_channels_are_zeroed_whole(graphs, layer, shape, same):  # noqa: F811
    """Some of them, and not all."""
    found, _ = _both_modes(lambda: layer.set_train()(_ones(*shape)).asnumpy())
    assert (found.max(same) == found.min(same)).all()
    assert set(np.unique(found)) == {0.0, 2.0}


def test_primitives_return_their_mask_and_a_seed_of_its_own_repeats(graphs):  # noqa: F811
    """``ops.Dropout``; and ``ops.dropout`` of everything is nothing."""
    result, mask = ops.Dropout(keep_prob=0.5)(_ones(50))
    assert ((result.asnumpy() == 0) == (mask.asnumpy() == 0)).all()
    result, mask = ops.Dropout2D(keep_prob=0.5)(_ones(2, 9, 2, 2))
    assert mask.shape == (2, 9, 2, 2)
    assert ((result.asnumpy() != 0) == mask.asnumpy()).all()
    first, second = (ops.dropout(_ones(50), 0.5, seed=4).asnumpy() for _ in range(2))
    np.testing.assert_array_equal(first, second)
    assert not ops.dropout(_ones(5), 1.0).asnumpy().any()
    with pytest.raises(ValueError, match="from 0 to 1"):
        ops.dropout(_ones(5), 1.5)


@pytest.mark.slow
def test_steps_of_training_drop_the_same_from_the_same_seed_in_both_modes(graphs):  # noqa: F811
    """A transformer's layer, whose attention drops weights; the losses of the modes are equal."""

    def losses():
        net = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.2, batch_first=True)
        net.set_train()
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
        x = Tensor(np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32))
        return np.array([float(step(x, x)) for _ in range(4)])

    built, plain = _both_modes(losses)
    np.testing.assert_array_equal(built, plain)
    assert len(set(built)) == 4


def test_a_function_with_jit_follows_its_parameters_and_flags(graphs):  # noqa: F811
    """It kept the parameters' first values for ever; what changed nothing is not built again."""
    net = nn.SequentialCell(nn.Dense(2, 1, has_bias=False), nn.Dropout(p=0.5))

    @ms.jit
    def forward(x):
        return net(x)

    for value in (1.0, 3.0):
        net[0].weight.set_data(Tensor(np.full((1, 2), value, np.float32)))
        assert [forward(_ones(1, 2)).asnumpy().item() for _ in range(2)] == [2 * value] * 2
    assert len(graphs) == 2
    net.set_train()
    assert forward(_ones(1, 2)).asnumpy().item() in (0.0, 12.0)
