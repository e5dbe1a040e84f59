"""A model whose files are replaced, cut, removed and written to while networks that were made of it are called."""

from __future__ import annotations

import os
import random
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild
from opbuild import onnx_backend
from opbuild.config import Config
from opbuild.errors import OpbuildError
from opbuild.onnxruntime import InferenceSession

WIDTHS = (8, 160, 600)
"""Of weights that travel with a network's image, that have a file of their own, and that are mapped."""

MODEL, DATA = "model.onnx", "model.onnx_data"
CHANGED = ("changed since it was compiled", "cannot be read: No such file")
"""What an error says of a model that is not what it was."""

Call = Callable[[int], tuple[float, ...]]


@dataclass(frozen=True)
class Kind:
    """A model: the width of its weights, whether they lie beside it, whether it is in parts, how open its input is."""

    width: int
    is_external: bool
    has_parts: bool
    input: str

    def proto(self, version: int) -> onnx.ModelProto:
        """Return the model with the weights of a version, of which each decides the results."""
        width = self.width
        shapes = {"open": ["n", width], "fixed": [2, width], "any rank": None}
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shapes[self.input])
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        arrays = {"w": np.full((width, width), version), "b": np.full(width, 1e4 * version)}
        nodes = [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Add", ["m", "b"], ["y"])]
        if self.has_parts:
            outputs.append(helper.make_tensor_value_info("z", TensorProto.FLOAT, None))
            arrays["v"] = np.full((2, 2), version)
            nodes += [
                helper.make_node("NonZero", ["x"], ["places"]),
                helper.make_node("Transpose", ["places"], ["pairs"]),
                helper.make_node("Cast", ["pairs"], ["numbers"], to=TensorProto.FLOAT),
                helper.make_node("MatMul", ["numbers", "v"], ["products"]),
                helper.make_node("ReduceMax", ["products"], ["z"], keepdims=0),
            ]
        weights = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in arrays.items()]
        graph = helper.make_graph(nodes, "versions", [x], outputs, weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)

    def results(self, version: int, rows: int) -> tuple[float, ...]:
        """Return the results of a version for ones."""
        y = float(version * self.width + 10_000 * version)
        return (y, float(version * (rows - 1 + self.width - 1))) if self.has_parts else (y,)


@dataclass
class Made:
    """A network, the versions of which it may be (one, once it has answered), and whether its model was whole."""

    way: str
    call: Call
    versions: set[int]
    is_whole: bool


def _says_so(error: OpbuildError) -> bool:
    return any(each in str(error) for each in CHANGED)


def random_kind(draw: random.Random) -> Kind:
    """Return a model."""
    has_parts = draw.random() < 0.3
    shape = draw.choice(("open", "open", "fixed", "any rank"))
    return Kind(draw.choice(WIDTHS), draw.random() < 0.7, has_parts, "open" if has_parts else shape)


@dataclass
class World:
    """A folder with a model, and networks made of it."""

    folder: Path
    draw: random.Random
    kind: Kind
    made: list[Made] = field(default_factory=list)
    version: int = 1
    coming: int = 1
    is_whole: bool = True
    done: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        for version in (1, 2, 3):  # each with its files, named as those that are replaced
            place = self.folder / f"version{version}"
            place.mkdir()
            onnx.save(self.kind.proto(version), place / MODEL, save_as_external_data=self.kind.is_external,
                      location=DATA, size_threshold=0)  # fmt: skip
        self.place = self.folder / "served"
        shutil.copytree(self.folder / "version1", self.place)

    @property
    def decides(self) -> str:
        """The file whose content is the version."""
        return DATA if self.kind.is_external else MODEL

    # -- files ---------------------------------------------------------------------------------------------------------

    def replace(self) -> None:
        """Have another version, or the same again, by one of the ways in which files are written."""
        version = self.coming
        content = (self.folder / f"version{version}" / self.decides).read_bytes()
        path, how = self.place / self.decides, self.draw.choice(("rename", "rename", "write", "map"))
        self.done.append(f"{how} {version}")
        if how == "rename" or not path.exists() or path.stat().st_size != len(content):
            other = self.place / "other"
            other.write_bytes(content)
            other.replace(path)
        elif how == "write":
            with path.open("r+b") as file:
                file.write(content)
        else:
            np.memmap(path, np.uint8, "r+")[:] = np.frombuffer(content, np.uint8)
        self.version, self.is_whole = version, True

    def draw_version(self) -> None:
        """Say which version comes next."""
        self.coming = self.draw.choice((1, 2, 3))

    def damage(self) -> None:
        """Remove the file, or cut it."""
        path = self.place / self.decides
        how = self.draw.choice(("remove", "cut"))
        self.done.append(how)
        if how == "remove":
            path.unlink(missing_ok=True)
        elif path.exists():
            os.truncate(path, self.draw.randrange(path.stat().st_size + 1) // 2)
        self.is_whole = False

    def clear(self) -> None:
        """Remove all that opbuild keeps."""
        self.done.append("clear")
        shutil.rmtree(self.folder / "cache", ignore_errors=True)

    # -- networks ------------------------------------------------------------------------------------------------------

    def make(self) -> None:
        """Make a network in one of the ways; of a damaged model there is none, or one of the version before."""
        way = self.draw.choice([way for way, serves in WAYS.items() if serves[1](self.kind)])
        self.done.append(f"make by {way}")
        versions, was_whole = {self.version, self.coming}, self.is_whole
        os.environ["XDG_CACHE_HOME"] = str(self.folder / "cache")
        try:
            call = WAYS[way][0](self)
        except OpbuildError as error:
            if was_whole and not (len(versions) > 1 and _says_so(error)):
                raise AssertionError("a whole model was refused") from error
            return
        self.made.append(Made(way, call, versions, is_whole=was_whole))

    def call(self) -> None:
        """Call one of the networks; what it gives is of its version, or it says that the model changed."""
        if not self.made:
            return
        made = self.draw.choice(self.made)
        rows = 2 if self.kind.input == "fixed" else self.draw.randint(1, 6)
        self.done.append(f"call {self.made.index(made)} with {rows}")
        try:
            found = made.call(rows)
        except OpbuildError as error:
            if made.is_whole and not _says_so(error):
                raise AssertionError("something else is wrong") from error
            return
        fitting = {version for version in made.versions if self.kind.results(version, rows) == found}
        assert fitting, f"{found} of {made.way}, not {[self.kind.results(each, rows) for each in made.versions]}"
        made.versions = fitting

    def together(self) -> None:
        """Replace the file while another thread makes a network or calls one."""
        self.done.append("together:")
        failed: list[BaseException] = []

        def work() -> None:
            try:
                self.draw.choice((self.make, self.call))()
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=work)
        whole, thread_draws = self.is_whole, random.Random(self.draw.random())
        if whole:
            self.draw_version()
        thread.start()
        threading.Event().wait(thread_draws.choice((0, 0.001, 0.01, 0.1)))
        self.replace() if whole else self.clear()
        thread.join()
        if failed:
            raise failed[0]

    def step(self) -> None:
        """Let something happen."""
        events = (self.call, self.call, self.call, self.make, self.replaced, self.damage, self.clear, self.together)
        self.draw.choice(events)()

    def replaced(self) -> None:
        """Have another version while nothing else happens."""
        self.draw_version()
        self.replace()


