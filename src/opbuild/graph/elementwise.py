"""Which operators compute one element at a time, and the expression that each is.

Numbers that the model fixes become literals of the expression only where they change the code (``LITERALS``) or where
they are attributes, which take few values in practice. Any other scalar constant stays an operand with one element:
kernels that differ in a factor would not be shared, and reading one number costs nothing.

``opbuild.Attention`` (``passes.attention``) reads queries ``(..., I, D)``, keys turned ``(..., D, J)``, values
``(..., J, E)`` and what its ``epilogue`` reads: the scores' expression over ``("acc",)``, the product of queries and
keys, and ``("arg", n)`` at input ``attrs["own_inputs"] + n``. ``accumulator``, ``scores`` and ``weights`` name the
values that it does not store. ``apart`` says whether the expression is one that the product could not have as its own
epilogue. If there is ``rounds``, weights and results are rounded to the numbers of this type of 16 bits; ``unrounded``
names what they are before. If there is ``zeros``, it is that of the softmax: which rows are 0 instead of NaN.
``hiding`` says what hides keys from queries, if that is known.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from opbuild.dtypes import CODED, NARROW_FLOATS, ROUND_MODES, UNSATURATED, greatest, is_float
from opbuild.graph import user_operators
from opbuild.graph.extents import is_open
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import DTYPES, Array, Node, TensorType
from opbuild.operations.expression import ACC, Expression, arg, children, const, dtype_of, from_json, substitute, walk
from opbuild.operations.table import BY_TYPE, ONNX_TYPES, OPERATIONS, of_onnx
from opbuild.platform.records import NamedTuple, dataclass

Rule = Callable[[Node, list[Expression], Sequence[str]], Expression | None]

LITERALS = frozenset((-1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, math.inf, -math.inf))
"""Scalar constants that are compiled in: bounds, exponents, halves. Every network has them, and kernels get shorter."""


@dataclass(frozen=True)
class Elementwise:
    """An elementwise node: an expression and its inputs.

    Attributes:
        expression: Over ``inputs``.
        inputs: Names of the values that ``("arg", i)`` stands for, each once.
    """

    expression: Expression
    inputs: tuple[str, ...]


def elementwise_of(node: Node, types: Mapping[str, TensorType], constants: Mapping[str, Array]) -> Elementwise | None:
    """Return the elementwise form of a node, or None if it is no such operator or has no kernel."""
    if len(node.outputs) != 1 or any(types[name].dtype not in DTYPES for name in (*node.inputs, *node.outputs) if name):
        return None
    if node.domain == "opbuild" and node.op_type == "Elementwise":  # its literals are in it: scales are no literals
        operands = [arg(index) for index in range(len(node.inputs))]
    else:
        operands = [_operand(name, index, types, constants) for index, name in enumerate(node.inputs)]
    expression = expression_of(node, operands, [types[name].dtype if name else "" for name in node.inputs])
    if expression is None or not _has_kernel(expression, node, types):
        return None
    return _numbered(simplified(expression), node.inputs)


def split_epilogue(node: Node) -> tuple[Node, Node] | None:
    """Return a node with a fused epilogue as the two nodes that it was made of, or None if it has none.

    For a backend that does not serve the fused form; see ``passes.fuse``.
    """
    stored = node.attrs.get("epilogue")
    if stored is None:
        return None
    own, output = int(node.attrs["own_inputs"]), str(node.attrs["accumulator"])
    attrs = {name: value for name, value in node.attrs.items() if name not in EPILOGUE_ATTRIBUTES}
    inputs = tuple(node.inputs[:own])
    while inputs and not inputs[-1]:
        inputs = inputs[:-1]
    base = node.with_(inputs=inputs, outputs=(output,), attrs=attrs)
    inputs = (output, *node.inputs[own:])  # what was accumulated is first, as where the two were never one

    def place(e: Expression) -> Expression | None:
        return arg(0) if e[0] == "acc" else arg(e[1] + 1) if e[0] == "arg" else None

    expression = substitute(from_json(list(stored)), place)
    rest = Node("Elementwise", inputs, node.outputs, {"expression": expression}, node.name, "opbuild")
    return base, rest.with_(made_of=node.origins)


EPILOGUE_ATTRIBUTES = ("epilogue", "own_inputs", "accumulator")
"""What ``passes.fuse`` adds to a node: the expression, where its operands begin, the value that it replaced."""


def rounding_of(expression: Expression) -> str:
    """Return the type of 16 bits to whose numbers an expression rounds the float32 that it reads; empty otherwise."""
    match expression:
        case ("cast", "float32", ("cast", dtype, ("acc",) | ("arg", _))) if dtype in NARROW_FLOATS:
            return str(dtype)
        case _:
            return ""


def _operand(name: str, index: int, types: Mapping[str, TensorType], constants: Mapping[str, Array]) -> Expression:
    if name and name in constants and types[name].size == 1:
        number = constants[name].reshape(-1).tolist()[0]
        if not is_open([number]) and float(number) in LITERALS:
            return const(number, types[name].dtype)
    return arg(index)


def expression_of(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
    """Return the expression that a node computes for each element, kernel or not; None if it is no such node.

    ``operands`` are what its inputs are in the expression, ``dtypes`` their element types, empty for an absent one.
    """
    user = user_operators.find(node.domain, node.op_type)
    if user is not None and user.is_elementwise:
        return ("user", user.op_type, *operands)
    if node.domain == "opbuild":
        if node.op_type == "Elementwise":
            stored = from_json(list(node.attrs["expression"]))
            return substitute(stored, lambda e: operands[e[1]] if e[0] == "arg" else None)
        own = BY_TYPE.get(node.op_type)
        return (own.name, *operands) if own is not None and own.arity == len(operands) else None
    if node.domain:
        return None
    special = SPECIAL.get(node.op_type)
    if special is not None:
        return special(node, operands, dtypes)
    found = of_onnx(node.op_type, node.attrs)
    if found is None:
        return None
    onnx, operation = found
    if onnx.variadic:
        return _chained(operation.name)(node, operands, dtypes)
    parameters = [float(node.attrs.get(name, default)) for name, default in onnx.parameters]
    return (operation.name, *operands, *(const(value, dtypes[0]) for value in parameters))


def _chained(name: str) -> Rule:
    """Return the rule of an operator that applies an operation to any number of operands."""
    return _rounded_once(lambda node, operands, dtypes: reduce(lambda a, b: (name, a, b), operands))


def _mean(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression:
    total = reduce(lambda a, b: ("add", a, b), operands)
    return ("div", total, const(len(operands), dtypes[0])) if len(operands) > 1 else total


def _rounded_once(make: Rule) -> Rule:
    """Return the rule of an operator made of several operations; of 16 bits they are computed in float32."""

    def rule(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
        if dtypes[0] not in NARROW_FLOATS:
            return make(node, operands, dtypes)
        wide = [_converted(operand, dtypes[0], "float32") for operand in operands]
        return ("cast", dtypes[0], make(node, wide, ["float32"] * len(dtypes)))

    return rule


def _pow(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
    base, exponent = operands
    if is_float(dtypes[0]) or not is_float(dtypes[1]):
        return ("pow", base, _converted(exponent, dtypes[1], dtypes[0]))
    # An integer to a fraction: in float64, then towards zero.
    wide = (_converted(base, dtypes[0], "float64"), _converted(exponent, dtypes[1], "float64"))
    return ("cast", dtypes[0], ("pow", *wide))


def _converted(operand: Expression, have: str, want: str) -> Expression:
    if have == want:
        return operand
    if operand[0] == "const" and is_float(want):
        return const(float(operand[2]), want)
    return ("cast", want, operand)


def _clip(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
    """An absent bound is the least or greatest number of the type, as the text says; infinity is beyond it."""
    low, high = operands[1:2], operands[2:3]
    low, high = low if any(dtypes[1:2]) else [], high if any(dtypes[2:3]) else []
    if is_float(dtypes[0]):
        most = greatest(dtypes[0])
        low, high = low or [const(-most, dtypes[0])], high or [const(most, dtypes[0])]
    if low and high:
        return ("clip", operands[0], *low, *high)
    if low:
        return ("max", operands[0], *low)
    return ("min", operands[0], *high) if high else operands[0]


def _is_inf(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
    x, zero = operands[0], const(0, dtypes[0])
    result: Expression = ("is_inf", x)
    if not node.attrs.get("detect_negative", 1):
        result = ("and", result, ("greater", x, zero))
    if not node.attrs.get("detect_positive", 1):
        result = ("and", result, ("less", x, zero))
    return result


def _cast(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression | None:
    to = node.attrs.get("to")
    wanted = dtypes[1] if node.op_type == "CastLike" else to if isinstance(to, str) else ONNX_DTYPES.get(to)  # type: ignore[arg-type]  # an int
    if wanted not in DTYPES:
        return None
    options = _cast_options(node, wanted)
    return ("cast_as", wanted, " ".join(options), operands[0]) if options else ("cast", wanted, operands[0])


def _cast_options(node: Node, wanted: str) -> list[str]:
    """Return the options of a conversion that change its result; only floats of 8 bits have any."""
    options = []
    if wanted.startswith("float8") and not node.attrs.get("saturate", 1):
        options.append(UNSATURATED)
    mode = node.text("round_mode", ROUND_MODES[0])
    if wanted == "float8_e8m0fnu" and mode != ROUND_MODES[0]:
        options.append(mode)
    return options


def _swish(node: Node, operands: list[Expression], dtypes: Sequence[str]) -> Expression:
    x, alpha = operands[0], float(node.attrs.get("alpha", 1.0))
    return ("silu", x) if alpha == 1.0 else ("mul", x, ("sigmoid", ("mul", x, const(alpha, dtypes[0]))))


SPECIAL: dict[str, Rule] = {
    "Pow": _pow,
    "Clip": _clip,
    "IsInf": _is_inf,
    "Cast": _cast,
    "CastLike": _cast,
    "Sum": _chained("add"),
    "Mean": _rounded_once(_mean),
    "Swish": _rounded_once(_swish),
}
"""ONNX operators that need more than an operation's record."""

