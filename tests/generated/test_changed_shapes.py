"""Every operator with one input of another shape: refused in opbuild's words, or lowered to what stays in its memory.

``OPBUILD_FUZZ=5000`` tries so many.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from kernels.small_models import program_of
from opbuild.errors import ModelError
from opbuild.frontend import operator_examples
from opbuild.frontend.rewritten import MICROSOFT
from opbuild.program import KernelCall, Program
from support.fuzzing import check_seeds
from support.tiers import spans

Shape = tuple[int, ...]


@lru_cache(maxsize=1)
def operators() -> tuple[str, ...]:
    """Return the operators that have examples."""
    return (*operator_examples.operator_types(), *operator_examples.operator_types(MICROSOFT))


def example(draw: random.Random) -> onnx.ModelProto | None:
    """Return an example of some operator; None if it has no tensors."""
    models = [each.model for each in operator_examples.examples(draw.choice(operators()))]
    return draw.choice(models)


def other_shape(draw: random.Random, shape: Shape) -> Shape:
    """Return a shape with another extent, or with a dimension more or less."""
    axis, change = draw.randrange(len(shape) + 1), draw.choice(("extent", "extent", "more", "less"))
    if change == "more" or not shape:
        return (*shape[:axis], draw.choice((1, 2)), *shape[axis:])
    axis = min(axis, len(shape) - 1)
    if change == "less":
        return (*shape[:axis], *shape[axis + 1 :])
    return (*shape[:axis], draw.choice((1, 2, shape[axis] + 1, 2 * shape[axis])), *shape[axis + 1 :])


def change(model: onnx.ModelProto, draw: random.Random) -> str:
    """Give an input or constant of a model another shape; return which, and what it is."""
    graph = model.graph
    one = draw.choice([*graph.input, *graph.initializer])
    if isinstance(one, onnx.TensorProto):
        known = numpy_helper.to_array(one)
        shape = other_shape(draw, known.shape)
        one.CopyFrom(numpy_helper.from_array(np.resize(known, shape).astype(known.dtype), one.name))
    else:
        dims = one.type.tensor_type.shape
        shape = other_shape(draw, tuple(each.dim_value for each in dims.dim))
        del dims.dim[:]
        dims.dim.extend(onnx.TensorShapeProto.Dimension(dim_value=extent) for extent in shape)
    for output in [*graph.output]:  # whose shape may be another one, too
        output.ClearField("type")
    return f"{graph.node[0].op_type} with {one.name} of shape {list(shape)}"


def outside(program: Program) -> Iterator[str]:
    """Yield the calls that read or write beside their buffers."""
    for call in program.calls:
        for view in call.views if isinstance(call, KernelCall) else ():
            steps = [(extent - 1) * stride for extent, stride in view.dims]
            first, last = (view.offset + sum(bound(step, 0) for step in steps) for bound in (min, max))
            is_read = all(extent for extent, _ in view.dims)
            if is_read and not 0 <= first <= last < program.buffers[view.buffer].size:
                yield f"{call.desc.family} has the elements {first} to {last} of {program.buffers[view.buffer]}"


@pytest.mark.parametrize("seeds", spans(300, 100))
def test_an_input_of_another_shape_is_refused_or_stays_in_its_memory(seeds: range) -> None:
    """Scatters took updates of any shape, and a Resize raised what zip raises."""

    def one(seed: int) -> tuple[str, str]:
        draw = random.Random(seed)
        model = example(draw)
        if model is None or not [*model.graph.input, *model.graph.initializer]:
            return "no tensors", ""
        try:
            program_of(model)
        except ModelError:
            return "not served", ""
        told = change(model, draw)
        try:
            program = program_of(model)
        except ModelError:
            return "refused", ""
        except Exception as error:
            raise RuntimeError(told) from error
        wrong = next(outside(program), "")
        return ("wrong", f"{told}: {wrong}") if wrong else ("lowered", "")

    tally = check_seeds("changed shapes", one, seeds)
    assert min(tally.outcomes["refused"], tally.outcomes["lowered"]) > len(seeds) // 10
