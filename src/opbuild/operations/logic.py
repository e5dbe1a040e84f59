"""Operations on truth values and on bits.

A shift by the width or more gives 0, or -1 for a negative number shifted right.
"""

from __future__ import annotations

from opbuild.operations.record import Cost, Formula, Onnx, Operation


def _logic(
    name: str, arity: int, formula: Formula, onnx: str, cost: Cost = Cost.CHEAP, repeats: bool = False
) -> Operation:
    return Operation(name, arity, formula, "truth", onnx, predicate=True, repeats=repeats, cost=cost)


def _bits(name: str, arity: int, formula: Formula, onnx: Onnx | str, repeats: bool = True) -> Operation:
    return Operation(name, arity, formula, "integers", onnx, repeats=repeats)


OPERATIONS = (
    _logic("and", 2, lambda m, a, b: m.truth(a) & m.truth(b), "And"),
    _logic("or", 2, lambda m, a, b: m.truth(a) | m.truth(b), "Or"),
    _logic("xor", 2, lambda m, a, b: m.truth(a) != m.truth(b), "Xor", Cost.ORDINARY),
    _logic("not", 1, lambda m, x: ~m.truth(x), "Not", repeats=True),
    _bits("bit_and", 2, lambda m, a, b: a & b, "BitwiseAnd", repeats=False),
    _bits("bit_or", 2, lambda m, a, b: a | b, "BitwiseOr", repeats=False),
    _bits("bit_xor", 2, lambda m, a, b: a ^ b, "BitwiseXor", repeats=False),
    _bits("bit_not", 1, lambda m, x: ~x, "BitwiseNot"),
    _bits("shift_left", 2, "shift_left", Onnx("BitShift", when=("direction", "LEFT", None))),
    _bits("shift_right", 2, "shift_right", Onnx("BitShift")),
)
