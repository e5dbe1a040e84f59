"""A compiler that takes its time, so that a program ends while it works."""

from __future__ import annotations

import time

from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Level
from support.kept_kernels import KeptCompiler

SECONDS = 0.3


class SlowCompiler(KeptCompiler):
    """The compiler of tests, which waits before each compile."""

    import_string = "support.slow_compiler:SlowCompiler"

    @staticmethod
    def compile(desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Wait, and compile."""
        time.sleep(SECONDS)
        return KeptCompiler.compile(desc, symbol, level)
