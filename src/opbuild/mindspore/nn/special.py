"""Functions of mathematics as cells."""

from __future__ import annotations

from opbuild.mindspore import names
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.declaration import layer
from opbuild.mindspore.ops.arithmetic import add, sub
from opbuild.mindspore.ops.decompositions import det, inverse
from opbuild.mindspore.ops.special import digamma, igamma, lgamma
from opbuild.mindspore.tensor import Tensor


def _lbeta(x: Tensor, y: Tensor) -> Tensor:
    return sub(add(lgamma(x), lgamma(y)), lgamma(add(x, y)))


LGamma = layer("LGamma", lgamma, "The logarithm of the absolute value of the gamma function.", "x")
DiGamma = layer("DiGamma", digamma, "The derivative of the logarithm of the gamma function.", "x")
IGamma = layer("IGamma", igamma, "The lower regularized incomplete gamma function.", "a x")
LBeta = layer("LBeta", _lbeta, "The logarithm of the beta function.")
MatDet = layer("MatDet", det, "The determinant of symmetric, positive definite matrices.", "x")
MatInverse = layer("MatInverse", inverse, "The inverse of symmetric, positive definite matrices.", "x")

__all__ = names.public(vars(), Cell)
