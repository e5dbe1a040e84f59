"""Makers of cases for elementwise operators, from their schemas: every type, and values at the ends of each."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import helper

from generated.host_cases import Array, Case, Draw, makes
from opbuild.graph.elementwise import ONNX_OPERATORS

SPECIAL = (np.nan, np.inf, -np.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, 6.0, 1e-30, 1e30, -1e30, 30.0, -30.0)
SPELLED = {"float": "float32", "double": "float64"}
NUMPY = (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
)  # fmt: skip
NEWEST_OF_RUNTIME = 21
"""The operator set in which operators are called that have not changed since; ONNX Runtime has kernels for it."""

INTEGER_ATTRIBUTES = {"axis": (0, 1), "fmod": (0, 1), "detect_positive": (0, 1), "detect_negative": (0, 1)}


def dtypes_of(schema: Any, port: str) -> tuple[str, ...]:
    """Return the element types, by numpy's names, that a type parameter of a schema allows."""
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}.get(port, [port])
    names = (text[len("tensor(") : -1] for text in sorted(allowed) if text.startswith("tensor("))
    return tuple(name for name in (SPELLED.get(each, each) for each in names) if name in NUMPY)


def ends(d: Draw, shape: tuple[int, ...], dtype: str) -> Array:
    """Return values of which some are at the ends of their type: NaN, infinities, the least and the greatest."""
    plain, kind = d.array(shape, dtype), np.dtype(dtype)
    if kind == np.bool_:
        return plain
    chosen = d.below(shape, len(SPECIAL))
    if kind.kind == "f":
        with np.errstate(all="ignore"):
            return np.where(d.below(shape, 4) == 0, np.array(SPECIAL)[chosen].astype(kind), plain)
    limits = np.iinfo(kind)
    return np.where(d.below(shape, 4) == 0, np.where(chosen % 2, limits.max, limits.min).astype(kind), plain)


def _shapes(d: Draw, count: int) -> list[tuple[int, ...]]:
    """Return shapes that broadcast together."""
    whole = d.shape(d.integer(0, 3), 5, d.one_of(1, 1, 0))
    shapes = [whole]
    for _ in range(count - 1):
        part = whole[d.integer(0, len(whole)) :]
        shapes.append(tuple(extent if d.flag() else 1 for extent in part))
    return shapes


def _version(schema: Any) -> int:
    return max(int(schema.since_version), NEWEST_OF_RUNTIME)


def _newest(op_type: str) -> Any:
    return onnx.defs.get_schema(op_type, NEWEST_OF_RUNTIME) if op_type not in LATER else onnx.defs.get_schema(op_type)


LATER = frozenset(each.name for each in onnx.defs.get_all_schemas() if not each.domain and not onnx.defs.has(
    each.name, NEWEST_OF_RUNTIME, ""))  # fmt: skip
"""Operators that came after that operator set."""


@makes(*sorted(set(ONNX_OPERATORS) - {"Cast", "CastLike", "Clip", "Where", "PRelu", "SwiGLU"}))
def _elementwise(d: Draw, op_type: str) -> Case:
    schema = _newest(op_type)
    variadic = schema.max_input > 8
    count = d.integer(1, 3) if variadic else d.integer(schema.min_input, schema.max_input)
    chosen: dict[str, str] = {}
    inputs: list[Array | None] = []
    for index, shape in enumerate(_shapes(d, count)):
        port = schema.inputs[min(index, len(schema.inputs) - 1)].type_str
        dtype = chosen.setdefault(port, d.one_of(*dtypes_of(schema, port)))
        inputs.append(ends(d, shape, dtype))
    return Case(op_type, _sensible(op_type, inputs, d), _attributes(d, schema), opset=_version(schema))


def _sensible(op_type: str, inputs: list[Any], d: Draw) -> list[Any]:
    """Leave out what has no meaning: a division of integers by zero, a shift by more bits than there are."""
    if op_type in ("Div", "Mod") and inputs[1].dtype.kind in "iu":
        divisor = inputs[1]
        least = divisor.dtype.kind == "i" and (inputs[0] == np.iinfo(inputs[0].dtype).min).any()
        inputs[1] = np.where((divisor == 0) | (least & (divisor.astype("i8") == -1)), 1, divisor).astype(divisor.dtype)
    if op_type == "Shrink" and inputs[0].dtype.kind in "iu":  # ONNX Runtime computes the ends in float32
        return [d.array(inputs[0].shape, str(inputs[0].dtype))]
    if op_type == "Sign":  # of NaN the standard says nothing: here NaN, in ONNX Runtime 0 for some types
        return [np.nan_to_num(inputs[0])]
    if op_type == "BitShift":
        inputs[1] = (inputs[1] % (8 * inputs[1].dtype.itemsize)).astype(inputs[1].dtype)
    if op_type == "Pow":
        base, power = inputs
        inputs = [base if base.dtype.kind == "f" else d.array(base.shape, str(base.dtype)).clip(0, 3), power]
        inputs[1] = power if power.dtype.kind == "f" and base.dtype.kind == "f" else abs(
            d.array(power.shape, str(power.dtype))
        ).round() % 4  # fmt: skip
        with np.errstate(all="ignore"):  # here an exponent becomes one of the base's type first
            inputs[1] = inputs[1].astype(base.dtype).astype(power.dtype)
    return inputs


def _attributes(d: Draw, schema: Any) -> dict[str, Any]:
    attrs: dict[str, Any] = {}
    for name, attribute in schema.attributes.items():
        kind = str(attribute.type)
        if kind.endswith("FLOAT"):
            attrs[name] = d.one_of(None, 0.25, 1.5)
        elif name in INTEGER_ATTRIBUTES:
            attrs[name] = d.one_of(None, *INTEGER_ATTRIBUTES[name])
    if "direction" in schema.attributes:
        attrs["direction"] = d.one_of("LEFT", "RIGHT")
    if "approximate" in schema.attributes:
        attrs["approximate"] = d.one_of(None, "tanh")
    return attrs


@makes("Where")
def _where(d: Draw, op_type: str) -> Case:
    dtype = d.one_of(*dtypes_of(_newest(op_type), "T"))
    condition, x, y = _shapes(d, 3)
    return Case(op_type, [d.array(condition, "bool"), ends(d, x, dtype), ends(d, y, dtype)])


@makes("Clip")
def _clip(d: Draw, op_type: str) -> Case:
    dtype = d.one_of(*dtypes_of(_newest(op_type), "T"))
    bounds = [d.maybe(d.array((), dtype)) for _ in range(2)]
    return Case(op_type, [ends(d, _shapes(d, 1)[0], dtype), *bounds])


@makes("Cast", "CastLike")
def _cast(d: Draw, op_type: str) -> Case:
    """Only values that both types have, but for fractions: what others become the standard leaves open."""
    schema = _newest(op_type)
    source, target = (d.one_of(*dtypes_of(schema, port)) for port in ("T1", "T2"))
    x = d.array(_shapes(d, 1)[0], source)
    if np.dtype(target).kind == "u" or np.dtype(source).kind == "u":
        x = np.abs(x).astype(source)
    if source[:5] == target[:5] == "float":
        x = ends(d, x.shape, source)
    if op_type == "Cast":
        return Case(op_type, [x], {"to": int(helper.np_dtype_to_tensor_dtype(np.dtype(target)))})
    return Case(op_type, [x, np.zeros((1,), target)])
