"""Operators and layers that are declared in a line: they are called, shown, copied and refused as written-out ones."""

from __future__ import annotations

import copy
import inspect
import pickle
import re

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import mint, nn, ops
from opbuild.mindspore.arguments import ArgumentTypeError, positive
from opbuild.mindspore.nn.declaration import cell
from opbuild.mindspore.ops.declaration import operator
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


def test_errors_of_arguments_name_the_line_of_the_program():
    """Those of constructors too, and once, also when they come from another process."""
    with pytest.raises(ValueError, match="PixelShuffle") as caught:
        nn.PixelShuffle(0)
    for error in (caught.value, pickle.loads(pickle.dumps(caught.value))):
        assert re.search(r"is 0 \(test_declaration\.py:\d+, in test_errors\w+\)$", error.message)


@pytest.mark.parametrize("made", [ops.MaxPool, lambda **given: ops.Conv3D(1, 1, **given)])
def test_primitives_refuse_other_formats_than_channels_first(made):
    """When they are made; those over three axes computed as if nothing had been said."""
    assert made(data_format="NCDHW")
    with pytest.raises(ValueError, match="data_format is 'NHWC'"):
        made(data_format="NHWC")


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


def test_functions_have_the_name_under_which_they_are_found():
    """It stands in what is said of wrong arguments; a row repeats it."""
    aliases = {
        name: function.__name__
        for name, function in vars(ops).items()
        if inspect.isfunction(function) and function.__name__ != name and not name.startswith("_")
    }
    assert all(getattr(ops, known, None) is getattr(ops, name) for name, known in aliases.items())
    with pytest.raises(TypeError, match=r"^hypot\(\) missing 1 required positional argument: 'other'"):
        ops.hypot(1.0)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda x: ops.diagflat([1.0]), "diagflat was given a list"),
        (lambda x: ops.diagflat(input=[1.0]), "diagflat was given a list"),
        (lambda x: ops.outer(x, 2.0), "outer was given a float"),
        (lambda x: ops.outer(vec2=x, input=2.0), "outer was given a float"),
        (lambda x: ops.deg2rad(90), "deg2rad was given a int"),
    ],
)
def test_rows_say_what_must_be_a_tensor(wrong, says):
    """By place and by name, with the name of the function."""
    with pytest.raises(ArgumentTypeError, match=says):
        wrong(ms.Tensor([1.0]))


def test_rows_of_floats_take_integers_as_float32():
    """As functions that were written out did."""
    assert ops.deg2rad(ms.Tensor([180])).dtype == ms.float32


def test_an_operator_has_the_keyword_only_arguments_of_its_function_as_attributes():
    """In their order and with their defaults; what is after the ``*`` is never an operand."""
    made = operator(_shifted)
    assert made.__name__ == "_shifted"
    assert made.__doc__ == "Return the sum.\n\nA primitive: ``_shifted(by, times=2)(operands)``."
    assert made(3)(10) == 16
    assert made(by=3, times=1)(10) == 13
    with pytest.raises(ArgumentTypeError, match="missing a required argument: 'by'"):
        made()


def _shifted(x, *, by, times=2):
    """Return the sum."""
    return x + by * times


def test_operators_that_are_called_as_functions_have_their_defaults():
    """``ops.Cdist(p=2.0)`` is ``ops.cdist``; names differ in case and underscores only."""
    for name, attributes, function in (("Cdist", "(p=2.0)", ops.cdist), ("BesselI0e", "()", ops.bessel_i0e),
                                       ("InTopK", "(k)", ops.intopk), ("Pack", "(axis=0)", ops.stack)):  # fmt: skip
        assert getattr(ops, name).__doc__.startswith(function.__doc__)
        assert f"{attributes}(operands)``." in getattr(ops, name).__doc__


@cell(checks={"low high": lambda low, high, what: positive(high - low, what)},
      made={"whole": lambda self: self.high - self.low})  # fmt: skip
def _Between(self, x, *, high, low=0):
    """Elements between two numbers."""
    return x.clip(low, high), self.whole


def test_a_layer_that_is_a_function_keeps_what_is_after_the_star():
    """Checks look at several arguments together; what is made of others is there when the layer is called."""
    assert str(inspect.signature(_Between)) == "(high, low=0)"
    assert str(inspect.signature(_Between.construct)) == "(self, x)"
    layer = _Between(3, low=1)
    x, whole = layer(ms.Tensor([0.0, 9.0]))
    assert (x.asnumpy().tolist(), whole) == ([1.0, 3.0], 2)
    assert (_Between.__doc__, _Between.__module__) == ("Elements between two numbers.", __name__)
    with pytest.raises(ValueError, match="low high of _Between is -1"):
        _Between(low=3, high=2)


def test_rows_are_called_as_the_variables_that_hold_them():
    """The first of them, in what is said of wrong arguments too; and none was left without a name."""
    for name in ("hypot", "unsqueeze", "HShrink", "ScatterNdAdd", "absolute", "Gelu"):
        assert getattr(ops, name).__name__ == {"absolute": "abs", "Gelu": "GeLU"}.get(name, name)
    assert (nn.LeakyReLU.__qualname__, nn.LeakyReLU.construct.__qualname__) == ("LeakyReLU", "LeakyReLU.construct")
    with pytest.raises(ArgumentTypeError, match=r"LeakyReLU\(\): "):
        nn.LeakyReLU(slope=1)
    with pytest.raises(TypeError, match="type_as was given a int"):
        ops.type_as(1, 2)
    made = [vars(ops)[name] for name in ops.__all__] + [vars(nn)[name] for name in nn.__all__]
    assert not [each for each in made if getattr(each, "__name__", "") in ("<lambda>", "function", "")]


def test_modules_give_out_what_they_define():
    """``from mindspore.ops import *`` has every operator, and nothing of what they are made with."""
    for module in (ops, nn, ms):
        assert len(set(module.__all__)) == len(module.__all__)
        assert all(hasattr(module, name) for name in module.__all__)
    assert {"matmul", "MatMul", "vander", "ScatterNdUpdate", "Print", "is_tensor"} <= set(ops.__all__)
    assert not {"need_tensor", "emit", "primitive", "spelled", "np"} & set(ops.__all__)
    assert {"Conv2d", "LSTMCell", "LBeta", "get_activation", "Cell"} <= set(nn.__all__)
    assert not {"layer", "Tensor"} & set(nn.__all__)
