"""copy in Triton, interpreted: every type, every way to lie, on both sides."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from opbuild.dtypes import numpy_dtype
from opbuild.families.dims import storage_type
from opbuild.platform.records import replace
from opbuild.target.cuda import CLASS

pytest.importorskip("triton", reason="Triton is not installed: pip install '.[gpu]'")

from opbuild.backend.triton.compiler import TritonCompiler
from support.cuda_kernels import describe, guarded, is_untouched, run

DRAW = np.random.default_rng(5)
TYPES = ("bool", "int8", "float16", "bfloat16", "float32", "int64", "float64")
ORDERS = [*itertools.permutations(range(3))]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("offset", [0, 3])
def test_bits_are_moved_as_they_are(dtype: str, offset: int) -> None:
    """NaN with its payload, too; nothing is written beside."""
    bits = DRAW.integers(0, 256, (5, 67 * numpy_dtype(dtype).itemsize), np.uint8).view(storage_type(dtype))
    out, memory = guarded(bits.shape, bits.dtype, offset)
    run(describe("copy", [bits], [out], {}, {"kind": "rows", "width": 16}), [bits], [out])
    np.testing.assert_array_equal(out, bits)
    assert is_untouched(out, memory)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("kind", ["rows", "transpose"])
@pytest.mark.parametrize("shape", [(2, 70, 9), (3, 1, 130), (1, 1, 1), (2, 0, 3)])
def test_axes_go_into_any_order(order: tuple[int, ...], kind: str, shape: tuple[int, ...]) -> None:
    """By tiles of rows and by square ones; a stride may be told or not."""
    x = DRAW.integers(0, 2**16, [shape[axis] for axis in order]).astype(np.uint16).transpose(np.argsort(order))
    out, memory = guarded(shape, np.uint16)
    width = 1 if kind == "transpose" else 8
    run(describe("copy", [x], [out], {}, {"kind": kind, "width": width}, known=kind == "rows"), [x], [out])
    np.testing.assert_array_equal(out, x)
    assert is_untouched(out, memory)


def test_a_transposition_knows_both_strides_of_1() -> None:
    """One along the output's rows and one along the input's, whose 16 bytes are then loaded at once."""
    for rows, columns, offset in ((64, 128, 0), (70, 33, 0), (64, 64, 1), (128, 16, 0)):
        memory = DRAW.integers(0, 2**32, columns * rows + offset).astype(np.uint32)
        x = memory[offset:].reshape(columns, rows).T
        out, around = guarded((rows, columns), np.uint32)
        desc = describe("copy", [x], [out], {}, {"kind": "transpose", "width": 8})
        dims = desc.inputs[0].dims
        known = type(desc.inputs[0])("x", "uint32", (dims[0], type(dims[1])(stride=1)))
        run(type(desc)(desc.op_types, desc.family, (known,), desc.outputs, desc.attrs, desc.variant), [x], [out])
        np.testing.assert_array_equal(out, x)
        assert is_untouched(out, around)


def test_a_part_is_written_into_a_larger_tensor() -> None:
    """Where several are joined: the others' elements stay."""
    whole = np.zeros((6, 3, 50), np.float32)
    part = DRAW.standard_normal((6, 2, 50)).astype(np.float32)
    run(describe("copy", [part], [whole[:, 1:]], {}, {"kind": "rows", "width": 16}), [part], [whole[:, 1:]])
    np.testing.assert_array_equal(whole[:, 1:], part)
    assert not whole[:, 0].any()


@pytest.mark.parametrize("family", ["copy", "elementwise"])
@pytest.mark.parametrize("axis", [0, 1])
def test_what_is_written_may_have_a_stride_of_0_along_one_element(family: str, axis: int) -> None:
    """As a CPU's descriptor says it of a dimension of one element; Triton takes it, and it is right."""
    shape, strides = ((3, 70, 1), (280, 4, 0)) if axis == 0 else ((3, 1, 70), (280, 0, 4))
    x = DRAW.standard_normal((*shape[:2], 2 * shape[2])).astype(np.float32)[..., ::2]
    whole, memory = guarded((3, 70), np.float32)
    out = np.lib.stride_tricks.as_strided(whole, shape, strides)
    variant = {"kind": "rows", "width": 1} if family == "copy" else {"width": 1}
    attrs = {} if family == "copy" else {"expression": ["arg", 0]}
    desc = describe(family, [x], [out], attrs, variant)
    (made,) = desc.outputs
    made = replace(made, dims=tuple(replace(dim, stride=0) if at == axis else dim for at, dim in enumerate(made.dims)))
    served = run(replace(desc, outputs=(made,)), [x], [out])
    assert TritonCompiler.define(served, CLASS.target()).digest
    np.testing.assert_array_equal(out, x)
    assert is_untouched(whole, memory)
