"""ONNX's own cases: what passed still passes, what passed on kernels alone still does, and nothing is wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from conformance.outcomes import COMPILED, HOST, RANDOM, REFUSED, WRONG
from conformance.run import GOLDEN, PAGE
from opbuild import onnx_backend
from opbuild.errors import InputError, OptionError
from support.fuzzing import CAMPAIGN
from support.tiers import slow

BETTER = {COMPILED: 0, HOST: 1, RANDOM: 1, REFUSED: 2, WRONG: 3}


SHARE = 3
"""Of the first cases of all operators ``make test`` takes one of so many, ``make test-all`` the others too."""

PARTS = [[]] if CAMPAIGN else [["--first", "--share", str(SHARE)], slow(["--first", "--others", str(SHARE)])]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("part", PARTS, ids=" ".join)
def test_no_case_of_onnx_becomes_worse_than_what_is_written_down(part: list[str], tmp_path: Path) -> None:
    """One case of each operator, all in a campaign: compiled stays compiled, passed stays passed, none is wrong."""
    written = json.loads(GOLDEN.read_text(encoding="utf-8"))
    script, result = Path(__file__).with_name("run.py"), tmp_path / "found.json"
    command = [sys.executable, str(script), "--json", str(result), "--cache", str(tmp_path), *part]
    subprocess.run(command, check=False, stdout=subprocess.DEVNULL, timeout=1500)
    found = json.loads(result.read_text(encoding="utf-8"))
    assert len(found) >= (150 // SHARE if part else sum(written["counts"].values())) >= 50
    worse = {
        name: each
        for name, each in found.items()
        if BETTER[each["state"]] > BETTER[written["not compiled"].get(name, COMPILED)]
    }
    assert worse == {}
    assert [name for name, each in found.items() if each["state"] == WRONG] == []


def test_the_page_of_the_documentation_shows_what_is_written_down() -> None:
    """The counts on the page are those of the golden file, and each case that does not pass is named."""
    written = json.loads(GOLDEN.read_text(encoding="utf-8"))
    text = PAGE.read_text(encoding="utf-8")
    for state, count in written["counts"].items():
        assert f"| {state} | {count} |" in text
    for name, state in written["not compiled"].items():
        assert state not in (REFUSED, WRONG) or f"`{name}`" in text


def _model(op_type: str = "Add") -> onnx.ModelProto:
    declared = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2]) for name in "abc"]
    graph = helper.make_graph([helper.make_node(op_type, ["a", "b"], ["c"])], "sum", declared[:2], declared[2:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])


def test_the_backend_runs_models_and_nodes_as_onnx_asks(tmp_path: Path) -> None:
    """Inputs come in order or by name, outputs can be had by index and by name."""
    a, b = np.float32([1, 2]), np.float32([3, 4])
    prepared = onnx_backend.prepare(_model(), cache_path=tmp_path)
    assert prepared.run([a, b])["c"].tolist() == prepared.run({"b": b, "a": a})[0].tolist() == [4, 6]
    assert onnx_backend.run_model(_model(), [a, b], cache_path=tmp_path).c.tolist() == [4, 6]
    node = helper.make_node("Mul", ["x", "x"], ["y"])
    assert onnx_backend.run_node(node, [a], cache_path=tmp_path)[0].tolist() == [1, 4]


def test_the_backend_says_which_device_and_how_many_inputs_it_takes(tmp_path: Path) -> None:
    """It has the CPU alone, and one array for each input."""
    assert onnx_backend.supports_device("CPU:0")
    assert not onnx_backend.supports_device("CUDA")
    with pytest.raises(OptionError, match="CUDA"):
        onnx_backend.prepare(_model(), "CUDA")
    with pytest.raises(InputError, match="1 array was given"):
        onnx_backend.prepare(_model(), cache_path=tmp_path).run([np.float32([1, 2])])
