"""Names of MindSpore that opbuild does not have: what is said, and that nothing that asks for names stumbles."""

from __future__ import annotations

import copy
import doctest
import inspect
import pickle
from importlib import import_module

import pytest

import opbuild.mindspore as ms
from opbuild.cli.run_script import found_here
from opbuild.errors import ModelError, OptionError
from opbuild.mindspore import names, nn, ops
from opbuild.mindspore.names import content, kinds
from support.mindspore_host import graphs  # noqa: F401 - a fixture

MODULES = [ms, nn, ops, ms.initializer]


@pytest.mark.parametrize(
    ("ask", "says", "hint"),
    [
        (lambda: ops.reluu, "no mindspore.ops.reluu: MindSpore 2.10 does not list it either", "ops.relu"),
        (lambda: nn.relu, "no mindspore.nn.relu", "there is mindspore.ops.relu"),
        (lambda: ms.recompute, "for training, of which opbuild has a part", ""),
        (lambda: ops.InsertGradientOf, "for training", ""),
        (lambda: nn.LARS, "no mindspore.nn.LARS: it is for training", ""),
        (lambda: ops.csr_add, "sparse tensors", ""),
        (lambda: ms.mindrecord, "no mindspore.mindrecord: it reads data sets from files", ""),
        (lambda: ms.Tensor([1]).reshap, "no mindspore.Tensor.reshap", "Tensor.reshape"),
        (lambda: ms.Tensor.reshap, "no mindspore.Tensor.reshap", "Tensor.reshape"),
        (lambda: ms.Parameter.csr_to_dense, "no mindspore.Tensor.csr_to_dense", ""),
        (lambda: ms.common.initializer.HeNorma, "mindspore.common.initializer.HeNorma", "initializer.HeNormal"),
    ],
)  # fmt: skip
def test_a_missing_name_says_whose_it_is_and_what_is_nearest(ask, says, hint):
    """It was a bare AttributeError of 'opbuild.mindspore...', and scripts stopped there."""
    with pytest.raises(AttributeError) as caught:
        ask()
    assert isinstance(caught.value, ModelError)
    assert says in caught.value.message
    assert hint in caught.value.hint


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__)
def test_importing_a_missing_name_says_the_same(module):
    """Python replaces an AttributeError of a module by 'cannot import name'."""
    with pytest.raises(ImportError) as caught:
        exec(f"from {module.__name__} import no_such_name")
    assert "opbuild has no mindspore" in str(caught.value)
    assert isinstance(caught.value, ModelError)


@pytest.mark.parametrize(
    "owner",
    [*MODULES, ms.Tensor, ms.Parameter, ms.Tensor([1.0]), ms.Parameter([1.0])],
    ids=lambda owner: getattr(owner, "__name__", str(type(owner))),
)
def test_programs_may_still_ask_whether_a_name_is_there(owner):
    """hasattr, getattr with a default, dir, inspect and doctest go on."""
    assert not hasattr(owner, "no_such_name")
    assert getattr(owner, "no_such_name", 3) == 3
    assert "no_such_name" not in dir(owner)
    inspect.getmembers(owner)
    inspect.unwrap(owner)
    doctest.DocTestFinder().find(owner, name="x")


