"""Descriptors that were stored: each field that is read has the type of one that this process made."""

from __future__ import annotations

from typing import Any

from opbuild.kernel.opdesc import Dim, OpDesc, Operand

_LIMIT = 2**63
_TEXTS = ("family", "impl_mode", "source", "target")


def desc_from_json(parts: Any) -> OpDesc:
    """Return the descriptor whose ``components()`` were stored.

    Raises:
        ValueError: If it is something else.
    """
    try:
        desc = OpDesc.from_components(parts)
        sound = (
            all(isinstance(getattr(desc, name), str) for name in _TEXTS)
            and all(isinstance(each, dict) for each in (desc.attrs, desc.variant))
            and all(isinstance(each, str) for each in desc.op_types)
            and all(map(_is_operand, desc.operands))
        )
        desc.canonical()  # which is kept with it; what is nested too deeply has none
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a descriptor: {error!s:.200}") from error
    if not sound:
        raise ValueError("not a descriptor")
    return desc


def _is_operand(operand: Operand) -> bool:
    texts = (operand.name, operand.dtype, operand.format)
    return all(isinstance(each, str) for each in texts) and all(map(_is_dim, operand.dims))


def _is_dim(dim: Dim) -> bool:
    numbers = (dim.extent, dim.stride, dim.min, dim.max, dim.multiple)
    return all(type(each) is int and -_LIMIT <= each < _LIMIT for each in numbers) and dim.multiple > 0
