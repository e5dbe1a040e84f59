"""Code for a level has no instruction that a machine of that level may lack: there it would die with SIGILL (F25).

Halide names a processor to LLVM for a level's features, and LLVM uses all that this processor has.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path

import halide as hl
import numpy as np
import onnx
import pytest

from kernels.test_every_family import CASES, ELSEWHERE, graph_of
from opbuild.backend.halide import emission
from opbuild.backend.halide.driver import HalideCompiler
from opbuild.backend.halide.emission import NO_CHECKS, dot_features, halide_target
from opbuild.backend.halide.target import spelled
from opbuild.backend.host.evaluate import evaluate
from opbuild.families import catalogue
from opbuild.frontend.onnx_model import load_model
from opbuild.frontend.operator_examples import examples
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.target.level import LEVELS, Level
from opbuild.target.machine import Machine
from support import kept_kernels
from support.fuzzing import CAMPAIGN

PROCESSORS = {
    "x86-64": "k8",
    "x86-64-v2": "penryn",
    "x86-64-v3": "haswell",
    "x86-64-v4": "skylake-avx512",
    "x86-64-v4-bf16": "cannonlake",
}
"""What LLVM makes code for. What each has beyond its level's flags LLVM uses for explicit calls only (AES, random
numbers, cache lines, keys, SHA), but for Knights Landing's and AMD's below. Zen 4 has SSE4A, Sapphire Rapids FP16, so
neither is the processor of a level that they share."""

X86 = tuple(level for level in LEVELS if level.triple == "x86-64-linux")

_BEYOND = {
    "x86-64": r"addsubp[sd]|hadd\w+|hsub\w+|lddqu|movddup|movs[hl]dup|p(abs|sign)[bwd]|pshufb|palignr|ph(add|sub)\w+|"
    r"pmulhrsw|pmaddubsw|pmov[sz]x\w+|p?blendv?\w+|dpp[sd]|extractps|insertps|mpsadbw|packusdw|pcmp(eq|gt)q|"
    r"p(ext|ins)r[bdq]|p(max|min)(s[bd]|u[wd])|pmulld|pmuldq|ptest|round[sp][sd]|phminposuw|popcnt\w?",
    "x86-64-v2": r"v\w+|andn[lq]?|bextr[lq]?|bls\w+|(sar|shl|shr|ror)x[lq]?|mulx[lq]?|p(dep|ext)[lq]?|[lt]zcnt\w?|"
    r"bzhi[lq]?|movbe\w?",
    "x86-64-v3": r"k\w+[bwdq]|vp?(compress|expand|ternlog|broadcastm|conflict|lzcnt|rol|ror|test[n]?m)\w*|vpdp\w+",
    "x86-64-v4": r"vpdp\w+|vdpbf16ps|vcvtne\w+|vperm([it]2)?b|vp(compress|expand)[bw]|vpsh[lr]d\w+|vpopcnt\w+|"
    r"vpshufbitqmb|v?gf2p8\w+|vpmadd52\w+",
    "x86-64-v4-bf16": r"extrq|insertq|movnts[sd]|vmovw|vmovsh|vcvtph2psx|vcvtps2phx|vcvt\w*(sh2\w+|2sh)|"
    r"v(f?n?m?(add|sub)\w*|mul|div|sqrt|min|max|cmp\w*|reduce|rndscale|getexp|getmant)[ps]h|vp2intersect\w+|tdp\w+|tile\w+",
}
"""Instructions, or registers and masks, of the next extensions that machines of a level may lack, or of others."""
_AVX512_OPERANDS = re.compile(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|\{%k\d\}")
_INSTRUCTION = re.compile(r"^\t(?:\{\w+\} )?([a-z][a-z0-9]*)(?: .*|\t.*|)$", re.MULTILINE)


TURNS = 7
"""Of so many kernels one is looked at for each level, another for the next one; a campaign looks at all for all."""

ON_BYTES = ("Abs", "BitShift", "Cast", "Clip", "Div", "Mod", "Mul", "PRelu")
"""In types of one and two bytes, LLVM has most choice among extensions."""


@cache
def graphs() -> tuple[Graph, ...]:
    """Return networks of one operator each: every family, and operators on small types."""
    families = [graph_of(case, 17)[0] for case in CASES.values()]
    models = [each.model for name in ON_BYTES for each in examples(name) if isinstance(each.model, onnx.ModelProto)]
    return (*families, *(load_model(model).bind({}, evaluate) for model in models))


def descriptors(level: Level) -> Iterator[OpDesc]:
    """Yield what the networks need at a level, each once."""
    found = {desc for graph in graphs() for desc in lower(optimize(graph, evaluate), level).descriptors()}
    return iter(sorted(found, key=OpDesc.canonical))


def text_of(desc: OpDesc, level: Level, path: Path, kind: hl.OutputFileType) -> str:
    """Return the text that a kernel is compiled to."""
    family = import_module(f"opbuild.families.{desc.family}.halide")
    definition = family.define(desc)
    family.schedule(definition, desc, Machine.of(level))
    outputs = definition.outputs
    pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
    features = (*NO_CHECKS, *dot_features(definition, spelled(level)))
    pipeline.compile_to({kind: str(path)}, definition.arguments, "kernel", halide_target(spelled(level), features))
    return path.read_text(encoding="utf-8")


def used_by(desc: OpDesc, level: Level, path: Path) -> str:
    """Return the lines of a kernel's assembly that ``beyond`` looks for, each once.

    It is kept as kernels are, by the text of this file, too; only for levels as they are, which keys name.
    """
    place = kept_kernels.FOLDER / f"{kept_kernels.name_of(desc, level, sys.modules[__name__])}.txt"
    found = kept_kernels.kept(place)
    if found is None:
        assembly = text_of(desc, level, path, hl.OutputFileType.assembly)
        lines = {f"\t{name}" for name in _INSTRUCTION.findall(assembly)}
        lines |= {match[0] for match in _AVX512_OPERANDS.finditer(assembly)}
        found = "\n".join(sorted(lines)).encode()
        kept_kernels.keep(place, found)
    return found.decode()


def beyond(level: Level, assembly: str) -> set[str]:
    """Return the instructions of a kernel's assembly that machines of a level may lack."""
    forbidden = "|".join(_BEYOND[each.name] for each in X86 if level.runs_on(each))
    found = {name for name in _INSTRUCTION.findall(assembly) if re.fullmatch(forbidden, name)}
    if not level.flags & {"avx512f"}:
        found |= {match[0] for match in _AVX512_OPERANDS.finditer(assembly)}
    return found


