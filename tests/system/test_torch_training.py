"""``torch.compile(model, backend="opbuild")`` with gradients: modules train as torch trains them."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import part, report, reset  # noqa: E402
from opbuild.torch.tensors import to_tensor  # noqa: E402
from support.kept_kernels import SOURCE  # noqa: E402
from support.processes import environment  # noqa: E402
from support.torch_modules import Encoder, ResNet, ready  # noqa: E402
from support.until import until_built_behind  # noqa: E402

TOLERANCE = {"rtol": 1e-4, "atol": 1e-5}
"""Sums in another order differ by 1e-6 of their greatest term; a few steps make ten times that of it."""

pytestmark = pytest.mark.usefixtures("with_pack", "kept_objects")

Batch = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget what other tests compiled: Dynamo compiles a function a few times only."""
    torch.compiler.reset()
    reset()


@pytest.fixture
def compiled(shared_store: Path) -> Callable[..., Any]:
    """Return a function that compiles a function with the store that tests share."""
    options = {"cache_path": shared_store, "num_threads": 1}
    return lambda function: torch.compile(function, backend=backend, options=options)


def digits() -> nn.Module:
    """Return a network for images of digits."""
    return nn.Sequential(
        nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(4, 8, 3, groups=2), nn.GELU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 6 * 6, 10),
    )  # fmt: skip


def smooth() -> nn.Module:
    """Return a network for images whose gradients have no jumps."""
    return nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.GELU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(64, 5),
    )  # fmt: skip


def images(side: int, channels: int, batch: int = 4) -> Batch:
    """Return random images and their classes."""
    return torch.rand(batch, channels, side, side), torch.randint(0, 10, (batch,))


def tokens() -> Batch:
    """Return random tokens, and others to be predicted."""
    return torch.randint(0, 100, (2, 9)), torch.randint(0, 64, (2, 9))


def losses(
    model: nn.Module, batches: list[Batch], through: Callable[..., Any], optimizer: Callable[..., Any] = torch.optim.SGD
) -> list[float]:
    """Return the loss of each step of training, of which a function compiles the loss and the optimizer's step."""
    steps = optimizer(model.parameters(), lr=0.01)

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(model(x).flatten(0, -2), y.flatten())

    fast, step, found = through(loss), through(steps.step), []
    for x, y in batches:
        steps.zero_grad()
        value = fast(x, y)
        value.backward()
        step()
        found.append(value.item())
    return found


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function as it is."""
    return function


def check_trains_alike(
    model: nn.Module, batches: list[Batch], compiled: Callable[..., Any], optimizer: Callable[..., Any]
) -> None:
    """Train twice and compare losses, parameters and buffers; every operator is computed by opbuild."""
    other = copy.deepcopy(model)
    torch.testing.assert_close(
        losses(model, batches, compiled, optimizer), losses(other, batches, plain, optimizer), **TOLERANCE
    )
    torch.testing.assert_close(model.state_dict(), other.state_dict(), **TOLERANCE)
    found = report()
    assert not found.partitioned
    assert not any(graph.refrozen for graph in found.graphs)


def momentum(parameters: Any, lr: float) -> Any:
    """Return SGD with momentum."""
    return torch.optim.SGD(parameters, lr=lr, momentum=0.9, weight_decay=1e-3)


@pytest.mark.slow
def test_a_network_of_images_trains_as_torch_trains_it(compiled: Any) -> None:
    """Convolutions, pools of both kinds, an activation and a product; forward and backward are counted."""
    torch.manual_seed(1)
    check_trains_alike(digits(), [images(28, 1) for _ in range(3)], compiled, momentum)
    counts = report().compiled
    assert (counts["aten.convolution.default"], counts["aten.convolution_backward.default"]) == (2, 2)
    assert len(report().graphs[0].builds) == 2


def test_a_resnet_trains_as_torch_trains_it(compiled: Any) -> None:
    """Normalizations by the batch's statistics; the running ones are written where they are."""
    torch.manual_seed(1)
    check_trains_alike(ResNet(), [images(32, 3) for _ in range(3)], compiled, torch.optim.SGD)


