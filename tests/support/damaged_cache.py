"""Caches whose files are damaged at random: whole sound files put in others' places, cut, changed, grown without end.

A world is some small networks that are easily taken for each other, their cache, offline models and bundle, and what
they compute. A walk damages some of its files, one to three at a time, and asks each time for the right results of all
networks, for a second run that starts all of them from their images, and that ``verify`` sees what can be seen.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.cli.store import bundling
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.offline.build import export
from opbuild.offline.load import load
from opbuild.target.host import host_level
from support.forked import forked
from support.replayed import replayed_compiles
from support.until import settle

ROWS, SIZE = 8, 160
"""Weights of 100 KB have a file of their own."""
HUGE = 2**40
HANGS_AFTER = 60
"""Seconds in which one damage must be dealt with; it takes a tenth of one."""

Outputs = dict[str, Any]


def write_model(path: Path, seed: int, outputs: Sequence[str], *, external: bool = False) -> None:
    """Write ``h = x @ w; y = softmax(h)``, with its outputs in an order; all are called the same."""
    weights = np.random.default_rng(seed).standard_normal((SIZE, SIZE)).astype(np.float32)
    for old in path.parent.glob("*.*"):
        old.unlink()
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Softmax", ["h"], ["y"])]
    ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, (ROWS, SIZE)) for name in ("x", *outputs)]
    graph = helper.make_graph(nodes, "small", ports[:1], ports[1:], [numpy_helper.from_array(weights, "w")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    if external:
        onnx.save(model, path, save_as_external_data=True, location=f"{path.stem}.data", size_threshold=0)
    else:
        onnx.save(model, path)


@dataclass
class World:
    """Some networks and their stored files.

    Attributes:
        folder: Holds everything.
        results: What each network computes, by its model's name.
        older: Sound files as they were when some models held other weights.
    """

    folder: Path
    results: dict[str, Outputs] = field(default_factory=dict)
    older: dict[str, bytes] = field(default_factory=dict)

    MODELS = ("first", "second", "ordered", "reversed", "beside")

    @property
    def config(self) -> Config:
        """The cache's settings."""
        return Config(cache_path=self.folder / "stored/cache", num_threads=2, uses_shipped_bank=False)

    def make(self) -> None:
        """Build everything, with the real compiler, and keep a copy that answers later compiles."""
        for folder in ("stored", *(f"models/{name}" for name in self.MODELS)):
            (self.folder / folder).mkdir(parents=True)
        self._write_models(first=7, beside=8)
        self._build()
        self.older = dict(self.files())
        self.forget()
        self._write_models(first=1, beside=3)
        self._build()
        shutil.copytree(self.folder / "stored/cache/rank_0", self.folder / "answers")
        for name in ("first", "second"):
            export(self.path(name), self.folder / f"stored/{name}.om", config=self.config)
        bundling.export_model(
            self.folder / "stored/first.bundle", self.path("first"), self.config, host_level(), network=True
        )
        for path in ("first.om", "second.om", "first.bundle", "cache/rank_0/op_cache.ini"):  # no build makes them
            copy = self.folder / "sound" / path
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(self.folder / "stored" / path, copy)

    def _write_models(self, *, first: int, beside: int) -> None:
        write_model(self.path("first"), first, ["y"])
        write_model(self.path("second"), 2, ["y"])
        write_model(self.path("ordered"), 1, ["h", "y"])
        write_model(self.path("reversed"), 1, ["y", "h"])
        write_model(self.path("beside"), beside, ["y"], external=True)
        models = [*(self.folder / "models").rglob("*.*")]
        for path in models:
            path.chmod(0o444)  # so that its digest is remembered on every file system
        settle(*models)

    def _build(self) -> None:
        self.results = {name: self.run(name) for name in self.MODELS}
        for name in self.MODELS:
            self.run(name, forbid_compile=True)

    def path(self, name: str) -> Path:
        """Return a model's file."""
        return self.folder / f"models/{name}/small.onnx"

    def files(self) -> Iterator[tuple[str, bytes]]:
        """Yield everything that is stored: path below the folder, and contents."""
        for path in sorted((self.folder / "stored").rglob("*")):
            if path.is_file() and path.stat().st_size < HUGE:
                yield str(path.relative_to(self.folder)), path.read_bytes()

    def run(self, name: str, **options: Any) -> Outputs:
        """Compile a network and return its outputs by name."""
        network = opbuild.compile(self.path(name), cache_path=self.config.cache_path, num_threads=2, **options)
        if options:
            assert network.report.image, f"{name} did not start from its image: {network.report.image_reason}"
        return outputs_of(network)

    def forget(self) -> None:
        """Remove everything that can be made again without compiling."""
        shutil.rmtree(self.config.network_meta)


