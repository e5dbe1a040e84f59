"""Values of generated functions: the operators of Python write a line each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.dtypes import is_float


class Text:
    """The lines of a function's body, each of which computes a value."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._known: dict[str, Scalar] = {}

    def line(self, code: str, dtype: str) -> Scalar:
        """Return the value of a line; equal lines are written once."""
        if code not in self._known:
            value = self._known[code] = Scalar(self, f"v{len(self._known)}", dtype)
            self._lines.append(f"{value} = {code}")
        return self._known[code]

    def finish(self, value: Scalar) -> None:
        """Return a value from the function."""
        self._lines.append(f"return {value}")

    def __str__(self) -> str:
        return "".join(f"    {line}\n" for line in self._lines)


def _arithmetic(symbol: str) -> Callable[[Any, Any], Scalar]:
    return lambda a, b: a.text.line(f"{a} {symbol} {b}", a.dtype)


def _comparison(symbol: str) -> Callable[[Any, Any], Scalar]:
    return lambda a, b: a.text.line(f"{a} {symbol} {b}", "bool")


class Scalar:
    """A value of a function.

    Attributes:
        text: Where it is computed.
        name: Its name there.
        dtype: Its element type; ``bool`` has one bit.
        narrow: The type of 16 bits whose value a float32 is; empty if it is none.
    """

    def __init__(self, text: Text, name: str, dtype: str, narrow: str = "") -> None:
        self.text, self.name, self.dtype, self.narrow = text, name, dtype, narrow

    def __str__(self) -> str:
        return self.name

    def as_narrow(self, narrow: str) -> Scalar:
        """Return it as a value of a type of 16 bits."""
        return Scalar(self.text, self.name, self.dtype, narrow)

    def __mul__(self, other: Scalar) -> Scalar:
        # What is rounded by name is not contracted with a sum.
        code = f"libdevice.mul_rn({self}, {other})" if is_float(self.dtype) else f"{self} * {other}"
        return self.text.line(code, self.dtype)

    def __truediv__(self, other: Scalar) -> Scalar:
        return self.text.line(f"libdevice.div_rn({self}, {other})", self.dtype)

    def __neg__(self) -> Scalar:
        # Of floats Triton's own is 0 - x, which loses the sign of 0.
        code = f"{self} * -1.0" if is_float(self.dtype) else f"0 - {self}"
        return self.text.line(code, self.dtype)

    def __invert__(self) -> Scalar:
        return self.text.line(f"{self} ^ True" if self.dtype == "bool" else f"~{self}", self.dtype)

    __add__, __sub__, __floordiv__ = _arithmetic("+"), _arithmetic("-"), _arithmetic("//")
    __and__, __or__, __xor__ = _arithmetic("&"), _arithmetic("|"), _arithmetic("^")
    __lshift__, __rshift__ = _arithmetic("<<"), _arithmetic(">>")
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("<", "<=", ">", ">="))
    __eq__, __ne__ = map(_comparison, ("==", "!="))  # type: ignore[assignment]
    __hash__ = object.__hash__


def select(condition: Scalar, a: Scalar, b: Scalar) -> Scalar:
    """Return ``a`` where a truth value is true, else ``b``."""
    return a.text.line(f"tl.where({condition}, {a}, {b})", a.dtype)