@pytest.mark.slow
@pytest.mark.parametrize("level", X86 if CAMPAIGN else X86[2:], ids=str)
def test_no_kernel_of_a_level_has_what_its_machines_may_lack(level: Level, tmp_path: Path) -> None:
    """Kernels of every family, and of operators on bytes and halves, where LLVM has most choice."""
    needed = list(descriptors(level))
    assert {desc.family for desc in needed} >= set(catalogue.names()) - set(ELSEWHERE)
    chosen = needed if CAMPAIGN else needed[X86.index(level) % TURNS :: TURNS]
    kernels = [used_by(desc, level, tmp_path / "kernel.s") for desc in chosen]
    assert set().union(*(beyond(level, kernel) for kernel in kernels)) == set()


@pytest.mark.parametrize("level", X86, ids=str)
def test_llvm_makes_code_for_a_processor_that_was_compared_with_the_level(level: Level, tmp_path: Path) -> None:
    """Another release of Halide may name another one: then what it has is to be compared with the level's flags."""
    desc = next(each for each in descriptors(level) if each.family == "elementwise")  # products of bytes have Zen 4's
    code = text_of(desc, level, tmp_path / "kernel.ll", hl.OutputFileType.llvm_assembly)
    assert set(re.findall(r'halide_mcpu_target", !"([^"]*)"', code)) == {PROCESSORS[level.name]}