def outputs_of(network: Any) -> Outputs:
    """Return the outputs of a network, by name."""
    values = network(np.random.default_rng(9).standard_normal((ROWS, SIZE)).astype(np.float32))
    arrays = values if isinstance(values, tuple) else (values,)
    return {port.name: np.array(array) for port, array in zip(network.outputs, arrays, strict=True)} | {
        "order": np.array([ord(port.name) for port in network.outputs])
    }


def equal(left: Outputs, right: Outputs) -> bool:
    """Return whether two networks computed the same, under the same names, in the same order."""
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


@dataclass(frozen=True)
class Damage:
    """What is done to one file.

    Attributes:
        kind: What: a name of ``KINDS``.
        victim: The file, below the world's folder.
        other: Another file, for swaps.
        share: Where, for what changes or cuts a part: 0 to 1.
    """

    kind: str
    victim: str
    other: str = ""
    share: float = 0.0


def _grow(path: Path, *, empty: bool) -> None:
    os.truncate(path, 0 if empty else path.stat().st_size)
    os.truncate(path, HUGE)


def _flip(data: bytes, share: float) -> bytes:
    at = min(int(share * len(data)), len(data) - 1)
    return data[:at] + bytes([data[at] ^ (1 << int(97 * share) % 8)]) + data[at + 1 :] if data else b"\0"


CHANGES: dict[str, Callable[[bytes, float], bytes]] = {
    "cut": lambda data, share: data[: int(share * len(data))],
    "flip": _flip,
    "zeros": lambda data, share: bytes(len(data)),
    "doubled": lambda data, share: data + data,
    "garbage": lambda data, share: random.Random(share).randbytes(len(data) or 9),
}
KINDS = ("swap", "swap", "swap", "swap", "exchange", "older", "delete", "grow", "sparse", *CHANGES)


def inflict(damage: Damage, folder: Path, sound: dict[str, bytes], older: dict[str, bytes]) -> None:
    """Damage a file."""
    path = folder / damage.victim
    if damage.kind in ("grow", "sparse"):
        _grow(path, empty=damage.kind == "sparse")
    elif damage.kind == "delete":
        path.unlink()
    else:
        contents = {"swap": sound.get(damage.other), "exchange": sound.get(damage.other),
                    "older": older.get(damage.victim)}.get(damage.kind)  # fmt: skip
        if contents is None:
            contents = CHANGES[damage.kind](sound[damage.victim], damage.share)
        path.write_bytes(contents)
        if damage.kind == "exchange":
            (folder / damage.other).write_bytes(sound[damage.victim])


def choose(draw: random.Random, sound: dict[str, bytes], older: dict[str, bytes]) -> Damage:
    """Return a random damage: every kind of file as often, and as a swap's other half one of the same kind or any."""
    by_kind: dict[str, list[str]] = {}
    for path in sound:
        by_kind.setdefault(kind_of(path), []).append(path)
    victim = draw.choice(by_kind[draw.choice(sorted(by_kind))])
    kind = draw.choice(KINDS)
    if kind == "older" and victim not in older:
        kind = "swap"
    same = [path for path in by_kind[kind_of(victim)] if path != victim]
    others = same if same and draw.random() < 0.6 else [path for path in sound if path != victim]
    other = draw.choice(others) if kind in ("swap", "exchange") else ""
    return Damage(kind, victim, other, draw.random())


def kind_of(path: str) -> str:
    """Return the kind of a file: its folder and suffix."""
    place = Path(path)
    return f"{place.parent.name}/{place.name if place.stem in ('compiler', 'counters', 'op_cache') else place.suffix}"


