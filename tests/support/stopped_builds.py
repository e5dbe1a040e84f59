# ruff: noqa: E402  a program as well as a module: it has to find the package first
"""The crash test: kill -9 at every step by which a build changes files, one after the other, then run again.

    python tests/support/stopped_builds.py [--every | --part] [--json] [SCENARIO...]

prints for each scenario how many steps it takes, at how many points it was killed, and what became of them. Each point
is a fork of one warm process, killed by itself; another fork then runs without the fault. Operators come from a compile
server that answers from a cache built before with the real compiler; store, images, weights, records are the real ones.
"""

from __future__ import annotations

import dataclasses
import gc
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests")]

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild.cli.store import bundling
from opbuild.cli.store.folder import Cache
from opbuild.config import Config
from opbuild.offline.build import export
from opbuild.offline.load import load
from opbuild.platform.digest import blake3_of
from opbuild.store.ageing import age
from opbuild.store.claims import sweep_claims
from opbuild.store.peers import claims_folder
from opbuild.store.policy import Policy, create_policy_file
from opbuild.target.host import host_level
from support.forked import forked
from support.replayed import replayed_compiles
from support.stop_points import Step, Stop, Watch

SHAPE = (96, 64)
FOLDERS = ("cache", "out", "tmp")
_PATIENCE = 300.0
"""Seconds after which a fork says where it hangs, and ends."""
_TRIES = 8
"""How often a thread that takes a step only now and then (it may find another's work done) is awaited."""


def write_model(path: Path) -> None:
    """Write a network of two operators that run in parallel, with one weight large enough for a file of its own."""
    draw = np.random.default_rng(0)
    values = [
        numpy_helper.from_array(draw.standard_normal(shape).astype(np.float32), name)
        for name, shape in (("w", (64, 320)), ("b", (320,)))
    ]
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["m"], "matmul"),
        helper.make_node("Add", ["m", "b"], ["a"], "add"),
        helper.make_node("Relu", ["a"], ["r"], "relu"),
        helper.make_node("Softmax", ["r"], ["y"], "softmax", axis=-1),
    ]
    ports = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)]
        for name, shape in (("x", SHAPE), ("y", (SHAPE[0], 320)))
    ]
    graph = helper.make_graph(nodes, "small", *ports, values)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    path.chmod(0o444)  # so that its digest is remembered on every file system


class Place:
    """The folders of one point, and what can be done in them.

    Args:
        folder: Holds all of them.
        model: The model's file.
    """

    def __init__(self, folder: Path, model: Path) -> None:
        self.folder, self.model = folder, model
        self.cache, self.out, self.tmp = (folder / name for name in FOLDERS)
        self.config = Config(cache_path=self.cache, num_threads=2)

    def make(self, reference: Path | None = None) -> None:
        """Make the folders, the cache as a copy of another place's."""
        for folder in (self.out, self.tmp):
            folder.mkdir(parents=True)
        if reference is None:
            self.cache.mkdir()
        else:
            shutil.copytree(reference / "cache", self.cache)

    def compile(self, **options: Any) -> Any:
        """Compile the model into the cache."""
        return opbuild.compile(str(self.model), cache_path=self.cache, num_threads=2, **options)

    def age(self, policy: Policy | None = None) -> None:
        """Let the cache age, as the end of a build that adds something does."""
        sweep_claims(claims_folder(self.config))
        create_policy_file(self.config.policy_file)
        age(self.config.kernel_meta, self.config.network_meta, policy or Policy())

    def entries(self) -> set[str]:
        """Return the names of the operators that have their commit mark."""
        return {mark.stem for mark in self.config.kernel_meta.glob("*.json") if mark.is_file()}

    def export(self) -> None:
        """Write the cache's operators into a bundle."""
        bundling.export_cache(self.out / "cache.bundle", self.config, host_level())

    def bring_in(self, source: Path) -> None:
        """Import a bundle into the cache."""
        bundling.import_bundle(source, self.config, host_level())

    def offline(self) -> None:
        """Write an offline model."""
        export(self.model, self.out / "small.om", config=self.config)

    def tree(self) -> list[str]:
        """Return the names of everything that lies in the folders.

        But for the digest of the model: it is remembered once the model has been left alone for a second.
        """
        found = (path for name in FOLDERS for path in (self.folder / name).rglob("*"))
        return sorted(str(path.relative_to(self.folder)) for path in found if path.suffix != ".digest")


