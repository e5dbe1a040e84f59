"""``mint.linalg``."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.ops import decompositions, matrices
from opbuild.mindspore.tensor import Tensor

__getattr__ = names.getter(__name__)
__all__ = ["inv", "matrix_norm", "norm", "qr", "vector_norm"]

inv = decompositions.inverse


def matrix_norm(A: Any, ord: Any = "fro", dim: Any = (-2, -1), keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of matrices."""
    return matrices.matrix_norm(A, ord, dim, keepdim, dtype=dtype)


def norm(A: Any, ord: Any = None, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of vectors, or of matrices if an order is given with two axes."""
    return matrices.norm(A, ord, dim, keepdim, dtype=dtype)


def vector_norm(x: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Return the norm of vectors."""
    return matrices.vector_norm(x, ord, dim, keepdim, dtype=dtype)


def qr(A: Any, mode: str = "reduced") -> Any:
    """Return an orthogonal and an upper triangular factor."""
    return decompositions.qr(A, mode)
