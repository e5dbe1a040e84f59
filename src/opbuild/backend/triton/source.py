"""Functions of Triton from generated text."""

from __future__ import annotations

import linecache
from collections.abc import Mapping
from typing import Any

from opbuild.platform.digest import sha256


def jit_function(text: str, name: str, names: Mapping[str, Any] | None = None) -> Any:
    """Return a function as ``triton.jit`` makes it.

    Triton reads a function's source, which is therefore known to Python under a name that follows from the text.

    Args:
        text: The source; it knows ``tl`` and ``libdevice``.
        name: The function's name there.
        names: What else it knows.
    """
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice

    file = f"<triton {sha256(text.encode())[:16]}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    scope = {"__name__": __name__, "tl": tl, "libdevice": libdevice, **(names or {})}
    exec(compile(text, file, "exec"), scope)  # noqa: S102 - the text is opbuild's own
    return triton.jit(scope[name])