def output_of(network: Any) -> str:
    """Return the digest of a network's outputs."""
    x = np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32)
    return blake3_of(np.ascontiguousarray(network(x)).data.cast("B"))


@dataclasses.dataclass(frozen=True)
class Scenario:
    """Something that changes files.

    Attributes:
        name: What it is called.
        work: Does it; it is what gets killed.
        full: Whether it begins with a copy of a cache in which everything is built; else with an empty one.
        prepare: Changes the folders before.
        recover: Does it again, without the fault; default: the work itself.
        below: The steps at which to kill, by the beginning of their paths.
        interrupted: Whether to raise ``KeyboardInterrupt`` at each step instead of killing.
    """

    name: str
    work: Callable[[Place], object]
    full: bool = False
    prepare: Callable[[Place], object] = lambda place: None
    recover: Callable[[Place], object] | None = None
    below: str = ""
    interrupted: bool = False


def replace_by_folders(place: Place) -> None:
    """Put a folder where a file of an entry, of the network and of its weights was."""
    victims = [next(place.config.kernel_meta.glob("softmax*.o")), next(place.config.network_meta.glob("*.bin")),
               next((place.config.network_meta / "weights").glob("*.bin"))]  # fmt: skip
    for victim in victims:
        victim.unlink()
        victim.mkdir()
        (victim / "inside").write_bytes(b"x")


def forget_networks(place: Place) -> None:
    """Remove the stored network, so that it is linked again."""
    for path in place.config.network_meta.glob("small_*"):
        path.unlink()


def scenarios(reference: Place) -> tuple[Scenario, ...]:
    """Return all scenarios; ``reference`` is where everything was built."""
    bundle = reference.out / "cache.bundle"

    def force(place: Place) -> object:
        return place.compile(op_compiler_cache_mode="force")

    def shrink(place: Place) -> None:
        for path in [*place.config.kernel_meta.iterdir(), *place.config.network_meta.rglob("*")]:
            if path.is_file():
                os.utime(path, (1, path.stat().st_mtime))
        place.age(Policy(max_megabytes=0, remain_ratio=1))

    return (
        Scenario("build", Place.compile),
        Scenario("build, interrupted", Place.compile, interrupted=True),
        Scenario("force", force, full=True, recover=Place.compile),
        Scenario("folders in files' places", Place.compile, full=True, prepare=replace_by_folders),
        Scenario("offline model", Place.offline, full=True),
        Scenario("bundle export", Place.export, full=True),
        Scenario("bundle import", lambda place: place.bring_in(bundle)),
        Scenario("ageing", shrink, full=True),
        Scenario("clearing", lambda place: Cache.of(place.config).clear(), full=True),
    )


def _told(call: Callable[[int], object]) -> tuple[int, list[Any]]:
    """Run a call in a fork of this process and return how it ended and the JSON lines that it wrote to its pipe."""
    status, said = forked(call, _PATIENCE)
    return status, [json.loads(line) for line in said.splitlines()]


