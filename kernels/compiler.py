"""The compiler that makes the pack: Halide, whose keys hold the digests that an installed release has."""

from __future__ import annotations

from opbuild.backend.halide.driver import UNDECIDING, HalideCompiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.imports import Modules
from opbuild.platform.release import code


class PackCompiler(HalideCompiler):
    """Halide, for whose keys the code of a family counts and not its comments."""

    import_string = f"{__name__}:PackCompiler"

    @staticmethod
    def new_modules() -> Modules:
        """Return the sources as they are now, digested as those of a release are."""
        return Modules(without=UNDECIDING, digested=code)

    @staticmethod
    def text_digest(desc: OpDesc) -> str:
        """Return the digest of the same sources as a checkout has it, which digests comments too."""
        return HalideCompiler().sources_digest(desc)