# -- ways of making a network ------------------------------------------------------------------------------------------


def _caller(network: Any, kind: Kind) -> Call:
    def call(rows: int) -> tuple[float, ...]:
        results = network(np.ones((rows, kind.width), np.float32))
        return _numbers(results if isinstance(results, tuple) else (results,))

    return call


def _numbers(results: Any) -> tuple[float, ...]:
    """Return the number that each output consists of; of mixed ones none."""
    return tuple(
        float(each.flat[0]) if (each == each.flat[0]).all() else float("nan") for each in map(np.asarray, results)
    )


def _compiled(world: World, model: Any, **options: Any) -> Call:
    shapes = {"x": (2, world.kind.width)} if world.draw.random() < 0.3 and "input_shapes" not in options else None
    cache = world.folder / "cache"
    return _caller(opbuild.compile(model, cache_path=cache, **{"input_shapes": shapes, **options}), world.kind)


def _session(world: World, source: Any) -> Call:
    session = InferenceSession(source)
    return lambda rows: _numbers(session.run(None, {"x": np.ones((rows, world.kind.width), np.float32)}))


def _changed_proto(world: World) -> Call:
    proto = world.kind.proto(world.version)
    call = _compiled(world, proto)
    if world.draw.random() < 0.7:
        proto.CopyFrom(world.kind.proto(world.version + 1))
    return call


def _changed_buffer(world: World) -> Call:
    content = bytearray(world.kind.proto(world.version).SerializeToString())
    call = _compiled(world, content)
    if world.draw.random() < 0.7:
        content[:] = bytes(len(content))
    return call


def _prepared(world: World) -> Call:
    prepared = onnx_backend.prepare(world.kind.proto(world.version), cache_path=world.folder / "cache")
    return lambda rows: _numbers(tuple(prepared.run([np.ones((rows, world.kind.width), np.float32)])))


def _offline(world: World) -> Call:
    width = world.kind.width
    config = Config.from_environment(cache_path=world.folder / "cache")
    given: dict[str, Any] = {} if world.kind.input == "fixed" else {"ranges": {"x": ((1, 8), width)}}
    path = world.folder / f"{len(world.done)}.om"
    opbuild.export(world.place / MODEL, path, config=config, **given)
    return _caller(opbuild.load(path), world.kind)


def _warmed(world: World) -> Call:
    opbuild.warm([world.place / MODEL], shapes={"x": (2, world.kind.width)}, cache_path=world.folder / "cache")
    return _compiled(world, world.place / MODEL)


def _has_rank(kind: Kind) -> bool:
    return kind.input != "any rank"


WAYS: dict[str, tuple[Callable[[World], Call], Callable[[Kind], bool]]] = {
    "path": (lambda world: _compiled(world, world.place / MODEL), _has_rank),
    "one size": (
        lambda world: _compiled(world, world.place / MODEL, input_shapes={"x": (2, world.kind.width)}),
        _has_rank,
    ),
    "no cache": (lambda world: _compiled(world, world.place / MODEL, op_compiler_cache_mode="disable"), _has_rank),
    "copies": (lambda world: _compiled(world, world.place / MODEL, copy_weights=True), _has_rank),
    "bytes": (lambda world: _compiled(world, world.kind.proto(world.version).SerializeToString()), _has_rank),
    "ModelProto": (_changed_proto, _has_rank),
    "bytearray": (_changed_buffer, _has_rank),
    "onnx's backend": (_prepared, _has_rank),
    "session": (lambda world: _session(world, str(world.place / MODEL)), lambda kind: True),
    "session of bytes": (
        lambda world: _session(world, world.kind.proto(world.version).SerializeToString()),
        lambda kind: True,
    ),
    "offline": (_offline, lambda kind: _has_rank(kind) and not kind.has_parts),
    "warm": (_warmed, _has_rank),
}
"""How networks are made, and of which models."""
