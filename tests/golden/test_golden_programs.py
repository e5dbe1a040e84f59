"""What networks are lowered to is frozen: a change here is a change of kernels, views or calls, so it must be meant."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import OpbuildError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Array, Graph
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.mindspore import context, execution, nn, ops
from opbuild.mindspore.tensor import Tensor
from opbuild.program import Program
from opbuild.target.host import parse_level
from support.mindspore_calls import values
from support.networks import LIGHT, bert, light, mlp
from support.program_text import described, in_short

Golden = Callable[[str, Any], None]

LEVEL = parse_level("x86-64-linux-avx512_skylake")
OPTIONS = Options()


def lowered(graph: Graph) -> Program:
    """Return the program of a graph for a machine and a number of threads that do not depend on where this runs."""
    return lower(optimize(graph, evaluate), LEVEL, OPTIONS)


def of_model(model: onnx.ModelProto) -> Program:
    """Return the program of an ONNX model at the shapes that it declares."""
    return lowered(load_model(model).bind({}, evaluate))


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_network_is_lowered_to_the_same_program(name: str, golden: Golden) -> None:
    """Buffers, descriptors, calls and views of one of the nine networks of the onnx package are those of its file."""
    golden(f"programs/{name}", described(of_model(light(name, random_weights=False))))


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("mlp", mlp),
        ("bert_decomposed", lambda: bert(decomposed=True)),
        ("bert_operators", lambda: bert(decomposed=False)),
    ],
)
def test_a_network_of_products_is_lowered_to_the_same_program(
    name: str, model: Callable[[], onnx.ModelProto], golden: Golden
) -> None:
    """A perceptron, and an encoder whose normalisations are written out or operators; packed weights are compared."""
    golden(f"programs/{name}", described(of_model(model()), packed=True))


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Lower what MindSpore's face traces, list the programs, and return zeros in place of results."""
    found: list[list[str]] = []

    def build(graph: Graph) -> execution.Call:
        found.append(in_short(lowered(graph)))

        def call(_: Sequence[Array]) -> Sequence[Array]:
            return [np.zeros(graph.types[name].shape, graph.types[name].dtype) for name in graph.outputs]

        return call

    monkeypatch.setattr(execution, "build", build)
    monkeypatch.setattr(execution, "_EAGER", execution._EagerNetworks())
    monkeypatch.setattr(context, "_CONTEXT", context._Context())
    context.set_context(mode=context.GRAPH_MODE)
    return found


NAMES: dict[str, Any] = {"nn": nn, "ops": ops, "np": np, "Tensor": Tensor}


def test_the_mindspore_cases_are_lowered_to_the_same_programs(programs: list[list[str]], golden: Golden) -> None:
    """Each expression that is compared with the real MindSpore, traced as one cell, is lowered as its file says."""
    import opbuild.mindspore as ms
    from opbuild.mindspore import mint
    from support.mindspore_cases import all_cases

    names = {**NAMES, "ms": ms, "mint": mint}
    found: dict[str, list[str]] = {}
    for case, given in all_cases().items():
        function = eval(f"lambda {', '.join('xyz'[: len(given)])}: ({case.partition('  #')[0]})", names)
        cell = type("Case", (nn.Cell,), {"construct": lambda self, *args, f=function: f(*args)})()
        found[case] = _programs_of(cell, _tensors(case, given), programs)
    golden("programs/mindspore_cases", _grouped(found))


def test_the_mindspore_layers_are_lowered_to_the_same_programs(programs: list[list[str]], golden: Golden) -> None:
    """Each layer that is compared with the real MindSpore, with the same parameters, is lowered as its file says."""
    import opbuild.mindspore as ms
    from opbuild.mindspore import mint
    from support.mindspore_cases import LAYERS
    from support.mindspore_layers import LAYER_CALLS

    names = {**NAMES, "ms": ms, "mint": mint}
    found: dict[str, list[str]] = {}
    for case, given in {**{case: (shape,) for case, shape in LAYERS.items()}, **LAYER_CALLS}.items():
        made, _, call = case.partition("  # ")
        cell = eval(made, names)
        for parameter in cell.get_parameters():
            start = np.random.default_rng(zlib.crc32(case.encode())).uniform(0.5, 1.5, parameter.shape)
            parameter.set_data(Tensor(start.astype("float32")))
        cell.set_train(False)
        inputs = dict(zip("xyzw", _tensors(case, given), strict=False))
        call = call.partition(" #")[0] or f"net({', '.join(inputs)})"
        found[case] = _programs_of(lambda *_, c=call, n=cell, i=inputs: eval(c, {**names, **i, "net": n}), (), programs)
    golden("programs/mindspore_layers", _grouped(found))


def _tensors(case: str, given: Sequence[str]) -> tuple[Tensor, ...]:
    seed = zlib.crc32(case.encode())
    return tuple(Tensor(values(spec, seed + number)) for number, spec in enumerate(given))


def _programs_of(function: Callable[..., Any], inputs: Sequence[Tensor], programs: list[list[str]]) -> list[str]:
    """Return the lines of all programs that a call builds, or the error that it ends with."""
    programs.clear()
    try:
        function(*inputs)
    except OpbuildError as error:
        return [f"{type(error).__name__}: {error.message}"]
    return [line for lines in programs for line in lines]


def _grouped(found: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the cases with each distinct line once, under its checksum: many cases are lowered to equal calls."""
    numbers = {line: f"{zlib.crc32(line.encode()):08x}" for each in found.values() for line in each}
    cases = {case: " ".join(numbers[line] for line in each) for case, each in found.items()}
    return {"lines": {number: line for line, number in numbers.items()}, "cases": cases}