@pytest.mark.slow
def test_a_bert_trains_as_torch_trains_it(compiled: Any) -> None:
    """Embeddings, whose rows get sums, attention and normalizations of rows."""
    torch.manual_seed(1)
    check_trains_alike(Encoder(1), [tokens() for _ in range(3)], compiled, torch.optim.SGD)


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, momentum, torch.optim.Adam, torch.optim.AdamW])
def test_an_optimizer_writes_parameters_and_its_state_in_place(
    optimizer: Any, compiled: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch does; gradients and state differ at each step, and are no constants. Then a step makes no tensor."""
    torch.manual_seed(1)
    ours = [nn.Parameter(torch.rand(3, 4)), nn.Parameter(torch.rand(5)), nn.Parameter(torch.rand(4, 8).T)]
    theirs = copy.deepcopy(ours)
    places = [each.data_ptr() for each in ours]
    first, second = optimizer(ours, lr=0.1), optimizer(theirs, lr=0.1)
    step, made = compiled(first.step), list[Any]()
    monkeypatch.setattr(part, "to_tensor", lambda *args: made.append(args) or to_tensor(*args))
    for number in range(4):
        made.clear()
        for one, other in zip(ours, theirs, strict=True):
            one.grad = torch.rand_like(one)
            other.grad = one.grad.clone()
        step()
        second.step()
        torch.testing.assert_close(ours, theirs)
        assert not made or number < 2  # the first one makes the state
    assert [each.data_ptr() for each in ours] == places
    assert not report().partitioned
    assert sum(graph.refrozen for graph in report().graphs) == 0


@pytest.mark.slow
def test_what_is_drawn_at_random_is_drawn_by_torch(compiled: Any) -> None:
    """So that a seed gives the same as without the back end."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.3), nn.Tanh(), nn.Linear(16, 16), nn.Dropout(0.5))
    fast, x, found = compiled(model), torch.rand(4, 8), []
    for each in (model, fast):
        torch.manual_seed(5)
        model.zero_grad()
        y = each(x)
        y.square().sum().backward()
        found.append([y, *(parameter.grad for parameter in model.parameters())])
    torch.testing.assert_close(found[1], found[0], **TOLERANCE)
    assert report(fast).partitioned == {("aten.native_dropout.default", "there is no rule for it"): 2}
    assert report(fast).compiled["aten.tanh.default"] == 1


@pytest.mark.slow
def test_gradients_of_what_has_no_rule_are_left_to_torch_and_counted(compiled: Any) -> None:
    """Forward and backward, between parts that opbuild computes."""

    def function(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.lgamma((x @ w).exp() + 1).sigmoid()

    x, w = torch.rand(3, 4), torch.rand(4, 5)
    fast, found = compiled(function), []
    for each in (function, fast):
        given = [one.clone().requires_grad_() for one in (x, w)]
        y = each(*given)
        found.append([y, *torch.autograd.grad(y.square().sum(), given)])
    torch.testing.assert_close(found[1], found[0], **TOLERANCE)
    counted = report(fast).partitioned
    assert set(counted) == {(f"aten.{name}.default", "there is no rule for it") for name in ("lgamma", "digamma")}
    assert report(fast).compiled["aten.mm.default"] == 3


class Tagger(nn.Module):
    """A recurrent layer in both directions, and classes of each step."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.layer = getattr(nn, kind)(6, 8, 2, bidirectional=True, batch_first=True)
        self.dense = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the logits of each step."""
        return self.dense(self.layer(x)[0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_a_recurrent_layer_trains_where_dynamo_allows_it(kind: str, compiled: Any) -> None:
    """Written out by steps, as torch hands it over for training; every operator is computed by opbuild."""
    torch.manual_seed(6)
    model = Tagger(kind)
    with torch._dynamo.config.patch(allow_rnn=True):
        batches = [(torch.rand(3, 5, 6), torch.randint(0, 10, (3, 5))) for _ in range(3)]
        check_trains_alike(model, batches, compiled, torch.optim.SGD)


@pytest.mark.slow
def test_what_is_kept_for_the_backward_pass_outlives_the_next_forward_pass(compiled: Any) -> None:
    """Two forward passes, then two backward ones: gradients add up."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 5), nn.SiLU(), nn.Linear(5, 4), nn.LogSoftmax(-1))
    fast, batches, found = compiled(model), torch.rand(2, 3, 6), []
    for each in (model, fast):
        model.zero_grad()
        results = [each(x) for x in batches]
        for y in results:
            y.square().mean().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(found[1], found[0], **TOLERANCE)
    assert not report(fast).partitioned


@pytest.mark.slow
def test_what_is_to_be_computed_again_is(compiled: Any) -> None:
    """A part under torch's checkpoint is in the backward graph once more."""
    torch.manual_seed(1)
    inner, outer = nn.Sequential(nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 6)), nn.Linear(6, 2)

    def function(x: torch.Tensor) -> torch.Tensor:
        return outer(checkpoint(inner, x, use_reentrant=False)).square().sum()

    x = torch.rand(3, 6)
    fast, found = compiled(function), []
    for each in (function, fast):
        given = x.clone().requires_grad_()
        found.append(torch.autograd.grad(each(given), [given, *inner.parameters(), *outer.parameters()]))
    torch.testing.assert_close(found[1], found[0], **TOLERANCE)
    assert report(fast).compiled["aten.tanh.default"] == 2


@pytest.mark.slow
def test_parts_that_are_computed_again_keep_less_for_the_backward_pass(compiled: Any) -> None:
    """Under torch's checkpoint four blocks keep what each began with; bytes that wait for the backward pass fall."""
    torch.manual_seed(1)
    blocks = nn.ModuleList(
        nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)) for _ in range(4)
    )
    own = {each.data_ptr() for each in blocks.parameters()}

    def kept(through: Callable[[nn.Module, torch.Tensor], torch.Tensor]) -> tuple[float, int]:
        def function(x: torch.Tensor) -> torch.Tensor:
            for block in blocks:
                x = x + through(block, x)
            return x.square().mean()

        found: list[torch.Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda each: found.append(each) or each, lambda each: each):
            loss = compiled(function)(torch.linspace(-1, 1, 32 * 16).reshape(32, 16))
        loss.backward()
        return loss.item(), sum(each.nbytes for each in found if each.data_ptr() not in own)

    loss, whole = kept(lambda block, x: block(x))
    same, less = kept(lambda block, x: checkpoint(block, x, use_reentrant=False))
    print(f"kept for the backward pass: {whole} bytes, {less} under checkpoint")
    assert same == pytest.approx(loss, rel=1e-6)
    assert 0 < less < whole / 2


@pytest.mark.slow
def test_a_module_that_was_trained_has_constants_again_without_gradients(compiled: Any) -> None:
    """Weights are read at each call of training; inference takes them as they are then."""
    torch.manual_seed(1)
    model, x = ready(smooth()), images(8, 2)[0]
    fast = compiled(model)
    fast(x).sum().backward()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.sub_(parameter.grad, alpha=1e-3)
        for _ in range(2):
            torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-4)
    training, inference = report(fast).graphs
    assert (len(training.builds), len(inference.builds)) == (2, 1)
    assert not report(fast).partitioned


