"""Communication beside computation: the order of a network's nodes, and that operators of all ranks run beside them."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.errors import RankError, UnsupportedOperatorError
from opbuild.graph.passes.cleanup import eliminate_dead
from opbuild.graph.passes.infer import infer
from opbuild.graph.passes.overlap_collectives import overlap_collectives
from opbuild.graph.types import COLLECTIVES, Array, Graph, Node, TensorType
from opbuild.mindspore import Tensor, communication, context, nn, ops
from opbuild.mindspore.nn import training
from opbuild.ranks import world
from opbuild.ranks.collective import Collective
from support import graph_runner
from support.fuzzing import CAMPAIGN, check_seeds
from support.mindspore_host import graphs  # noqa: F401 - a fixture

LONG = 60.0
"""Seconds after which a test that waits for something that does not come fails."""


class Twins:
    """Two ranks, of which the other has what this one has; keeps the shapes of what it did."""

    rank = local_rank = 0
    size = local_size = 2
    serves_threads = True

    def __init__(self) -> None:
        self.done: list[tuple[int, ...]] = []
        self.threads: set[str] = set()

    def run(self, collective: Collective, array: Array) -> Array:
        """Return the result of both."""
        self.done.append(array.shape)
        self.threads.add(threading.current_thread().name)
        return array + array

    def close(self) -> None:
        """Do nothing."""


@pytest.fixture
def ranks(graphs: list[Graph], monkeypatch: pytest.MonkeyPatch) -> Iterator[Twins]:  # noqa: F811
    """A job of two ranks, this one and its twin."""
    twins = Twins()
    monkeypatch.setattr(world._WORLD, "transport", twins)
    yield twins
    communication.release()
    context.reset_auto_parallel_context()


def drawn(seed: int) -> Graph:
    """Return a graph of additions and operators of all ranks at random places, some of them read by nobody."""
    draw = random.Random(seed)
    names, nodes = ["x"], []
    for number in range(draw.randrange(1, 40)):
        one, other, name = draw.choice(names), draw.choice(names[-4:]), f"v{number}"
        if draw.random() < 0.25:
            attrs = {"ranks": 2, "reduction": "sum"}
            nodes.append(Node("AllReduce", (other,), (name,), attrs, f"n{number}", COLLECTIVES))
        else:
            nodes.append(Node("Add", (one, other), (name,), {}, f"n{number}"))
        names.append(name)
    outputs = tuple(draw.sample(names[1:], min(len(names) - 1, 3)))
    graph = Graph("g", tuple(nodes), ("x",), outputs, {"x": TensorType("float32", (3,))}, {}, 21)
    return eliminate_dead(infer(graph))


def test_any_order_computes_the_same_with_the_same_operators_of_all_ranks(ranks: Twins) -> None:
    """Random graphs: equal bits, each value after those that it is made of, operators of all ranks in their order."""
    x = np.random.default_rng(3).standard_normal(3).astype(np.float32)

    def one(seed: int) -> None:
        graph = drawn(seed)
        after = overlap_collectives(graph)
        assert sorted(begun(after)) == sorted(begun(graph))
        assert begun(after) == begun(graph)
        for one, other in zip(
            graph_runner.run_graph(after, {"x": x}), graph_runner.run_graph(graph, {"x": x}), strict=True
        ):
            np.testing.assert_array_equal(one, other)

    check_seeds("communication beside", one, CAMPAIGN or 300, processes=0)
    assert not world._WORLD.begun
    assert "opbuild-ranks" in ranks.threads


def begun(graph: Graph) -> list[str]:
    """Return the names of the operators of all ranks, in the order in which they begin."""
    return [node.name for node in graph.nodes if node.domain == COLLECTIVES and not node.op_type.endswith("Wait")]


def trained(graphs: list[Graph]) -> tuple[Any, Graph]:  # noqa: F811
    """Return a step of three layers, each a bucket, its optimizer's groups mixed; and the graph of it, ordered."""
    ms.set_seed(1)
    context.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
    net = nn.SequentialCell(nn.Dense(3, 4), nn.ReLU(), nn.Dense(4, 5), nn.ReLU(), nn.Dense(5, 6))
    weights = [each for each in net.trainable_params() if "weight" in each.name]
    biases = [each for each in net.trainable_params() if "bias" in each.name]
    groups = [{"params": weights, "weight_decay": 0.01}, {"params": biases}]
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(groups, 0.1, 0.9))
    step(Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones((2, 6), np.float32)))
    return step, overlap_collectives(graphs[-1])


