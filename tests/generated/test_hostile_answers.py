"""A compiler that writes into the pipes by which builder, compile server and compiling processes talk to each other.

However it goes, a build ends, with objects or with an error of opbuild's that names operators; and where the process of
one operator writes into its own pipe alone, all the others are built.
"""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from pathlib import Path

import pytest

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.store.operators import operators_in
from support import kept_kernels
from support.fuzzing import check_seeds
from support.hostile_compiler import HostileCompiler
from support.samples import LEVEL, conv, needed
from support.tiers import spans

OPERATORS = 4


def _build(seed: int) -> tuple[str, str]:
    draw = random.Random(seed)
    where = draw.choice(("own", "all"))
    descs = [conv(number) for number in range(1, OPERATORS)]
    descs.append(conv(OPERATORS, seed=seed, where=where))
    draw.shuffle(descs)
    folder = Path(tempfile.mkdtemp())
    try:
        config = Config(cache_path=folder, workers=2, compile_timeout=20.0)
        with Builder(operators_in(config.kernel_meta), HostileCompiler(), LEVEL, config) as builder:
            try:
                builder.build(needed(*descs), "net")
                outcome = "built"
            except OpbuildError as error:
                outcome = "refused"
                if where == "own" and "1 operator could not be compiled" not in str(error):
                    return "wrong", str(error)
            stored = len(operators_in(config.kernel_meta).names())
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if where == "own" and stored < OPERATORS - 1:
        return "wrong", f"only {stored} operators were stored"
    return f"{outcome} ({where})", ""


@pytest.mark.parametrize("seeds", spans(10, 4))
def test_a_build_ends_whatever_is_said_by_what_compiles(seeds: range, monkeypatch: pytest.MonkeyPatch) -> None:
    """Random bytes, changed messages, huge numbers and lengths: never a traceback, never a wait for ever."""
    monkeypatch.syspath_prepend(str(kept_kernels.TESTS))
    check_seeds("answers of compilers", _build, seeds, processes=os.cpu_count() or 1)
