"""Random searches of com.microsoft choose the very tokens that ONNX Runtime chooses.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import opbuild
from generated.random_searches import Array, Search, random_search
from opbuild.config import Config
from opbuild.errors import OpbuildError
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.tiers import spans
from support.walk_runner import WalkRunner

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []

BUILT = CAMPAIGN // 100 or 2


def written(search: Search, sequences: Array) -> int:
    """Return how many tokens a search wrote: ONNX Runtime leaves what follows the end of all as it was in memory."""
    if search.is_beams:
        return int(sequences.shape[-1])
    ends = (sequences[:, search.prompt :] == search.pad).all(axis=0)
    return int(search.prompt + (ends.argmax() + 1 if ends.any() else len(ends)))


def difference(search: Search, got: list[Array], wanted: tuple[Array, ...]) -> str:
    """Return how results differ from ONNX Runtime's; empty if they do not."""
    count = written(search, got[0])
    if got[0].shape != wanted[0].shape or not np.array_equal(got[0][..., :count], wanted[0][..., :count]):
        return f"it chose\n{got[0]}, not\n{wanted[0]}"
    for index, (one, other) in enumerate(zip(got[1:], wanted[1:], strict=True), 1):
        steps = len(one)
        if index == 2:  # of steps that there were not ONNX Runtime gives what was in memory
            steps = int((one != 0).any(axis=(1, 2, 3)).sum())
        if one.shape != other.shape or not np.allclose(one[:steps], other[:steps], rtol=1e-4, atol=1e-4):
            return f"scores of output {index} differ"
    return ""


def compared(seed: int) -> tuple[str, str]:
    """Return the outcome of the search of a seed, on the host."""
    search = random_search(seed)
    wanted = onnxruntime_outputs(search.model, search.feeds)
    try:
        said = difference(search, WalkRunner(search.model)(**search.feeds), wanted)
    except OpbuildError as error:
        return "foreign", f"{type(error).__name__}: {error}"
    return ("wrong", said) if said else ("right", "")


@pytest.mark.parametrize("seeds", spans(40, 12))
def test_searches_choose_what_onnx_runtime_chooses(seeds: range) -> None:
    """The likeliest token, one at random, or beams; all options, models as GPT-2 and as T5."""
    check_seeds("searches", compared, seeds)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(BUILT))
def test_searches_with_kernels_choose_what_onnx_runtime_chooses(seed: int, tmp_path: Path) -> None:
    """Built, and started from the images again."""
    search = random_search(SEED + 4000 + seed)
    wanted = onnxruntime_outputs(search.model, search.feeds)
    for _ in range(2):
        net = opbuild.compile(search.model, cache_path=tmp_path)
        assert not difference(search, net.run(None, search.feeds), wanted)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(BUILT))
def test_offline_searches_choose_what_onnx_runtime_chooses(seed: int, shared_store: Path, tmp_path: Path) -> None:
    """From a file, with the kernels that made-up values led to."""
    search = random_search(SEED + 5000 + seed)
    wanted = onnxruntime_outputs(search.model, search.feeds)
    shapes = {name: array.shape for name, array in search.feeds.items()}
    config = Config(cache_path=shared_store, workers=1, num_threads=1)
    net = opbuild.load(opbuild.export(search.model, tmp_path / "net", input_shapes=shapes, config=config))
    assert not difference(search, net.run(None, search.feeds), wanted)
