"""Builds the pack: what ``make kernels`` and ``make kernels-check`` run.

What the pack has is taken where the family's sources are what they were, or define what they defined; only the rest is
compiled. What was compiled is kept in a store of its own, so a run that was interrupted goes on where it was.

    python -m kernels.make [--check] [--levels x86-64-v3,...] [--folder src/opbuild/store/packs]
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.choose import chosen
from kernels.compiler import CheckedCompiler, PackCompiler
from kernels.models import open_structures, structures
from kernels.plan import descriptors, graphs_of, of_every_network, open_descriptors
from kernels.training import trainings
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.events import CompileFinished, Event, Taken
from opbuild.kernel.entry import Entry
from opbuild.kernel.identity import identify
from opbuild.kernel.interfaces import Compiler
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.blobs import Folder
from opbuild.store.operators import Operators
from opbuild.store.pack import PACKS, SUFFIX, FamilySources, Object, Pack, PackFile, pack_bytes, read_pack
from opbuild.store.tiers import TieredStore
from opbuild.target.level import BY_NAME, Level

ROOT = Path(__file__).resolve().parents[1]
LEVELS = ("x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "armv8.2-a-dotprod")


def planned(level_names: Sequence[str], workers: int, console: Console) -> dict[str, dict[OpDesc, None]]:
    """Return the kernels of each level, in the order in which networks first need them; last those of any network."""
    names = [*structures(), *open_structures()]
    kernels: dict[str, dict[OpDesc, None]] = {name: {} for name in level_names}
    with _progress(console) as progress, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        task = progress.add_task("networks", total=len(names))
        for found in pool.map(partial(_plan_one, level_names=tuple(level_names)), names):
            for level, listed in found.items():
                kernels[level] |= {OpDesc.from_components(each): None for each in listed}
            progress.advance(task)
    return {level: found | chosen(level) | of_every_network(BY_NAME[level]) for level, found in kernels.items()}


def _plan_one(name: str, level_names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    found = _plan(name, [BY_NAME[each] for each in level_names])
    return {level: [desc.components() for desc in listed] for level, listed in found.items()}


def _plan(name: str, levels: Sequence[Level]) -> dict[str, dict[OpDesc, None]]:
    opened = open_structures().get(name)
    if opened is not None:
        return {level.name: open_descriptors(opened, level) for level in levels}
    graphs, between = graphs_of(structures()[name]()), name not in trainings()
    return {level.name: descriptors(graphs, level, between=between) for level in levels}


class PackMaker(Compiler, Protocol):
    """A compiler that knows both digests of a family's sources."""

    def text_digest(self, desc: OpDesc) -> str:
        """Return the digest that a checkout has; ``sources_digest`` returns that of a release."""


class Packing:
    """Makes the pack of one level.

    Args:
        level: The level.
        folder: Where the files of the pack are.
        store: Folder in which compiled kernels are kept.
        workers: Kernels that are compiled at once.
        console: Told how far it is.
        compiler: Makes the kernels.

    Attributes:
        compiled: Kernels that were compiled.
    """

    def __init__(
        self,
        level: Level,
        folder: Path,
        store: Path,
        workers: int,
        console: Console,
        compiler: PackMaker | None = None,
    ) -> None:
        self.level, self.folder, self.console = level, folder / level.name, console
        self.config = Config(cache_path=store, workers=workers)
        self.compiler = compiler or PackCompiler()
        self.identity = identify(self.compiler)
        self.compiled = 0

    def make(self, kernels: dict[OpDesc, None]) -> list[str]:
        """Write the files of all families that are not what they should be; return their names."""
        families: defaultdict[str, list[OpDesc]] = defaultdict(list)
        for desc in kernels:
            families[desc.family].append(desc)
        shipped = Shipped(self.level.name, self.folder.parent)
        entries = self._built(kernels, shipped)
        written = []
        for family, descs in sorted(families.items()):
            objects = [Object.of(desc, entries[desc]) for desc in descs]
            sources = FamilySources(self.compiler.sources_digest(descs[0]), self.compiler.text_digest(descs[0]))
            data = pack_bytes(self.level.name, family, self.identity, sources, objects, shipped.file(family))
            path = self.folder / f"{family}{SUFFIX}"
            if not path.exists() or path.read_bytes() != data:
                write_pack(path, data)
                written.append(family)
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.stem not in families:
                path.unlink()
                written.append(path.stem)
        return written

    def _built(self, kernels: dict[OpDesc, None], shipped: Shipped) -> Mapping[OpDesc, Entry]:
        """Return the entries of kernels: from the pack as it is, from an earlier run, or compiled now."""
        tiers = [shipped] if shipped.compiler() == self.identity else []
        store = TieredStore(Kept(Folder(self.config.kernel_meta)), tiers)
        with _progress(self.console) as progress, Builder(store, self.compiler, self.level, self.config) as builder:
            task = progress.add_task(self.level.name, total=None)

            def observe(event: Event) -> None:
                if isinstance(event, (CompileFinished, Taken)):
                    progress.update(task, completed=event.done, total=event.to_compile)

            builder.observer = observe
            result = builder.build(dict.fromkeys(kernels, ()), self.level.name)
        self.compiled += result.built
        return result.entries


