"""The compiler's runtime library: built beside the operators, kept elsewhere, and only where some object calls it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opbuild import events
from opbuild.builder.order import longest_first
from opbuild.config import Config
from opbuild.errors import CompileForbiddenError
from opbuild.kernel.opdesc import OpDesc
from opbuild.kernel.runtime_desc import runtime_desc
from opbuild.store.disk import DiskStore
from opbuild.store.memory import MemoryStore
from samples import Recorder, conv, disk_builder, needed


def test_an_object_that_calls_the_runtime_gets_it(config: Config) -> None:
    """The library is delivered, stored in its own store, reused, and not counted among the operators."""
    runtime_store = DiskStore(config.network_meta)
    with disk_builder(config, runtime_store=runtime_store) as builder:
        first = builder.build(needed(conv(fake="runtime")), "net")
        second = builder.build(needed(conv(fake="runtime")), "net")
    assert first.runtime is not None
    assert second.runtime is not None
    assert first.runtime.object == second.runtime.object
    assert (first.built, second.built) == (1, 0)
    assert first.runtime_decision is not None
    assert second.runtime_decision is not None
    assert (first.runtime_decision.outcome, second.runtime_decision.outcome) == ("built", "reused")
    assert builder.store.names() == (first.entries[conv(fake="runtime")].name,)
    assert runtime_store.names() == (first.runtime.name,)


def test_objects_that_do_not_call_the_runtime_do_not_wait_for_it(config: Config) -> None:
    """A network without such an object gets no runtime, nor an error about it."""
    with disk_builder(config, runtime_store=MemoryStore()) as builder:
        result = builder.build(needed(conv(1), conv(2)), "net")
    assert (result.runtime, result.runtime_decision) == (None, None)


def test_a_stored_object_that_calls_a_missing_runtime_has_it_built(config: Config) -> None:
    """When only the library is gone, only the library is built."""
    with disk_builder(config, runtime_store=MemoryStore()) as builder:
        builder.build(needed(conv(fake="runtime")), "net")
    with disk_builder(config, runtime_store=MemoryStore()) as builder:
        result = builder.build(needed(conv(fake="runtime")), "net")
    assert result.built == 0
    assert result.runtime is not None
    forbidden = disk_builder(replace(config, forbid_compile=True), runtime_store=MemoryStore())
    with pytest.raises(CompileForbiddenError, match="halideruntime_"):
        forbidden.build(needed(conv(fake="runtime")), "net")


def started(seen: Recorder) -> list[str]:
    """Return the operator types that were compiled, in order."""
    return [event.name.split("_")[0] for event in seen.of(events.CompileStarted)]


def test_the_runtime_of_a_network_is_compiled_first(config: Config) -> None:
    """The longest job starts before the operators, and progress counts operators only."""
    seen = Recorder()
    with disk_builder(replace(config, workers=1), seen, runtime_store=MemoryStore()) as builder:
        builder.build(needed(*(conv(tile, fake="runtime") for tile in range(4))), "net")
    assert started(seen) == ["halideruntime", "conv", "conv", "conv", "conv"]
    assert [event.name.split("_")[0] for event in seen.of(events.CompileFinished)] == ["conv"] * 4


def test_the_runtime_of_a_single_operator_waits_until_it_is_needed(config: Config) -> None:
    """An operator that runs in one thread does not pay for the runtime library; one that calls it does."""
    seen, runtime_store = Recorder(), MemoryStore()
    with disk_builder(replace(config, workers=1), seen, runtime_store=runtime_store) as builder:
        assert builder.build(needed(conv(1)), "net").runtime is None
        assert started(seen) == ["conv"]
        assert builder.build(needed(conv(2, fake="runtime")), "net").runtime is not None
    assert started(seen) == ["conv", "conv", "halideruntime"]


def test_longest_operators_come_first_in_one_order() -> None:
    """The order follows from the descriptors, not from the order in which a network uses them."""
    winograd = replace(conv(), family="winograd")
    copy = replace(conv(), family="copy")
    expected = [runtime_desc(), winograd, conv(1), conv(2), copy]
    for shuffled in (list(reversed(expected)), [copy, conv(2), runtime_desc(), conv(1), winograd]):
        assert sorted(shuffled, key=longest_first)[:2] == expected[:2]
        assert sorted(shuffled, key=longest_first)[-1] == copy
    descs: list[OpDesc] = [conv(tile) for tile in range(9)]
    backwards = descs[::-1]
    assert sorted(descs, key=longest_first) == sorted(backwards, key=longest_first)
