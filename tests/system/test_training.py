"""Training with compiled kernels: torch's losses, and nothing built twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import opbuild
import opbuild.mindspore as ms
from opbuild.mindspore import execution, networks, nn
from opbuild.mindspore.parameter import data_of
from opbuild.report import Report
from support.lenet import LeNet, batch, losses, pair, torch_losses

pytestmark = pytest.mark.usefixtures("kept_objects")


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[Report]:
    """Return the reports of the networks that are built."""
    found: list[Report] = []
    original = opbuild.compile_graph

    def compile_graph(*args, **kwargs):
        network = original(*args, **kwargs)
        found.append(network.report)
        return network

    monkeypatch.setattr("opbuild.api.compile_graph", compile_graph)
    monkeypatch.setattr(execution, "_EAGER", execution._EagerNetworks())
    ms.set_context(mode=ms.GRAPH_MODE)
    return found


def _step(net: LeNet) -> nn.Cell:
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    return nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)


@pytest.mark.slow
@pytest.mark.usefixtures("with_pack")
def test_a_compiled_lenet_trains_to_torchs_losses_and_is_built_once(reports, tmp_path, monkeypatch):
    """Fifty steps are one network; the same again, from other weights, builds nothing; all of it has kernels."""
    monkeypatch.chdir(tmp_path)
    net, other = pair()
    found = losses(_step(net), 50)
    wanted = torch_losses(other, torch.optim.SGD(other.parameters(), 0.05, 0.9), 50)
    np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-4)
    (first,) = reports
    assert not first.host
    fresh, _ = pair()
    losses(_step(fresh), 1)
    assert reports[1].built == 0
    fresh.set_train(False)
    assert fresh(ms.Tensor(batch(0)[0])).shape == (16, 10)


@pytest.mark.slow
@pytest.mark.usefixtures("with_pack")
def test_compiled_steps_in_16_bits_follow_those_of_float32_in_both_modes(reports, tmp_path, monkeypatch):
    """With a scaled loss, an update that may be left out, and dropout; all of it has kernels."""
    monkeypatch.chdir(tmp_path)
    x = ms.Tensor(np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32))

    def trained(level: str, mode: int) -> list[float]:
        ms.set_context(mode=mode)
        ms.set_seed(3)
        net = nn.SequentialCell(nn.Dense(8, 16), nn.ReLU(), nn.Dropout(p=0.2), nn.Dense(16, 8))
        optimizer = nn.SGD(net.trainable_params(), 0.1)
        scale = ms.amp.FixedLossScaleManager(64.0)
        step = ms.amp.build_train_network(net, optimizer, nn.MSELoss(), level, loss_scale_manager=scale)
        return [float(step(x, x)[0]) for _ in range(4)]

    plain, narrow = (trained(level, ms.GRAPH_MODE) for level in ("O0", "O3"))
    assert trained("O3", ms.PYNATIVE_MODE) == narrow
    np.testing.assert_allclose(narrow, plain, rtol=1e-2)
    assert narrow[-1] < narrow[0]
    assert not any(report.host for report in reports)


class _Images(nn.Cell):
    """Convolutions whose channels fill blocks, and one whose channels do not."""

    def __init__(self) -> None:
        super().__init__()
        sizes = ((3, 16, 3, 1), (16, 32, 3, 2), (32, 32, 3, 1), (32, 48, 1, 2), (48, 20, 1, 1))
        self.layers = nn.SequentialCell(
            *(
                cell
                for i, o, k, s in sizes
                for cell in (nn.Conv2d(i, o, k, s, has_bias=True), nn.BatchNorm2d(o), nn.ReLU())
            )
        )

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.layers(x).mean((2, 3))


@pytest.mark.slow
@pytest.mark.usefixtures("with_pack")
@pytest.mark.parametrize("optimizer", ["Momentum", "AdamWeightDecay"])
def test_weights_in_blocks_train_to_the_same_bits(reports, tmp_path, monkeypatch, optimizer):
    """Losses, parameters and moments, with reads, writes and a file between the steps; all of it has kernels."""
    monkeypatch.chdir(tmp_path)
    random = np.random.default_rng(0)
    x = ms.Tensor(random.standard_normal((3, 3, 20, 20)).astype(np.float32))
    y = ms.Tensor(np.array([1, 7, 2], np.int32))
    make = {"Momentum": lambda p: nn.Momentum(p, 0.05, 0.9, weight_decay=1e-3), "AdamWeightDecay": nn.AdamWeightDecay}

    def trained() -> tuple[list[np.ndarray], int]:
        ms.set_seed(3)
        net = _Images().set_train()
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), make[optimizer](net.trainable_params()))
        seen = [step(x, y).asnumpy().copy() for _ in range(2)]
        lying = sum(data_of(each).ndim == 6 for each in step.get_parameters())
        ms.save_checkpoint(step, "step.ckpt")
        seen += [net.trainable_params()[3].asnumpy().copy(), step(x, y).asnumpy().copy()]
        ms.load_param_into_net(step, ms.load_checkpoint("step.ckpt"))
        seen += [step(x, y).asnumpy().copy(), *(each.asnumpy().copy() for each in step.get_parameters())]
        return seen, lying

    found, lying = trained()
    assert lying == {"Momentum": 2, "AdamWeightDecay": 3}[optimizer] * 3
    monkeypatch.setattr(networks, "weights_in_blocks", lambda graph, *_: (graph, []))
    wanted, lying = trained()
    assert not lying
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)
    assert not any(report.host for report in reports)


class _Block(nn.Cell):
    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.norm, self.drop = nn.LayerNorm((width,)), nn.Dropout(p=0.1)
        self.up, self.down = nn.Dense(width, 4 * width), nn.Dense(4 * width, width)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return x + self.drop(self.down(ms.ops.gelu(self.up(self.norm(x)))))


@pytest.mark.slow
@pytest.mark.usefixtures("with_pack")
def test_blocks_that_are_recomputed_give_the_same_losses_in_less_memory(reports, tmp_path, monkeypatch):
    """Bytes that are planned for a step of six blocks fall by a third at least; losses are equal to the last bit."""
    monkeypatch.chdir(tmp_path)
    x = ms.Tensor(np.random.default_rng(0).standard_normal((64, 32)).astype(np.float32))

    def trained(*, again: bool) -> tuple[list[float], int]:
        ms.set_seed(2)
        net = nn.SequentialCell(*(_Block() for _ in range(6)))
        for block in net.cells() if again else ():
            block.recompute()
        optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), optimizer).set_train()
        return [float(step(x, ms.ops.tanh(x))) for _ in range(3)], reports[-1].arena

    (kept, bytes_kept), (recomputed, bytes_recomputed) = trained(again=False), trained(again=True)
    print(f"planned: {bytes_kept} bytes, recomputed {bytes_recomputed}")
    assert recomputed == kept
    assert bytes_recomputed < bytes_kept * 2 / 3


class _Tagger(nn.Cell):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(6, 8, bidirectional=True, batch_first=True)
        self.dense = nn.Dense(16, 3)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.dense(self.layer(x)[0])


@pytest.mark.slow
@pytest.mark.usefixtures("with_pack")
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_compiled_tagger_trains_to_torchs_losses(reports, tmp_path, monkeypatch, kind):
    """In both directions; all of it has kernels, and sequences of other lengths need few of their own."""
    monkeypatch.chdir(tmp_path)
    ms.set_seed(1)
    net = _Tagger(kind)
    layer, dense = getattr(torch.nn, kind)(6, 8, bidirectional=True, batch_first=True), torch.nn.Linear(16, 3)
    for parameter in net.layer.trainable_params():
        getattr(layer, parameter.name.rpartition(".")[2]).data = torch.tensor(parameter.asnumpy())
    dense.weight.data, dense.bias.data = (torch.tensor(each.asnumpy()) for each in net.dense.trainable_params())
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1)).set_train()
    optimizer = torch.optim.SGD([*layer.parameters(), *dense.parameters()], 0.1)
    random = np.random.default_rng(0)
    for steps in (5, 5, 5, 9):
        x, y = (random.standard_normal((4, steps, width)).astype(np.float32) for width in (6, 3))
        wanted = torch.nn.functional.mse_loss(dense(layer(torch.tensor(x))[0]), torch.tensor(y))
        optimizer.zero_grad()
        wanted.backward()
        optimizer.step()
        assert float(step(ms.Tensor(x), ms.Tensor(y))) == pytest.approx(wanted.item(), rel=1e-4)
    first, second = reports
    assert not first.host
    assert not second.host
    print(f"{kind}: {len(first.operators)} operators, {first.built} built; of nine steps {second.built} more")
    assert second.built <= 3
