"""Indices out of range in whole networks: from C, beside other calls, in loops, in steps that change their states."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild import native
from opbuild.config import Config
from opbuild.errors import InvalidModelError, OutOfRangeError
from opbuild.graph.types import Graph, Node, TensorType

pytestmark = pytest.mark.usefixtures("kept_objects")

NATIVE = Path(native.__file__).parent
TABLE = np.arange(12, dtype=np.float32).reshape(3, 4)

_PROGRAM = """
#include <stdio.h>
#include "opbuild_om.h"

int main(int count, char **words) {
    char why[256] = "";
    const int64_t rows[][2] = {{1, 2}, {0, 3}, {-4, 0}, {-3, 2}};
    float out[8];
    opbuild_model *model = opbuild_open(words[count - 1], 2, 0, why, sizeof why);
    if (!model) return printf("%s\\n", why), 1;
    for (int i = 0; i < 4; i++) {
        const void *inputs[] = {rows[i]};
        void *outputs[] = {out};
        why[0] = 0;
        int result = opbuild_run(model, 0, inputs, outputs, why, sizeof why);
        printf("%d %s %g\\n", result, why, result ? 0 : out[0]);
    }
    opbuild_close(model);
    return 0;
}
"""


def model(nodes: Sequence[onnx.NodeProto], rows: int | str = 2, **constants: np.ndarray) -> onnx.ModelProto:
    """A network that reads ``i``, int64, and gives ``y``."""
    tensors = [numpy_helper.from_array(each, name) for name, each in {"table": TABLE, **constants}.items()]
    given = [helper.make_tensor_value_info("i", TensorProto.INT64, [rows])]
    graph = helper.make_graph(nodes, "network", given, [helper.make_empty_tensor_value_info("y")], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def rows_of_table() -> onnx.ModelProto:
    """Rows of a table."""
    return model([helper.make_node("Gather", ["table", "i"], ["y"], "rows")])


def test_a_c_program_is_told_which_index_is_out_of_range(shared_store: Path, tmp_path: Path) -> None:
    """The call returns -1 with node, index and range, and the next one is right."""
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler")
    config = Config(cache_path=shared_store, workers=2)
    path = opbuild.export(rows_of_table(), tmp_path / "rows", config=config)
    (tmp_path / "rows.c").write_text(_PROGRAM)
    sources = [str(tmp_path / "rows.c"), *map(str, sorted(NATIVE.glob("*.c")))]
    command = [compiler, "-O1", "-Wall", "-Wextra", "-Werror", f"-I{NATIVE}", *sources, "-o", str(tmp_path / "rows_of")]
    subprocess.run([*command, "-ldl", "-lpthread", "-lm"], check=True)
    done = subprocess.run([tmp_path / "rows_of", path], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.splitlines() == [
        "0  4",
        "-1 node rows: index 3 is out of range: it must be from -3 to 2 0",
        "-1 node rows: index -4 is out of range: it must be from -3 to 2 0",
        "0  0",
    ]


def test_callers_at_once_get_their_own_results_and_errors(shared_store: Path) -> None:
    """Some give indices that are out of range; each is told of its own, and no other sees it."""
    network = opbuild.compile(rows_of_table(), cache_path=shared_store)

    def call(number: int) -> bool:
        first = number % 3
        if number % 2:
            with pytest.raises(OutOfRangeError, match=f"index {number + 3} is"):
                network(np.array([first, number + 3]))
            return True
        return bool(np.array_equal(network(np.array([first, -1])), TABLE[[first, -1]]))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(call, range(400)))


def test_a_call_that_is_refused_gives_its_memory_back(shared_store: Path) -> None:
    """Errors are no reason to take new memory at each call, nor to hold what the caller gave."""
    nodes = [helper.make_node("Gather", ["table", "i"], ["t"], "rows"), helper.make_node("Softmax", ["t"], ["y"])]
    network = opbuild.compile(model(nodes), cache_path=shared_store)
    network(np.array([0, 1]))
    (binding,) = network._bindings.values()
    for _ in range(3):
        with pytest.raises(OutOfRangeError):
            network(np.array([0, 9]))
    assert len(binding.executor.blocks._free) == 1


@pytest.mark.parametrize("kind", ["Loop", "Scan"])
def test_a_turn_of_a_loop_ends_it(kind: str, shared_store: Path) -> None:
    """The error names the node of the body; what is given next is right."""
    out = [helper.make_tensor_value_info("row", TensorProto.FLOAT, [4])]
    each = helper.make_tensor_value_info("each", TensorProto.INT64, [])
    if kind == "Scan":
        inside = [helper.make_node("Gather", ["table", "each"], ["row"], "inside")]
        body = helper.make_graph(inside, "body", [each], out)
        nodes = [helper.make_node("Scan", ["i"], ["y"], "turns", body=body, num_scan_inputs=1)]
    else:
        given = [helper.make_tensor_value_info("n", TensorProto.INT64, []), each]
        given[1] = helper.make_tensor_value_info("go", TensorProto.BOOL, [])
        inside = [
            helper.make_node("Gather", ["i", "n"], ["each"], "of"),
            helper.make_node("Gather", ["table", "each"], ["row"], "inside"),
            helper.make_node("Identity", ["go"], ["on"]),
        ]
        on = helper.make_tensor_value_info("on", TensorProto.BOOL, [])
        body = helper.make_graph(inside, "body", given, [on, *out])
        count = helper.make_node("Size", ["i"], ["count"])
        nodes = [count, helper.make_node("Loop", ["count", ""], ["y"], "turns", body=body)]
    network = opbuild.compile(model(nodes), cache_path=shared_store)
    for _ in range(2):
        np.testing.assert_array_equal(network(np.array([2, -3])), TABLE[[2, -3]])
        with pytest.raises(OutOfRangeError, match=r"inside.*index 5 is out of range: it must be from -3 to 2"):
            network(np.array([2, 5]))


def test_a_step_that_changes_its_state_changes_nothing_if_an_index_is_out_of_range(shared_store: Path) -> None:
    """All or nothing: the error comes before the first state is written."""
    state, other = TensorType("float32", (3, 4)), TensorType("float32", (2, 4))
    nodes = (
        Node("Add", ("first", "one"), ("new_first",), {}, "add"),
        Node("Gather", ("second", "i"), ("rows",), {"axis": 0}, "rows"),
        Node("ScatterElements", ("second", "places", "rows"), ("new_second",), {"axis": 0, "reduction": "add"}, "put"),
        Node("ReduceSum", ("rows",), ("loss",), {"keepdims": 0}, "loss"),
    )
    types = {
        **dict.fromkeys(("first", "new_first", "second", "new_second"), state),
        "rows": other, "i": TensorType("int64", (2,)), "places": TensorType("int64", (2, 4)),
        "one": TensorType("float32", ()), "loss": TensorType("float32", ()),
    }  # fmt: skip
    inputs, outputs = ("first", "second", "i", "places"), ("new_first", "new_second", "loss")
    one = {"one": np.float32(1).reshape(())}
    graph = Graph("step", nodes, inputs, outputs, types, one, updates=((0, 0), (1, 1)))
    network = opbuild.compile_graph(graph, config=Config(cache_path=shared_store, workers=2))
    first, second = TABLE.copy(), TABLE.copy()
    good, bad = np.zeros((2, 4), np.int64), np.full((2, 4), 7)
    for given in ((np.array([0, 3]), good), (np.array([0, 1]), bad)):
        with pytest.raises(OutOfRangeError):
            network(first, second, *given)
        np.testing.assert_array_equal(first, TABLE)
        np.testing.assert_array_equal(second, TABLE)
    network(first, second, np.array([1, 2]), good)
    np.testing.assert_array_equal(first, TABLE + 1)
    np.testing.assert_array_equal(second[0], TABLE[0] + TABLE[1] + TABLE[2])


def test_a_known_index_is_compared_with_each_size(shared_store: Path) -> None:
    """One that some sizes have not is an error at these sizes alone, in the call that first has one."""
    nodes = [helper.make_node("Gather", ["i", "five"], ["y"], "fifth")]
    network = opbuild.compile(model(nodes, "n", five=np.array([5])), cache_path=shared_store)
    for count in (8, 6, 5, 9, 3):
        if count > 5:
            np.testing.assert_array_equal(network(np.arange(count)), [5])
            continue
        with pytest.raises(InvalidModelError, match="'fifth': index 5 is out of range"):
            network(np.arange(count))