def test_the_last_layers_gradients_travel_while_those_of_the_first_are_computed(
    ranks: Twins,
    graphs: list[Graph],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the order of a step's nodes, whatever groups the optimizer has: it is that of events, not of a clock."""
    monkeypatch.setattr(training, "BUCKET", 4 * 36)
    _, graph = trained(graphs)
    kinds = [node.op_type for node in graph.nodes]
    starts, waits = (
        [place for place, kind in enumerate(kinds) if kind.startswith("AllReduce") and kind.endswith(end)]
        for end in ("Start", "Wait")
    )
    sizes = [graph.types[graph.nodes[place].inputs[0]].size for place in starts]
    assert sizes == [36, 29, 12][: len(sizes)]
    products = [place for place, kind in enumerate(kinds) if kind in ("MatMul", "Gemm")]
    assert sum(starts[0] < place < waits[0] for place in products) >= 2
    assert starts[0] < starts[1] < waits[0] < waits[1]
    assert waits[1] > waits[0] + 1, "parameters of the last layers change while other gradients travel"


def test_a_step_waits_for_its_slowest_part_and_not_for_the_sum(
    ranks: Twins,
    graphs: list[Graph],  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A network that ends the first operator only when all of the backward pass was computed: in turn it never would.

    The result is that of a step that does one after the other.
    """
    monkeypatch.setattr(training, "BUCKET", 4 * 36)
    _, graph = trained(graphs)
    feeds = {name: np.full(graph.types[name].shape, 0.5, graph.types[name].dtype) for name in graph.inputs}
    wanted = graph_runner.run_graph(graphs[-1], feeds)
    last = [node.name for node in graph.nodes if node.op_type == "MatMul"][-1]
    computed, evaluate, run = threading.Event(), graph_runner.evaluate, ranks.run

    def told(node: Node, inputs: Any, opset: int) -> Any:
        found = evaluate(node, inputs, opset)
        if node.name == last:
            computed.set()
        return found

    def slow(collective: Collective, array: Array) -> Array:
        assert computed.wait(LONG), "nothing was computed meanwhile"
        return run(collective, array)

    monkeypatch.setattr(graph_runner, "evaluate", told)
    monkeypatch.setattr(ranks, "run", slow)
    for one, other in zip(graph_runner.run_graph(graph, feeds), wanted, strict=True):
        np.testing.assert_array_equal(one, other)


def test_an_operator_whose_result_is_read_at_once_stays_whole(ranks: Twins) -> None:
    """There is nothing to run beside it."""
    types = {"x": TensorType("float32", (3,))}
    together = Node("AllReduce", ("x",), ("y",), {"ranks": 2, "reduction": "sum"}, "a", COLLECTIVES)
    graph = infer(Graph("g", (together, Node("Relu", ("y",), ("z",), {}, "b")), ("x",), ("z",), types, {}, 21))
    assert overlap_collectives(graph).nodes == graph.nodes


@pytest.mark.parametrize("serves_threads", [True, False])
def test_what_goes_wrong_beside_is_told_where_the_result_is_read(
    ranks: Twins, monkeypatch: pytest.MonkeyPatch, serves_threads: bool
) -> None:
    """The same error; and the next operators work."""
    monkeypatch.setattr(ranks, "serves_threads", serves_threads)

    def run(collective: Collective, array: Array) -> Array:
        raise RankError("rank 1 ended before it reached AllReduce(sum)", "look at rank 1")

    with monkeypatch.context() as patch:
        patch.setattr(ranks, "run", run)
        graph = overlap_collectives(drawn(8))
        assert any(node.op_type == "AllReduceStart" for node in graph.nodes)
        with pytest.raises(RankError, match="rank 1 ended"):
            graph_runner.run_graph(graph, {"x": np.ones(3, np.float32)})
    assert ops.AllReduce()(Tensor(np.ones(2, np.float32))).asnumpy().tolist() == [2, 2]


def test_operators_of_a_program_come_behind_those_that_have_begun(
    ranks: Twins, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All ranks do the same in the same order, whichever thread asks."""
    free, run = threading.Event(), ranks.run

    def slow(collective: Collective, array: Array) -> Array:
        assert free.wait(LONG)
        return run(collective, array)

    monkeypatch.setattr(ranks, "run", slow)
    line = world._line()
    first = line.start(Collective("AllReduce", "float32", (1,), "sum"), np.ones(1, np.float32))
    threading.Timer(0.05, free.set).start()
    world.run("AllReduce", np.ones(2, np.float32), "sum")
    assert first.done()
    assert ranks.done == [(1,), (2,)]


def test_gradients_flow_back_through_what_ranks_do_together(ranks: Twins) -> None:
    """Of the sum over all ranks: what each rank's result gets, added up."""
    x, weight = (Tensor(np.array(each, np.float32)) for each in ([1, 2], [3, 5]))
    found = ms.grad(lambda a: (ops.AllReduce()(a) * weight).sum())(x)
    assert found.asnumpy().tolist() == [6, 10]
    with pytest.raises(UnsupportedOperatorError, match="its reduction is max"):
        ms.grad(ops.AllReduce(ops.ReduceOp.MAX))(x)


def test_sync_batch_norm_counts_all_ranks_elements(ranks: Twins, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twins have one mean; the running variance is that of twice as many elements; gradients are those of one batch."""
    monkeypatch.setattr(communication.GlobalComm, "INITED", True)
    array = np.random.default_rng(0).standard_normal((3, 2, 4, 4)).astype(np.float32)
    x, twice = Tensor(array), Tensor(np.concatenate([array, array]))
    weight = Tensor(np.random.default_rng(1).standard_normal(array.shape).astype(np.float32))
    both = Tensor(np.concatenate([weight.asnumpy()] * 2))
    sync, plain = nn.SyncBatchNorm(2).set_train(), nn.BatchNorm2d(2).set_train()
    _, found = ms.value_and_grad(lambda a: (sync(a) * weight).sum(), 0, sync.trainable_params())(x)
    _, wanted = ms.value_and_grad(lambda a: (plain(a) * both).sum(), 0, plain.trainable_params())(twice)
    np.testing.assert_allclose(found[0].asnumpy(), wanted[0].asnumpy()[:3], rtol=1e-4, atol=1e-5)
    for one, other in zip(found[1], wanted[1], strict=True):
        np.testing.assert_allclose(2 * one.asnumpy(), other.asnumpy(), rtol=1e-4, atol=1e-4)
    for one, other in ((sync.moving_mean, plain.moving_mean), (sync.moving_variance, plain.moving_variance)):
        np.testing.assert_allclose(one.asnumpy(), other.asnumpy(), rtol=1e-5)
    half = sync(Tensor(array.astype(np.float16)))
    assert half.dtype == ms.float16
