"""Encoders of ``nn.Transformer``, for which torch has operators of its own where no gradients are needed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch import nn  # noqa: E402

from opbuild.torch import report, reset  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_objects")

CAUSAL = torch.ones(6, 6, dtype=torch.bool).triu(1)
PADDING = torch.arange(6) >= torch.tensor([[6], [4]])
"""The second sequence has four words."""


@pytest.fixture
def compiled(shared_store: Path) -> Any:
    """Return a function that compiles a module with the store that tests share; other tests' code is forgotten."""
    torch.compiler.reset()
    reset()
    return lambda module: torch.compile(
        module, backend="opbuild", options={"cache_path": shared_store, "num_threads": 1}
    )


def encoder(*, nested: bool = False, **how: Any) -> nn.TransformerEncoder:
    """Return two layers with random weights, in evaluation."""
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True, **how)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested, mask_check=False).eval()


def words() -> torch.Tensor:
    """Return two sequences of six words."""
    return torch.rand(2, 6, 16, generator=torch.Generator().manual_seed(5))


@pytest.mark.parametrize("how", [{}, {"norm_first": True}, {"activation": "gelu"}], ids=str)
@pytest.mark.parametrize("masks", [{}, {"src_key_padding_mask": PADDING, "mask": CAUSAL, "is_causal": False}], ids=len)
def test_an_encoder_that_needs_no_gradients_is_compiled_whole(compiled: Any, how: Any, masks: Any) -> None:
    """Whichever its masks: torch's operator for a layer is written out."""
    model = encoder(**how)
    fast = compiled(model)
    for without_gradients in (torch.no_grad(), torch.inference_mode()):
        with without_gradients:
            torch.testing.assert_close(fast(words(), **masks), model(words(), **masks), rtol=1e-4, atol=1e-5)
    assert not report(fast).partitioned
    assert report(fast).compiled["aten._softmax.default"] == 4


@torch.no_grad()
def test_an_encoder_of_nested_tensors_gives_0_for_padding_as_eager_torch_does(compiled: Any) -> None:
    """With ``mask_check=False``; Dynamo gives it to torch as a whole, which the report does not hide."""
    model = encoder(nested=True)
    fast = compiled(model)
    found = fast(words(), src_key_padding_mask=PADDING)
    torch.testing.assert_close(found, model(words(), src_key_padding_mask=PADDING))
    assert not found[1, 4:].any()
    assert not report(fast).graphs


@torch.no_grad()
def test_attention_to_itself_is_compiled_whole(compiled: Any) -> None:
    """With its weights and without."""
    model = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    fast = compiled(model)
    for needs_weights in (True, False):
        found, expected = (
            each(*[words()] * 3, key_padding_mask=PADDING, need_weights=needs_weights) for each in (fast, model)
        )
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    assert not report(fast).partitioned


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_an_encoder_that_needs_gradients_has_those_of_eager_torch(compiled: Any, training: bool) -> None:
    """In both modes; there torch traces its layers."""
    model = encoder().train(training)
    fast, found = compiled(model), list[Any]()
    for each in (fast, model):
        model.zero_grad()
        each(words(), src_key_padding_mask=PADDING).square().sum().backward()
        found.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
    assert not report(fast).partitioned
