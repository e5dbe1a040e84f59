"""What Dynamo would hand over with open sizes, guessed from a program of fixed ones; nothing is compiled."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

import numpy as np  # noqa: E402

from opbuild.backend.evaluate import evaluate  # noqa: E402
from opbuild.frontend.torch.builder import build_graph  # noqa: E402
from opbuild.kernel.opdesc import FREE  # noqa: E402
from opbuild.torch.opened import opened  # noqa: E402
from support.graph_runner import run_graph  # noqa: E402
from support.torch_programs import program_of  # noqa: E402


def masked(x: torch.Tensor) -> torch.Tensor:
    """Hide later positions, with the batch and the length in one dimension for a while."""
    batch, length, width = x.shape
    places = torch.arange(length)
    flat = (x.reshape(batch * length, width) * 2).reshape(batch, length, width)
    return torch.where(places[:, None] >= places, flat @ flat.mT, 0.0) + torch.full((length,), 3.0)


def test_a_guess_computes_other_sizes_as_torch_does() -> None:
    """Batches, lengths and their product are sizes; the width of 4, which other numbers follow, is one too."""
    found = opened(program_of(masked, torch.rand(2, 5, 4)))
    assert found is not None
    assert found.declared(found.given[0]).shape == (FREE, FREE, FREE)
    for shape in ((2, 5, 4), (3, 7, 4), (2, 9, 6)):
        x = torch.rand(shape, generator=torch.Generator().manual_seed(5))
        graph = build_graph(found, [shape], (), evaluate)
        (result,) = run_graph(graph, {graph.inputs[0]: x.numpy()})
        np.testing.assert_allclose(result, masked(x).numpy(), rtol=1e-5)


def test_a_program_whose_constants_follow_no_size_needs_no_guess() -> None:
    """Its own kernels without limits serve any size."""
    assert opened(program_of(lambda x: x.reshape(6, 4) * torch.arange(8)[1:5], torch.rand(2, 3, 4))) is None


def test_an_axis_that_equals_an_extent_is_no_size() -> None:
    """Torch takes sizes in some arguments alone."""
    found = opened(program_of(lambda x: x.sum(2) + torch.arange(2), torch.rand(2, 2, 2)))
    assert found is not None
    targets = {step.target: step.args for step in found.steps}
    assert targets["aten.sum.dim_IntList"][1] == (2,)
    assert targets["aten.arange.default"][0] == (found.inputs[-1].name,)
