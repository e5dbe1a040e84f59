"""A family is its folder: one for an operator that there is not, and one more for convolutions, run in a network."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from kernels.harness import forget_child, run_program
from kernels.lowered import program_of, random, variants
from opbuild import families
from opbuild.families import catalogue
from opbuild.graph.types import Node
from opbuild.lowering import implementations
from opbuild.platform.registry import Registry

SCHEDULE = """
def schedule(definition, desc, machine):
    out = definition.outputs[0]
    place = out.args()[-1]
    divide_loops(out, [(place, out.output_buffer().dim(len(out.args()) - 1).extent(), 1)], definition.tasks)
"""
"""A task is a range of the outermost loop."""

DOUBLED = {
    "family.py": '''"""Doubles and one."""
from opbuild.families.family import Family
from opbuild.kernel.opdesc import Dim, Operand

FAMILY = Family("doubled", choose=lambda machine: {}, attributes=("added",), is_certain=True)

def describe(added, variant):
    x, out = (Operand(name, "float32", (Dim(stride=1), Dim())) for name in ("x", "out"))
    return FAMILY.desc(("Doubled",), (x,), (out,), {"added": added}, variant)
''',
    "halide.py": '''"""What it computes: ``2 x + added`` of each element of ``x (I, rows)``."""
import halide as hl
from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.rows import divide_loops

def define(desc):
    (x,) = parameters(desc)
    i, y = variables("i y")
    out = hl.Func("out")
    out[i, y] = 2.0 * x[i, y] + hl.f32(desc.attrs["added"])
    constrain_output(out, desc.outputs[0])
    return Definition([x], [out], {"i": i, "y": y}, {}, {})
'''
    + SCHEDULE,
    "lowering.py": '''"""Lowering of a double and a number more."""
from opbuild.families.doubled import family
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.strided import dense_as

@serves("own.Doubled")
def lower_doubled(lowering, node):
    if lowering.type(node.inputs[0]).dtype != "float32":
        raise NotServedError("Doubled has kernels for float32")
    shape = (-1, lowering.type(node.inputs[0]).shape[-1])
    shape = (lowering.type(node.inputs[0]).size // shape[1], shape[1])
    operands = [dense_as(value, shape) for value in
                (lowering.dense(node.inputs[0]), lowering.new_plain(node.outputs[0]))]
    desc = family.describe(float(node.attrs["added"]), lowering.choose(family.FAMILY))
    lowering.emit(desc, operands, node)
''',
}
"""The folder of a family that computes a new operator."""

POINTS = {
    "family.py": '''"""Convolutions of 1 x 1, one number after the other."""
from opbuild.families.blocked import BIAS, IMAGE, result
from opbuild.families.family import Family
from opbuild.kernel.opdesc import Dim, Operand

FAMILY = Family("conv_points", choose=lambda machine: {}, products=lambda dims, out: 0)

def describe(variant):
    weights = Operand("w", "float32", (Dim(16, 1), Dim(16, 16), Dim(), Dim()), "FRACTAL_Z")
    return FAMILY.desc(("Conv",), (IMAGE, weights, BIAS), (result(1, 1),), {}, variant)
''',
    "halide.py": '''"""A convolution: ``x (16, W, H, C1)``, ``w (16 out, 16 in, C1 in, C1 out)`` and its bias."""
import halide as hl
from opbuild.backend.halide.definition import Definition, constrain_output, parameters, variables
from opbuild.backend.halide.rows import divide_loops

def define(desc):
    x, w, bias = parameters(desc)
    lane, ox, oy, block = variables("lane ox oy block")
    r = hl.RDom([(0, 16), (0, x.dim(3).extent())], "r")
    total, out = hl.Func("total"), hl.Func("out")
    total[lane, ox, oy, block] = bias[lane, block]
    total[lane, ox, oy, block] += w[lane, r.x, r.y, block] * x[r.x, ox, oy, r.y]
    out[lane, ox, oy, block] = total[lane, ox, oy, block]
    constrain_output(out, desc.outputs[0])
    names = {"lane": lane, "ox": ox, "oy": oy, "block": block}
    return Definition([x, w, bias], [out], names, {"total": total}, {"r": r})
'''
    + SCHEDULE,
    "lowering.py": '''"""Lowering of convolutions of 1 x 1."""
from opbuild.families.blocked import BLOCK, blocks
from opbuild.families.conv_points import family
from opbuild.lowering import conv_weights, run_time_weights
from opbuild.lowering.implementations import serves
from opbuild.lowering.rules.conv import emit_images, packed_weights
from opbuild.lowering.strided import dense_as

def is_point(lowering, conv):
    return conv.groups == 1 and conv.window.kernel == conv.window.stride == (1, 1) and not conv.epilogue.operands

@serves("lowering.Convolution", cost=0.1, where=is_point)
def lower_points(lowering, conv):
    desc = family.describe(lowering.choose(family.FAMILY))
    extents = blocks(conv.outputs), blocks(conv.inputs)
    weights = packed_weights(lowering, conv, "direct", conv_weights.pack_direct, (*extents, 1, 1, BLOCK, BLOCK),
                             run_time_weights.DIRECT)
    emit_images(lowering, conv, desc, dense_as(weights, (*extents, BLOCK, BLOCK)))
''',
}
"""The folder of one more family that computes convolutions; ``conv`` and its like know nothing of it."""

NODES = [
    Node("Conv", ("x", "w"), ("c",), {"kernel_shape": (1, 1)}, "conv"),
    Node("Doubled", ("c",), ("d",), {"added": 1.0}, "doubled", "own"),
    Node("Relu", ("d",), ("y",), {}, "relu"),
]


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Put two families on the path of their package for a test."""
    for name, files in {"doubled": DOUBLED, "conv_points": POINTS}.items():
        folder = tmp_path / name
        folder.mkdir()
        for file, text in {"__init__.py": "", **files}.items():
            (folder / file).write_text(text, encoding="utf-8")
    implementations.operators()  # all of the package's are loaded
    own: Registry[implementations.Implementations] = Registry("implementation", join=implementations._joined)
    own.update(implementations.IMPLEMENTATIONS)
    monkeypatch.setattr(implementations, "IMPLEMENTATIONS", own)
    monkeypatch.setattr(implementations, "_known", {*implementations._known})
    monkeypatch.setattr(families, "__path__", [*families.__path__, str(tmp_path)])
    forget_child()  # what was forked before knows no family of these
    yield
    forget_child()
    catalogue.find.cache_clear()
    for module in [each for each in sys.modules if each.split(".")[2:3] in (["doubled"], ["conv_points"])]:
        del sys.modules[module]


