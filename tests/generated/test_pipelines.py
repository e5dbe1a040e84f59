"""What decides an object is what the compiler is given: equal digests of pipelines mean equal objects."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.halide.target import spelled
from opbuild.kernel.interfaces import Found
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.store.pack import PACKS, Pack, PackFile
from opbuild.target.level import BY_NAME
from support.edited_sources import edited, looked_at, modules_of, path_of, take
from support.forked import in_fork
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.seeds import try_seeds

LEVELS = sorted(path.name for path in PACKS.iterdir())
EDITS, KERNELS, GROUPS = CAMPAIGN or 8, CAMPAIGN or 10, CAMPAIGN or 2
_SECONDS = 300


@pytest.fixture(scope="module", autouse=True)
def _loaded() -> None:
    """The compiler, loaded once: each compile is in a fork of this process, as in a compile server."""
    HalideCompiler().prepare()


@cache
def packed(level: str) -> dict[str, list[tuple[dict[str, Any], str]]]:
    """Return by family the kernels of the pack of a level: their components and the digests of their pipelines."""
    found = {}
    for family in Pack(level).families():
        file = Pack(level).file(family)
        assert isinstance(file, PackFile)
        descs = map(OpDesc.from_components, file.descriptors())
        keys = [make_key(desc, BY_NAME[level], file.compiler, file.sources.code) for desc in descs]
        found[family] = [
            (dict(each), file.pipeline(key) or "") for each, key in zip(file.descriptors(), keys, strict=True)
        ]
    return found


def chosen(rng: random.Random) -> tuple[str, str, dict[str, Any], str]:
    """Return a level, a family, and one of its kernels with the digest of its pipeline: each family as often."""
    level = rng.choice(LEVELS)
    family = rng.choice(sorted(packed(level)))
    return level, family, *rng.choice(packed(level)[family])


def compiled_as_packed(level: str, desc: OpDesc) -> list[str]:
    """Return the digest of what is compiled, and whether the object under the pack's symbol is the pack's."""
    file = Pack(level).file(desc.family)
    assert isinstance(file, PackFile)
    found = Pack(level).lookup(make_key(desc, BY_NAME[level], file.compiler, file.sources.code))
    assert isinstance(found, Found)
    pipeline = HalideCompiler.define(desc, BY_NAME[level])
    is_same = pipeline.digest == found.entry.pipeline
    return [pipeline.digest, str(is_same and pipeline.compile(found.entry.symbol).data == found.entry.object)]


def compare_with_packs() -> bool:
    """Compile random kernels of packs; return whether some were defined as they are packed, and none was wrong."""

    def try_one(seed: int) -> tuple[str, str]:
        level, _, parts, known = chosen(random.Random(seed))
        desc = OpDesc.from_components(parts)
        digest, is_equal = in_fork(lambda: compiled_as_packed(level, desc), _SECONDS)
        if digest != known:
            return "defined otherwise now", desc.family
        return ("equal", "") if is_equal == "True" else ("wrong", f"{level} {desc.canonical()}")

    return bool(check_seeds("kernels by pipeline", try_one, KERNELS, processes=1).outcomes["equal"])


@pytest.mark.slow
def test_a_packs_object_is_what_its_pipeline_compiles_to() -> None:
    """F30: whoever takes a kernel by its pipeline's digest has the bytes that compiling gives, of all families.

    In a process of its own: Halide counts names on, and forks of one in which pipelines were made begin elsewhere.
    """
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
    done = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_descriptors_with_one_pipeline_have_one_object() -> None:
    """Such as a convolution and a phase of its gradient: what they are called decides nothing but the symbol."""
    groups = defaultdict(list)
    for level in LEVELS:
        for kernels in packed(level).values():
            for parts, digest in kernels:
                groups[level, digest].append(parts)
    several = [
        (level, parts) for (level, _), parts in sorted(groups.items(), key=lambda item: item[0]) if len(parts) > 1
    ]
    assert several

    def try_one(seed: int) -> tuple[str, str]:
        level, members = several[seed]
        found = {tuple(in_fork(lambda parts=parts: looked_at(parts, level), _SECONDS)) for parts in members[:3]}
        if len({digest for digest, _ in found}) > 1:
            return "defined otherwise now", ""
        return ("equal", "") if len(found) == 1 else ("wrong", str([level, *members]))

    numbers = random.Random(SEED).sample(range(len(several)), min(GROUPS, len(several)))
    tally = try_seeds("descriptors of one pipeline", try_one, numbers)
    assert not tally.faults


@pytest.mark.slow
def test_edits_that_change_no_pipeline_change_no_object() -> None:
    """Names, comments, helper functions, the order of directives, numbers: where the digest stays, every byte does."""

    def try_one(seed: int) -> tuple[str, str]:
        rng = random.Random(seed)
        level, family, parts, _ = chosen(rng)
        module = rng.choice(modules_of(family)[-2:] if rng.random() < 0.6 else modules_of(family))
        text, names = edited(path_of(module).read_text(), seed)

        def look() -> list[str]:
            take(module, text)
            return looked_at(parts, level, before[0])

        before = in_fork(lambda: looked_at(parts, level), _SECONDS)
        after = in_fork(look, _SECONDS)
        if not after[0]:
            return "refused", names
        if after[0] != before[0]:
            return "another pipeline", names
        return ("same", names) if after == before else ("wrong", f"{level} {module} {names} {parts}")

    tally = check_seeds("edits of what defines kernels", try_one, EDITS, processes=1)
    assert tally.outcomes["same"]


@pytest.mark.each
@pytest.mark.parametrize("part", ["min", "extent", "stride", "alignment", "estimate", "of an output"])
def test_what_is_set_on_parameters_is_in_the_digest(part: str) -> None:
    """Halide does not serialize it, and it decides bytes: another value is another digest."""
    desc = OpDesc.from_components(packed(LEVELS[0])["gemv"][0][0])

    def digests() -> list[str]:
        pipeline = HalideCompiler.define(desc, BY_NAME[LEVELS[0]])
        definition = pipeline._made._definition
        buffer = definition.outputs[0].output_buffer() if part == "of an output" else definition.inputs[0]
        if part == "alignment":
            buffer.set_host_alignment(64)
        elif part == "estimate":
            buffer.dim(0).set_estimate(0, 128)
        else:
            {"min": buffer.dim(0).set_min, "stride": buffer.dim(0).set_stride}.get(part, buffer.dim(0).set_extent)(32)
        return [pipeline.digest, pipeline._made.digest()]

    one, other = in_fork(digests)
    assert one != other


@pytest.mark.slow
@pytest.mark.each
@pytest.mark.parametrize("part", ["dots", "order", "range", "NO_CHECKS", "CODE"])
def test_what_is_beside_the_pipeline_is_in_the_digest(part: str) -> None:
    """Features of a kernel, the order of its arguments, a scalar's range, checks, and what emits the object."""
    desc, level = OpDesc.from_components(packed("x86-64-v4-bf16")["gemv"][0][0]), BY_NAME["x86-64-v4-bf16"]

    def digests() -> list[str]:
        from opbuild.backend.halide import emission

        pipeline = HalideCompiler.define(desc, level)
        definition, made = pipeline._made._definition, pipeline._made
        if part == "dots":
            made._targets[0] = emission.halide_target(spelled(level), (*emission.NO_CHECKS, *spelled(level).dots))
        elif part == "order":
            definition.inputs.reverse()
        elif part == "range":
            definition.tasks.set_range(1, 4)
        elif part == "NO_CHECKS":
            emission.NO_CHECKS = emission.NO_CHECKS[:-1]
            return [pipeline.digest, HalideCompiler.define(desc, level).digest]
        else:
            emission.CODE = "another"
        return [pipeline.digest, made.digest()]

    one, other = in_fork(digests)
    assert one != other


def test_a_digest_is_the_same_in_each_fork_and_changes_no_object() -> None:
    """It is made of names that Halide counts: a fresh fork begins to count anew, and serializing counts nothing."""
    level, _, parts, _ = chosen(random.Random(3))
    desc = OpDesc.from_components(parts)

    def without_digest() -> str:
        made = HalideCompiler.define.__globals__["HalidePipeline"]
        from opbuild.backend.halide.emission import OperatorPipeline

        OperatorPipeline.digest = lambda self: ""  # type: ignore[method-assign]
        return sha256(made(desc, BY_NAME[level]).compile("kernel").data)

    first, second = (in_fork(lambda: looked_at(parts, level), _SECONDS) for _ in range(2))
    assert first == second
    assert in_fork(without_digest, _SECONDS) == first[1]


if __name__ == "__main__":
    HalideCompiler().prepare()
    sys.exit(not compare_with_packs())
