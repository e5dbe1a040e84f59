"""The compilers that there are: the one place that knows which one makes code for a target."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.target.level import CPU

if TYPE_CHECKING:
    from opbuild.kernel.interfaces import Compiler


def make_compiler(device: str = CPU) -> Compiler:
    """Return the compiler for a class of devices; nothing of it is loaded yet.

    Raises:
        LookupError: If there is no such class.
    """
    if device == CPU:
        from opbuild.backend.halide.driver import HalideCompiler

        return HalideCompiler()
    from opbuild.target.devices import device_class

    compiler: Compiler = device_class(device).compiler()
    return compiler
