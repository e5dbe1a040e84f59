"""The report of a model: its summary must be true whatever Dynamo handed over."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402

from opbuild.torch import report, reset  # noqa: E402
from opbuild.torch.report import Graph, Report, model_of  # noqa: E402
from opbuild.torch.uncompiled import Uncompiled, Watch  # noqa: E402


class Halves(nn.Module):
    """Two layers with a break between them."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        torch._dynamo.graph_break()
        return self.second(x)


class FirstBroken(nn.Module):
    """A break before anything is computed that a graph could hold."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        count = torch.nonzero(x).shape[0]
        return self.layer(x) + count


class Branch(nn.Module):
    """A graph of its own decides which one comes next."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if x.sum() > 0 else x


class Recurrent(nn.Module):
    """A layer that Dynamo does not take."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.LSTM(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x)[0]


def bessel(x: torch.Tensor) -> torch.Tensor:
    """Compute what has no rule."""
    return torch.special.bessel_j0(x)


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let parts be computed by torch, so that nothing is built; forget what other tests compiled."""
    monkeypatch.setattr("opbuild.torch.part.Part.__call__", lambda part, *args: part._eager(*args))
    torch.compiler.reset()
    reset()
    yield
    torch.compiler.reset()
    reset()


@torch.no_grad()
def called(model: Any, *inputs: torch.Tensor) -> Report:
    """Compile a model, call it with each of the inputs, and return its report."""
    fast = torch.compile(model, backend="opbuild")
    for each in inputs:
        torch.testing.assert_close(fast(each), model(each))
    return report(fast)


def test_a_model_in_one_graph_leaves_0_to_torch() -> None:
    """And says nothing else."""
    assert str(called(nn.Linear(4, 4), torch.rand(2, 4))) == "1 graph: 2 operators compiled (0 built), 0 left to torch"


def test_operators_without_a_rule_are_counted_and_named() -> None:
    """As a graph of them alone is."""
    found = str(called(bessel, torch.rand(2)))
    assert found.splitlines() == [
        "1 graph: 0 operators compiled (0 built), 1 left to torch",
        "  1 aten.special_bessel_j0.default: there is no rule for it",
    ]


def test_what_only_moves_elements_is_left_to_torch_also_in_a_module_without_weights() -> None:
    """Nothing beside it is."""
    assert "1 aten.view.default: it only moves elements, beside nothing" in str(
        called(nn.Flatten(), torch.rand(2, 3, 4))
    )


@pytest.mark.parametrize(("model", "graphs"), [(Halves, 2), (FirstBroken, 1)])
def test_a_graph_break_is_named_and_what_lies_there_is_not_said_to_be_compiled(model: Any, graphs: int) -> None:
    """Also where no graph ends at it."""
    summary, *lines = str(called(model(), torch.rand(2, 4))).splitlines()
    assert summary.startswith(f"{graphs} graph")
    assert summary.endswith("; left to torch: 0 of their operators, and what is in no graph")
    assert f"  graph break in forward (test_report.py:{model.forward.__code__.co_firstlineno}): " in lines[0]
    assert len(lines) == 1


def test_a_graph_that_decides_which_one_comes_next_belongs_to_the_model() -> None:
    """It holds none of its weights; and torch computes no operator there."""
    assert str(called(Branch(), torch.rand(2, 4))).startswith("2 graphs: 4 operators compiled (0 built), 0 left")
    assert len(called(Branch(), torch.rand(2, 4)).graphs) >= 1


@pytest.mark.parametrize(("model", "who"), [(nn.LSTM(4, 4), "a module of torch's"), (Recurrent(), "forward (test_")])
def test_a_model_that_dynamo_leaves_to_torch_is_said_to_be_not_compiled(model: nn.Module, who: str) -> None:
    """With its reason; what others leave is not told of a model with code of its own."""
    found = called(model, torch.rand(3, 2, 4))
    assert str(found).startswith("nothing is compiled: Dynamo handed over no graph\n")
    (only,) = found.uncompiled
    assert who in str(only)
    assert str(only).endswith("is not compiled: Attempted to wrap RNN, GRU, or LSTM")
    assert not report(Halves()).uncompiled
    assert report().uncompiled == (only,)


