"""bfloat16 as an element type of MindSpore's face; numpy has it from ``ml_dtypes``."""
# ruff: noqa: F811 - a fixture is imported

from __future__ import annotations

import pickle
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Parameter, Tensor, nn, ops
from support.mindspore_host import graphs  # noqa: F401 - a fixture

BRAIN = np.dtype(ml_dtypes.bfloat16)


def test_the_type_is_one_of_mindspores():
    """Its names, its classes elsewhere, and that it survives pickling."""
    assert (str(ms.bfloat16), repr(ms.bfloat16)) == ("BFloat16", "mindspore.bfloat16")
    assert ms.dtype_to_nptype(ms.bfloat16) is ml_dtypes.bfloat16
    assert ms.dtype_to_pytype(ms.bfloat16) is float
    assert pickle.loads(pickle.dumps(ms.bfloat16)) == ms.bfloat16


def test_numpy_need_not_know_the_type():
    """The first name of it, also a text, tells numpy; nothing is imported for those who do not say it."""
    script = (
        "import sys, opbuild.mindspore as ms\n"
        "assert 'ml_dtypes' not in sys.modules\n"
        "print(ms.Tensor([1.5, 3.140625], 'bfloat16').asnumpy().dtype)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=300)
    assert done.stdout == "bfloat16\n"


def test_data_become_bfloat16_and_come_back():
    """Rounded to the nearest, ties to even; ``asnumpy`` has the type too."""
    numbers = [1.0, 1.00390625, 1.01171875, -3e38, np.inf]
    tensor = Tensor(numbers, ms.bfloat16)
    assert tensor.asnumpy().dtype == BRAIN
    assert tensor.tolist() == np.float32(numbers).astype(BRAIN).tolist()
    assert (tensor.itemsize, tensor.nbytes, tensor.is_floating_point()) == (2, 10, True)
    assert Tensor(tensor.asnumpy()).dtype == ms.bfloat16
    assert Tensor.from_numpy(tensor.asnumpy()).dtype == ms.bfloat16
    assert float(tensor[1]) == 1.0


def test_conversions_by_any_name(graphs):
    """``astype`` with the type or its name, ``bfloat16()``, ``ops.cast``; and back."""
    x = Tensor([1.5, 257.0])
    for converted in (x.astype(ms.bfloat16), x.astype("bfloat16"), x.bfloat16(), ops.cast(x, ms.bfloat16)):
        assert (converted.dtype, converted.tolist()) == (ms.bfloat16, [1.5, 256.0])
    assert x.bfloat16().float().asnumpy().dtype == np.float32
    assert x.bfloat16().astype(ms.int32).tolist() == [1, 256]


@pytest.mark.parametrize(
    ("other", "expected"),
    [(Tensor([2.0], ms.bfloat16), ms.bfloat16), (Tensor([2.0], ms.float16), ms.float32), (Tensor([2.0]), ms.float32),
     (Tensor([2.0], ms.float64), ms.float64), (Tensor([2]), ms.bfloat16), (Tensor([True]), ms.bfloat16),
     (2, ms.bfloat16), (0.5, ms.bfloat16), (True, ms.bfloat16)],
)  # fmt: skip
def test_the_common_type_holds_the_numbers_of_both(other, expected, graphs):
    """float16 and bfloat16 meet in float32, since neither holds the other's numbers; integers become bfloat16."""
    x = Tensor([3.0], ms.bfloat16)
    for result in (x * other, other * x):
        assert (result.dtype, result.tolist()) == (expected, [3.0 * float(other)])


def test_it_prints_as_float16_does():
    """Four digits behind the point, in rows as all floats."""
    assert repr(Tensor([1.5, -3], ms.bfloat16)) == (
        "Tensor(shape=[2], dtype=BFloat16, value= [ 1.5000e+00, -3.0000e+00])"
    )
    assert repr(Tensor(1.5, ms.bfloat16)) == "Tensor(shape=[], dtype=BFloat16, value= 1.5)"
    assert str(Tensor([1.5, -3], ms.bfloat16)) == "[1.5 -3]"


def test_limits_are_those_of_the_type(graphs):
    """The step from 1, and the greatest number, which infinity becomes."""
    x = Tensor([np.inf, -np.inf, np.nan], ms.bfloat16)
    greatest = float(ml_dtypes.finfo(BRAIN).max)
    assert ops.nan_to_num(x).tolist() == [greatest, -greatest, 0]
    assert ops.eps(x).tolist() == [2.0**-7] * 3


def test_what_numpy_computes_is_rounded_once():
    """Functions on data compute in float64 and return the argument's type."""
    x = Tensor([0.5, 0.25], ms.bfloat16)
    result = ops.erfinv(x)
    assert result.dtype == ms.bfloat16
    np.testing.assert_array_equal(result.asnumpy(), np.array([0.4769362762, 0.2253120550]).astype(BRAIN))


def test_a_layer_of_bfloat16_computes_in_it(graphs):
    """Parameters, the input and the result; the traced network has the type too."""
    layer = nn.Dense(3, 2, dtype=ms.bfloat16)
    assert {parameter.dtype for parameter in layer.get_parameters()} == {ms.bfloat16}
    layer.weight.set_data(Tensor(np.arange(6).reshape(2, 3), ms.bfloat16))
    result = layer(Tensor([[1, 1, 256]], ms.bfloat16))
    assert (result.dtype, result.tolist()) == (ms.bfloat16, [[512.0, 1288.0]])
    assert {graph.types[name].dtype for graph in graphs for name in graph.inputs} == {"bfloat16"}


@pytest.mark.parametrize("form", ["ckpt", "safetensors"])
def test_checkpoints_keep_it(form, tmp_path):
    """Written and read in both formats; other floats of the network are converted into."""
    values = np.arange(6).reshape(2, 3).astype(BRAIN)
    path = str(tmp_path / f"net.{form}")
    ms.save_checkpoint({"weight": Parameter(values)}, path, format=form)
    loaded = ms.load_checkpoint(path, format=form)
    assert loaded["weight"].asnumpy().dtype == BRAIN
    np.testing.assert_array_equal(loaded["weight"].asnumpy(), values)
    net = nn.Dense(3, 2, has_bias=False)
    ms.load_param_into_net(net, loaded)
    assert (net.weight.dtype, net.weight.tolist()) == (ms.float32, values.tolist())
