"""Kernels of decision trees: right at hostile numbers of rows and trees, and nothing is read beyond an operand."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from generated.random_trees import Branch, Case, Leaf, Tree, expected, random_case
from kernels.harness import HalideBuffer, dims_of, kernel, run_program
from kernels.one_operator import Array, assert_same, on_kernels, program_of
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.pipeline import optimize
from opbuild.lowering.lower import lower
from opbuild.program import KernelCall, Program
from opbuild.target.host import host_level
from opbuild.target.level import LEVELS
from support.tiers import halved

ROWS = (0, 1, 2, 3, 15, 16, 17, 31, 32, 33, 100)
LOWER = next(level for level in LEVELS if level.name == "x86-64-v3")
_PROTECT = ctypes.CDLL(None, use_errno=True).mprotect


def forest(trees: int, leaves: int, doubles: bool = False, targets: int = 1) -> Case:
    """Return trees of so many leaves, each a chain or balanced in turn, over three features."""
    draw = np.random.default_rng(leaves)

    def grow(count: int, number: int) -> Tree:
        if count == 1:
            return Leaf([(number % targets, float(np.float32(draw.standard_normal())))])
        left = 1 if number % 2 else count // 2
        split = float(np.float32(draw.standard_normal()))
        return Branch(int(draw.integers(3)), "BRANCH_LEQ", split, False, grow(left, number), grow(count - left, number))

    made = random_case(0)
    kind = "float64" if doubles else "float32"
    made.op_type, made.trees, made.targets = "TreeEnsembleRegressor", [grow(leaves, n) for n in range(trees)], targets
    made.doubles, made.base, made.transform, made.aggregate = doubles, [], "NONE", "SUM"
    made.x = draw.standard_normal((ROWS[-1], 3)).astype(kind)
    made.attrs = made.written()
    return made


@halved
@pytest.mark.parametrize("doubles", [False, True])
@pytest.mark.parametrize(("trees", "leaves"), [(1, 1), (1, 2), (17, 32), (16, 33), (5, 90), (3, 200)])
def test_any_number_of_rows(trees: int, leaves: int, doubles: bool) -> None:
    """Fewer and more than are taken side by side; trees of one piece, of several, and of too many leaves for any."""
    case = forest(trees, leaves, doubles)
    wanted, _ = expected(case)
    for rows in ROWS:
        (found,) = on_kernels(case.model(rows), {"x": case.x[:rows]})
        assert_same(found, wanted[:rows].astype(np.float32))


@pytest.mark.slow
@pytest.mark.skipif(LOWER not in LEVELS[: LEVELS.index(host_level())], reason="runs no code for AVX2")
@pytest.mark.parametrize("leaves", [20, 90, 200])
def test_code_for_a_lower_level_is_right(leaves: int) -> None:
    """Vectors of AVX2's registers, where the machine has larger ones too."""
    case = forest(5, leaves)
    wanted, _ = expected(case)
    for rows in (1, 5, 100):
        graph = optimize(load_model(case.model(rows)).bind({}, evaluate), evaluate)
        found = run_program(lower(graph, LOWER), {"x": case.x[:rows]}, level=LOWER)
        assert_same(found["y"], wanted[:rows].astype(np.float32))


@halved
@pytest.mark.parametrize("rows", [1, 2, 40])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("leaves", [1, 31, 200])
def test_nothing_is_read_beyond_an_operand(rows: int, targets: int, leaves: int) -> None:
    """Each operand ends where a page ends that nobody may read: a read beyond it would end the process."""
    case = forest(10, leaves, targets=targets)
    wanted, _ = expected(case)
    program = program_of(case.model(rows))
    with _at_the_end_of_pages(program, case.x[:rows]) as memory:
        for call in program.calls:
            assert isinstance(call, KernelCall)
            shapes = [[extent for extent, _ in reversed(view.dims)] for view in call.views]
            arrays = [memory[view.buffer].reshape(shape) for view, shape in zip(call.views, shapes, strict=True)]
            buffers = [HalideBuffer.of(array, dims_of(array)) for array in arrays]
            assert kernel(call.desc)(2, *map(ctypes.byref, buffers)) == 0
        assert_same(memory[program.outputs[0].buffer].reshape(rows, targets), wanted[:rows].astype(np.float32))


@contextmanager
def _at_the_end_of_pages(program: Program, x: Array) -> Iterator[list[Array]]:
    """Give each buffer of a program memory behind which nobody may read."""
    held, memory = [], []
    for index, buffer in enumerate(program.buffers):
        kind = np.dtype(buffer.dtype)
        nbytes = buffer.size * kind.itemsize
        pages = -(-nbytes // mmap.PAGESIZE) * mmap.PAGESIZE
        area = mmap.mmap(-1, pages + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(area))
        assert _PROTECT(ctypes.c_void_p(start + pages), mmap.PAGESIZE, 0) == 0
        array = np.frombuffer(area, kind, buffer.size, pages - nbytes)
        if buffer.kind == "constant":
            assert buffer.pack is not None
            array[...] = np.asarray(buffer.pack()).reshape(-1)
        elif index in [port.buffer for port in program.inputs]:
            array[...] = x.reshape(-1)
        held.append(area)
        memory.append(array)
    yield memory


def test_two_labels_with_one_weight_a_leaf() -> None:
    """The weight is the probability of the second label, whose share the first gets."""
    case = random_case(0)
    case.op_type, case.targets, case.base, case.transform, case.aggregate = (
        "TreeEnsembleClassifier",
        2,
        [],
        "NONE",
        "SUM",
    )
    leaf = [Leaf([(0, weight)]) for weight in (0.25, 0.75)]
    case.trees = [Branch(0, "BRANCH_LEQ", 0.0, False, leaf[0], leaf[1])]
    case.doubles, case.x = False, np.array([[-1], [1]], np.float32)
    case.attrs = case.written()
    label, scores = on_kernels(case.model(), {"x": case.x})
    assert label.tolist() == [7, 17]
    assert scores.tolist() == [[0.75, 0.25], [0.25, 0.75]]
