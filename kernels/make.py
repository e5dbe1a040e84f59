"""Builds the pack: what ``make kernels`` and ``make kernels-check`` run.

A file whose family, compiler and list of kernels are what they were is left as it is; of another, only what it lacks is
compiled. What was compiled is kept in a store of its own, so a run that was interrupted goes on where it was.

    python -m kernels.make [--check] [--levels x86-64-v3,...] [--folder src/opbuild/packs]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from kernels.compiler import PackCompiler
from kernels.models import structures
from kernels.plan import descriptors, graphs_of, of_every_network
from kernels.training import trainings
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.events import CompileFinished, Event, Taken
from opbuild.kernel.identity import identify
from opbuild.kernel.interfaces import Compiler
from opbuild.kernel.key import make_key
from opbuild.kernel.level import BY_NAME, Level
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.disk import DiskStore
from opbuild.store.pack import PACKS
from opbuild.store.pack_file import SUFFIX, Object, Sources, pack_bytes, read_pack

ROOT = Path(__file__).resolve().parents[1]
LEVELS = ("x86-64-v3", "x86-64-v4", "x86-64-v4-bf16", "armv8.2-a-dotprod")


def planned(level_names: Sequence[str], workers: int, console: Console) -> dict[str, dict[OpDesc, None]]:
    """Return the kernels of each level, in the order in which networks first need them."""
    names = list(structures())
    kernels: dict[str, dict[OpDesc, None]] = {name: of_every_network(BY_NAME[name]) for name in level_names}
    with _progress(console) as progress, ProcessPoolExecutor(workers, get_context("spawn")) as pool:
        task = progress.add_task("networks", total=len(names))
        for found in pool.map(_plan_one, names, [tuple(level_names)] * len(names)):
            for level, listed in found.items():
                kernels[level] |= {OpDesc.from_components(each): None for each in listed}
            progress.advance(task)
    return kernels


def _plan_one(name: str, level_names: Sequence[str]) -> dict[str, list[dict[str, Any]]]:
    graphs, between = graphs_of(structures()[name]()), name not in trainings()
    return {
        level: [desc.components() for desc in descriptors(graphs, BY_NAME[level], between=between)]
        for level in level_names
    }


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
        compiled: Kernels that were compiled, or taken from the store of an interrupted run.
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
        there = {family: self._there(family, descs) for family, descs in families.items()}
        lacking = {
            desc: () for family, descs in families.items() for desc in descs if self._key(desc) not in there[family]
        }
        compiled = self._compile(lacking)
        written = []
        for family, descs in sorted(families.items()):
            objects: list[Object] = []
            for desc in descs:
                key = self._key(desc)
                objects.append((desc.components(), key, there[family].get(key) or compiled[desc]))
            sources = Sources(self.compiler.sources_digest(descs[0]), self.compiler.text_digest(descs[0]))
            data = pack_bytes(self.level.name, family, self.identity, sources, objects)
            path = self.folder / f"{family}{SUFFIX}"
            if not path.exists() or path.read_bytes() != data:
                _write(path, data)
                written.append(family)
        for path in self.folder.glob(f"*{SUFFIX}"):
            if path.stem not in families:
                path.unlink()
                written.append(path.stem)
        return written

    def _there(self, family: str, descs: Sequence[OpDesc]) -> dict[str, bytes]:
        """Return the objects that the family's file has already, by key: those of these sources and this compiler."""
        try:
            file = read_pack(self.folder / f"{family}{SUFFIX}")
        except (OSError, ValueError):
            return {}
        if file.compiler != self.identity:
            return {}
        keys = [make_key(desc, self.level, self.identity, self.compiler.sources_digest(desc)) for desc in descs]
        found = ((key.sha256, file.object(key)) for key in keys)
        return {key: object_ for key, object_ in found if object_ is not None}

    def _key(self, desc: OpDesc) -> str:
        return make_key(desc, self.level, self.identity, self.compiler.sources_digest(desc)).sha256

    def _compile(self, needed: dict[OpDesc, tuple[str, ...]]) -> dict[OpDesc, bytes]:
        """Compile kernels, or take those that an interrupted run compiled."""
        self.compiled += len(needed)
        if not needed:
            return {}
        with _progress(self.console) as progress:
            task = progress.add_task(self.level.name, total=len(needed))

            def observe(event: Event) -> None:
                if isinstance(event, (CompileFinished, Taken)):
                    progress.advance(task)

            store = DiskStore(self.config.kernel_meta)
            with Builder(store, self.compiler, self.level, self.config, observe) as builder:
                result = builder.build(needed, self.level.name)
            progress.update(task, completed=len(needed))
        return {desc: entry.object for desc, entry in result.entries.items()}


def _write(path: Path, data: bytes) -> None:
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
            written = packing.make(listed)
            nbytes = sum(path.stat().st_size for path in packing.folder.glob(f"*{SUFFIX}"))
            print(f"{name}: {len(listed)} kernels, {nbytes / 1e6:.2f} MB; written: {', '.join(written) or 'nothing'}")
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
