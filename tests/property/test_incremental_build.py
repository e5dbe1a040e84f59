"""After any edits, an incremental build equals a clean one, and compiles only what is missing."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from opbuild.builder import build as build_module
from opbuild.builder.build import Builder
from opbuild.config import Config
from opbuild.kernel.entry import Entry
from opbuild.kernel.opdesc import OpDesc
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators, operators_in
from support.fake_compiler import FakeCompiler
from support.instant_server import InstantServer, NoneRests
from support.samples import LEVEL, conv, needed

networks = st.lists(st.lists(st.integers(0, 9), unique=True, max_size=6), min_size=1, max_size=5)
damages = st.sampled_from(["none", "delete", "empty", "cut", "evict"])


def objects(entries: Mapping[OpDesc, Entry]) -> dict[OpDesc, bytes]:
    """Return the objects of a build, which are all that matters."""
    return {desc: entry.object for desc, entry in entries.items()}


def damage(folder: Path, kind: str, number: int) -> str | None:
    """Damage one file of one entry and return the entry's name."""
    files = sorted(folder.iterdir()) if folder.is_dir() else []
    if kind == "none" or not files:
        return None
    path = files[number % len(files)]
    if kind == "delete":
        path.unlink()
    elif kind == "evict":
        operators_in(folder).blobs.delete(path.stem + ".json", path.stem + ".o", path.stem + ".info")
    else:
        path.write_bytes(b"" if kind == "empty" else path.read_bytes()[: number % max(path.stat().st_size, 1)])
    return path.stem


@settings(max_examples=60, deadline=None)
@given(networks, damages, st.integers(0, 10**6))
def test_incremental_builds_equal_clean_ones_and_compile_only_missing_keys(
    history: list[list[int]], kind: str, number: int
) -> None:
    """Whatever was built before and befell the store, results are the clean build's, and no work is repeated."""
    original, build_module.IDLE_SERVER = build_module.IDLE_SERVER, NoneRests()
    try:
        with tempfile.TemporaryDirectory() as folder:
            config = Config(cache_path=Path(folder), workers=2)
            store = operators_in(config.kernel_meta)
            sound: set[str] = set()
            for tiles in history:
                lost = damage(config.kernel_meta, kind, number)
                sound.discard(lost or "")
                wanted = needed(*(conv(tile) for tile in tiles))
                InstantServer.compiled.clear()
                with Builder(store, FakeCompiler(), LEVEL, config) as builder:
                    result = builder.build(wanted, "net")
                    names = {desc: builder.key(desc).name(0) for desc in wanted}
                missing = [name for name in names.values() if name not in sound]
                assert len(InstantServer.compiled) == result.built == len(missing)
                sound.update(names.values())
                with Builder(Operators(Memory()), FakeCompiler(), LEVEL, config) as builder:
                    clean = builder.build(wanted, "net")
                assert objects(result.entries) == objects(clean.entries)
    finally:
        build_module.IDLE_SERVER = original
