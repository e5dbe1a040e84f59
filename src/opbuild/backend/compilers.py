"""The compilers that there are: the one place that chooses among them, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import Compiler

USUAL = "halide"


def make_compiler(name: str = USUAL) -> Compiler:
    """Return a compiler; nothing of it is loaded yet.

    Raises:
        ValueError: If there is none of this name.
    """
    if name == "halide":
        from opbuild.backend.halide.driver import HalideCompiler

        return HalideCompiler()
    if name == "fake":
        from opbuild.backend.fake import FakeCompiler

        return FakeCompiler()
    raise ValueError(f"there is no compiler {name!r}")
