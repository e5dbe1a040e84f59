"""Functions of mathematics as cells."""

from __future__ import annotations

from opbuild.mindspore import names
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.arithmetic import add, sub
from opbuild.mindspore.ops.decompositions import det, inverse
from opbuild.mindspore.ops.special import digamma, igamma, lgamma
from opbuild.mindspore.tensor import Tensor


class LGamma(Cell):
    """The logarithm of the absolute value of the gamma function."""

    def construct(self, x: Tensor) -> Tensor:
        """Return it of each element."""
        result: Tensor = lgamma(x)
        return result


class DiGamma(Cell):
    """The derivative of the logarithm of the gamma function."""

    def construct(self, x: Tensor) -> Tensor:
        """Return it of each element."""
        result: Tensor = digamma(x)
        return result


class IGamma(Cell):
    """The lower regularized incomplete gamma function."""

    def construct(self, a: Tensor, x: Tensor) -> Tensor:
        """Return it of each pair of elements."""
        result: Tensor = igamma(a, x)
        return result


class LBeta(Cell):
    """The logarithm of the beta function."""

    def construct(self, x: Tensor, y: Tensor) -> Tensor:
        """Return it of each pair of elements."""
        return sub(add(lgamma(x), lgamma(y)), lgamma(add(x, y)))


class MatDet(Cell):
    """The determinant of symmetric, positive definite matrices."""

    def construct(self, x: Tensor) -> Tensor:
        """Return the determinants."""
        result: Tensor = det(x)
        return result


class MatInverse(Cell):
    """The inverse of symmetric, positive definite matrices."""

    def construct(self, x: Tensor) -> Tensor:
        """Return the inverses."""
        result: Tensor = inverse(x)
        return result


__all__ = names.public(vars(), Cell)
