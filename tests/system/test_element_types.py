"""Element types that numpy has by ``ml_dtypes``: initializers, inputs, outputs, images and offline models have them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild import native
from opbuild.config import Config
from opbuild.dtypes import ADDED, numpy_dtype, stored_bits
from opbuild.errors import InputError
from opbuild.graph.shape_rules import ONNX_DTYPES
from support.processes import environment

pytestmark = pytest.mark.usefixtures("kept_objects")

NUMBERS = {name: number for number, name in ONNX_DTYPES.items()}
SHAPE = (3, 5)


def codes(dtype: str, seed: int) -> Any:
    """Return random elements of a type, every code of its bits."""
    bits = stored_bits(dtype)
    drawn = np.random.default_rng(seed).integers(0, 2**bits, SHAPE).astype(f"u{max(bits, 8) // 8}")
    return drawn.view(numpy_dtype(dtype))


def tensors(dtype: str) -> list[TensorProto]:
    """Return a constant as raw bytes, and as the field of a tensor that holds such numbers."""
    value = codes(dtype, 1)
    raw = numpy_helper.from_array(value, f"raw_{dtype}")
    field = TensorProto(name=f"field_{dtype}", data_type=raw.data_type, dims=SHAPE)
    field.int32_data.extend(np.frombuffer(raw.raw_data, f"u{numpy_dtype(dtype).itemsize}").tolist())
    return [raw, field]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network with an input, two constants and an output of each type; it only moves them."""
    nodes, inputs, outputs, constants = [], [], [], []
    for dtype, number in ((dtype, NUMBERS[dtype]) for dtype in ADDED):
        constants += tensors(dtype)
        names = [f"x_{dtype}", f"raw_{dtype}", f"field_{dtype}"]
        nodes.append(helper.make_node("Concat", names, [f"all_{dtype}"], axis=0))
        nodes.append(helper.make_node("Transpose", [f"all_{dtype}"], [f"y_{dtype}"], perm=[1, 0]))
        inputs.append(helper.make_tensor_value_info(f"x_{dtype}", number, SHAPE))
        outputs.append(helper.make_tensor_value_info(f"y_{dtype}", number, None))
    graph = helper.make_graph(nodes, "types", inputs, outputs, constants)
    path = tmp_path_factory.mktemp("types") / "types.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)], ir_version=13), path)
    return path


def feeds() -> dict[str, Any]:
    """Return inputs of the network."""
    return {f"x_{dtype}": codes(dtype, 2) for dtype in ADDED}


def check(outputs: dict[str, Any]) -> None:
    """Compare the network's outputs, code by code."""
    for dtype in ADDED:
        expected = np.concatenate([codes(dtype, 2), codes(dtype, 1), codes(dtype, 1)]).T
        found = outputs[f"y_{dtype}"]
        assert found.dtype == expected.dtype
        assert np.ascontiguousarray(found).tobytes() == np.ascontiguousarray(expected).tobytes(), dtype


def test_every_type_comes_in_and_goes_out_as_its_array(path: Path, tmp_path: Path) -> None:
    """Packed initializers too; a second start, from the image, gives the same and no kernel runs on the host."""
    for _ in range(2):
        net = opbuild.compile(path, cache_path=tmp_path)
        check(net.run(feeds()))
        assert not net.report.host
        assert net.inputs[0].dtype == numpy_dtype("bfloat16")
    assert net.report.image


def test_tensors_in_files_beside_the_model_are_read(path: Path, tmp_path: Path) -> None:
    """Those of fewer than 8 bits are packed there as well."""
    model = onnx.load(path)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="data", size_threshold=0)
    check(opbuild.compile(tmp_path / "m.onnx", cache_path=tmp_path / "cache").run(feeds()))


def test_offline_models_hold_every_type_and_c_reads_their_names(path: Path, tmp_path: Path) -> None:
    """The types of inputs that have no number among Halide's have one of their own in the file."""
    written = opbuild.export(path, tmp_path / "types", config=Config(cache_path=tmp_path / "cache"))
    check(opbuild.load(written).run(feeds()))
    program = tmp_path / "names.c"
    program.write_text(
        """#include <stdio.h>
#include "opbuild_om.h"
int main(int count, char **words) {
    opbuild_model *model = opbuild_open(words[count - 1], 1, 0, NULL, 0);
    for (int i = 0; model && i < opbuild_inputs(model); i++)
        printf("%s %zu\\n", opbuild_input(model, 0, i).type, opbuild_input(model, 0, i).bytes);
    return !model;
}
"""
    )
    sources = [str(program), *map(str, sorted(Path(native.__file__).parent.glob("*.c")))]
    include = f"-I{Path(native.__file__).parent}"
    subprocess.run(["cc", include, *sources, "-o", str(tmp_path / "names"), "-ldl", "-lpthread", "-lm"], check=True)
    done = subprocess.run([tmp_path / "names", written], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [each for name, size in ADDED.items() for each in (name, str(15 * size))]


def test_a_network_without_such_types_starts_without_ml_dtypes(tmp_path: Path) -> None:
    """Importing it takes 6 ms, as much as a start."""
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "plain", info[:1], info[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)]), tmp_path / "m.onnx")
    opbuild.compile(tmp_path / "m.onnx", cache_path=tmp_path / "cache")
    code = (
        "import json, sys, numpy, opbuild\n"
        f"net = opbuild.compile({str(tmp_path / 'm.onnx')!r}, cache_path={str(tmp_path / 'cache')!r})\n"
        f"net(numpy.zeros({SHAPE}, 'float32'))\n"
        "print(json.dumps([net.report.image, 'ml_dtypes' in sys.modules]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [True, False]


def test_another_element_type_is_refused_by_its_name(path: Path, tmp_path: Path) -> None:
    """As for types that numpy has itself."""
    wrong = {**feeds(), "x_bfloat16": np.zeros(SHAPE, np.float32)}
    with pytest.raises(InputError, match=re.escape("element type float32, the network needs bfloat16")):
        opbuild.compile(path, cache_path=tmp_path).run(wrong)
