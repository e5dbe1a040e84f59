"""Descriptors, keys and entries to build tests from, and a recorder of events."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.events import Event
from opbuild.kernel.artifact import Artifact
from opbuild.kernel.entry import Entry, make_entry
from opbuild.kernel.key import CompilerIdentity, Key, make_key
from opbuild.kernel.opdesc import Dim, OpDesc, Operand
from opbuild.store.operators import operators_in
from opbuild.target.host import parse_level
from opbuild.target.level import Level
from support.fake_compiler import FakeCompiler, fake_object

LEVEL = parse_level("x86-64-v3")
IDENTITY = CompilerIdentity("fake", "1.0", "0" * 64)


def conv(tile: int = 1, op_types: tuple[str, ...] = ("Conv", "Relu"), **variant: Any) -> OpDesc:
    """Return a descriptor of a made-up convolution; its variant decides how the fake compiler behaves."""
    dims = (Dim(), Dim(min=1), Dim(stride=16, multiple=16))
    return OpDesc(
        op_types=op_types,
        family="conv",
        inputs=(Operand("x", "float32", dims, "NC1HWC0"), Operand("w", "float32", dims, "FRACTAL_Z")),
        outputs=(Operand("y", "float32", dims, "NC1HWC0"),),
        attrs={"kernel": [3, 3], "stride": [1, 1], "epilogue": ["relu", ["acc"]]},
        variant={"tile": tile, **variant},
    )


def key_of(desc: OpDesc, level: Level = LEVEL, identity: CompilerIdentity = IDENTITY, sources: str = "s") -> Key:
    """Return a descriptor's key with made-up surroundings."""
    return make_key(desc, level, identity, sources)


def entry_of(
    desc: OpDesc,
    device_id: int = 0,
    code: bytes = b"code",
    milliseconds: float = 1.0,
    pipeline: str = "",
    sources: str = "s",
) -> tuple[Key, Entry]:
    """Return a key and an entry whose object holds ``code``."""
    key = key_of(desc, sources=sources)
    object_ = fake_object(code, (key.symbol,))
    return key, make_entry(desc, key, device_id, Artifact(object_), milliseconds, nodes=("node",), pipeline=pipeline)


def needed(*descs: OpDesc) -> dict[OpDesc, tuple[str, ...]]:
    """Return the needs of a network, each operator by one node."""
    return {desc: (f"node_{index}",) for index, desc in enumerate(descs)}


class Recorder:
    """An observer that keeps the events."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: type[Event]) -> list[Any]:
        """Return the events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]


def disk_builder(config: Config, observer: Any = None, **options: Any) -> Builder:
    """Return a builder with the fake compiler over the disk store of ``config``."""
    store = operators_in(config.kernel_meta, config.device_id)
    return Builder(store, FakeCompiler(), LEVEL, config, observer or Recorder(), **options)


def stored(folder: Path, level: Level, tile: int = 1) -> str:
    """Store an operator for a level; return its name."""
    key = key_of(conv(tile), level=level)
    entry = make_entry(conv(tile), key, 0, Artifact(fake_object(b"code", (key.symbol,))), 12.0, nodes=("first",))
    operators_in(folder).publish(entry)
    return entry.name


def delivered(request: Mapping[str, Any], object_: bytes, pipeline: str = "0" * 32) -> tuple[dict[str, Any], bytes]:
    """Return the answer of a compile server that has compiled the operator of a request."""
    files = [[".o", len(object_)]]
    done = {"kind": "done", "id": request["id"], "milliseconds": 1.0, "changed": "", "pipeline": pipeline}
    return {**done, "files": files}, object_