ONNX_OPERATORS = (*ONNX_TYPES, *SPECIAL)
"""ONNX operators that compute one element at a time."""


def _has_kernel(expression: Expression, node: Node, types: Mapping[str, TensorType]) -> bool:
    """Return whether all operations exist for the operands' types; a fused chain was checked when it was made."""
    if node.domain == "opbuild" and node.op_type == "Elementwise":
        return True
    dtypes = [types[name].dtype if name else "" for name in node.inputs]
    reads_codes = (part for part in walk(expression) if any(dtype_of(each, dtypes) in CODED for each in children(part)))
    if not all(part[0] in _CONVERSIONS for part in reads_codes):
        return False
    kinds = {*dtypes} - {""}
    if "float64" in kinds and not all(
        OPERATIONS[part[0]].float64 for part in walk(expression) if part[0] in OPERATIONS
    ):
        return False
    floats = all(is_float(kind) for kind in kinds - {"bool"}) and kinds != {"bool"}
    found = None if node.domain else of_onnx(node.op_type, node.attrs)
    if found is not None and found[0].parameters:
        return is_float(types[node.inputs[0]].dtype) and all(
            float(node.attrs.get(name, 1.0)) for name in found[0].divisors
        )
    if any(part[0] in (*_CONVERSIONS, "user") for part in walk(expression)):
        return True
    used = [OPERATIONS[part[0]] for part in walk(expression) if children(part)]
    return all(each.has_floats if floats else each.has_integers for each in used)


