"""``mint.linalg``."""

from __future__ import annotations

from opbuild.mindspore import names
from opbuild.mindspore.ops import matrices
from opbuild.mindspore.ops.declaration import spelled

__getattr__ = names.getter(__name__)
__all__ = ["inv", "matrix_norm", "norm", "qr", "vector_norm"]

inv = matrices.inverse
matrix_norm = spelled(matrices.matrix_norm, dim="axis", keepdim="keepdims")
norm = matrices.norm
qr = spelled(matrices.qr, A="input")
vector_norm = spelled(matrices.vector_norm, dim="axis", keepdim="keepdims")

names.call_rows(vars(), __name__)
