"""Training with compiled kernels: torch's losses, and nothing built twice."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import opbuild
import opbuild.mindspore as ms
from lenet import LeNet, batch, losses, pair, torch_losses
from opbuild.mindspore import execution, nn
from opbuild.report import Report

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