@pytest.mark.parametrize("features", ["avx512_sapphirerapids", "avx512_skylake"])
def test_instructions_of_another_processor_are_noticed(features: str, tmp_path: Path) -> None:
    """Halves for Sapphire Rapids on the level that Zen shares, and AVX-512 on the one below: the search finds them."""
    level = LEVEL_OF[features]
    wrong = replace(spelled(level), features=(*spelled(level).features, features))
    (model,) = (each.model for each in examples("Abs") if each.dtype == "float16")
    graph = optimize(load_model(model).bind({}, evaluate), evaluate)
    (desc,) = lower(graph, level).descriptors()
    assert beyond(level, text_of(desc, wrong, tmp_path / "kernel.s", hl.OutputFileType.assembly))


DOT_PRODUCTS = {
    "x86-64": "pmaddwd",
    "x86-64-v2": "pmaddwd",
    "x86-64-v3": "vpmaddwd",
    "x86-64-v4": "vpmaddwd",
    "x86-64-v4-bf16": "vpdpbusd",
}
"""The instructions that add up products of bytes: not VPMADDUBSW, whose sums of two saturate, for any weights."""


@pytest.mark.parametrize("level", X86[1:], ids=str)
def test_products_of_bytes_take_the_instructions_that_a_level_has_for_them(level: Level, tmp_path: Path) -> None:
    """VNNI, which Halide knows of Zen 4 and not of the processor that the level is compiled for otherwise."""
    graph, _, _ = graph_of(CASES["matmul_integer"], 17)
    (desc,) = lower(graph, level).descriptors()
    names = set(_INSTRUCTION.findall(text_of(desc, level, tmp_path / "kernel.s", hl.OutputFileType.assembly)))
    assert DOT_PRODUCTS[level.name] in names
    assert not {"pmaddubsw", "vpmaddubsw"} & names


@pytest.mark.parametrize("name", ["matmul_integer", "conv_integer channels"])
def test_products_with_small_weights_are_added_up_in_16_bits_at_avx2(name: str, tmp_path: Path) -> None:
    """Where weights have seven bits, which quantisation for such machines gives them, nothing can saturate."""
    graph, _, _ = graph_of(CASES[name], 17)
    constants = {key: value // 2 if value.dtype == np.int8 else value for key, value in graph.constants.items()}
    for level, found in ((X86[2], True), (X86[3], False), (X86[4], False)):
        descs = lower(replace(graph, constants=constants), level).descriptors()
        (desc,) = (desc for desc in descs if desc.family == name.split(maxsplit=1)[0])
        names = set(_INSTRUCTION.findall(text_of(desc, level, tmp_path / "kernel.s", hl.OutputFileType.assembly)))
        assert ("vpmaddubsw" in names) is found


def test_a_kernel_that_may_hold_what_a_level_lacks_goes_without_dot_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """Code for Zen 4 may hold SSE4A; where its bytes look so, the kernel is made for the level's own processor."""
    graph, _, _ = graph_of(CASES["matmul_integer"], 17)
    (desc,) = lower(graph, X86[4]).descriptors()
    dot_product = re.compile(rb"\x62..[\x40\x48]\x50", re.DOTALL)  # VPDPBUSD of ZMM registers
    assert dot_product.search(HalideCompiler.compile(desc, "kernel", X86[4]))
    monkeypatch.setattr(emission, "SSE4A", re.compile(b"ELF"))  # every object looks so
    assert not dot_product.search(HalideCompiler.compile(desc, "kernel", X86[4]))


@pytest.mark.parametrize("code", ["660f78c00102", "f2440f79ca", "f30f2b07"])
def test_sse4a_is_known_by_its_bytes(code: str) -> None:
    """EXTRQ, INSERTQ of extended registers, and MOVNTSS."""
    assert emission.SSE4A.search(bytes.fromhex(f"90{code}90"))


LEVEL_OF = {"avx512_sapphirerapids": X86[4], "avx512_skylake": X86[2]}
