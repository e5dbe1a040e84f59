"""Code that was built for one size before: Dynamo hands it over again, then with open sizes."""

from __future__ import annotations

from typing import Literal

from torch._guards import CompileContext

Role = Literal["inference", "forward", "backward"]
"""What a graph is of some code: all of it, or where gradients are needed one of two."""

_BUILT: set[tuple[int, Role]] = set()


def was_built(role: Role) -> bool:
    """Return whether Dynamo handed over the present code before; ``role`` is the graph's part of it."""
    compile_id = CompileContext.current_compile_id()
    if compile_id is None or compile_id.frame_id is None:
        return False
    if not compile_id.frame_compile_id:
        _BUILT.add((compile_id.frame_id, role))
        return False
    return (compile_id.frame_id, role) in _BUILT
