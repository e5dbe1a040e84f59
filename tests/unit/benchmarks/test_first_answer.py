"""First answers: which networks are asked, when an answer is right, what the pack lacks for it."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from kernels.drawn import architecture, exported, held_out
from support.exported_structures import write_all

sys.path.insert(0, str(Path(__file__).parents[3] / "benchmarks"))

answers = pytest.importorskip("first_answer", reason="the benchmarks' packages (extra bench) are not installed")
missing = pytest.importorskip("missing_kernels", reason="the benchmarks' packages (extra bench) are not installed")


def test_networks_to_answer_are_held_out_ones_of_different_architectures(tmp_path: Path) -> None:
    """So many of each family, the same ones however the folder is listed."""
    write_all(tmp_path)
    models = exported(tmp_path)
    chosen = answers.drawn(models, 2)
    assert all(held_out(name) for name in chosen)
    assert len({architecture(name) for name in chosen}) == len(chosen) == 2
    assert answers.drawn(dict(reversed(models.items())), 2) == chosen


def test_a_quantized_answer_is_right_if_it_is_as_near_to_the_network_before_as_onnx_runtimes() -> None:
    """Another rounding is no error; an answer that is farther off, or of another shape, is one."""
    before, theirs = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    assert not answers.wrong([-theirs], [theirs], lambda: ([theirs], [before]))
    assert answers.wrong([-theirs], [theirs])
    assert answers.wrong([-2 * theirs], [theirs], lambda: ([theirs], [before]))
    assert answers.wrong([theirs[0]], [theirs], lambda: ([theirs], [before]))


def test_a_quantized_answer_is_right_if_it_is_onnx_runtimes_exact_one() -> None:
    """Sums of its usual one saturate on some processors."""
    before, theirs = np.zeros((2, 2), np.float32), np.ones((2, 2), np.float32)
    assert not answers.wrong([5 * theirs], [theirs], lambda: ([5 * theirs], [before]))
    assert answers.wrong([6 * theirs], [theirs], lambda: ([5 * theirs], [before]))


def test_the_aspect_is_named_that_the_nearest_kernel_of_the_pack_lacks() -> None:
    """And not what follows from it: limits are those of a variant, strides those of a rank."""

    def kernel(dtype: str = "float32", rank: int = 1, width: int = 8, **attrs: object) -> dict[str, object]:
        operand = {"name": "x", "dtype": dtype, "format": "ND", "dims": [[-1, 1, width, -1, 1]] * rank}
        return {"attrs": attrs, "variant": {"width": width}, "inputs": [operand], "outputs": [operand]}

    packed = [missing.aspects(kernel(expression="neg")), missing.aspects(kernel(rank=2, expression="abs"))]
    assert missing.cause(kernel(expression="exp"), packed) == "expression"
    assert missing.cause(kernel(width=16, expression="neg"), packed) == "variant"
    assert missing.cause(kernel(rank=3, expression="abs"), packed) == "rank"
    assert missing.cause(kernel("int8", expression="exp"), packed) == "type + expression"
    assert missing.cause(kernel(), []) == "family"
