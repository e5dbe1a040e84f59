"""Every elementwise operation, by its name and by the ONNX operator that it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from opbuild.operations import activations, arithmetic, comparison, functions, logic
from opbuild.operations.record import Onnx, Operation

OPERATIONS: dict[str, Operation] = {
    operation.name: operation
    for module in (arithmetic, functions, activations, comparison, logic)
    for operation in module.OPERATIONS
}
"""Every operation by its name."""

BY_TYPE: dict[str, Operation] = {operation.op_type: operation for operation in OPERATIONS.values()}
"""Every operation by its type in domain ``opbuild``."""

_BY_ONNX: dict[str, list[tuple[Onnx, Operation]]] = {}
for _operation in OPERATIONS.values():
    _onnx = _operation.as_onnx
    if _onnx is not None:
        _BY_ONNX.setdefault(_onnx.name, []).append((_onnx, _operation))

ONNX_TYPES = tuple(_BY_ONNX)
"""The types of ONNX operators that are an operation."""


def of_onnx(op_type: str, attrs: Mapping[str, Any]) -> tuple[Onnx, Operation] | None:
    """Return the operation that an ONNX operator with these attributes is, and how; None if it is none."""
    found = [(onnx, operation) for onnx, operation in _BY_ONNX.get(op_type, ()) if onnx.fits(attrs)]
    return max(found, key=lambda each: each[0].when is not None) if found else None
