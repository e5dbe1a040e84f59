"""Torch's attention under random masks, some of which hide all keys from a query: what torch computes."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import reset  # noqa: E402
from support.fuzzing import CAMPAIGN, SEED  # noqa: E402
from support.tiers import halved  # noqa: E402

MASKS = min(CAMPAIGN, 1000) or 25
"""Masks that are tried at each shape and type: kernels are built once."""

TOLERANCE = {torch.float32: 1e-5, torch.bfloat16: 2e-2}


def mask_of(draw: random.Random, rows: int, keys: int, as_bools: bool) -> torch.Tensor:
    """Return a mask over two heads of two batches, some of whose rows hide all keys, and some none or one."""
    made = torch.Generator().manual_seed(draw.randrange(2**31))
    mask = torch.rand(2, 2, rows, keys, generator=made) < draw.choice((0.02, 0.5, 0.98))
    for _ in range(draw.randrange(4)):
        mask[draw.randrange(2), :, draw.randrange(rows)] = draw.random() < 0.3
    if draw.random() < 0.1:
        mask[:] = False
    return mask if as_bools else torch.randn(mask.shape, generator=made).where(mask, torch.tensor(-torch.inf))


@torch.no_grad()
@halved
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("as_bools", [True, False], ids=["bools", "scores"])
@pytest.mark.parametrize(("rows", "keys"), [(3, 5), (65, 33)])
def test_attention_under_any_mask_is_torchs(
    shared_store: Path, rows: int, keys: int, as_bools: bool, dtype: Any
) -> None:
    """Hidden queries get 0, others the mean of what they see."""
    torch.compiler.reset()
    reset()
    options = {"cache_path": shared_store, "num_threads": 1}
    fast = torch.compile(scaled_dot_product_attention, backend=backend, options=options, dynamic=False)
    draw, made = random.Random(SEED), torch.Generator().manual_seed(SEED)
    query, key, value = (torch.randn(2, 2, extent, 32, generator=made).to(dtype) for extent in (rows, keys, keys))
    hidden = 0
    for _ in range(MASKS):
        mask = mask_of(draw, rows, keys, as_bools)
        mask = mask if as_bools else mask.to(dtype)
        expected = scaled_dot_product_attention(query, key, value, mask)
        found = fast(query, key, value, mask)
        torch.testing.assert_close(found, expected, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])
        hidden += int((expected == 0).all(-1).sum())
    assert hidden
