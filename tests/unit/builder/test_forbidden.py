"""The hint of "compiling is forbidden": it names what keeps stored operators from being used, and doing it helps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from opbuild.builder.build import Builder
from opbuild.builder.job import absent_error, forbidden_error
from opbuild.config import Config
from opbuild.errors import CompileForbiddenError
from opbuild.kernel.debug import make_debug
from opbuild.kernel.interfaces import Missing, Store
from opbuild.kernel.key import Key
from opbuild.kernel.reason import Reason
from opbuild.platform.files.trust import Trust
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators, operators_in
from opbuild.store.remote.failures import REFUSED
from opbuild.store.remote.operators import missing
from opbuild.store.tiers import TieredStore
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, conv, disk_builder, needed

BUILD_ONCE = "build the network once without OPBUILD_FORBID_COMPILE"
NET = needed(conv())


class _NotReached:
    """A remote store that nobody answers for."""

    def lookup(self, key: Key) -> Missing:
        return missing(Reason(REFUSED, "nobody listens there"))

    def origins(self, keys: Sequence[Key]) -> list[Mapping[str, str]]:
        return [{} for _ in keys]


def _stored(config: Config) -> Operators:
    """Return a store with the network's operator."""
    with disk_builder(config) as builder:
        builder.build(NET, "net")
    return operators_in(config.kernel_meta)


def _builder(store: Store, config: Config) -> Builder:
    debug = make_debug(config.op_debug_level, None, None, config.kernel_meta.parent / "debug")
    force = config.forces
    return Builder(store, FakeCompiler(), LEVEL, replace(config, forbid_compile=True), force=force, debug=debug)


def _opened(store: Operators, mode: int) -> Operators:
    store.blobs.path.chmod(mode)
    return operators_in(store.blobs.path)


def _damaged(store: Operators) -> Operators:
    for path in store.blobs.path.glob("*.o"):
        path.write_bytes(b"")
    return store


Broken = Callable[[Operators, Config], tuple[Store, Config]]
CAUSES: dict[str, tuple[Broken, str, bool]] = {
    "disabled": (
        lambda store, config: (Operators(Memory()), replace(config, op_compiler_cache_mode="disable")),
        "op_compiler_cache_mode is 'disable'", False,
    ),
    "forced": (
        lambda store, config: (store, replace(config, op_compiler_cache_mode="force")),
        "op_compiler_cache_mode is 'force'", False,
    ),
    "debugged": (
        lambda store, config: (store, replace(config, op_debug_level=3)), "operators are debugged", False,
    ),
    "folder of others": (
        lambda store, config: (Operators(Memory()), replace(config, folder_problem="everybody may write; 'chmod'")),
        "the cache is not used: everybody may write; 'chmod'", False,
    ),
    "folder of others, looked up": (
        lambda store, config: (_opened(store, 0o777), config), "what is stored is not used: everybody may write", False,
    ),
    "not signed": (
        lambda store, config: (operators_in(store.blobs.path, trust=Trust(key=b"k" * 16)), config),
        "what is stored is not used: it is not signed", False,
    ),
    "damaged": (
        lambda store, config: (_damaged(store), config), "what is stored is not used: the object's", True,
    ),
    "not reached": (
        lambda store, config: (TieredStore(Operators(Memory()), [_NotReached()]), config),
        "the remote store: refused, nobody listens there: 'opbuild cache check'", False,
    ),
    "without the pack": (
        lambda store, config: (Operators(Memory()), config), "the pack is not used: leave OPBUILD_PACK=0", False,
    ),
    "never built": (lambda store, config: (Operators(Memory()), replace(config, uses_pack=True)), BUILD_ONCE, True),
}  # fmt: skip
"""How each thing that keeps an operator from being used comes about, what the hint says of it first, and whether
building once is what mends it."""


@pytest.mark.parametrize("cause", CAUSES)
def test_the_hint_begins_with_the_cause(config: Config, cause: str) -> None:
    """And says what to do where the network was never built, too; what is mended serves without compiling."""
    stored = _stored(config)
    breaks, said, needs_build = CAUSES[cause]
    store, broken = breaks(stored, config)
    with pytest.raises(CompileForbiddenError) as caught:
        _builder(store, broken).build(NET, "net")
    assert caught.value.hint.startswith(said)
    assert BUILD_ONCE in caught.value.hint
    stored.blobs.path.chmod(0o700)
    if needs_build:
        _stored(config)
    assert _builder(operators_in(stored.blobs.path), config).build(NET, "net").built == 0


def test_the_first_cause_counts(tmp_path: Path) -> None:
    """Of several the one without which the others would not matter; a missing compiler's error says it, too."""
    config = Config(cache_path=tmp_path, op_compiler_cache_mode="disable", folder_problem="others may write")
    jobs = [job for job in _builder(Operators(Memory()), config).plan(NET) if job.must_compile]
    for error in (forbidden_error(jobs, config), absent_error("halide", jobs, config)):
        assert error.hint.startswith("op_compiler_cache_mode is 'disable'")
        assert "where it was never built, " in error.hint
    assert "pip install halide" in absent_error("halide", jobs, config).hint