UNSEEN = ("counters.jsonl", "op_cache.ini", ".om", ".bundle")
"""What ``verify`` does not look at, or holds for sound if a line of it is."""


def must_be_seen(damage: Damage, before: bytes, after: bytes | None) -> bool:
    """Return whether ``verify`` must notice: a file without a part that only its reader could miss is another."""
    if before == after or damage.victim.endswith(UNSEEN) or damage.kind == "older":
        return False
    if after is None:  # what is only remembered may be missing; of what a network lacks the first is named
        return not is_memo(damage.victim) and "weights" not in damage.victim
    # What .info and .json say beside the key and what the object holds is for people: who asked, how long it took.
    return not (damage.kind == "flip" and damage.victim.endswith((".info", ".json")) and "kernel_meta" in damage.victim)


def is_memo(path: str) -> bool:
    """Return whether a file only remembers something."""
    place = Path(path)
    is_reference = place.parent.name == "weights" and place.suffix == ".json"
    return place.suffix in (".model", ".digest", ".seen") or place.name == "compiler.json" or is_reference


class Walk:
    """Damages a world again and again.

    Args:
        world: Made before; damaged.
        draw: Chooses.
    """

    def __init__(self, world: World, draw: random.Random) -> None:
        self._world, self._draw = world, draw
        self._names = {name for name, _ in world.files()}

    def step(self, damages: Sequence[Damage] | None = None) -> Iterator[tuple[str, Any]]:
        """Damage some files and see what becomes of it; yields what was done, and what is wrong."""
        sound = self._restored()
        if damages is None:
            damages = self._choose(sound)
        yield "damages", [astuple(damage) for damage in damages]
        for damage in damages:
            if (self._world.folder / damage.victim).exists():
                inflict(damage, self._world.folder, sound, self._world.older)
        if self._draw.random() < 0.3:  # so that the next build puts networks together again, from what is remembered
            for path in self._world.config.network_meta.glob("*.so"):
                path.unlink()
        yield from self._seen(damages, sound)
        if self._draw.random() < 0.4:
            self._repair()
        yield from self._wrong_results("first", {})
        yield from self._wrong_results("second", {"forbid_compile": True})
        yield from self._wrong_files(sound)
        self._repair()
        left = [str(problem) for problem in Cache.of(self._world.config).problems() if "settings" not in str(problem)]
        if left:
            yield "stays damaged", left
        yield from self._wrong_results("repaired", {})

    def _restored(self) -> dict[str, bytes]:
        """Return the stored files, all of them sound; those that the last step lost are made again."""
        for path in (self._world.folder / "sound").rglob("*.*"):
            shutil.copyfile(path, self._world.folder / "stored" / path.relative_to(self._world.folder / "sound"))
        if {name for name, _ in self._world.files()} != self._names:
            self._world.forget()
            for name in (*self._world.MODELS, *self._world.MODELS):
                self._world.run(name)
        return dict(self._world.files())

    def _choose(self, sound: dict[str, bytes]) -> list[Damage]:
        count = self._draw.choice((1, 1, 1, 2, 3))
        chosen = [choose(self._draw, sound, self._world.older) for _ in range(count)]
        return list({damage.victim: damage for damage in chosen}.values())

    def _seen(self, damages: Sequence[Damage], sound: dict[str, bytes]) -> Iterator[tuple[str, Any]]:
        problems = list(Cache.of(self._world.config).problems())
        found = {Path(file).name.split(".")[0] for problem in problems for file in problem.item.files}
        for damage in damages:
            path = self._world.folder / damage.victim
            after = (path.read_bytes() if path.stat().st_size < HUGE else b"") if path.exists() else None
            if must_be_seen(damage, sound[damage.victim], after) and path.name.split(".")[0] not in found:
                yield "not seen by verify", str(damage)

    def _repair(self) -> None:
        cache = Cache.of(self._world.config)
        for problem in list(cache.problems()):
            cache.repair(problem)

    def _wrong_results(self, which: str, options: dict[str, Any]) -> Iterator[tuple[str, Any]]:
        names = list(self._world.MODELS)
        self._draw.shuffle(names)
        for name in names:
            if not equal(self._world.run(name, **options), self._world.results[name]):
                yield "wrong", f"the {which} run of {name}"

    def _wrong_files(self, sound: dict[str, bytes]) -> Iterator[tuple[str, Any]]:
        """Load the offline models and import the bundle: an error of opbuild, or their content."""
        stored = self._world.folder / "stored"
        for name in ("first", "second"):
            path = stored / f"{name}.om"
            expected = [self._world.results[each] for each in ("first", "second")]
            try:
                outputs = outputs_of(load(path, num_threads=2)) if path.exists() else expected[0]
            except OpbuildError:
                continue
            if not any(equal(outputs, each) for each in expected):
                yield "wrong", path.name
        if (stored / "first.bundle").exists():
            elsewhere = Config(cache_path=self._world.folder / "elsewhere", num_threads=2)
            shutil.rmtree(elsewhere.cache_path, ignore_errors=True)
            try:
                bundling.import_bundle(stored / "first.bundle", elsewhere, host_level())
            except OpbuildError:
                return
            network = opbuild.compile(self._world.path("first"), cache_path=elsewhere.cache_path, num_threads=2)
            if not equal(outputs_of(network), self._world.results["first"]) or not network.report.image:
                yield "wrong", "what was imported"


