"""Every operator of com.microsoft that is served, in random forms: what ONNX Runtime computes, or what its text says.

``OPBUILD_FUZZ=2000`` tries so many nodes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import onnx
import pytest

import opbuild
from generated import (  # noqa: F401  they register what they draw
    microsoft_attending,
    microsoft_dense,
    microsoft_moves,
    microsoft_whole,
)
from generated.microsoft_cases import GENERATORS, MICROSOFT, Array, Case, Draw, model_of
from generated.random_experts import random_experts
from generated.random_searches import random_search
from generated.test_random_decoding import random_node
from generated.test_random_tokenizers import random_tokenizer
from opbuild.errors import UnsupportedOperatorError
from opbuild.frontend.rewritten import NOT_SERVED, REWRITES
from opbuild.graph.shape_rules import RULES
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import slow

EACH = max(CAMPAIGN // len(GENERATORS), 1)
"""Nodes of each operator."""


def served() -> set[tuple[str, str]]:
    """Return the operators of ONNX Runtime that are served."""
    return {
        each for each in (*REWRITES, *RULES) if each[0] == MICROSOFT or each == ("", "SimplifiedLayerNormalization")
    }


MODELS: tuple[Callable[[int], onnx.ModelProto], ...] = (
    lambda seed: random_search(seed).model,
    lambda seed: random_experts(seed).model,
    lambda seed: random_node(seed)[0],
    lambda seed: random_tokenizer(seed)[0],
)
"""What draws operators that have tests of their own: they need a decoder or text, or are compared in their own way."""


def drawn_elsewhere() -> set[tuple[str, str]]:
    """Return the operators that tests of their own draw."""
    nodes = (draw(seed).graph.node[0] for draw in MODELS for seed in range(SEED, SEED + 30))
    return {(node.domain, node.op_type) for node in nodes}


def test_every_operator_that_is_served_is_drawn() -> None:
    """None is left out, and none is drawn that is not served."""
    assert served() == {*GENERATORS} | drawn_elsewhere()
    assert {*GENERATORS}.isdisjoint(drawn_elsewhere())


def test_what_onnx_runtime_has_kernels_for_is_served_or_has_a_reason() -> None:
    """An operator of its next release shows here; what is not served says why, and what to do."""
    kernels = import_module("onnxruntime.capi.onnxruntime_pybind11_state").get_all_opkernel_def()
    known = {(each.domain, each.op_name) for each in kernels if each.provider == "CPUExecutionProvider"}
    assert {each for each in known if each[0] == MICROSOFT} - served() == {*NOT_SERVED}


@pytest.mark.each
@pytest.mark.parametrize(("domain", "op_type"), NOT_SERVED)
def test_an_operator_that_is_not_served_says_why(domain: str, op_type: str) -> None:
    """It names the node, the reason, and what to do."""
    model, _ = model_of(Case((np.ones((2, 3), np.float32),)), op_type, domain)
    why, hint = NOT_SERVED[domain, op_type]
    with pytest.raises(UnsupportedOperatorError) as caught:
        opbuild.compile(model)
    assert str(caught.value) == f"node 'node': {domain}'s {op_type} is not served: {why}\n  hint: {hint}"


def problem(got: Array, right: Array, case: Case) -> str:
    """Return in what a result differs from what is right; empty if it does not."""
    right = np.asarray(right)
    if got.shape != right.shape:
        return f"shape {got.shape}, not {right.shape}"
    if case.expected is None and got.dtype != right.dtype:
        return f"type {got.dtype}, not {right.dtype}"
    if right.dtype.kind in "iub" or got.dtype.kind not in "f":
        off = np.abs(got.astype(np.float64) - right.astype(np.float64)).max(initial=0)
        return f"off by {off}" if off > case.steps else ""
    same = (got == right) | (np.isnan(got) & np.isnan(right))
    if same.all():
        return ""
    finite = np.isfinite(right)
    off = np.abs(np.where(same, 0, got.astype(np.float64) - right)).max(initial=0)
    limit = case.tolerance * max(1.0, np.abs(right[finite]).max(initial=0))
    return f"off by {off}, at most {limit}" if not off <= limit else ""


def tried(domain: str, op_type: str, seed: int, cache: Path) -> str:
    """Return the outcome of a node: ``same``, its problem, or why it was not compared."""
    case = GENERATORS[domain, op_type](Draw(seed))
    model, feeds = model_of(case, op_type, domain)
    wanted = case.expected
    if wanted is None:
        try:
            wanted = onnxruntime_outputs(model, feeds)
        except Exception as error:  # it names none of its own
            return f"not ONNX Runtime's: {str(error)[:150]}"
    numbers = {name: value for name, value in feeds.items() if value.dtype != object}  # text has any shape anyway
    shapes = {name: (-1,) * value.ndim for name, value in numbers.items() if value.ndim and seed % 2}  # half are open
    try:
        network = opbuild.compile(model, input_shapes=shapes or None, cache_path=cache, num_threads=1)
        results = list(network.run(feeds).values())
    except UnsupportedOperatorError as error:
        return f"refused: {error}"
    found = (problem(got, right, case) for got, right in zip(results, wanted, strict=True))
    return next(filter(None, found), "same")


SOME = [(domain, op_type) if at % 4 == 0 else slow(domain, op_type) for at, (domain, op_type) in enumerate(GENERATORS)]


@pytest.mark.slow
@pytest.mark.parametrize(("domain", "op_type"), SOME, ids=lambda each: each or "onnx")
def test_a_node_computes_what_onnx_runtime_does(domain: str, op_type: str, shared_store: Path) -> None:
    """In all forms that are drawn; most of them are ONNX Runtime's too, and none is refused."""
    outcomes = Counter[str]()
    for number in range(EACH):
        seed = SEED + zlib.crc32(op_type.encode()) % 10**6 + number
        outcome = tried(domain, op_type, seed, shared_store)
        outcomes[outcome if outcome == "same" else f"seed {seed}: {outcome}"] += 1
    wrong = [each for each in outcomes if each != "same" and "not ONNX Runtime's" not in each]
    assert not wrong
    assert outcomes["same"], outcomes
    if CAMPAIGN:
        print(op_type, dict(outcomes))
