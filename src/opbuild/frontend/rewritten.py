"""Which operators ``frontend.microsoft`` writes with others: it is loaded for a network that may have some."""

from __future__ import annotations

DOMAIN = "com.microsoft"


def rewrites(domain: str, op_type: str) -> bool:
    """Return whether an operator is written with others."""
    if op_type == "SimplifiedLayerNormalization":
        return True  # ONNX Runtime writes it into ONNX's own domain as well
    if domain != DOMAIN:
        return False
    from opbuild.frontend.microsoft import REWRITES

    return op_type in REWRITES