class Campaign:
    """One scenario, killed at each of its points.

    Args:
        scenario: What is done.
        folder: Where.
        reference: Where everything was built.
        every: Whether to kill before and after each step; else before each, and after a thread's last.
        part: Whether to kill at a third of the points, with each kind of step among them.
    """

    def __init__(
        self, scenario: Scenario, folder: Path, reference: Place, *, every: bool = False, part: bool = False
    ) -> None:
        self._scenario, self._folder, self._reference = scenario, folder, reference
        self._every, self._part = every, part
        self._number = 0
        self._outcomes: Counter[str] = Counter()
        self._problems: list[str] = []

    def run(self) -> dict[str, Any]:
        """Count the steps, kill at each, and return the figures."""
        place = self._place()
        status, lines = _told(partial(self._work, place))
        escaped = [line["escaped"] for line in lines if isinstance(line, dict)]
        steps = [Step(*line) for line in lines if isinstance(line, list)]
        if status or escaped != [[]]:
            self._problems.append(f"without a fault it ended with {status}, and escaped: {escaped}")
        clean = self._recovered(place)
        points = self._points(steps)
        kinds: set[tuple[str, str]] = set()
        for number, (step, when) in enumerate(points):
            if not self._part or number % 3 == 0 or (step.kind, when) not in kinds:
                kinds.add((step.kind, when))
                self._kill(step, when, clean)
        return {
            "scenario": self._scenario.name,
            "steps": len(steps),
            "kinds": dict(sorted(Counter(step.kind for step in steps).items())),
            "points": len(points),
            "outcomes": dict(sorted(self._outcomes.items())),
            "problems": self._problems,
        }

    def _points(self, steps: Sequence[Step]) -> list[tuple[Step, str]]:
        last = {step.thread: step for step in steps}
        chosen = [step for step in steps if step.path.startswith(self._scenario.below)]
        points = [(step, "before") for step in chosen]
        if self._scenario.interrupted:
            return points
        points += [(step, "half") for step in chosen if step.kind == "write"]
        return points + [(step, "after") for step in chosen if self._every or last[step.thread] == step]

    def _place(self) -> Place:
        self._number += 1
        place = Place(self._folder / f"{self._scenario.name.replace(' ', '_')}{self._number}", self._reference.model)
        place.make(self._reference.folder if self._scenario.full else None)
        self._scenario.prepare(place)
        return place

    def _work(self, place: Place, pipe: int, stop: Stop | None = None) -> None:
        """Play the scenario, watched."""
        tempfile.tempdir = str(place.tmp)
        raising = KeyboardInterrupt if self._scenario.interrupted else None
        watch = Watch([place.cache, place.out, place.tmp], pipe, stop, raising)
        watch.begin()
        try:
            self._scenario.work(place)
        except KeyboardInterrupt:
            if stop is None:
                raise
        os.write(pipe, json.dumps({"escaped": watch.escaped}).encode() + b"\n")

    def _recovered(self, place: Place) -> dict[str, Any]:
        """Run again without the fault, and start from what that left."""

        def recover(pipe: int) -> None:
            tempfile.tempdir = str(place.tmp)
            (self._scenario.recover or self._scenario.work)(place)
            found = place.entries()
            network = place.compile()
            place.age()
            again = place.compile(forbid_compile=True)
            said = {
                "built": sorted(each.name for each in network.report.operators if each.status == "built"),
                "found": sorted(found),
                "image": again.report.image,
                "outputs": [output_of(network), output_of(again)],
                "tree": place.tree(),
            }
            if (place.out / "small.om").exists():
                said["outputs"].append(output_of(load(place.out / "small.om")))
            if (place.out / "cache.bundle").exists():
                said["bundle"] = blake3_of((place.out / "cache.bundle").read_bytes())
            os.write(pipe, json.dumps(said).encode() + b"\n")

        built_before = place.entries()
        status, lines = _told(recover)
        said: dict[str, Any] = lines[0] if lines else {}
        return said | {"status": status, "before": built_before}

    def _kill(self, step: Step, when: str, clean: dict[str, Any]) -> None:
        for _ in range(_TRIES):
            place = self._place()
            held = place.entries()
            status, lines = _told(partial(self._work, place, stop=Stop(step, when)))
            taken = [Step(*line) for line in lines if isinstance(line, list)]
            if step in taken:
                break
        expected = 0 if self._scenario.interrupted else signal.SIGKILL
        wrong = [] if step in taken and status == expected else [f"it ended with {status} after {len(taken)} steps"]
        wrong += self._lost(place, held, taken, step, finished=when == "after")
        left = [name for name in place.tree() if ".publish-" in name or "opbuild-" in name]
        if self._scenario.interrupted and left and step.kind not in ("unlink", "remove", "rmdir"):
            wrong.append(f"an interruption left {left}")
        after = self._recovered(place)
        wrong += [
            f"{field} is {after.get(field)} instead of {clean.get(field)}"
            for field in ("status", "outputs", "image", "tree", "bundle")
            if after.get(field) != clean.get(field)
        ]
        self._outcomes[self._class(after, left)] += 1
        self._problems += [f"{when} {step}: {each}" for each in wrong]
        shutil.rmtree(place.folder)

    def _lost(self, place: Place, held: set[str], taken: Sequence[Step], step: Step, *, finished: bool) -> list[str]:
        """Return which operators were published and are gone."""
        if self._scenario.name in ("ageing", "clearing"):
            return []  # it is to remove them
        done = list(taken) if finished else [each for each in taken if each != step]
        marks = [Path(each.path) for each in done if each.kind == "replace" and each.path.endswith(".json")]
        named = {mark.stem for mark in marks if mark.stem.rpartition("_")[2] == "0"}
        gone = (named | held) - place.entries()
        return [f"{name} was published and is gone" for name in sorted(gone)]

    def _class(self, after: dict[str, Any], left: Sequence[str]) -> str:
        built = len(set(after.get("found", ())) - after["before"])
        made = f"{built} operators made that were not finished" if built else "no operator made again"
        return f"{made}, {'what was left behind swept' if left else 'nothing left behind'}"


