"""A compiler for tests whose sources, and what they define, are what a file says in a folder of the search path."""

from __future__ import annotations

import sys
from pathlib import Path

from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Level
from support.fake_compiler import FakeCompiler, FakePipeline

SOURCES = "edited_sources.txt"
"""What the sources are now: a digest, and behind a comma what they define."""


class EditedCompiler(FakeCompiler):
    """A compiler whose sources the environment names, for the compile server as well."""

    import_string = "support.edited_compiler:EditedCompiler"

    @staticmethod
    def now() -> tuple[str, str]:
        """Return the sources' digest, and what they define."""
        path = next(path for folder in sys.path if (path := Path(folder, SOURCES)).is_file())
        digest, _, defined = path.read_text().partition(",")
        return digest, defined

    def sources_digest(self, desc: OpDesc) -> str:
        """Return the digest."""
        return self.now()[0]

    def define(self, desc: OpDesc, level: Level) -> FakePipeline:
        """Return another pipeline where the sources define something else."""
        pipeline = super().define(desc, level)
        pipeline.digest = (self.now()[1] + pipeline.digest)[:32]
        return pipeline