_CONVERSIONS = ("cast", "cast_as")


def simplified(expression: Expression) -> Expression:
    """Return the expression with a product of a value and itself as its square, which one operand less computes."""
    return substitute(expression, squared)


def squared(e: Expression) -> Expression | None:
    """Return the square that an expression is; None if it is none, or is written as one."""
    return ("square", e[1]) if e[0] == "mul" and e[1] == e[2] else None


def _numbered(expression: Expression, names: tuple[str, ...]) -> Elementwise:
    """Return the expression over distinct values, numbered in the order of ``names``."""
    used = sorted({part[1] for part in walk(expression) if part[0] == "arg"})
    distinct = list(dict.fromkeys(names[index] for index in used))
    renamed = substitute(expression, lambda e: arg(distinct.index(names[e[1]])) if e[0] == "arg" else None)
    return Elementwise(simplified(renamed), tuple(distinct))


class Hiding(NamedTuple):
    """The hiding of keys: a hidden one's weight is exactly 0 as long as keys and values are finite.

    Attributes:
        comparison: The part of the scores' expression that compares places.
        is_seen: Whether it is true for keys that are seen.
        number: How many keys, the first ones, a query sees, over the same operands; they do not depend on the key.
        first: How many of those, the first ones, a window hides, in the same way; None: it hides none.
        replaces: Whether a hidden key's score is the same whatever its products are.
    """

    comparison: Expression
    is_seen: bool
    number: Expression
    first: Expression | None = None
    replaces: bool = False


def split_attention(node: Node) -> tuple[Node, ...] | None:
    """Return an attention as the operators that it was made of, one by one; None if it is none."""
    if (node.domain, node.op_type) != ("opbuild", "Attention"):
        return None
    query, key, value, *operands = node.inputs
    scores, weights = str(node.attrs["scores"]), str(node.attrs["weights"])
    attrs = {"epilogue": node.attrs["epilogue"], "own_inputs": 2, "accumulator": node.attrs["accumulator"]}
    product = Node("MatMul", (query, key, *operands), (scores,), attrs, node.name, made_of=node.origins)
    parts: tuple[Node, ...] = (product,)
    if from_json(node.attrs["epilogue"]) == ACC:
        parts = (product.with_(attrs={}),)
    elif node.attrs["apart"]:
        parts = split_epilogue(product) or parts
    zeros = {"zeros": node.attrs["zeros"]} if "zeros" in node.attrs else {}
    rounded = [_rounding(node, place, own) for place, own in enumerate((1, 2))]
    if "cleared" in node.attrs:
        inputs, outputs, expression = node.attrs["cleared"]
        choice = Node("Elementwise", inputs, outputs, {"expression": expression}, node.name, domain="opbuild")
        parts, value = (choice, *parts), outputs[0]
    return (
        *parts,
        Node("Softmax", (scores,), (weights,), {"axis": -1, **zeros, **rounded[0]}, node.name),
        Node("MatMul", (weights, value), node.outputs, rounded[1], node.name),
    )


def _rounding(node: Node, place: int, own: int) -> dict[str, Any]:
    """Return the attributes by which a part of an attention with so many inputs rounds its results."""
    if "rounds" not in node.attrs:
        return {}
    expression = ("cast", "float32", ("cast", node.attrs["rounds"], ACC))
    return {"epilogue": expression, "own_inputs": own, "accumulator": node.attrs["unrounded"][place]}
