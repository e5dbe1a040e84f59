"""MatMulNBits where the model allows activations of int8: exact sums of blocks of weights of 2, 4 and 8 bits."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from kernels.combinations import crossed
from kernels.hostile import Case
from kernels.small_models import model_of, program_of, run_model
from kernels.test_matmul_nbits import BLOCKS, MICROSOFT, ZEROS, dequantized, weights
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS, Level

BYTES = 4
"""The ``accuracy_level`` that allows a left operand of int8."""

LEVELS_HERE = [level for level in LEVELS if level.runs_on(host_level()) and level.name != "x86-64"]

HOSTILE = {
    "matmul_nbits_integer": Case(
        "MatMulNBits",
        lambda n: (n, 64),
        lambda _: list(weights(4, 64, 70, 32, "uint8").values()),
        pattern=(
            # Numbers that int8 holds: ONNX Runtime rounds as exactly as the kernel does.
            ("Sign", ["x"], "signs", {}),
            (
                "MatMulNBits",
                ["signs", "c0", "c1", "c2"],
                "y",
                {"domain": MICROSOFT, "K": 64, "N": 70, "bits": 4, "block_size": 32, "accuracy_level": BYTES},
            ),
        ),
    )
}


def of_bytes(
    x: np.ndarray, known: dict[str, np.ndarray], bits: int, block: int, level: Level | None = None
) -> np.ndarray:
    """Return a product that allows a left operand of int8, computed by the kernel."""
    k, n = x.shape[-1], known["w"].shape[0]
    attrs = {"K": k, "N": n, "bits": bits, "block_size": block, "accuracy_level": BYTES}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], {"x": x}, {"y": "float32"}, known)
    (call,) = program_of(model, level).calls
    assert call.desc.family == "matmul_nbits_integer"
    return run_model(model, {"x": x}, level)["y"]


def quantized(x: np.ndarray, block: int) -> np.ndarray:
    """Return the steps of a left operand, of which the greatest magnitude of a block has 127, times their size."""
    blocks = x.reshape(*x.shape[:-1], -1, block)
    greatest = np.maximum(np.abs(blocks).max(-1, keepdims=True), np.float32(1e-30))
    whole = np.rint(blocks * (np.float32(127) / greatest))
    return (whole * (greatest.astype(np.float64) / 127)).reshape(x.shape)


@pytest.mark.parametrize("level", LEVELS_HERE, ids=str)
@pytest.mark.parametrize(("bits", "block", "zeros"), crossed(2, (2, 4, 8), BLOCKS, ZEROS))
def test_a_left_operand_of_int8_is_multiplied_exactly(bits: int, block: int, zeros: str, level: Level) -> None:
    """Numbers that int8 holds, with the scale of their block, give the product as it is; one row to seven."""
    k, draw = 3 * block, np.random.default_rng(block)
    known = weights(bits, k, 70, block, zeros)
    for rows in range(1, 8):
        whole = draw.integers(-127, 128, (rows, 3, block))
        whole[..., -1] = 127 * draw.choice([-1, 1], (rows, 3))
        x = (whole * 2.0 ** draw.integers(-9, 9, (rows, 3, 1))).astype(np.float32).reshape(rows, k)
        expected = x @ dequantized(known, bits, k)
        np.testing.assert_allclose(of_bytes(x, known, bits, block, level), expected, 0, 2e-6 * np.abs(expected).max())


def test_blocks_of_a_left_operand_are_rounded_as_onnx_runtime_rounds_them() -> None:
    """To the nearest number of 127 steps of their greatest magnitude, whatever the others are."""
    known = weights(4, 256, 96, 32, "")
    x = np.random.default_rng(1).standard_normal((5, 256)).astype(np.float32)
    x[:, 64:96] *= 1000
    x[2, 32:64] = 0
    found, expected = of_bytes(x, known, 4, 32), x @ dequantized(known, 4, 256)
    like = quantized(x, 32) @ dequantized(known, 4, 256)
    assert np.abs(found - like).max() < 1e-5 * np.abs(expected).max()
    assert 1e-5 < np.abs(found - expected).max() / np.abs(expected).max() < 2e-2


@pytest.mark.parametrize("level", LEVELS_HERE, ids=str)
@pytest.mark.parametrize("accuracy", [0, BYTES])
def test_scales_that_float16_holds_lie_so_where_vectors_are_long(accuracy: int, level: Level) -> None:
    """They are a tenth of what a token reads, and the product is the same."""
    known = weights(4, 192, 128, 32, "uint8")
    known["s"] = known["s"].astype(np.float16).astype(np.float32)
    known["s"][0, :3] = 0, 65504, -(2**-14)
    attrs = {"K": 192, "N": 128, "bits": 4, "block_size": 32, "accuracy_level": accuracy}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    for rows in (1, 3, 7, 30):
        x = np.sign(np.random.default_rng(rows).standard_normal((rows, 192))).astype(np.float32)
        model = model_of([node], {"x": x}, {"y": "float32"}, known)
        (call,) = program_of(model, level).calls
        assert call.desc.inputs[2].dtype == ("float32" if level.name == "x86-64-v2" else "float16")
        expected = x @ dequantized(known, 4, 192)
        found = run_model(model, {"x": x}, level)["y"]
        assert (np.abs(found - expected) <= 2e-6 * np.abs(expected).max(0)).all()


@pytest.mark.parametrize("scale", [0.01, 65536, 2**-15, np.inf, np.nan])
def test_scales_stay_float32_where_float16_does_not_hold_one(scale: float) -> None:
    """One more digit, one too large or too small, one that is no number."""
    known = weights(4, 64, 40, 32, "")
    known["s"][:], known["s"][7, 1] = 0.5, scale
    attrs = {"K": 64, "N": 40, "bits": 4, "block_size": 32, "accuracy_level": BYTES}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    (call,) = program_of(model_of([node], {"x": np.zeros((2, 64), np.float32)}, {"y": "float32"}, known)).calls
    assert call.desc.inputs[2].dtype == "float32"


@pytest.mark.parametrize("level", LEVELS_HERE, ids=str)
def test_the_place_of_a_row_in_its_tile_changes_no_bit(level: Level) -> None:
    """A row that two tiles share may be computed by either, and tasks have other tiles: ``of_bytes`` compares them."""
    known = weights(4, 1024, 128, 32, "")
    x = np.random.default_rng(1).standard_normal((8, 1024)).astype(np.float32)
    whole = of_bytes(x, known, 4, 32, level)
    for first in range(1, 4):
        np.testing.assert_array_equal(of_bytes(x[first:], known, 4, 32, level), whole[first:])


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_block_that_int8_cannot_hold_makes_its_row_nan_and_no_other(bad: float) -> None:
    """A wrong number is never an answer."""
    known = weights(4, 96, 70, 32, "uint8")
    x = np.random.default_rng(1).standard_normal((7, 96)).astype(np.float32)
    clean = of_bytes(x, known, 4, 32)
    x[3, 40] = bad
    found = of_bytes(x, known, 4, 32)
    assert np.isnan(found[3]).all()
    np.testing.assert_array_equal(np.delete(found, 3, 0), np.delete(clean, 3, 0))


@pytest.mark.parametrize(("k", "block", "level"), [(77, 16, BYTES), (1024, 512, BYTES), (96, 32, 0), (96, 32, 1)])
def test_a_left_operand_stays_float32_where_int8_is_not_allowed_or_does_not_serve(
    k: int, block: int, level: int
) -> None:
    """A last block that is not full, blocks whose sums float32 does not hold, a model that does not allow it."""
    known = weights(4, k, 40, block, "")
    x = np.random.default_rng(1).standard_normal((3, k)).astype(np.float32)
    attrs = {"K": k, "N": 40, "bits": 4, "block_size": block, "accuracy_level": level}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], {"x": x}, {"y": "float32"}, known)
    (call,) = program_of(model).calls
    assert call.desc.family == "matmul_nbits"
    expected = x @ dequantized(known, 4, k)
    np.testing.assert_allclose(run_model(model, {"x": x})["y"], expected, 1e-5, 1e-5 * np.abs(expected).max())
