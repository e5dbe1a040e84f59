# ruff: noqa: F811 - a fixture is imported
"""Layers: their parameters' names and their results are those that MindSpore 2.10 gave, in both modes.

``tests/data/mindspore_layers.npz`` holds what MindSpore gave: the parity tests' worker writes it with ``layers``.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

import opbuild.mindspore as ms
from mindspore_host import graphs  # noqa: F401 - a fixture
from opbuild.mindspore import Tensor, mint, nn, ops

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS / "system"))

from mindspore_worker import all_layers, flat, layer  # noqa: E402 - in the folder of the system tests
from test_mindspore_parity import Results, difference  # noqa: E402

NAMES = {"ms": ms, "mint": mint, "nn": nn, "ops": ops, "np": np, "Tensor": Tensor}
EXPECTED = Results(TESTS / "data" / "mindspore_layers.npz")


@pytest.mark.parametrize("mode", [ms.PYNATIVE_MODE, ms.GRAPH_MODE])
def test_layers_give_what_mindspore_gave(graphs, mode):
    """The same parameters give the same results; a network is one graph in GRAPH_MODE."""
    ms.set_context(mode=mode)
    problems = []
    for case, given in all_layers().items():
        graphs.clear()
        found = flat(layer(case, given, NAMES), Tensor)
        expected = EXPECTED.leaves(case)
        assert len(found) == len(expected), case
        problems += [f"{case}: {text}" for pair in zip(expected, found, strict=True) if (text := difference(*pair))]
        if mode == ms.GRAPH_MODE and "  # " not in case:
            assert len(graphs) == 1, case
    assert not problems, "\n".join(problems)


def test_what_mindspore_gave_is_kept_for_every_layer():
    """A case without a stored result would be compared with nothing."""
    assert set(all_layers()) == set(EXPECTED.said)
    assert not [case for case, said in EXPECTED.said.items() if isinstance(said, dict)]


@pytest.mark.parametrize(
    ("layer_of_mint", "same", "shape"),
    [
        ("AvgPool1d(2)", "AvgPool1d(2, 2)", (1, 3, 8)),
        ("AvgPool2d(3, 2, 1)", "AvgPool2d(3, 2, 'pad', 1)", (1, 3, 8, 9)),
        ("MaxPool2d(2)", "MaxPool2d(2, 2)", (1, 3, 8, 9)),
        ("AdaptiveAvgPool2d((2, 3))", "AdaptiveAvgPool2d((2, 3))", (1, 3, 8, 9)),
        ("AdaptiveMaxPool1d(4)", "AdaptiveMaxPool1d(4)", (1, 3, 8)),
        ("ReflectionPad2d(1)", "ReflectionPad2d(1)", (1, 3, 4, 5)),
        ("ReplicationPad1d((2, 1))", "ReplicationPad1d((2, 1))", (1, 3, 4)),
        ("ZeroPad2d((1, 2, 0, 3))", "ZeroPad2d((1, 2, 0, 3))", (1, 3, 4, 5)),
        ("ConstantPad1d(2, 1.5)", "ConstantPad1d(2, 1.5)", (1, 3, 4)),
        ("UpsamplingNearest2d((6, 8))", "Upsample((6, 8))", (1, 2, 3, 4)),
        ("UpsamplingBilinear2d((6, 8))", "Upsample((6, 8), mode='bilinear', align_corners=True)", (1, 2, 3, 4)),
        ("GELU()", "GELU(approximate=False)", (3, 4)),
        ("GELU('tanh')", "GELU()", (3, 4)),
        ("ELU(0.5)", "ELU(0.5)", (3, 4)),
        ("LogSoftmax(0)", "LogSoftmax(0)", (3, 4)),
        ("Threshold(0.1, 2.0)", "Threshold(0.1, 2.0)", (3, 4)),
        ("LayerNorm((3, 4))", "LayerNorm((3, 4), 1, 1, epsilon=1e-5)", (2, 3, 4)),
        ("BatchNorm2d(3)", "BatchNorm2d(3)", (2, 3, 4, 5)),
    ],
)
def test_layers_of_mint_are_those_of_nn_with_other_arguments(graphs, layer_of_mint, same, shape):
    """Where MindSpore has no kernel for a CPU: as torch's layers, whose arguments these are."""
    x = Tensor(np.random.default_rng(0).standard_normal(shape).astype(np.float32))
    found = eval(f"mint.nn.{layer_of_mint}", NAMES)(x).asnumpy()
    assert np.allclose(found, eval(f"nn.{same}", NAMES)(x).asnumpy(), atol=1e-6)


def test_convolutions_of_mint_pad_by_axis_and_have_a_bias(graphs):
    """The weight's shape and the arguments are torch's."""
    x = Tensor(np.random.default_rng(0).standard_normal((1, 3, 8, 9)).astype(np.float32))
    new = mint.nn.Conv2d(3, 4, 3, stride=2, padding=(1, 2))
    old = nn.Conv2d(3, 4, 3, 2, "pad", (1, 1, 2, 2), has_bias=True)
    assert ms.load_param_into_net(old, new.parameters_dict()) == ([], [])
    assert np.allclose(new(x).asnumpy(), old(x).asnumpy(), atol=1e-6)
    assert mint.nn.ConvTranspose2d(3, 4, 2, stride=2)(x).shape == (1, 4, 16, 18)
    assert mint.nn.Embedding(5, 2, padding_idx=1)(Tensor([1])).asnumpy().tolist() == [[0, 0]]


def test_layers_that_mindspore_has_no_kernel_for_on_a_cpu(graphs):
    """Patches, similarity and losses by their definitions."""
    random = np.random.default_rng(0)
    x, y, z = (Tensor(random.standard_normal((4, 3)).astype(np.float32)) for _ in range(3))
    a, b, c = (item.asnumpy() for item in (x, y, z))

    expected = np.maximum(np.linalg.norm(a - b, axis=1) - np.linalg.norm(a - c, axis=1) + 1, 0).mean()
    assert np.isclose(nn.TripletMarginLoss()(x, y, z).asnumpy(), expected, atol=1e-4)
    signs = Tensor(np.where(b > 0, 1, -1).astype(np.float32))
    assert np.isclose(nn.SoftMarginLoss()(x, signs).asnumpy(), np.log1p(np.exp(-signs.asnumpy() * a)).mean(), atol=1e-5)
    image = Tensor(np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4))
    patches = nn.Unfold([1, 2, 2, 1], [1, 2, 2, 1], [1, 1, 1, 1])(image).asnumpy()
    assert patches.shape == (1, 4, 2, 2)
    assert patches[0, :, 0, 1].tolist() == [2, 3, 6, 7]
    photo = Tensor(random.random((1, 2, 12, 12)).astype(np.float32))
    assert np.isclose(nn.SSIM()(photo, photo).asnumpy(), 1)
    assert np.isclose(nn.PSNR()(photo, photo + 0.1).asnumpy(), 20, atol=1e-3)
    normal = nn.InstanceNorm2d(2)(photo).asnumpy()
    assert np.allclose(normal.mean((2, 3)), 0, atol=1e-5)
    assert np.allclose(normal.std((2, 3)), 1, atol=1e-3)
    assert nn.MatrixDiag()(x).asnumpy()[1].tolist() == np.diag(a[1]).tolist()
