"""Gradients of ranks that are combined: what goes together, what the context says, and that one rank is a job too."""

from __future__ import annotations

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, communication, context, nn
from opbuild.mindspore.nn import training
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture
def job(graphs, monkeypatch):  # noqa: F811
    """A job of one rank."""
    for name in ("RANK_ID", "RANK_SIZE"):
        monkeypatch.delenv(name, raising=False)
    communication.init()
    yield graphs
    communication.release()
    context.reset_auto_parallel_context()


def test_gradients_go_together_by_type_and_size(job, monkeypatch):
    """In buckets, the last ones first; each comes back in its place and shape."""
    monkeypatch.setattr(training, "BUCKET", 40)
    shapes = [(2, 3), (4,), (7,), (1,), (20,)]
    given = [
        Tensor(np.random.default_rng(i).standard_normal(shape).astype(np.float32)) for i, shape in enumerate(shapes)
    ]
    given[1] = given[1].astype(ms.float16)
    found = nn.DistributedGradReducer(given, mean=True, degree=2)(tuple(given))
    for one, other in zip(found, given, strict=True):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy() / 2, rtol=1e-3)
        assert one.dtype == other.dtype
    graph = job[-1]
    sizes = [graph.types[node.inputs[0]].shape[0] for node in graph.nodes if node.op_type == "AllReduce"]
    assert sizes == [20, 8, 6, 4]


def test_the_context_says_whether_steps_combine_gradients(job):
    """Not by default; with ``data_parallel`` as sum or mean; a step of several ranks has the operator."""

    def reduced() -> nn.Cell:
        net = nn.Dense(2, 1)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.1))
        step(Tensor(np.ones((2, 2), np.float32)), Tensor(np.ones((2, 1), np.float32)))
        return step.grad_reducer

    assert reduced() is tuple
    assert "AllReduce" not in {node.op_type for node in job[-1].nodes}
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True, parameter_broadcast=True)
    assert reduced().mean
    assert "AllReduce" in {node.op_type for node in job[-1].nodes}
    assert context.get_auto_parallel_context("parallel_mode") == "data_parallel"
    context.reset_auto_parallel_context()
    assert reduced() is tuple


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"parallel_mode": "auto_parallel"}, "parallel_mode"),
        ({"gradients_mean": 1}, "gradients_mean"),
        ({"strategy": 1}, "strategy"),
        ({"enable_parallel_optimizer": True}, "enable_parallel_optimizer"),
    ],
)
def test_what_ranks_can_not_do_is_refused(job, options, says):
    """Other ways of working together, and wrong types."""
    with pytest.raises((ValueError, TypeError), match=says):
        context.set_auto_parallel_context(**options)
    with pytest.raises(ValueError, match="no_such"):
        context.get_auto_parallel_context("no_such")


def test_sync_batch_norm_of_one_rank_is_batch_norm(job):
    """Its groups must be that of all ranks."""
    x = Tensor(np.random.default_rng(0).standard_normal((3, 2)).astype(np.float32))
    one, other = nn.SyncBatchNorm(2, process_groups=[[0]]).set_train(), nn.BatchNorm1d(2).set_train()
    np.testing.assert_array_equal(one(x).asnumpy(), other(x).asnumpy())
    np.testing.assert_array_equal(one.moving_variance.asnumpy(), other.moving_variance.asnumpy())
    with pytest.raises(ValueError, match="process_groups"):
        nn.SyncBatchNorm(2, process_groups=[[0, 1], [2, 3]])


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"all_reduce_fusion_config": [1, 3]}, [21, 11, 6]),
        ({"comm_fusion": {"allreduce": {"mode": "index", "config": [4]}}}, [20, 18]),
        ({"comm_fusion": {"allreduce": {"mode": "size", "config": 1}}}, [38]),
        ({"comm_fusion": {"allreduce": {"mode": "auto", "config": None}}}, [38]),
    ],
)
def test_the_context_says_which_gradients_go_together(job, options, sizes):
    """By the places of the parameters or by megabytes."""
    context.set_auto_parallel_context(**options)
    given = tuple(Tensor(np.ones(size, np.float32)) for size in (6, 4, 7, 1, 20))
    nn.DistributedGradReducer(given, mean=False)(given)
    graph = job[-1]
    found = [graph.types[node.inputs[0]].shape[0] for node in graph.nodes if node.op_type == "AllReduce"]
    assert found == sizes


@pytest.mark.parametrize(
    "options",
    [
        {"all_reduce_fusion_config": 3},
        {"all_reduce_fusion_config": [3, 1]},
        {"comm_fusion": {"allreduce": {"mode": "size", "config": 0}}},
        {"comm_fusion": {"allreduce": {"mode": "other"}}},
    ],
)
def test_a_fusion_that_says_nothing_is_refused(job, options):
    """Numbers must rise, sizes be above 0."""
    with pytest.raises(ValueError, match="fusion"):
        context.set_auto_parallel_context(**options)


def test_the_number_of_devices_must_be_the_jobs(job):
    """A program that was started with fewer ranks than it was written for says so."""
    context.set_auto_parallel_context(parallel_mode="data_parallel", device_num=8)
    with pytest.raises(ValueError, match="device_num is 8"):
        nn.DistributedGradReducer([1])
