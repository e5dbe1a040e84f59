"""Operators and layers that are declared in a line: they are called, shown, copied and refused as written-out ones."""

from __future__ import annotations

import copy
import inspect
import pickle

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import mint, nn, ops
from opbuild.mindspore.arguments import ArgumentTypeError
from support.mindspore_host import graphs  # noqa: F401 - a fixture


def test_layers_show_what_they_take():
    """``help`` shows names and defaults, of the constructor and of ``construct``, under MindSpore's names."""
    assert str(inspect.signature(nn.LeakyReLU)) == "(alpha=0.2)"
    assert str(inspect.signature(nn.Softmax.construct)) == "(self, x)"
    assert str(inspect.signature(nn.MaxUnpool2d.construct)) == "(self, x, indices, output_size=None)"
    assert str(inspect.signature(mint.nn.GLU)) == "(dim=-1)"
    assert nn.LeakyReLU.__doc__ == "``x`` where it is not negative, ``alpha * x`` elsewhere."


def test_layers_take_inputs_and_attributes_by_name(graphs):  # noqa: F811
    """In either mode, with what was given to the constructor or assigned after it."""
    x = ms.Tensor(np.array([-2.0, 3.0], np.float32))
    layer = nn.LeakyReLU(alpha=0.5)
    assert layer(x=x).asnumpy().tolist() == [-1.0, 3.0]
    layer.alpha = 0.25
    assert layer(x).asnumpy().tolist() == [-0.5, 3.0]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: nn.ELU(beta=1.0),
        lambda: nn.Threshold(1.0),
        lambda: ops.TopK(1, 2),
        lambda: mint.nn.ELU(alpha=1.0, slope=2.0),
        lambda: nn.ELU().construct(),
    ],
)
def test_wrong_arguments_are_refused_with_those_that_are_taken(wrong):
    """As a ``TypeError``, which programs catch."""
    with pytest.raises(ArgumentTypeError, match="argument") as caught:
        wrong()
    assert "it takes (" in caught.value.hint


def test_values_are_checked_when_a_layer_is_made():
    """Not when it runs."""
    with pytest.raises(ValueError, match="upscale_factor of PixelShuffle is 0"):
        nn.PixelShuffle(0)
    with pytest.raises(ValueError, match="reduction of L1Loss is 'most'"):
        nn.L1Loss("most")


def test_declared_layers_are_copied_pickled_and_derived_from():
    """Their classes are found by name in the module that declares them."""
    for layer in (nn.LeakyReLU(0.3), nn.HuberLoss(delta=2.0), nn.ReflectionPad2d(1), nn.LPPool1d(2.0, 3)):
        for again in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert type(again) is type(layer)
            assert repr(again) == repr(layer)
    assert pickle.loads(pickle.dumps(nn.LeakyReLU(0.3))).alpha == 0.3
    own = type("Own", (nn.ELU,), {})
    assert own(alpha=2.0).alpha == 2.0


def test_a_function_under_another_name_takes_its_own_names_and_says_what_it_is():
    """``unsqueeze(input, dim)`` is ``expand_dims(input_x, axis)``."""
    x = ms.Tensor(np.zeros((2, 3), np.float32))
    assert ops.unsqueeze(input=x, dim=0).shape == (1, 2, 3)
    assert list(inspect.signature(ops.unsqueeze).parameters) == ["input", "dim"]
    assert ops.unsqueeze.__name__ == "unsqueeze"
    assert "extent 1 at ``dim``" in (ops.unsqueeze.__doc__ or "")
    assert mint.concat(tensors=(x, x), dim=1).shape == (2, 6)


def test_modules_give_out_what_they_define():
    """``from mindspore.ops import *`` has every operator, and nothing of what they are made with."""
    for module in (ops, nn, ms):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert {"matmul", "MatMul", "vander", "ScatterNdUpdate", "Print", "is_tensor"} <= set(ops.__all__)
    assert not {"need_tensor", "emit", "primitive", "spelled", "np"} & set(ops.__all__)
    assert {"Conv2d", "LSTMCell", "LBeta", "get_activation", "Cell"} <= set(nn.__all__)
    assert not {"layer", "Tensor"} & set(nn.__all__)
