"""``torch.compile(model, backend="opbuild")``: modules as torch computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import report, reset  # noqa: E402
from torch_modules import Encoder, ResNet, ready  # noqa: E402


@pytest.fixture(autouse=True)
def _fresh() -> None:
    """Forget what other tests compiled: Dynamo compiles a function a few times only."""
    torch.compiler.reset()
    reset()


@pytest.fixture
def compiled(shared_store: Path) -> Any:
    """Return what compiles a module with the store that tests share."""
    return lambda module, **how: torch.compile(
        module, backend=backend, options={"cache_path": shared_store, "num_threads": 1}, **how
    )


def images(*shape: int) -> torch.Tensor:
    """Return random images."""
    return torch.rand(shape, generator=torch.Generator().manual_seed(3))


def tokens(*shape: int) -> torch.Tensor:
    """Return random tokens."""
    return torch.randint(0, 100, shape, generator=torch.Generator().manual_seed(3))


@torch.no_grad()
def test_a_resnet_is_one_network_and_computes_what_torch_does(compiled: Any) -> None:
    """No operator is left to torch, and the weights are constants."""
    model = ready(ResNet())
    fast, x = compiled(model), images(1, 3, 32, 32)
    torch.testing.assert_close(fast(x), model(x), rtol=1e-4, atol=1e-5)
    found = report(fast)
    assert not found.partitioned
    assert found.compiled["aten.convolution.default"] == 6
    (graph,) = found.graphs
    assert len(graph.builds) == 1


@torch.no_grad()
def test_a_bert_is_one_network_and_computes_what_torch_does(compiled: Any) -> None:
    """Embeddings, attention with a mask, Gelu and normalizations have rules."""
    model = ready(Encoder())
    mask = torch.ones(2, 9, dtype=torch.int64)
    mask[1, 6:] = 0
    fast = compiled(model)
    torch.testing.assert_close(fast(tokens(2, 9), mask), model(tokens(2, 9), mask), rtol=1e-4, atol=1e-5)
    assert not report(fast).partitioned
