"""Halide's compiler, but for exactly the processor that it runs on: what a level is compared with, and nothing else."""

from __future__ import annotations

from dataclasses import replace

import halide as hl

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.halide.target import spelled
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Level


class ExactHalide(HalideCompiler):
    """Takes what Halide detects in place of the level's features; kernels are chosen as for the level."""

    import_string = "exact_cpu:ExactHalide"
    name = "halide-exact"

    @staticmethod
    def compile(desc: OpDesc, symbol: str, level: Level) -> bytes:
        """Compile one operator for this processor."""
        return HalideCompiler.compile(desc, symbol, replace(spelled(level), features=detected_features()))


def detected_features() -> tuple[str, ...]:
    """Return Halide's features of this processor."""
    features = str(hl.get_host_target()).split("-")[3:]
    return tuple(feature for feature in features if not feature.startswith("tune_"))