def test_calls_beyond_dynamos_limit_are_said_to_be_not_compiled() -> None:
    """They come with other ranks each time."""
    with torch._dynamo.config.patch(recompile_limit=2):
        found = called(Branch().layer, *[torch.rand(*[2] * rank, 4) for rank in range(1, 5)])
    assert len(found.graphs) == 2
    assert "further calls of a module of torch's are not compiled: Dynamo recompile limit exceeded" in str(found)


def test_a_model_that_was_not_called_has_nothing_compiled() -> None:
    """Nothing is counted."""
    assert str(report(torch.compile(Halves(), backend="opbuild"))).startswith("nothing is compiled: ")


def test_what_was_not_compiled_before_a_reset_is_forgotten() -> None:
    """Dynamo compiles the same anew, with other settings."""
    model = Recurrent()
    assert called(model, torch.rand(3, 2, 4)).uncompiled
    torch.compiler.reset()
    with torch._dynamo.config.patch(allow_rnn=True):
        assert not called(model, torch.rand(3, 2, 4)).uncompiled


def test_operators_of_a_part_that_could_not_be_built_are_counted_as_left_to_torch() -> None:
    """They were counted as compiled."""
    graph = Graph("made")
    graph.compiled.update({"aten.add.Tensor": 2, "aten.mul.Tensor": 1})
    graph.leave(["aten.add.Tensor", "aten.mul.Tensor"], "it could not be built")
    found = Report((graph,))
    assert str(found).splitlines()[0] == "1 graph: 1 operator compiled (0 built), 2 left to torch"
    assert found.partitioned["aten.mul.Tensor", "it could not be built"] == 1


def test_counts_that_are_read_stay_as_they_are_while_a_part_is_left_to_torch() -> None:
    """Another thread that added them up met a dictionary that changed its size."""
    graph = Graph("made")
    graph.compiled.update({"aten.add.Tensor": 2, "aten.mul.Tensor": 1})
    compiled, partitioned = iter(graph.compiled), iter(graph.partitioned)
    graph.leave(["aten.mul.Tensor"], "it could not be built")
    assert (len([*compiled]), [*partitioned]) == (2, [])
    assert (graph.compiled.total(), graph.partitioned.total()) == (2, 1)


def test_another_models_graph_without_weights_of_this_one_is_not_its() -> None:
    """Both have the same code."""
    one, other = Halves(), Halves()
    called(one, torch.rand(2, 4))
    assert len(report(one).graphs) == 2
    assert not report(other).graphs
    assert model_of(torch.compile(one, backend="opbuild")) == model_of(one)


def metrics(compile_id: str, end: int, **known: Any) -> Any:
    """Return metrics as Dynamo has them."""
    nothing = dict.fromkeys(("co_filename", "co_name", "co_firstlineno", "fail_reason", "restart_reasons"))
    return SimpleNamespace(**{**nothing, "is_forward": True, **known}, compile_id=compile_id, end_time_us=end)


def test_dynamos_metrics_are_read_once_and_counted_anew_after_its_reset() -> None:
    """It keeps a few of them, and numbers code from 0 again."""
    code = {"co_filename": "model.py", "co_name": "torch_dynamo_resume_in_forward_at_9", "co_firstlineno": 4}
    watch = Watch()
    rows = [
        metrics("0/0", 10),
        metrics("1/0", 20, **code, restart_reasons={"cannot trace f:\n\nIt is skipped\n  Explanation: much"}),
        metrics("1/1", 30, fail_reason="the limit"),
        metrics("2/0", 40, co_filename=torch.__file__, co_name="inner", fail_reason="no"),
    ]
    for _ in range(2):
        watch.look(rows)
        assert list(map(str, watch.found())) == [
            "graph break in forward (model.py:4): It is skipped",
            "further calls of forward (model.py:4) are not compiled: the limit",
            "a module of torch's is not compiled: no",
        ]
    watch.look([*rows[2:], metrics("0/0", 50, **code, fail_reason="an error")])
    assert watch.found() == (Uncompiled("model.py", 4, "forward", "all", "an error"),)
    watch.forget()
    assert not watch.found()
