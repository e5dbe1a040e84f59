"""The compiler that makes the pack: Halide, whose keys hold the digests that an installed release has."""

from __future__ import annotations

from opbuild.backend.halide.driver import HalideCompiler, HalidePipeline
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.imports import Modules
from opbuild.store.pack import Pack, PackFile
from opbuild.target.level import Level


class PackCompiler(HalideCompiler):
    """Halide, for whose keys the code of a family counts and not its comments."""

    import_string = f"{__name__}:PackCompiler"

    def new_modules(self) -> Modules:
        """Return the sources as they are now, digested as those of a release are."""
        return self.released

    @staticmethod
    def text_digest(desc: OpDesc) -> str:
        """Return the digest of the same sources as a checkout has it, which digests comments too."""
        return HalideCompiler().sources_digest(desc)


class CheckedCompiler(PackCompiler):
    """What makes kernels again that the pack has: under the symbols that those have, which are of their time."""

    import_string = f"{__name__}:CheckedCompiler"

    @staticmethod
    def define(desc: OpDesc, level: Level) -> HalidePipeline:
        """Return the pipeline, under the pack's symbol."""
        pipeline, pack = HalidePipeline(desc, level), Pack(level.name)
        file = pack.file(desc.family)
        if isinstance(file, PackFile):
            found = pack.lookup(make_key(desc, level, file.compiler, file.sources.code))
            if isinstance(found, Found):
                pipeline.symbol = found.entry.symbol
        return pipeline
