"""Every kernel family at hostile extents: 0, 1, below a tile and not a multiple of one, between canaries.

``make test`` takes some extents and one case of each family and layout, ``make test-all`` all cases. A campaign takes
all extents, and all cases instead of one of each family also with checked bounds, without limits and for a lower level.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from kernels import harness
from kernels.harness import kernel, run_program
from kernels.hostile import Case, image
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.host.evaluate import evaluate
from opbuild.families import catalogue
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Chooser, Options
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS, Level
from support.comparison import onnxruntime_output
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import few, slow, thinned
from support.without_limits import WithoutLimits

EXTENTS = (0, 1, 2, 3, 6, 7, 8, 9, 13, 15, 16, 17, 31, 33)
"""Tiles have 1, 2, 4, 6, 7, 8, 16 or 32 steps: these are below, at and beside multiples of each."""
CHOSEN = EXTENTS if CAMPAIGN else (0, 1, 3, 7, 8, 13, 17, 31, 33)
MOST_EXTENT, MOST_TASKS = 70, 64
"""Limits of what is drawn at random."""

LOWER = next(level for level in LEVELS if level.name == "x86-64-v3")

SETS = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]

DOUBLED = np.float32([1, 1, 2, 2])

HALVES = np.random.default_rng(5).standard_normal((20, 40)).astype(np.float16)

CASES = {
    "conv": Case("Conv", image(32), lambda _: [(48, 32, 1, 1), (48,)]),
    "conv channels": Case("Conv", lambda n: (1, 16 * n, 3, 4), lambda n: [(16 * n, 16 * n, 1, 1)], least=1),
    "conv_first": Case("Conv", image(3), lambda _: [(20, 3, 3, 3), (20,)], {"pads": [1, 1, 1, 1]}),
    "conv_depthwise": Case("Conv", image(20), lambda _: [(20, 1, 3, 3)], {"group": 20, "pads": [1, 1, 1, 1]}),
    "conv_grouped": Case("Conv", image(32), lambda _: [(64, 8, 1, 1)], {"group": 4}),
    "winograd": Case("Conv", image(16), lambda _: [(32, 16, 3, 3)], {"pads": [1, 1, 1, 1]}),
    "pool": Case(
        "MaxPool", image(20), attrs={"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}, least=1
    ),
    "global_pool": Case("GlobalAveragePool", image(20), least=1),
    "lrn": Case("LRN", image(20), attrs={"size": 5}),
    "copy": Case("Transpose", lambda n: (3, n, n + 1), attrs={"perm": [2, 0, 1]}),
    "elementwise": Case("Add", lambda n: (3, n, 5), lambda n: [(n, 1)]),
    "elementwise row": Case("Exp", lambda n: (n,)),
    "gather": Case("Gather", lambda n: (7, n), lambda _: [np.array([3, -1, 0])]),
    "resize": Case("Resize", lambda n: (1, 3, n, 5), lambda _: ["", DOUBLED], {"mode": "linear"}, least=1),
    "matmul": Case("MatMul", lambda n: (n, 20), lambda n: [(20, 2 * n)]),
    "matmul inner": Case("MatMul", lambda n: (5, n), lambda n: [(n, 40)]),
    "matmul narrow": Case("MatMul", lambda n: (n, 20), lambda _: [HALVES], dtype="float16", result="float16"),
    "gemv": Case("MatMul", lambda n: (n, 37), lambda _: [(37, 1)]),
    "softmax": Case("Softmax", lambda n: (3, n), attrs={"axis": -1}),
    "softmax outer": Case("Softmax", lambda n: (n + 1, n), attrs={"axis": 0}),
    "layer_norm": Case("LayerNormalization", lambda n: (5, n), lambda n: [(n,), (n,)], least=1),
    "reduce": Case("ReduceSum", lambda n: (5, n), lambda _: [np.array([1])]),
    "reduce outer": Case("ReduceMax", lambda n: (n + 1, n), lambda _: [np.array([0])]),
    "arg_reduce": Case("ArgMax", lambda n: (5, n), attrs={"axis": 1}, least=1, result="int64"),
}
"""By the family that serves them; a word behind it tells cases of one family apart."""

for _name in catalogue.names():  # a family may have its cases, ``HOSTILE``, in the test that is its own
    if (Path(__file__).parent / f"test_{_name}.py").exists():
        CASES |= getattr(import_module(f"kernels.test_{_name}"), "HOSTILE", {})

ELSEWHERE = {
    "user": "test_user_operators",
    "tree_ensemble": "test_tree_ensemble and generated/test_random_trees",
    "shuffle": "test_channel_shuffle",
    "conv_weight_gradient": "its own test",
    "winograd_integer": "its own test: it is for levels without VNNI",
    "conv_weight_gradient_depthwise": "test_conv_weight_gradient",
    "weight_blocks": "test_run_time_weights",
    "to_blocked": "every case of images",
    "from_blocked": "every case of images",
}
"""Families without a case here, and what covers them."""


LAYOUTS = ("columns", "outer")
"""Words for what has another schedule than the rest of its family."""

EACH_FAMILY = [slow(name) if " " in name and not name.endswith(LAYOUTS) else name for name in CASES]
ONE_OF_EACH = [name for name in CASES if CAMPAIGN or " " not in name]


@pytest.mark.parametrize("name", EACH_FAMILY)
def test_a_family_is_right_and_writes_nothing_outside_at_hostile_extents(name: str) -> None:
    """Results equal ONNX Runtime's at every extent, a random one too; no canary around any buffer changes.

    Any number of tasks gives the same bytes, also many more than there are rows.
    """
    served, draw, least = set(), random.Random(f"{SEED} {name}"), CASES[name].least
    for extent in (*CHOSEN, *(draw.randint(1, MOST_EXTENT) for _ in range(CAMPAIGN // 20 + 1))):
        if extent >= least:
            counts = (1, *(draw.randint(2, MOST_TASKS) for _ in range(2)), MOST_TASKS)
            served |= _check(CASES[name], extent, counts=counts)
    assert name.split(maxsplit=1)[0] in served


@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
@pytest.mark.parametrize("name", few(ONE_OF_EACH, 5))
def test_code_for_a_lower_level_is_right(name: str) -> None:
    """Tiles and vectors for AVX2's registers, where the machine has larger ones too; no canary changes."""
    _check(CASES[name], 33, level=LOWER)


