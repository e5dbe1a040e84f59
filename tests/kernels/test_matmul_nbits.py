"""MatMulNBits: weights of 2, 4 and 8 bits in blocks of one scale, which stay so in memory."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

from kernels.combinations import crossed
from kernels.hostile import Case
from kernels.small_models import families_of, model_of, program_of, run_model
from support.comparison import onnxruntime_outputs

MICROSOFT = "com.microsoft"
BLOCKS, ZEROS = (16, 32, 128, 256), ("", "uint8", "float32")


def weights(bits: int, k: int, n: int, block: int, zeros: str) -> dict[str, np.ndarray]:
    """Return random weights as the operator has them, with their scales and, unless empty, zero points of a type."""
    rng, blocks = np.random.default_rng(k), -(-k // block)
    known = {
        "w": rng.integers(0, 256, (n, blocks, block * bits // 8), np.uint8),
        "s": rng.uniform(0.005, 0.02, (n, blocks)).astype(np.float32),
    }
    if zeros == "uint8":
        known["z"] = rng.integers(0, 256, (n, -(-blocks * bits // 8)), np.uint8)
    elif zeros:
        known["z"] = rng.uniform(0, 2**bits, (n, blocks)).astype(np.float32)
    return known


def apart(packed: np.ndarray, bits: int) -> np.ndarray:
    """Return the numbers that lie in bytes, the first one in the lowest bits."""
    return (packed[..., None] >> np.arange(0, 8, bits, dtype=np.uint8)) & np.uint8((1 << bits) - 1)


def dequantized(known: dict[str, np.ndarray], bits: int, k: int) -> np.ndarray:
    """Return the weights as ``(K, N)`` in float64."""
    w, n = known["w"], known["w"].shape[0]
    own = known.get("g", np.arange(k) // (w.shape[2] * 8 // bits))
    zero = known.get("z", np.full(known["s"].shape, 2.0 ** (bits - 1)))
    if zero.dtype == np.uint8:
        zero = apart(zero, bits).reshape(n, -1)
    parts = apart(w, bits).reshape(n, -1)[:, :k].astype(np.float64)
    return ((parts - zero[:, own]) * known["s"][:, own]).T


HOSTILE = {
    "matmul_nbits": Case(
        "MatMulNBits",
        lambda n: (n, 40),
        lambda _: list(weights(4, 40, 70, 16, "uint8").values()),
        {"domain": MICROSOFT, "K": 40, "N": 70, "bits": 4, "block_size": 16},
    )
}


@pytest.mark.parametrize(("bits", "block", "zeros"), crossed(2, (2, 4, 8), BLOCKS, ZEROS))
def test_products_with_weights_of_few_bits(bits: int, block: int, zeros: str) -> None:
    """One row and several, a last block that is not full, a bias, every form of zero points."""
    for shape, k in (((1, 1), 200), ((2, 3), 77), ((1, 13), 77), ((2, 7), 200)):
        known = weights(bits, k, 70, block, zeros) | {"bias": np.linspace(-1, 1, 70, dtype=np.float32)}
        feeds = {"x": np.random.default_rng(1).standard_normal((*shape, k)).astype(np.float32)}
        names = ["x", "w", "s", "z" if zeros else "", "", "bias"]
        attrs = {"K": k, "N": 70, "bits": bits, "block_size": block}
        node = helper.make_node("MatMulNBits", names, ["y"], domain=MICROSOFT, **attrs)
        model = model_of([node], feeds, {"y": "float32"}, known)
        assert families_of(program_of(model)) == ["matmul_nbits"]
        expected = feeds["x"] @ dequantized(known, bits, k) + known["bias"]
        np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-5, 1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_the_place_of_a_row_in_its_tile_changes_no_bit(bits: int) -> None:
    """A row that two tiles share may be computed by either, and tasks have other tiles: ``run_model`` compares them."""
    known, draw = weights(bits, 512, 128, 32, ""), np.random.default_rng(1)
    attrs = {"K": 512, "N": 128, "bits": bits, "block_size": 32}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    for rows in (5, 6, 7):
        x = draw.standard_normal((rows, 512)).astype(np.float32)
        found = run_model(model_of([node], {"x": x}, {"y": "float32"}, known), {"x": x})["y"]
        np.testing.assert_allclose(found, x @ dequantized(known, bits, 512), 1e-4, 1e-4)


@pytest.mark.parametrize("bits", [2, 4, 8])
def test_weights_are_read_as_onnx_runtime_reads_them(bits: int) -> None:
    """Which part of a byte comes first, and in which order blocks lie."""
    known = weights(bits, 128, 48, 32, "uint8")
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)}
    attrs = {"K": 128, "N": 48, "bits": bits, "block_size": 32}
    node = helper.make_node("MatMulNBits", ["x", "w", "s", "z"], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], feeds, {"y": "float32"}, known)
    (expected,) = onnxruntime_outputs(model, feeds, optimized=False)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 1e-4, 1e-4)


def test_halves_are_multiplied_in_float32() -> None:
    """Rounded once, at the end."""
    known = weights(4, 64, 40, 32, "")
    known["s"] = known["s"].astype(np.float16)
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 64)).astype(np.float16)}
    attrs = {"K": 64, "N": 40, "bits": 4, "block_size": 32}
    node = helper.make_node("MatMulNBits", ["x", "w", "s"], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], feeds, {"y": "float16"}, known)
    expected = feeds["x"] @ dequantized(known, 4, 64)
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, 2e-3, 2e-3)


@pytest.mark.parametrize("zeros", ZEROS)
@pytest.mark.parametrize(("bits", "accuracy"), [(2, 0), (2, 4), (4, 0), (4, 4), (8, 4)])
def test_weights_whose_blocks_are_scattered_are_put_together(bits: int, accuracy: int, zeros: str) -> None:
    """``g_idx`` names the block of each row of the depth, of which the last one may be short."""
    k, draw = 96 if accuracy else 88, np.random.default_rng(1)
    known = weights(bits, k, 70, 16, zeros) | {"g": draw.permutation(np.arange(k) // 16).astype(np.int32)}
    x = draw.standard_normal((2, 3, k)).astype(np.float32)
    x = np.sign(x) if accuracy else x  # int8 holds these numbers
    attrs = {"K": k, "N": 70, "bits": bits, "block_size": 16, "accuracy_level": accuracy}
    names = ["x", "w", "s", "z" if zeros else "", "g"]
    node = helper.make_node("MatMulNBits", names, ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], {"x": x}, {"y": "float32"}, known)
    assert families_of(program_of(model)) == ["gather", "matmul_nbits_integer" if accuracy else "matmul_nbits"]
    expected = x @ dequantized(known, bits, k)
    if bits == 4 and zeros != "uint8":  # others ONNX Runtime computes otherwise than its own page says, or not at all
        (of_peer,) = onnxruntime_outputs(model, {"x": x}, optimized=False)
        np.testing.assert_allclose(of_peer, expected, 1e-5, 1e-5 * np.abs(expected).max())
    np.testing.assert_allclose(run_model(model, {"x": x})["y"], expected, 1e-5, 1e-5 * np.abs(expected).max())


def test_blocks_of_unequal_numbers_are_written_out() -> None:
    """A scale may be that of any number of rows of the depth."""
    known = weights(4, 64, 40, 16, "uint8") | {"g": np.array([0] * 40 + [3] * 24, np.int32)}
    x = np.random.default_rng(1).standard_normal((3, 64)).astype(np.float32)
    attrs = {"K": 64, "N": 40, "bits": 4, "block_size": 16}
    node = helper.make_node("MatMulNBits", ["x", *known], ["y"], domain=MICROSOFT, **attrs)
    model = model_of([node], {"x": x}, {"y": "float32"}, known)
    assert families_of(program_of(model)) == ["matmul"]
    expected = x @ dequantized(known, 4, 64)
    np.testing.assert_allclose(run_model(model, {"x": x})["y"], expected, 1e-5, 1e-5 * np.abs(expected).max())
