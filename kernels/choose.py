"""Kernels that several architectures need: chosen from drawn structures, and listed for ``make kernels``.

A list has the kernels of one level that no structure of ``kernels.models`` needs, those first that most architectures
do; who makes a pack needs no drawn structures. Held-out architectures choose nothing.

    make choose           python -m kernels.choose FOLDER
"""

from __future__ import annotations

import argparse
import json
import lzma
import signal
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import onnx
from rich.console import Console
from rich.progress import track

from kernels.drawn import architecture, as_traced, extents, for_packs
from kernels.models import OpenStructure
from kernels.plan import graphs_of, open_descriptors
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.store.pack import PACKS, SUFFIX, read_pack
from opbuild.target.level import BY_NAME, Level

LISTS = Path(__file__).with_name("chosen")

LEAST = 2
"""Architectures that need a kernel at least: what one needs, hardly another one does."""

MOST = 500
"""Kernels of a level, so that its pack has 4 MB at most."""

SECONDS = 120
"""Seconds for planning one structure."""

Needs = dict[str, list[str]]
"""The kernels of a structure, written as text, for each level by its name."""


def chosen(level: str) -> dict[OpDesc, None]:
    """Return the chosen kernels of a level, in their order; none if it has no list."""
    if not _path(level).exists():
        return {}
    lines = lzma.decompress(_path(level).read_bytes()).decode().splitlines()
    return {OpDesc.from_components(json.loads(line)): None for line in lines}


def most_needed(needed: Mapping[str, Iterable[str]], most: int = MOST) -> list[str]:
    """Return the kernels that at least ``LEAST`` architectures need, the most needed first.

    Args:
        needed: Kernels, written as text, by the architectures that need them.
        most: How many are taken.
    """
    architectures: defaultdict[str, set[str]] = defaultdict(set)
    for name, kernels in needed.items():
        for kernel in kernels:
            architectures[kernel].add(name)
    counted = sorted((-len(names), kernel) for kernel, names in architectures.items() if len(names) >= LEAST)
    return [kernel for _, kernel in counted[:most]]


def needs(path: Path, levels: tuple[str, ...]) -> Needs:
    """Return the kernels that an exported model needs; none where it runs in segments, or takes too long."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(SECONDS)
    try:
        graphs, sizes = graphs_of(as_traced(path)), extents(path)
        found = {level: dict.fromkeys(_lowered(graphs, BY_NAME[level])) for level in levels}
        if sizes:
            opened = OpenStructure(partial(onnx.load, path), (sizes,))
            for level in levels:
                found[level] |= open_descriptors(opened, BY_NAME[level])
    except (OpbuildError, TimeoutError):
        return {}
    finally:
        signal.alarm(0)
    return {level: [_text(desc) for desc in kernels] for level, kernels in found.items()}


def _lowered(graphs: Iterable[Graph], level: Level) -> Iterator[OpDesc]:
    for graph in graphs:
        yield from lower(graph, level, Options()).descriptors()


def _give_up(_signal: int, _frame: object) -> None:
    raise TimeoutError


def choose(models: Mapping[str, Path], levels: tuple[str, ...]) -> dict[str, list[str]]:
    """Return the kernels, written as text, that are chosen for each level from exported models by name."""
    needed: dict[str, defaultdict[str, set[str]]] = {level: defaultdict(set) for level in levels}
    console = Console(stderr=True)
    with ProcessPoolExecutor(Config.from_environment().workers, get_context("spawn")) as pool:
        found = pool.map(partial(needs, levels=levels), models.values())
        for name, of_levels in track(zip(models, found, strict=True), "structures", len(models), console=console):
            for level, kernels in of_levels.items():
                needed[level][architecture(name)] |= set(kernels)
    listed = {}
    for level in levels:
        others = _packed(level) - set(map(_text, chosen(level)))
        lacking = {name: kernels - others for name, kernels in needed[level].items()}
        listed[level] = most_needed(lacking)
    return listed


def main() -> int:
    """Write the lists of all levels of the pack."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("folder", type=Path, help="a folder of make structures")
    levels = tuple(sorted(path.name for path in PACKS.iterdir() if path.name in BY_NAME))
    for level, kernels in choose(for_packs(arguments.parse_args().folder), levels).items():
        _path(level).write_bytes(lzma.compress("\n".join(kernels).encode()))
        print(f"{level}: {len(kernels)} kernels")
    return 0


def _packed(level: str) -> set[str]:
    """Return the kernels that the pack has, written as text."""
    paths = (PACKS / level).glob(f"*{SUFFIX}")
    return {_text(OpDesc.from_components(each)) for path in paths for each in read_pack(path).descriptors()}


def _path(level: str) -> Path:
    return LISTS / f"{level}.json.xz"


def _text(desc: OpDesc) -> str:
    return json.dumps(desc.components(), sort_keys=True, separators=(",", ":"))


if __name__ == "__main__":
    sys.exit(main())
