"""A compiler that notes how many compiles run at once on this host, in a folder that operators name."""

from __future__ import annotations

import os
import time
from pathlib import Path

from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Level
from support.fake_compiler import FakeCompiler


class CrowdedCompiler(FakeCompiler):
    """The fake compiler, which appends to ``variant["folder"]/seen`` how many of its kind are at work."""

    import_string = "support.crowded_compiler:CrowdedCompiler"

    def compile(self, desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Take a while, and count."""
        folder = Path(desc.variant["folder"])
        mark = folder / f"at-work-{os.getpid()}"
        mark.touch()
        time.sleep(0.02)
        with (folder / "seen").open("a") as file:
            file.write(f"{len(list(folder.glob('at-work-*')))}\n")
        mark.unlink()
        return super().compile(desc, symbol, level)
