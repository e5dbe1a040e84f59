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
    parts = apart(w, bits).reshape(n, w.shape[1], -1)
    zero = known.get("z", np.float64(2 ** (bits - 1)))
    if zero.dtype == np.uint8:
        zero = apart(zero, bits).reshape(n, -1)[:, : w.shape[1]]
    zero = zero[..., None] if zero.ndim else zero
    whole = (parts.astype(np.float64) - zero) * known["s"][..., None]
    return whole.reshape(n, -1)[:, :k].T


HOSTILE = {
    "matmul_nbits": Case(
        "MatMulNBits",
        lambda n: (n, 40),
        lambda _: list(weights(4, 40, 70, 16, "uint8").values()),
        {"domain": MICROSOFT, "K": 40, "N": 70, "bits": 4, "block_size": 16},
    )
}


@pytest.mark.parametrize(("bits", "block", "zeros"), crossed(2, (4, 8), (16, 32, 128), ("", "uint8", "float32")))
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


def test_weights_of_4_bits_are_read_as_onnx_runtime_reads_them() -> None:
    """Which half of a byte comes first, and in which order blocks lie."""
    known = weights(4, 128, 48, 32, "uint8")
    feeds = {"x": np.random.default_rng(1).standard_normal((3, 128)).astype(np.float32)}
    attrs = {"K": 128, "N": 48, "bits": 4, "block_size": 32}
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