def in_child(world: World, seed: int, work: Callable[[Walk], Iterator[tuple[str, Any]]]) -> list[tuple[str, Any]]:
    """Walk in a process of its own and return what it said; the last line says how it ended if it did not finish."""
    status, lines = forked(lambda pipe: _child(pipe, world, seed, work), HANGS_AFTER)
    said = [tuple(json.loads(line)) for line in lines.splitlines()]
    if status:
        kind = "hang" if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGALRM else "crash"
        said.append((kind, f"it ended with {status:#x}"))
    return said


def _child(pipe: int, world: World, seed: int, work: Callable[[Walk], Iterator[tuple[str, Any]]]) -> None:
    try:
        with replayed_compiles(world.folder / "answers"):
            for kind, what in work(Walk(world, random.Random(seed))):
                if kind == "damages":
                    signal.alarm(HANGS_AFTER)
                os.write(pipe, json.dumps([kind, what]).encode() + b"\n")
    except BaseException:
        text = "".join(traceback.format_exc().splitlines(keepends=True)[-12:])
        os.write(pipe, json.dumps(["foreign exception", text]).encode() + b"\n")


def walk(world: World, seed: int, damages: int) -> Counter[str]:
    """Damage a world so often; return the counts, and fail with the smallest damage that goes wrong."""
    counts: Counter[str] = Counter(damages=0)

    def work(walker: Walk) -> Iterator[tuple[str, Any]]:
        done = 0
        while done < damages:
            for kind, what in walker.step():
                done += len(what) if kind == "damages" else 0
                yield kind, what

    faults: list[tuple[list[Damage], str]] = []
    done: list[Damage] = []
    for kind, what in in_child(world, seed, work):
        if kind == "damages":
            done = [Damage(*parts) for parts in what]
            counts.update({"damages": len(done)}, **Counter(damage.kind for damage in done))
        else:
            counts[kind] += 1
            faults.append((done, f"{kind}: {what}"))
    print(f"\ndamaged caches: seed {seed}: {dict(counts)}", file=sys.__stderr__)
    if faults:
        smallest, what = min((shrink(world, *fault) for fault in faults[:5]), key=lambda found: len(found[0]))
        raise AssertionError(f"seed {seed}: {len(faults)} faults, {what}\n  after {smallest}")
    return counts


def shrink(world: World, damages: list[Damage], what: str) -> tuple[list[Damage], str]:
    """Return one of several damages that goes wrong alone and what does, else all of them."""
    for damage, seed in [(damage, seed) for damage in damages for seed in range(3)] if len(damages) > 1 else []:
        shutil.rmtree(world.config.cache_folder)
        shutil.copytree(world.folder / "answers", world.config.cache_folder)
        said = in_child(world, seed, lambda walker, one=damage: walker.step([one]))  # type: ignore[misc]
        wrong = [f"{kind}: {text}" for kind, text in said if kind != "damages"]
        if wrong:
            return [damage], wrong[0]
    return damages, what
