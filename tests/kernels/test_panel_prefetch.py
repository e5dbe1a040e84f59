"""Products fetch the next panel of packed weights while rows pass by one: all of it, nothing else, at no other cost."""

from __future__ import annotations

import ctypes
import random
import re
from importlib import import_module
from pathlib import Path
from unittest import mock

import halide as hl
import numpy as np
import pytest

from kernels.harness import HalideBuffer, dims_of, guarded, kernel
from kernels.test_level_instructions import X86, text_of
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.families.layouts import LEAST_FETCHED, PANEL
from opbuild.families.matmul.family import choose, operands, tiles
from opbuild.families.matmul.halide import fetched_element
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.operations.expression import ACC
from opbuild.target.host import host_level
from opbuild.target.level import Level
from opbuild.target.machine import Machine
from support.tiers import halved

WITH_WHOLE_PANELS = X86[2:]
LINE = 16
"""Numbers in a line of the cache."""


def product(m: int, level: Level, dtype: str = "float32", batches: int = 0) -> OpDesc:
    """Return the descriptor of products with ``m`` rows and packed weights."""
    variant = choose("panels", max(1, batches), m, 768, 768, dtype, Machine.of(level))
    rank = 3 if batches else 2
    lhs, rhs = operands("panels", rank, rank + 1, 1, variant, dtype)
    out = Operand("out", lhs.dtype, (Dim(stride=1), Dim(min=variant["rows"]), *(Dim(),) * (rank - 2)))
    return OpDesc(("MatMul",), "matmul", (lhs, rhs), (out,), {"rhs": "panels", "epilogue": list(ACC)}, variant)


@pytest.mark.slow
@pytest.mark.parametrize("level", WITH_WHOLE_PANELS, ids=str)
def test_every_line_of_the_next_panels_is_fetched_and_nothing_beyond(level: Level) -> None:
    """Whatever the tile and the extents; rows too few fetch one and the same element."""
    draw = random.Random(1)
    fitting = [tile[:2] for tile in tiles(Machine.of(level), is_either=True) if tile[1] % PANEL == 0 and tile[0] > 1]
    for _ in range(12):
        (rows, columns), depth = draw.choice(fitting), draw.randint(1, 200)
        height = draw.choice((draw.randint(rows, 40), draw.randint(LEAST_FETCHED, 300)))
        number, step = hl.Var("number"), hl.Var("step")
        function = hl.Func("place")
        place = fetched_element((hl.Expr(number), hl.Expr(step)), (rows, columns), (hl.Expr(height), hl.Expr(depth)))
        function[number, step] = place
        fetched = np.array(function.realize([-(-height // rows), depth]))
        assert fetched.min() == 0
        assert fetched.max() < columns * depth
        lines = set((fetched // LINE).ravel().tolist())
        assert len(lines) == (-(-columns * depth // LINE) if height >= LEAST_FETCHED else 1)


@halved
@pytest.mark.parametrize("level", WITH_WHOLE_PANELS, ids=str)
@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_fetching_is_one_instruction_a_step_and_reads_nothing(level: Level, dtype: str, tmp_path: Path) -> None:
    """The instruction is in the loop along K, not in one of its own, and its address moves with it."""
    desc = product(128, level, dtype)
    statement = text_of(desc, level, tmp_path / "stmt", hl.OutputFileType.stmt)
    if desc.variant["columns"] % PANEL or desc.variant["stage"]:
        assert "prefetch(" not in statement
        return
    before, after = statement.split("prefetch(rhs", 1)
    loop = re.findall(r"for \((\S+),", before)[-1]
    assert re.fullmatch(r"acc\S*\.s1\.k\S*", loop)
    assert loop in re.split(r",", after.split("\n", 1)[0])[1]
    compiled = text_of(desc, level, tmp_path / "ll", hl.OutputFileType.llvm_assembly)
    assert compiled.count("call void @llvm.prefetch") == 1
    assert "ctpop" not in compiled


def _without(desc: OpDesc, symbol: str, level: Level) -> bytes:
    definition = import_module("opbuild.families.matmul.halide")
    with mock.patch.object(definition, "fetches", return_value=False):
        return HalideCompiler.compile(desc, symbol, level)


@pytest.mark.slow
@pytest.mark.parametrize("batches", [0, 2])
def test_fetching_changes_no_bit(batches: int) -> None:
    """With and without it products are equal, for few and many rows, one panel and several."""
    draw = np.random.default_rng(1)
    for m, n, k in ((8, 96, 5), (33, 32, 64), (47, 160, 17), (130, 256, 33)):
        desc = product(m, host_level(), batches=batches)
        lead = (batches,) * (batches > 0)
        panels = -(-n // desc.variant["columns"]) * max(1, desc.variant["columns"] // PANEL)
        lhs = draw.standard_normal((*lead, m, k)).astype("f4")
        rhs = draw.standard_normal((*lead, panels, k, PANEL)).astype("f4")
        found = []
        for make in (HalideCompiler.compile, _without):
            out = guarded((*lead, m, n))
            arrays = (lhs, rhs, out.view)
            buffers = [HalideBuffer.of(array, dims_of(array)) for array in arrays]
            assert kernel(desc, make)(2, *(ctypes.byref(buffer) for buffer in buffers)) == 0
            found.append(out.view.tobytes())
        assert found[0] == found[1]