def campaign(names: Sequence[str] = (), *, every: bool = False, part: bool = False) -> list[dict[str, Any]]:
    """Run the scenarios and return the figures of each.

    Args:
        names: Which; all if there are none.
        every: Whether to kill before and after each step.
        part: Whether to kill at a third of the points.
    """
    with tempfile.TemporaryDirectory(prefix="stopped-builds-") as folder:
        model = Path(folder, "small.onnx")
        write_model(model)
        reference = Place(Path(folder, "reference"), model)
        reference.make()
        subprocess.run([sys.executable, __file__, "--reference", folder], check=True)
        chosen = [scenario for scenario in scenarios(reference) if not names or scenario.name in names]
        with replayed_compiles(reference.cache / "rank_0"):
            warm = Place(Path(folder, "warm"), model)
            warm.make()
            warm.compile()
            gc.freeze()  # what lies there is not touched by collections, so forks share it
            return [Campaign(each, Path(folder), reference, every=every, part=part).run() for each in chosen]


def build_reference(folder: Path) -> None:
    """Build everything once, with the real compiler."""
    place = Place(folder / "reference", folder / "small.onnx")
    place.compile()
    place.export()


def show(figures: Sequence[dict[str, Any]]) -> None:
    """Print the figures for people."""
    for each in figures:
        kinds = ", ".join(f"{count} {kind}" for kind, count in each["kinds"].items())
        print(f"{each['scenario']}: {each['steps']} steps ({kinds}), killed at {each['points']} points")
        for outcome, count in each["outcomes"].items():
            print(f"  {count:4} x right result: {outcome}")
        for problem in each["problems"]:
            print(f"  WRONG {problem}")
    print(f"{sum(each['points'] for each in figures)} points, {sum(len(each['problems']) for each in figures)} wrong")


def main() -> None:
    """Do the action of the command line."""
    arguments = sys.argv[1:]
    os.environ["OPBUILD_PACK"] = "0"  # what the pack has is not compiled, nor stored where it could be killed
    if arguments[:1] == ["--reference"]:
        build_reference(Path(arguments[1]))
        return
    names = [argument for argument in arguments if not argument.startswith("--")]
    figures = campaign(names, every="--every" in arguments, part="--part" in arguments)
    if "--json" in arguments:
        print(json.dumps(figures))
    else:
        show(figures)
    sys.exit(any(each["problems"] for each in figures))


if __name__ == "__main__":
    main()
