"""Shape rules of operators that make a value from a shape, from bounds or from nothing."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from opbuild.graph.extents import is_open
from opbuild.graph.reals import Real, real, truncated
from opbuild.graph.shape_rules import ShapeCall, Types, named_dtype, rule, same_dtype
from opbuild.graph.types import TensorType


@rule("Shape")
def shape(call: ShapeCall) -> Types:
    """The input's extents from ``start`` to ``end``."""
    rank = len(call.shape(0))
    chosen = range(rank)[slice(call.attr("start", 0), call.attr("end", None))]
    return (TensorType("int64", (len(chosen),)),)


@rule("Size")
def size(call: ShapeCall) -> Types:
    """The number of elements."""
    call.type(0)
    return (TensorType("int64", ()),)


@rule("ConstantOfShape")
def constant_of_shape(call: ShapeCall) -> Types:
    """One value everywhere; 0.0 if none is given."""
    value = call.attr("value", None)
    extents = call.ints(0)
    if any(extent < 0 for extent in extents):
        call.fail(f"shape {list(extents)} is negative")
    return (TensorType("float32" if value is None else str(np.asarray(value).dtype), extents),)


@rule("Range")
def range_(call: ShapeCall) -> Types:
    """Numbers from a start to a limit."""
    dtype = same_dtype(call)
    start, limit, delta = (call.value(index).reshape(-1).tolist()[0] for index in range(3))
    if delta == 0:
        call.fail("the step is 0")
    if any(isinstance(each, Real) for each in (start, limit, delta)):
        return (TensorType(dtype, (_count(start, limit, delta),)),)
    if is_open((start, limit, delta)):  # they are integers
        return (TensorType(dtype, (max(-((start - limit) // delta), 0),)),)
    return (TensorType(dtype, (max(math.ceil((limit - start) / delta), 0),)),)


def _count(start: Any, limit: Any, delta: Any) -> Any:
    """Return the length of a range of open floating-point bounds, worked out as for known ones."""
    start, limit, delta = (real("float64", each) for each in (start, limit, delta))
    return max(truncated(real("ceil", real("divide", real("subtract", limit, start), delta))), 0)


@rule("OneHot")
def one_hot(call: ShapeCall) -> Types:
    """One more dimension, of the extent in the second input."""
    indices, depth = call.shape(0), call.ints(1)[0]
    axis = call.axis(int(call.attr("axis", -1)), len(indices) + 1)
    return (TensorType(call.dtype(2), (*indices[:axis], depth, *indices[axis:])),)


@rule("EyeLike")
def eye_like(call: ShapeCall) -> Types:
    """A matrix of the input's shape with ones on a diagonal."""
    chosen = call.attr("dtype", None)
    return (TensorType(call.dtype(0) if chosen is None else named_dtype(call, chosen), call.rank(0, 2)),)


@rule("RandomNormal", "RandomUniform")
def random(call: ShapeCall) -> Types:
    """Random numbers of the shape that an attribute gives."""
    return (TensorType(named_dtype(call, call.attr("dtype", 1)), tuple(int(item) for item in call.attr("shape", ()))),)