class Shipped(Pack):
    """The pack as it is when a file is first asked for; what is written then is not looked at."""

    def __init__(self, level: str, folder: Path) -> None:
        super().__init__(level, folder)
        self._files: dict[str, PackFile | None] = {}

    def file(self, family: str) -> PackFile | None:
        """Return a family's file; None if there is none that can be used."""
        if family not in self._files:
            self._files[family] = None
            with contextlib.suppress(OSError, ValueError):
                self._files[family] = read_pack(self._path(family))
        return self._files[family]


class Kept(Operators):
    """What was compiled; what the pack has needs no copy, as it is found there the next time."""

    def publish(self, entry: Entry, linked_from: Path | None = None) -> str | None:
        """Keep what was compiled from just these sources."""
        return None if "origin" in entry.info else super().publish(entry, linked_from)


def write_pack(path: Path, data: bytes) -> None:
    """Write a file whole or not at all; everybody may read it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_suffix(".new")
    whole.write_bytes(data)
    whole.replace(path)


def differing(made: Path, shipped: Path) -> list[str]:
    """Return the files below two folders that are not the same in both."""
    names = {path.relative_to(folder) for folder in (made, shipped) for path in folder.glob(f"*/*{SUFFIX}")}
    return [
        str(name) for name in sorted(names)
        if not (made / name).exists() or not (shipped / name).exists()
        or (made / name).read_bytes() != (shipped / name).read_bytes()
    ]  # fmt: skip


def main() -> int:
    """Make the pack, or check that it is what would be made."""
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="build everything anew, and compare bytes")
    arguments.add_argument("--levels", default=",".join(LEVELS), help="names of levels")
    arguments.add_argument("--folder", type=Path, default=PACKS, help="where the pack is")
    given = arguments.parse_args()
    console, started = Console(stderr=True), time.perf_counter()
    workers = Config.from_environment().workers
    levels = given.levels.split(",")
    kernels = planned(levels, workers, console)
    with tempfile.TemporaryDirectory() as temporary:
        folder, store = (
            (Path(temporary), Path(temporary)) if given.check else (given.folder, ROOT / "build" / "kernels")
        )
        for name, listed in kernels.items():
            packing = Packing(BY_NAME[name], folder / "packs" if given.check else folder, store, workers, console)
            if given.check:
                packing.compiler = CheckedCompiler()
            written = packing.make(listed)
            nbytes = sum(path.stat().st_size for path in packing.folder.glob(f"*{SUFFIX}"))
            print(
                f"{name}: {len(listed)} kernels, {packing.compiled} compiled, {nbytes / 1e6:.2f} MB, "
                f"{time.perf_counter() - started:.0f} s; written: {', '.join(written) or 'nothing'}",
                flush=True,
            )
        print(f"{time.perf_counter() - started:.0f} s")
        wrong = differing(folder / "packs", given.folder) if given.check else []
    for name in wrong:
        print(f"{name} is not what is built: run make kernels", file=sys.stderr)
    return 1 if wrong else 0


def _progress(console: Console) -> Progress:
    return Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), console=console
    )


if __name__ == "__main__":
    sys.exit(main())
