"""Operators of com.microsoft that ONNX Runtime's optimizer and exporters write, against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx import TensorProto, helper

import opbuild
from generated.opened import record_of
from opbuild.backend.evaluate import evaluate
from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.types import Graph
from opbuild.lowering.context import Options
from opbuild.pipeline.segmented import Segments
from opbuild.pipeline.steps import optimize_graph
from opbuild.runtime.symbolic import numbers_of
from opbuild.target.level import LEVELS
from support.comparison import onnxruntime_outputs
from support.lowered import lower_open
from support.tiers import thinned

pytestmark = pytest.mark.usefixtures("kept_objects")

Array = npt.NDArray[Any]

RANDOM = np.random.default_rng(5)


class Case(NamedTuple):
    """One node: its type, its inputs (None where one is left out), its attributes, and how many outputs it has."""

    op_type: str
    inputs: Sequence[Array | None]
    attrs: dict[str, Any]
    outputs: Sequence[bool] = (True,)
    domain: str = "com.microsoft"


def f(*shape: int) -> Array:
    """Return normal floats."""
    return RANDOM.standard_normal(shape).astype(np.float32)


def i32(*values: Any) -> Array:
    """Return integers."""
    return np.array(values, np.int32)


def lengths(shape: tuple[int, ...]) -> Array:
    """Return a mask that hides the last key of the first batch."""
    mask = np.ones(shape, np.int32)
    mask[0, ..., -1] = 0
    return mask


ROWS = (f(2, 5, 12), f(2, 5, 12), f(12), f(12), f(12))
GQA = {"num_heads": 4, "kv_num_heads": 2}
TABLES, WIDE = ((np.cos(f(16, half)), np.sin(f(16, half))) for half in (4, 8))

CASES = [
    Case("FusedConv", (f(1, 3, 8, 8), f(4, 3, 3, 3), f(4)), {"activation": "Relu", "pads": [1, 1, 1, 1]}),
    Case("FusedConv", (f(1, 3, 8, 8), f(4, 3, 3, 3), f(4), f(1, 4, 6, 6)), {"activation": "Relu"}),
    Case("FusedConv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"activation": "LeakyRelu", "activation_params": [0.2]}),
    Case("FusedConv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"activation": "Clip", "activation_params": [-0.5, 0.5]}),
    Case("FusedConv", (f(1, 3, 8, 8), f(4, 3, 3, 3)), {"activation": "HardSigmoid", "activation_params": [0.3, 0.4]}),
    Case("FusedGemm", (f(3, 4), f(4, 5), f(5)), {"activation": "LeakyRelu", "activation_alpha": 0.3, "alpha": 0.5}),
    Case("FusedGemm", (f(4, 3), f(5, 4)), {"activation": "Tanh", "transA": 1, "transB": 1}),
    Case("FusedMatMul", (f(2, 3, 4), f(2, 5, 4)), {"transB": 1, "alpha": 0.25}),
    Case("FusedMatMul", (f(3, 2, 6, 4), f(3, 2, 6, 5)), {"transA": 1}),
    Case("FusedMatMul", (f(3, 2, 4), f(2, 4, 5)), {"transBatchA": 1}),
    Case("Gelu", (f(3, 7),), {}),
    Case("BiasGelu", (f(3, 7), f(7)), {}),
    Case("FastGelu", (f(3, 7), f(7)), {}),
    Case("FastGelu", (f(3, 7),), {}),
    Case("QuickGelu", (f(3, 7),), {"alpha": 1.5}),
    Case("SkipLayerNormalization", ROWS, {"epsilon": 1e-5}, (True, False, False, True)),
    Case("SkipLayerNormalization", (ROWS[0], ROWS[1][0], ROWS[2]), {}),
    Case("SkipSimplifiedLayerNormalization", ROWS[:4], {"epsilon": 1e-5}, (True, False, False, True)),
    Case("SimplifiedLayerNormalization", (f(2, 5, 12), f(12)), {"axis": -1, "epsilon": 1e-5}, domain=""),
    Case("LayerNormalization", (f(2, 5, 12), f(12), f(12)), {"axis": -1, "epsilon": 1e-5}, domain=""),
    Case(
        "EmbedLayerNormalization",
        (i32([1, 2, 3], [4, 0, 1]), i32([0, 1, 0], [1, 1, 0]), f(6, 8), f(5, 8), f(2, 8), f(8), f(8), lengths((2, 3))),
        {"mask_index_type": 1},
        (True, True),
    ),
    Case("EmbedLayerNormalization", (i32([1, 2, 3]), None, f(6, 8), f(5, 8), None, f(8), f(8)), {}, (True, True)),
    Case("RotaryEmbedding", (f(2, 3, 16), np.int64([[0, 1, 2], [4, 5, 6]]), *TABLES), {}),
    Case("RotaryEmbedding", (f(2, 2, 3, 8), np.int64([3]), *TABLES), {"interleaved": 1}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24)), {"num_heads": 2}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24), i32(3, 5)), {"num_heads": 2}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24), i32(3, 5, 0, 1)), {"num_heads": 2}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24), lengths((2, 5))), {"num_heads": 2}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24), lengths((2, 5, 5))), {"num_heads": 4, "scale": 0.3}),
    Case("Attention", (f(2, 5, 8), f(8, 20), f(20)), {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 4]}),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24)), {"num_heads": 2, "unidirectional": 1}, (True, True)),
    Case(
        "Attention",
        (f(2, 5, 8), f(8, 24), f(24), None, f(2, 2, 2, 3, 4)),
        {"num_heads": 2, "unidirectional": 1},
        (True, True),
    ),
    Case("Attention", (f(2, 5, 8), f(8, 24), f(24), None, None, f(1, 2, 5, 5)), {"num_heads": 2}),
    Case("MultiHeadAttention", (f(2, 5, 8), f(2, 7, 8), f(2, 7, 12)), {"num_heads": 4}),
    Case("MultiHeadAttention", (f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), f(24)), {"num_heads": 2, "unidirectional": 1}),
    Case("MultiHeadAttention", (f(2, 5, 8), f(2, 7, 8), f(2, 7, 8), None, lengths((2, 7))), {"num_heads": 2}),
    Case("MultiHeadAttention", (f(2, 5, 8), f(2, 2, 7, 4), f(2, 2, 7, 4)), {"num_heads": 2}),
    Case("MultiHeadAttention", (f(2, 5, 8), f(2, 7, 8), f(2, 7, 8)), {"num_heads": 2, "unidirectional": 1}),
    Case("MultiHeadAttention", (f(1, 40, 64), f(1, 40, 64), f(1, 40, 64)), {"num_heads": 2, "unidirectional": 1}),
    Case(
        "MultiHeadAttention",
        (f(2, 40, 64), f(2, 40, 64), f(2, 40, 64), None, i32(40, 30), None, f(2, 2, 9, 32), f(2, 2, 9, 32)),
        {"num_heads": 2, "unidirectional": 1},
        (True, True, True),
    ),
    Case(
        "MultiHeadAttention",
        (f(2, 5, 8), f(2, 5, 8), f(2, 5, 8), None, None, f(1, 2, 5, 8), f(2, 2, 3, 4), f(2, 2, 3, 4)),
        {"num_heads": 2},
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(2, 5, 32), f(2, 5, 16), f(2, 5, 16), None, None, i32(4, 2), i32(5)),
        GQA,
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(2, 50, 128), f(2, 50, 64), f(2, 50, 64), None, None, i32(49, 49), i32(50)),
        GQA,
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(2, 1, 32), f(2, 1, 16), f(2, 1, 16), f(2, 2, 9, 8), f(2, 2, 9, 8), i32(8, 8), i32(9)),
        GQA,
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(1, 30, 128), f(1, 30, 64), f(1, 30, 64), f(1, 2, 50, 32), f(1, 2, 50, 32), i32(49), i32(50)),
        GQA,
        (True, True, True),
    ),
    *(
        Case(
            "GroupQueryAttention",
            (f(2, n, 32), f(2, n, 16), f(2, n, 16), None, None, i32(n - 1, n - 1), i32(n), *[None] * 3, f(1, h, n, n)),
            GQA,
            (True, True, True),
        )
        for n, h in ((1, 4), (5, 1), (5, 4))
    ),
    Case(
        "GroupQueryAttention",
        (f(1, 5, 128), None, None, None, None, i32(4), i32(5), *WIDE),
        {**GQA, "do_rotary": 1, "local_window_size": 3, "softcap": 5.0},
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(1, 1, 64), f(1, 1, 32), f(1, 1, 32), f(1, 2, 6, 16), f(1, 2, 6, 16), i32(6), i32(7), *WIDE),
        {**GQA, "do_rotary": 1, "rotary_interleaved": 1},
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(1, 1, 32), f(1, 1, 16), f(1, 1, 16), f(1, 2, 9, 8), f(1, 2, 9, 8), i32(3), i32(4)),
        GQA,
        (True, True, True),
    ),
    Case(
        "GroupQueryAttention",
        (f(3, 1, 64), f(3, 1, 32), f(3, 1, 32), f(3, 2, 6, 16), f(3, 2, 6, 16), i32(6, 6, 6), i32(7), *WIDE),
        {**GQA, "do_rotary": 1},
        (True, True, True),
    ),
]


KNOWN = {"GroupQueryAttention": {"x6"}, "FusedConv": {"x1", "x2"}}
"""Inputs that are constants of the model."""


def model_of(case: Case) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return a model of a case's node, and what is fed to it."""
    names = ["" if value is None else f"x{index}" for index, value in enumerate(case.inputs)]
    given = {name: value for name, value in zip(names, case.inputs, strict=True) if value is not None}
    outputs = [f"y{index}" if wanted else "" for index, wanted in enumerate(case.outputs)]
    node = helper.make_node(case.op_type, names, outputs, "node", domain=case.domain, **case.attrs)
    known = KNOWN.get(case.op_type, set()) & set(given)
    graph = helper.make_graph(
        [node],
        "one",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in given.items()
            if name not in known
        ],
        [
            helper.make_tensor_value_info(name, TensorProto.INT32 if case.op_type.startswith("Embed") and name == "y1"
                                          else TensorProto.FLOAT, None)
            for name in outputs if name
        ],
        [onnx.numpy_helper.from_array(given[name], name) for name in known],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=versions, ir_version=10), {
        name: value for name, value in given.items() if name not in known
    }


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for all cases."""
    return tmp_path_factory.mktemp("microsoft")


@pytest.mark.parametrize(
    "case", thinned([pytest.param(case, id=f"{index}-{case.op_type}") for index, case in enumerate(CASES)], 2)
)
def test_it_computes_what_onnxruntime_does_without_the_host(case: Case, cache: Path) -> None:
    """Every output of each form is ONNX Runtime's, and every operator of the network has a kernel."""
    model, feeds = model_of(case)
    network = opbuild.compile(model, cache_path=cache, num_threads=2)
    for got, expected in zip(network.run(None, feeds), onnxruntime_outputs(model, feeds), strict=True):
        assert got.dtype == expected.dtype
        there = expected != 0  # it fills room in a cache with zeros, which nobody reads
        np.testing.assert_allclose(got[there], expected[there], rtol=2e-4, atol=2e-5)
    assert network.report.host == {}


