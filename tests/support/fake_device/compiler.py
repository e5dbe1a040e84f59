"""The compiler of the fake device: it writes Python source."""

from __future__ import annotations

import ast
import sys
import time
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from opbuild.kernel.artifact import Artifact, GlobalSymbols, NotAnArtifactError
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.target.level import Target
from support.fake_device import kernels

KIND = "python"
HOLD = "fake_device_hold"
"""A file in a folder of the search path: while it is there, operators of the family that it names are not done."""


class PythonSource:
    """Python source as a kind of artifacts."""

    magic = "PYTHON_SOURCE"

    @staticmethod
    def symbols(data: bytes, launch: Mapping[str, Any], /) -> GlobalSymbols:
        """Return the functions that it defines; how it is launched says of how many operands."""
        if {*launch} != {"operands"} or type(launch["operands"]) is not int:
            raise NotAnArtifactError("it does not say how many operands it has")
        try:
            parsed = ast.parse(data.decode())
        except (SyntaxError, ValueError) as error:
            raise NotAnArtifactError(f"it is no Python: {error}") from error
        return GlobalSymbols(tuple(sorted(each.name for each in parsed.body if isinstance(each, ast.FunctionDef))))


class PythonPipeline:
    """What is compiled for an operator: the source without its name."""

    def __init__(self, desc: OpDesc) -> None:
        self._desc = desc
        self.digest = sha256(kernels.source_of(desc, "kernel").encode())[:32]

    def compile(self, symbol: str) -> Artifact:
        """Return the source of a kernel of this name."""
        holds = [held for folder in sys.path if (held := Path(folder, HOLD)).is_file()]
        while any(held.is_file() and held.read_text() == self._desc.family for held in holds):
            time.sleep(0.01)
        source = kernels.source_of(self._desc, symbol).encode()
        return Artifact(source, symbol, KIND, {"operands": len(self._desc.operands)})


class PythonCompiler:
    """Makes Python source of descriptors; see ``Compiler``."""

    import_string = "support.fake_device.compiler:PythonCompiler"
    name = "python source"

    def version(self) -> str:
        """Return a release."""
        return "1.0"

    def library(self) -> Any:
        """Return the identity of the source's writer."""
        from opbuild.platform.paths import Path as OwnPath

        return OwnPath(str(Path(kernels.__file__)))

    def files(self) -> tuple[Any, ...]:
        """Return the same alone."""
        return (self.library(),)

    def sources_digest(self, desc: OpDesc) -> str:
        """Return a digest that depends on the family alone."""
        return sha256(desc.family.encode())

    def released_digest(self, desc: OpDesc) -> str:
        """Return another one that does."""
        return sha256(f"released {desc.family}".encode())

    def prepare(self) -> None:
        """Load nothing."""

    def define(self, desc: OpDesc, _: Target, /) -> PythonPipeline:
        """Return the pipeline."""
        return PythonPipeline(desc)

    def inspect(self, desc: OpDesc, symbol: str, _: Target, /, options: Collection[str]) -> Mapping[str, bytes]:
        """Return the source alone."""
        return {".o": PythonPipeline(desc).compile(symbol).data}
