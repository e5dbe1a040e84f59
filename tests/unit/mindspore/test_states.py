"""Parameters that steps change in place: whoever reads, writes, saves or loads them in between sees whole states."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.graph.types import Array, Graph
from opbuild.mindspore import Parameter, Tensor, execution, networks, nn
from opbuild.mindspore.parameter import data_of, in_use
from opbuild.runtime.reused import Lent
from support.graph_runner import run_graph
from support.mindspore_host import graphs  # noqa: F401 - a fixture

X, Y = (
    np.random.default_rng(seed).standard_normal(shape).astype(np.float32) for seed, shape in ((1, (6, 5)), (2, (6, 4)))
)


@pytest.fixture
def calls(graphs, monkeypatch) -> list[Callable[[], None]]:  # noqa: F811
    """Evaluate networks on the host, replace inputs as the runtime does; what is listed is run before, in each call."""
    listed = list[Callable[[], None]]()

    def build(graph: Graph) -> execution.Call:
        def call(arrays: Sequence[Array]) -> Sequence[Array]:
            results = list(run_graph(graph, dict(zip(graph.inputs, arrays, strict=True))))
            for function in listed:
                function()
            for output, given in graph.updates:
                arrays[given][...] = results[output]
                results[output] = arrays[given]
            return results

        return call

    monkeypatch.setattr(execution, "build", build)
    return listed


def layers(convolutions: bool) -> list[nn.Cell]:
    """Return the layer that two networks share, and one for each of them; weights of convolutions fill blocks."""
    if not convolutions:
        return [nn.Dense(*sizes) for sizes in ((5, 3), (3, 4), (3, 4))]
    shared = nn.SequentialCell(nn.Dense(5, 64), Images(), nn.Conv2d(16, 32, 3, pad_mode="same"))
    return [shared, *(nn.SequentialCell(nn.Conv2d(32, 16, 1), nn.Flatten(), nn.Dense(64, 4)) for _ in range(2))]


class Images(nn.Cell):
    """Rows as images of two by two."""

    def construct(self, x: Any) -> Any:
        """Return them."""
        return x.reshape(-1, 16, 2, 2)


class Two:
    """Two networks that share their first layer, each with an optimizer."""

    def __init__(self, convolutions: bool = False) -> None:
        random = np.random.default_rng(0)
        shared, *own = layers(convolutions)
        for cell in (shared, *own):
            for parameter in cell.get_parameters():
                parameter.set_data(Tensor(0.3 * random.standard_normal(parameter.shape).astype(np.float32)))
        self.nets = [nn.SequentialCell([shared, nn.Tanh(), each]) for each in own]
        made = (lambda p: nn.Momentum(p, 0.05, 0.9), lambda p: nn.Adam(p, 0.01))
        self.steps = [
            nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), make(net.trainable_params()))
            for net, make in zip(self.nets, made, strict=True)
        ]
        self.gradients = ms.value_and_grad(
            lambda x, y: nn.MSELoss()(self.nets[0](x), y), None, self.nets[0].trainable_params()
        )


def train(seed: int, folder: Path, convolutions: bool = False) -> list[Array]:
    """Take steps, read, write, save, load and evaluate in a random order; return all that was seen."""
    random, two = np.random.default_rng(seed), Two(convolutions)
    x, y = Tensor(X), Tensor(Y)
    seen, kept, files = list[Array](), list[tuple[Array, Array]](), list[str]()
    for number in range(40):
        which = int(random.integers(2))
        net, step = two.nets[which], two.steps[which]
        parameter = list(step.get_parameters())[int(random.integers(len(list(step.get_parameters()))))]
        match random.choice(
            ["step", "read", "write", "save", "load", "predict", "gradients", "assign"], p=[0.3] + [0.1] * 7
        ):
            case "step":
                seen.append(step(x, y).asnumpy().copy())
            case "read":
                array = parameter.asnumpy()
                kept.append((array, array.copy()))
            case "write":
                parameter.set_data(Tensor(np.full(parameter.shape, 0.01 * number, np.float32)))
            case "assign":
                ms.ops.assign(parameter, Tensor(np.full(parameter.shape, 0.02 * number, np.float32)))
                kept = [each for each in kept if each[0] is not data_of(parameter)]  # it writes where the array lies
            case "save":
                files.append(str(folder / f"{number}.ckpt"))
                ms.save_checkpoint(step, files[-1])
            case "load" if files:
                ms.load_param_into_net(step, ms.load_checkpoint(files[int(random.integers(len(files)))]))
            case "predict":
                seen.append(net(x).asnumpy().copy())
            case "gradients":
                seen += [each.asnumpy().copy() for each in two.gradients(x, y)[1]]
        assert all((array == copy).all() for array, copy in kept), f"what was read before action {number} has changed"
    return seen + [each.asnumpy().copy() for step in two.steps for each in step.get_parameters()]


@pytest.mark.slow
@pytest.mark.parametrize("convolutions", [False, True])
@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
@pytest.mark.parametrize("seed", range(6))
def test_training_in_place_is_training_by_exchange(seed, mode, convolutions, calls, tmp_path, monkeypatch) -> None:
    """The same bits in any order of steps, reads, writes, files and predictions; what was read stays as it was."""
    ms.set_context(mode=mode)
    found = train(seed, tmp_path, convolutions)
    monkeypatch.setattr(networks, "_updates", lambda *_: ())
    for one, other in zip(found, train(seed, tmp_path, convolutions), strict=True):
        np.testing.assert_array_equal(one, other)


def test_weights_lie_in_blocks_until_they_are_read(calls) -> None:
    """Shapes stay theirs; a copy, a pickled one and a tensor are plain, and the next step brings them there again."""
    two = Two(convolutions=True)
    weight = next(each for each in two.steps[0].trainable_params() if each.shape == (32, 16, 3, 3))
    before = weight.asnumpy().copy()
    readers = (
        weight.asnumpy,
        lambda: weight.clone().asnumpy(),
        lambda: pickle.loads(pickle.dumps(weight)).asnumpy(),
        lambda: Tensor(weight).asnumpy(),
        lambda: weight.value().asnumpy(),
    )
    for read in readers:
        two.steps[0](Tensor(X), Tensor(Y))
        assert data_of(weight).shape == (2, 1, 3, 3, 16, 16)
        assert (weight.shape, weight.size, weight.type.shape) == ((32, 16, 3, 3), 4608, (32, 16, 3, 3))
        found = read()
        assert data_of(weight).shape == found.shape == weight.shape
        assert (found != before).any()
        np.testing.assert_array_equal(found, weight.asnumpy())
        before = found.copy()


def test_weights_that_networks_read_in_turn_stay_plain(calls) -> None:
    """They would be brought into blocks and out of them by each call."""
    two = Two(convolutions=True)
    weight = next(each for each in two.steps[0].trainable_params() if each.shape == (32, 16, 3, 3))
    for _ in range(2):
        two.steps[0](Tensor(X), Tensor(Y))
        two.gradients(Tensor(X), Tensor(Y))
    two.steps[0](Tensor(X), Tensor(Y))
    assert data_of(weight).shape == weight.shape


def test_a_step_keeps_the_arrays_of_what_it_changes(calls) -> None:
    """As long as nobody has them; whoever has one keeps it, and the parameter goes on in another."""
    step = Two().steps[0]
    step(Tensor(X), Tensor(Y))
    first, *rest = step.trainable_params()
    before = [data_of(each) for each in rest]
    mine = first.asnumpy()
    step(Tensor(X), Tensor(Y))
    assert all(data_of(each) is array for each, array in zip(rest, before, strict=True))
    assert data_of(first) is not mine


def test_a_step_changes_large_parameters_where_outputs_lie(calls) -> None:
    """Wherever they were made, read, or taken from: there vectors begin on cache lines, and pages are large."""
    net = nn.Dense(128, 256)
    weight, bias = net.trainable_params()
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum([weight, bias], 0.05, 0.9))
    for change in (lambda: None, weight.asnumpy, lambda: weight.set_data(Tensor(np.ones(weight.shape, np.float32)))):
        change()
        before = data_of(weight).copy()
        step(Tensor(np.ones((2, 128), np.float32)), Tensor(np.zeros((2, 256), np.float32)))
        assert isinstance(data_of(weight).base, Lent)
        assert (data_of(weight) != before).any()


def test_who_reads_in_another_thread_waits_for_the_step(calls) -> None:
    """It sees all of a step or nothing of it."""
    step, read = Two().steps[0], list[Array]()
    weight = step.trainable_params()[0]
    reader = threading.Thread(target=lambda: read.append(weight.asnumpy()))

    def while_it_runs() -> None:
        reader.start()
        reader.join(0.1)
        assert not read

    calls.append(while_it_runs)
    step(Tensor(X), Tensor(Y))
    reader.join()
    assert read[0] is data_of(weight)


def test_what_is_read_by_a_call_in_another_thread_is_not_changed_below_it(calls) -> None:
    """A network that only reads goes on with the elements that it began with."""
    two = Two()
    weight, used = two.nets[0].trainable_params()[0], list[tuple[Array, Array]]()

    def step_meanwhile() -> None:
        calls.clear()
        used.append((data_of(weight), data_of(weight).copy()))
        other = threading.Thread(target=lambda: two.steps[0](Tensor(X), Tensor(Y)))
        other.start()
        other.join()

    two.steps[0](Tensor(X), Tensor(Y))
    calls.append(step_meanwhile)
    two.gradients(Tensor(X), Tensor(Y))
    array, copy = used[0]
    assert (array == copy).all()
    assert (data_of(weight) != array).any()


def test_a_step_that_fails_changes_nothing(calls) -> None:
    """Neither elements nor who may read them."""
    step = Two().steps[1]
    step(Tensor(X), Tensor(Y))
    before = [each.asnumpy().copy() for each in step.get_parameters()]

    def fail() -> None:
        raise MemoryError

    calls.append(fail)
    with pytest.raises(MemoryError):
        step(Tensor(X), Tensor(Y))
    calls.clear()
    found = list[Array]()
    reader = threading.Thread(target=lambda: found.extend(each.asnumpy() for each in step.get_parameters()))
    reader.start()
    reader.join(10)
    assert all((one == other).all() for one, other in zip(before, found, strict=True))


def test_a_parameter_that_a_step_changed_can_be_pickled() -> None:
    """What guards its array is not part of it."""
    parameter: Any = pickle.loads(pickle.dumps(Parameter(Tensor(X), name="weight")))
    assert parameter.name == "weight"
    assert (parameter.asnumpy() == X).all()


def test_a_call_reads_what_was_there_when_it_began() -> None:
    """A step that begins before the call has taken its arrays changes another one."""
    weight = Parameter(np.zeros(3, np.float32))
    weight.take(np.zeros(3, np.float32))
    with in_use([weight], []) as read:
        with in_use([], [weight]) as changed:
            changed[id(weight)][:] = 1
        assert read[id(weight)].tolist() == [0, 0, 0]
    assert weight.asnumpy().tolist() == [1, 1, 1]