@pytest.mark.usefixtures("added")
def test_families_that_are_added_compute_a_network() -> None:
    """Both are taken without a word anywhere else; what they compute is right, and all else is as it was."""
    x, w = random(2, 32, 5, 7), random(48, 32, 1, 1, seed=1)
    shape = ("float32", (2, 48, 5, 7))
    program = program_of(NODES, {"x": x}, dict.fromkeys(("c", "d", "y"), shape), {"w": w})
    names = [name for name, _ in variants(program)]
    assert "conv_points" in names
    assert "doubled" in names
    assert "elementwise" in names
    assert "conv" not in names
    found = run_program(program, {"x": x})["y"]
    expected = np.maximum(2 * np.einsum("nchw,oc->nohw", x, w[:, :, 0, 0]) + 1, 0)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("added")
def test_what_an_added_family_does_not_serve_is_computed_as_before() -> None:
    """A convolution with a stride is the other family's, and of float64 no kernel computes the new operator."""
    x, w = random(1, 32, 6, 6), random(32, 32, 1, 1, seed=1)
    conv = Node("Conv", ("x", "w"), ("y",), {"kernel_shape": (1, 1), "strides": (2, 2)}, "conv")
    program = program_of([conv], {"x": x}, {"y": ("float32", (1, 32, 3, 3))}, {"w": w})
    assert "conv" in [name for name, _ in variants(program)]
    doubled = Node("Doubled", ("x",), ("y",), {"added": 1.0}, "doubled", "own")
    wide = x.astype(np.float64)
    program = program_of([doubled], {"x": wide}, {"y": ("float64", x.shape)})
    assert program.notes == {"doubled": "Doubled has kernels for float32"}


def test_without_them_nothing_is_left_of_them() -> None:
    """A network that has the operator is left to the host, as any that no family serves."""
    x = random(2, 3)
    doubled = Node("Doubled", ("x",), ("y",), {"added": 1.0}, "doubled", "own")
    assert program_of([doubled], {"x": x}, {"y": ("float32", (2, 3))}).notes == {"doubled": "no kernel for Doubled"}