def trained(store: str) -> tuple[list[float], list[int]]:
    """Train a network; return the losses, and how many operators of each graph were built."""
    torch.manual_seed(1)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    options = {"cache_path": store, "num_threads": 1}
    through = partial(torch.compile, backend=backend, options=options)
    found = losses(model, [images(8, 1) for _ in range(2)], through)
    return found, [graph.built for graph in report().graphs]


STARTED = "import json, sys; from test_torch_training import trained; print(json.dumps(trained(sys.argv[1])))"


@pytest.mark.slow
def test_another_process_builds_nothing_to_train_the_same_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forward, backward and the optimizer's step come from the store."""
    monkeypatch.setenv("OPBUILD_PACK", "0")
    first, built = trained(str(tmp_path))
    assert sum(built) > 5
    here = Path(__file__).parent
    place = environment(PYTHONPATH=os.pathsep.join(map(str, (here, here.parent, SOURCE))))
    command = [sys.executable, "-c", STARTED, str(tmp_path)]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=600, env=place)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == [first, [0] * len(built)]


@pytest.mark.slow
def test_another_batch_size_needs_few_other_kernels(tmp_path: Path) -> None:
    """Dynamo hands over open sizes, which are bound by numbers; gradients are near those of float64 at each.

    What is built then is what the first size computed otherwise.

    Activations and pools are smooth: at the threshold of a ReLU a rounding error decides whether a gradient passes.
    """
    torch.manual_seed(1)
    model = smooth()
    exact = copy.deepcopy(model).double()
    fast = torch.compile(model, backend=backend, options={"cache_path": tmp_path, "num_threads": 1})
    for size in (8, *torch.randperm(40)[:6].add(2).tolist()):
        x, found = images(8, 2, size)[0], []
        for each, given in ((exact, x.double()), (fast, x)):
            each.zero_grad()
            each(given).square().mean().backward()
            found.append([parameter.grad.float() for parameter in each.parameters()])
        torch.testing.assert_close(found[1], found[0], **TOLERANCE, msg=lambda said, size=size: f"batch {size}: {said}")
        until_built_behind()
    first, *others = report(fast).graphs
    assert first.built > 5
    assert others
    assert [each.built for each in others[1:]] == [0] * (len(others) - 1)
    assert others[0].built <= 2, "more than what the first size computed otherwise"
    assert not report(fast).partitioned