def test_tensors_are_still_copied_and_pickled():
    """Both ask a half-made tensor for names that it does not have."""
    for tensor in (ms.Tensor([1.0, 2.0]), ms.Parameter([1.0, 2.0], name="p")):
        for again in (copy.copy(tensor), copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
            assert again.asnumpy().tolist() == [1.0, 2.0]


def test_classes_of_tensors_are_still_pickled_and_subclassed():
    """They have a type of their own, which answers for names that they do not have."""
    for each in (ms.Tensor, ms.Parameter, ms.float_, ms.int_, ms.uint):
        assert pickle.loads(pickle.dumps(each)) is each
    assert issubclass(type("Own", (ms.Tensor,), {}), ms.Tensor)
    with pytest.raises(AttributeError, match=r"^type object 'Tensor' has no attribute '_half'$"):
        ms.Tensor._half  # noqa: B018


def test_errors_of_missing_names_are_pickled():
    """Worker processes hand them over."""
    error = names.missing_module("mindspore.dataset")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_errors_of_arguments_are_pickled_and_copied_with_one_line_of_the_program():
    """It was named a second time, which only ``args`` showed."""
    with pytest.raises(OptionError) as caught:
        nn.Dense(0, 1)
    assert caught.value.args[0].count("test_names.py") == 1
    for again in (copy.copy(caught.value), copy.deepcopy(caught.value), pickle.loads(pickle.dumps(caught.value))):
        assert again.args == caught.value.args


@pytest.mark.parametrize("owner", list(content()["names"]))
def test_public_names_are_there_or_get_a_sentence(owner):
    """Every twentieth of each kind."""
    if owner == "mindspore.Tensor":
        there = ms.Tensor([1.0])
    else:
        try:
            there = import_module(f"opbuild.{owner}".replace(".common", ""))
        except ModuleNotFoundError:
            return
    for name in [name for listed in kinds(owner).values() for name in listed[::20] if not hasattr(there, name)]:
        with pytest.raises(AttributeError, match=r"opbuild has no|has no attribute '_"):
            getattr(there, name)


IMPORTS = """
from mindspore.ops import operations as P, functional as F, composite as C
import mindspore.ops.operations as P2
from mindspore.ops.operations.nn_ops import ReLU
from mindspore.ops.function.math_func import add
from mindspore.nn import layer
from mindspore.nn.layer.conv import Conv2d
from mindspore.nn.loss.loss import MSELoss
from mindspore.train import Model, Accuracy, CheckpointConfig
from mindspore.train.callback import LossMonitor, ModelCheckpoint, TimeMonitor
from mindspore.train.metrics import Accuracy
from mindspore.train.loss_scale_manager import DynamicLossScaleManager
from mindspore import amp, dataset as ds
import mindspore.dataset.transforms as transforms
import mindspore.dataset.vision as vision
from mindspore.context import ParallelMode
from mindspore.train.model import Model
from mindspore.train.serialization import load_checkpoint
from mindspore.communication import management
from mindspore.communication.management import init
from mindspore.common.parameter import Parameter
"""


@pytest.mark.parametrize("line", IMPORTS.strip().splitlines())
def test_scripts_import_from_the_modules_that_mindspore_has(line):
    """``from mindspore.ops import operations as P`` said that MindSpore does not have it either."""
    with found_here("mindspore"):
        exec(line)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("from mindspore.nn.optim import LARS", "no mindspore.nn.LARS: it is for training"),
        ("from mindspore.train.callback import SummaryRecord", "no mindspore.train.SummaryRecord: it is for"),
        ("from mindspore import recompute", "no mindspore.recompute: it is for training"),
    ],
)
def test_importing_from_such_a_module_says_what_the_name_is_for(line, says):
    """Not that there is no such module."""
    with found_here("mindspore"), pytest.raises(ImportError, match=says):
        exec(line)


def test_no_module_is_the_nearest_name():
    """``ops.operations`` is ``ops`` itself."""
    with pytest.raises(AttributeError) as caught:
        ops.operation  # noqa: B018
    assert "operations" not in caught.value.hint


class Doubled(nn.Cell):
    def construct(self, x):
        return x * 2


def test_a_model_predicts(graphs):  # noqa: F811
    """Scripts that only predict stopped at ``from mindspore import Model``; flags of training are unset."""
    net = Doubled().set_train()
    model = ms.Model(net, loss_fn=nn.MSELoss(), metrics={"accuracy"})
    assert model.predict(ms.Tensor([1.5])).asnumpy().tolist() == [3.0]
    assert not net.training
    with pytest.raises(TypeError, match="Model was given a int"):
        ms.Model(3)