@pytest.mark.parametrize("name", few(CASES, 5))
def test_larger_calls_are_more_work(name: str) -> None:
    """The estimated work of a call grows with the extents, if less than they do where a row costs something too."""
    small, large = (
        sum(call.work for call in _lower(graph_of(CASES[name], extent)[0], None).calls if isinstance(call, KernelCall))
        for extent in (17, 170)
    )
    assert 1.5 * small < large


@pytest.mark.parametrize("name", few(ONE_OF_EACH, 3))
def test_a_familys_variant_without_limits_is_right_at_every_extent(name: str) -> None:
    """Whatever the extents are; no canary around any buffer changes."""
    for extent in CHOSEN:
        if extent >= CASES[name].least:
            _check(CASES[name], extent, WithoutLimits())


@pytest.mark.parametrize("name", few(thinned(ONE_OF_EACH, 2), 8))
def test_checked_bounds_raise_no_false_alarm(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiled with the debug option oom, each family runs where it may run, and is right."""
    monkeypatch.setattr(harness, "kernel", lambda desc, level: kernel(desc, _checked, level))
    _check(CASES[name], 17)


def _checked(desc: OpDesc, symbol: str, level: Level) -> bytes:
    return HalideCompiler.inspect(desc, symbol, level, ("oom",))[".o"]


def test_every_family_has_a_case() -> None:
    """A family that is added needs a case."""
    assert {name.split()[0] for name in CASES} | set(ELSEWHERE) == set(catalogue.names())


def _check(
    case: Case,
    extent: int,
    chooser: Chooser | None = None,
    counts: Sequence[int] = harness.TASKS,
    level: Level | None = None,
) -> set[str]:
    """Compare one extent, in several numbers of tasks, with ONNX Runtime; return the families that served it."""
    graph, model, x = graph_of(case, extent)
    result = graph.types["y"]
    expected = onnxruntime_output(model, {"x": x}) if result.size else np.zeros(result.shape, result.dtype)
    program = _lower(graph, chooser, level)
    families = {call.desc.family for call in program.calls if isinstance(call, KernelCall)}
    if _on_host(program):
        assert extent == 0, f"no kernel serves an extent of {extent}"
        return families
    found = run_program(program, {"x": x}, counts, level)["y"]
    largest = float(np.abs(expected).max()) if expected.size else 0.0
    step = 2e-3 if case.result == "float16" else 1e-5
    np.testing.assert_allclose(found, expected, rtol=step, atol=2 * step * largest, err_msg=f"extent {extent}")
    return families


def _lower(graph: Graph, chooser: Chooser | None, level: Level | None = None) -> Program:
    return lower(graph, level or host_level(), Options(chooser=chooser))


def graph_of(case: Case, extent: int) -> tuple[Graph, onnx.ModelProto, np.ndarray]:
    """Return a case's network for an extent, its model and an input."""
    model, x = _model(case, extent)
    return optimize(load_model(model).bind({}, evaluate), evaluate), model, x


def _on_host(program: Program) -> bool:
    return any(not isinstance(call, KernelCall) for call in program.calls)


def _model(case: Case, extent: int) -> tuple[onnx.ModelProto, np.ndarray]:
    rng = np.random.default_rng(extent)
    x = _drawn(rng, case.shape(extent), case.dtype)
    names, initializers = ["x"], []
    for index, constant in enumerate(case.constants(extent)):
        if isinstance(constant, str):
            names.append("")
            continue
        array = _drawn(rng, constant, case.dtype) if isinstance(constant, tuple) else np.asarray(constant)
        names.append(f"c{index}")
        initializers.append(numpy_helper.from_array(array, names[-1]))
    results = ["y", *(f"unread{number}" for number in range(1, case.outputs))]
    nodes = [helper.make_node(case.op_type, names, results, "node", **case.attrs)]
    if case.pattern:
        nodes = [helper.make_node(kind, read, [made], **attrs) for kind, read, made, attrs in case.pattern]
    kind, result = (helper.np_dtype_to_tensor_dtype(np.dtype(dtype)) for dtype in (case.dtype, case.result))
    graph = helper.make_graph(
        nodes,
        "one",
        [helper.make_tensor_value_info("x", kind, x.shape)],
        [helper.make_tensor_value_info("y", result, None)],
        initializers,
    )
    return helper.make_model(graph, opset_imports=SETS, ir_version=10), x


def _drawn(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return random numbers of a type: all that it has if they are integers."""
    if np.issubdtype(np.dtype(dtype), np.integer):
        return rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max, shape, dtype, endpoint=True)
    return rng.standard_normal(shape).astype(dtype)
