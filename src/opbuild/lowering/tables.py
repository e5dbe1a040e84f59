"""Constants that are worked out from numbers, for each size where those are open."""

from __future__ import annotations

from typing import Any

from opbuild.graph.tables import Table
from opbuild.lowering.context import Lowering
from opbuild.lowering.operands import OperandStorage, Plain, dense_strides


def table(lowering: Lowering, name: str, arguments: tuple[Any, ...], shape: tuple[int, ...], dtype: str) -> Plain:
    """Return a table (``graph.tables``) as a constant.

    Args:
        lowering: The lowering.
        name: Its name.
        arguments: What it is made of, open extents among it.
        shape: Its shape.
        dtype: Its element type.
    """
    made = Table(name, arguments)
    if not made.is_open:
        return lowering.packed((), f"{name} {arguments}", shape, dtype, made.example_value)
    return Plain(
        OperandStorage("constant", dtype, shape, pack=made.example_value, table=made), shape, dense_strides(shape)
    )