def test_forms_that_are_not_served_are_refused_by_name(cache: Path) -> None:
    """The message names the operator, the node and what it is."""
    model, _ = model_of(Case("MultiHeadAttention", (f(1, 3, 8), f(1, 3, 8), f(1, 3, 8)), {"num_heads": 0}))
    with pytest.raises(UnsupportedOperatorError, match="MultiHeadAttention node 'node': beams"):
        opbuild.compile(model, cache_path=cache)
    model, _ = model_of(Case("FusedMatMul", (f(3, 3),), {}))
    with pytest.raises(InvalidModelError, match="FusedMatMul node 'node' lacks input 1"):
        opbuild.compile(model, cache_path=cache)


def test_tokens_after_each_other_are_one_binding(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache with room: how many keys there are is read as data, of each batch its own, and decides no shape.

    Two layers and the number of all keys as an input, whose values up to the length of the cache are one.
    """
    batch, room, groups, size, tokens = 2, 20, GQA["kv_num_heads"], 8, 12
    caches = [f"past_{kind}{layer}" for layer in (0, 1) for kind in "kv"]
    nodes = [
        helper.make_node(
            "GroupQueryAttention",
            ["x" if layer == 0 else "y0", "key", "value", *caches[2 * layer : 2 * layer + 2], "last", "total"],
            [f"y{layer}", *(f"new_{name}" for name in caches[2 * layer : 2 * layer + 2])],
            domain="com.microsoft",
            **GQA,
        )
        for layer in (0, 1)
    ]
    floats = {"x": (batch, 1, 32), "key": (batch, 1, 16), "value": (batch, 1, 16)}
    floats |= dict.fromkeys(caches, (batch, groups, room, size))
    graph = helper.make_graph(
        nodes,
        "decode",
        [
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in floats.items()),
            helper.make_tensor_value_info("last", TensorProto.INT32, [batch]),
            helper.make_tensor_value_info("total", TensorProto.INT32, [1]),
        ],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
         for name in ("y1", *(f"new_{name}" for name in caches))],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 13), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=versions, ir_version=10)
    bound: list[str] = []
    bind = Segments._bind_next
    monkeypatch.setattr(
        Segments, "_bind_next", lambda self, *more, **given: bound.append("") or bind(self, *more, **given)
    )
    network = opbuild.compile(model, cache_path=cache)
    held = {name: np.zeros(floats[name], np.float32) for name in caches}
    for token in range(tokens):
        last = i32(token, max(token - 3, 0))  # the second batch began three tokens later
        given = {name: f(*floats[name]) for name in ("x", "key", "value")} | held
        given |= {"last": last, "total": i32(token + 1)}
        found, wanted = network.run(given), onnxruntime_outputs(model, given)
        np.testing.assert_allclose(found["y1"], wanted[0], rtol=1e-4, atol=1e-5)
        for name, expected in zip(caches, wanted[1:], strict=True):
            held[name] = found[f"new_{name}"]
            for index, end in enumerate(last + 1):
                np.testing.assert_allclose(held[name][index, :, :end], expected[index, :, :end], rtol=1e-4, atol=1e-5)
    assert len(bound) == 1
    assert not network.report.host


@pytest.mark.parametrize("batch", [1, 2])
def test_a_cache_that_grows_is_bound_by_numbers(batch: int) -> None:
    """Where shapes tell how many keys there are, what is lowered at one length holds at others."""
    names = ["x", "key", "value", "past_k", "past_v", "last", "total"]
    nodes = [
        helper.make_node("Shape", ["mask"], ["all"], start=1, end=2),
        helper.make_node("Cast", ["all"], ["total"], to=TensorProto.INT32),
        helper.make_node("GroupQueryAttention", names, ["y", "k", "v"], domain="com.microsoft", **GQA),
    ]
    declared = {"x": (batch, 1, 32), "key": (batch, 1, 16), "value": (batch, 1, 16)}
    declared |= dict.fromkeys(("past_k", "past_v"), (batch, 2, -1, 8)) | {"last": (batch,), "mask": (batch, -1)}
    kinds = {"last": TensorProto.INT32, "mask": TensorProto.INT64}
    graph = helper.make_graph(
        nodes,
        "growing",
        [helper.make_tensor_value_info(name, kinds.get(name, TensorProto.FLOAT), [None if each < 0 else each
                                                                                  for each in shape])
         for name, shape in declared.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "k", "v")],
    )  # fmt: skip
    versions = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = load_model(helper.make_model(graph, opset_imports=versions, ir_version=10))

    def shapes(past: int) -> tuple[tuple[int, ...], ...]:
        open_ = {"mask": past + 1}
        return tuple(
            tuple(open_.get(name, past) if each < 0 else each for each in shape) for name, shape in declared.items()
        )

    def opened(given: Sequence[tuple[int, ...]]) -> Graph:
        return optimize_graph(model.bind(dict(zip(declared, given, strict=True)), evaluate))

    record = record_of(lower_open(opened, list(declared.values()), shapes(20), LEVELS[-1], Options()))
    for past in (17, 21, 40, 300):
        numbers = numbers_of(record, shapes(past))
        assert numbers is not None, past
        assert numbers[record.outputs[1].type.shape[2]] == past + 1
