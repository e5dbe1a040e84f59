"""Operators that users define: end to end, and what builds them again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import opbuild
from kernels.harness import run_program
from kernels.lowered import program_of
from opbuild.config import Config
from opbuild.errors import CompileError, ModelError, OptionError
from opbuild.frontend.user_operators import operator
from opbuild.graph import user_operators
from opbuild.graph.types import Node
from opbuild.kernel.entry import UNCHANGED
from opbuild.offline.plan import preview
from support.made_modules import write_and_import

SOURCE = '''
import halide as hl
import opbuild

SLOPE = 2.5

def positive(x):
    return hl.select(x > 0, x, hl.f32(0))

@opbuild.operator("Bent", domain="test")
def bent(x, y):
    """Says what it does."""
    return x * hl.f32(SLOPE) + positive(y)

@opbuild.operator("Blur3", domain="test", shape=lambda x, weight=1.0: (x.shape[0], x.shape[1] - 2))
def blur3(x, weight=1.0):
    out, i, j = hl.Func("blur3"), hl.Var("i"), hl.Var("j")
    out[i, j] = (x[i, j] + x[i + 1, j] + x[i + 2, j]) * hl.f32(weight)
    return out
'''


def model_of(nodes: Sequence[onnx.NodeProto], inputs: dict[str, np.ndarray]) -> onnx.ModelProto:
    """Return a model of float32 inputs whose output is ``o``."""
    given = [helper.make_tensor_value_info(name, 1, value.shape) for name, value in inputs.items()]
    graph = helper.make_graph(list(nodes), "g", given, [helper.make_tensor_value_info("o", 1, None)])
    domains = {"": 20, "test": 1, "other": 1}
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*each) for each in domains.items()])


def test_an_operator_fuses_runs_and_is_built_again_only_when_its_source_changes(tmp_path: Path) -> None:
    """A constant that it uses is part of it; a comment is not; the other operators of the network are reused."""
    x, y = np.linspace(-2, 2, 45, dtype="f4").reshape(5, 9), np.linspace(-1, 1, 9, dtype="f4")
    nodes = [
        helper.make_node("Add", ["x", "y"], ["a"]),
        helper.make_node("Bent", ["a", "y"], ["b"], domain="test"),
        helper.make_node("Relu", ["b"], ["c"]),
        helper.make_node("Blur3", ["c"], ["o"], domain="test", weight=0.5),
    ]
    model = model_of(nodes, {"x": x, "y": y})

    def run(source: str, name: str) -> tuple[float, list[tuple[str, str]]]:
        write_and_import(tmp_path, source, name)
        net = opbuild.compile(model, cache_path=tmp_path)
        slope = float(source.partition("SLOPE = ")[2].partition("\n")[0])
        c = np.maximum((x + y) * slope + np.maximum(y, 0), 0)
        error = np.abs(np.asarray(net({"x": x, "y": y})) - (c[:, :-2] + c[:, 1:-1] + c[:, 2:]) / 2).max()
        return float(error), [(o.name.split("_")[0], o.status) for o in net.report.operators]

    assert run(SOURCE, "first") == (pytest.approx(0, abs=1e-6), [("add", "built"), ("blur3", "built")])
    changed = SOURCE.replace("SLOPE = 2.5", "SLOPE = 3.5")
    assert run(changed, "second") == (pytest.approx(0, abs=1e-6), [("add", "built"), ("blur3", "reused")])
    error, operators = run("# a comment\n" + SOURCE.replace("Says", "Tells"), "third")
    assert error < 1e-6
    assert {status for _, status in operators} == {"reused"}


RENAMED = (
    ("def positive(x):\n    return hl.select(x > 0, x, ", "def positive(v):\n    return hl.select(v > 0, v, "),
    ("    out, i, j = ", "    made, i, j = "), ("    out[i, j]", "    made[i, j]"), ("return out", "return made"),
    ("SLOPE", "STEEPNESS"),
)  # fmt: skip
"""Other names of what the text of operators has, and of a constant that one uses."""


@pytest.mark.slow
@pytest.mark.parametrize("domain", ["test", "other"])
def test_another_text_that_defines_the_same_compiles_nothing(tmp_path: Path, domain: str) -> None:
    """It is said why, in the report, by ``explain`` and in ``.info``; of another domain it is another operator."""
    x, cache = np.linspace(-2, 2, 45, dtype="f4").reshape(5, 9), tmp_path / "cache"

    def model(domain: str) -> onnx.ModelProto:
        bent = helper.make_node("Bent", ["x", "x"], ["b"], domain=domain)
        return model_of([bent, helper.make_node("Blur3", ["b"], ["o"], domain=domain, weight=0.5)], {"x": x})

    write_and_import(tmp_path, SOURCE, "first")
    assert opbuild.compile(model("test"), cache_path=cache).report.built == 2
    edited = SOURCE
    for old, new in RENAMED:
        assert old in edited
        edited = edited.replace(old, new)
    user_operators._REGISTERED.clear()
    write_and_import(tmp_path, edited.replace('domain="test"', f'domain="{domain}"'), "second")
    shutil.copytree(cache, tmp_path / "copy")
    config = Config.from_environment(cache_path=tmp_path / "copy")
    explained = preview(model(domain), config=config, portable=False)
    built = opbuild.compile(model(domain), cache_path=cache).report
    for report in (explained, built):
        bent, blur = report.operators
        assert (bent.status, bent.reason) == ("reused", UNCHANGED)
        assert blur.status == ("reused" if domain == "test" else "built")
        assert blur.reason.startswith(UNCHANGED if domain == "test" else "attrs.domain test -> other since blur3_")
    infos = [json.loads(path.read_text()) for path in (cache / "rank_0" / "kernel_meta").glob("*.info")]
    origins = {each["op_info"]["Type"]: each["origin"] for each in infos if "origin" in each}
    assert set(origins) == ({"Bent", "Blur3"} if domain == "test" else {"Bent"})
    assert {each["reason"] for each in origins.values()} == {UNCHANGED}
    assert "SLOPE" in origins["Bent"]["source"]


def test_the_schedule_of_a_whole_definition_may_be_its_own(tmp_path: Path) -> None:
    """The schedule is called with the function and the parameters, and is part of the key."""
    source = SOURCE.replace(
        '@opbuild.operator("Blur3"',
        '''def mine(out, x):
    i, j = out.args()
    out.vectorize(i, 4, hl.TailStrategy.GuardWithIf).unroll(j, 2, hl.TailStrategy.GuardWithIf)

@opbuild.operator("Blur3"''',
    ).replace("x.shape[1] - 2))", "x.shape[1] - 2), schedule=mine)")
    write_and_import(tmp_path, source, "scheduled")
    x = np.arange(21, dtype="f4").reshape(3, 7)
    net = opbuild.compile(
        model_of([helper.make_node("Blur3", ["x"], ["o"], domain="test")], {"x": x}), cache_path=tmp_path
    )
    np.testing.assert_allclose(net(x), x[:, :-2] + x[:, 1:-1] + x[:, 2:])


def test_what_a_text_cannot_carry_is_refused_by_name(tmp_path: Path) -> None:
    """Enclosing variables, other modules and objects."""
    factor = 2.0

    def closed(x):  # type: ignore[no-untyped-def]
        return x * factor

    with pytest.raises(OptionError, match=r"closed uses variables of the function around it: factor"):
        operator("Closed", "test")(closed)
    with pytest.raises(OptionError, match=r"uses module os as os"):
        write_and_import(tmp_path, "import os\n" + SOURCE.replace("hl.f32(SLOPE)", "hl.f32(len(os.sep))"), "module")
    with pytest.raises(OptionError, match=r"uses SLOPE, a Fraction"):
        write_and_import(
            tmp_path,
            "from fractions import Fraction\n" + SOURCE.replace("SLOPE = 2.5", "SLOPE = Fraction(1)"),
            "object",
        )
    with pytest.raises(OptionError, match=r"domain 'opbuild'"):
        operator("Relu", "opbuild")
    write_and_import(tmp_path, SOURCE, "once")
    with pytest.raises(OptionError, match=r"Bent is already defined in domain test"):
        write_and_import(tmp_path, SOURCE.replace('domain="test"', 'domain="other"'), "twice")


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (("return x * hl.f32(SLOPE)", "return x * undefined"), CompileError, "undefined"),
        (("return out\n", "return 3\n"), CompileError, "returned int, not a defined halide.Func"),
        (("(x.shape[0], x.shape[1] - 2)", "x.shape[:1]"), CompileError, "its shape function promised float32 with 1"),
        (("(x.shape[0], x.shape[1] - 2)", "'many'"), OptionError, "returned 'many'"),
    ],
)
def test_mistakes_are_reported_with_the_operators_name(
    tmp_path: Path, change: tuple[str, str], error: type[Exception], words: str
) -> None:
    """A function that fails, or gives something else than promised."""
    write_and_import(tmp_path, SOURCE.replace(*change), "wrong")
    x = np.ones((3, 7), np.float32)
    kind = "Bent" if "SLOPE" in change[0] else "Blur3"
    inputs = ["x", "x"] if kind == "Bent" else ["x"]
    with pytest.raises(error, match=words):
        opbuild.compile(model_of([helper.make_node(kind, inputs, ["o"], domain="test")], {"x": x}), cache_path=tmp_path)


def test_a_wrong_number_of_inputs_is_the_models_fault(tmp_path: Path) -> None:
    """The function's own signature says how many there are."""
    write_and_import(tmp_path, SOURCE, "counted")
    model = model_of([helper.make_node("Bent", ["x"], ["o"], domain="test")], {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(ModelError, match="it takes 2 inputs, not 1"):
        opbuild.compile(model, cache_path=tmp_path)


def test_a_default_schedule_gives_the_same_in_any_number_of_tasks(tmp_path: Path) -> None:
    """Fewer rows than tasks, and more; no canary changes."""
    write_and_import(tmp_path, SOURCE, "blurring")
    for rows in (1, 3, 130):
        x = np.random.default_rng(rows).standard_normal((rows, 21)).astype("f4")
        program = program_of(
            [Node("Blur3", ("x",), ("o",), {}, "blur", "test")], {"x": x}, {"o": ("float32", (rows, 19))}
        )
        found = run_program(program, {"x": x}, (1, 2, 5, 64))["o"]
        np.testing.assert_allclose(found, x[:, :-2] + x[:, 1:-1] + x[:, 2:], rtol=1e-5, atol=1e-5)
