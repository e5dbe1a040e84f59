"""Matrices made of several diagonals, and back: MatrixDiag and its kin."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore.arguments import one_of
from opbuild.mindspore.host import on_data
from opbuild.mindspore.ops.declaration import formula

__all__ = ["matrix_diag", "matrix_diag_part", "matrix_set_diag"]

_ALIGNMENTS = ("LEFT_RIGHT", "RIGHT_LEFT", "LEFT_LEFT", "RIGHT_RIGHT")

matrix_set_diag = formula(
    "matrix_set_diag", "matrices with the diagonals ``k`` replaced",
    on_data(lambda x, diagonal, k=0, align="RIGHT_LEFT": _filled(x.copy(), diagonal, k, align)),
)  # fmt: skip


def _bounds(k: Any) -> tuple[int, int]:
    values = [int(item) for item in np.asarray(k).reshape(-1)]
    return values[0], values[-1]


def _start(offset: int, length: int, widest: int, align: str) -> int:
    """Return where a diagonal begins in its row; the first word is for those above, the second for those below."""
    side = align.split("_")[0 if offset >= 0 else 1]
    return widest - length if side == "RIGHT" else 0


def _places(rows: int, columns: int, k: Any, align: str) -> Any:
    """Return for each diagonal, the highest first: its row and start in the packed form, and its places."""
    one_of(align, _ALIGNMENTS, "align")
    low, high = _bounds(k)
    lengths = {d: min(rows + min(d, 0), columns - max(d, 0)) for d in range(low, high + 1)}
    widest = max(lengths.values())
    for d in range(high, low - 1, -1):
        steps = np.arange(lengths[d])
        yield high - d, _start(d, lengths[d], widest, align), steps - min(d, 0), steps + max(d, 0)


@on_data
def matrix_diag_part(x: Any, k: Any, padding_value: Any, align: str = "RIGHT_LEFT") -> Any:
    """Return the diagonals ``k`` (one, or from the first to the last) of matrices as rows, the highest first."""
    rows, columns = x.shape[-2:]
    low, high = _bounds(k)
    widest = min(rows + min(high, 0), columns - max(low, 0))
    packed = np.full((*x.shape[:-2], high - low + 1, widest), padding_value, x.dtype)
    for row, start, down, right in _places(rows, columns, k, align):
        packed[..., row, start : start + len(down)] = x[..., down, right]
    return packed[..., 0, :] if low == high else packed


def _filled(result: Array, diagonal: Array, k: Any, align: str) -> Array:
    low, high = _bounds(k)
    packed = diagonal[..., None, :] if low == high else diagonal
    for row, start, down, right in _places(result.shape[-2], result.shape[-1], k, align):
        result[..., down, right] = packed[..., row, start : start + len(down)]
    return result


@on_data
def matrix_diag(x: Any, k: Any = 0, num_rows: Any = -1, num_cols: Any = -1, padding_value: Any = 0,
                align: str = "RIGHT_LEFT") -> Any:  # fmt: skip
    """Return matrices with the diagonals ``k`` given and ``padding_value`` elsewhere."""
    low, high = _bounds(k)
    rows, columns = int(num_rows), int(num_cols)
    least_rows, least_columns = x.shape[-1] + max(-high, 0), x.shape[-1] + max(low, 0)
    if rows == -1 and columns == -1:
        rows = columns = max(least_rows, least_columns)
    rows = least_rows if rows == -1 else rows
    columns = least_columns if columns == -1 else columns
    front = x.shape[:-1] if low == high else x.shape[:-2]
    return _filled(np.full((*front, rows, columns), padding_value, x.dtype), x, k, align)
