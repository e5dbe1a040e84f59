"""The compiler's runtime library: built after the operators, kept elsewhere, and only where some object calls it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from opbuild import events
from opbuild.builder.work import longest_first
from opbuild.config import Config
from opbuild.errors import CompileForbiddenError
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators, operators_in
from support.samples import Recorder, conv, disk_builder, needed


def test_an_object_that_calls_the_runtime_gets_it(config: Config) -> None:
    """The library is delivered, stored in its own store, reused, and not counted among the operators."""
    runtime_store = operators_in(config.network_meta)
    with disk_builder(config, runtime_store=runtime_store) as builder:
        first = builder.build(needed(conv(fake="runtime")), "net")
        second = builder.build(needed(conv(fake="runtime")), "net")
    assert first.runtime is not None
    assert second.runtime is not None
    (library,), (same,) = (result.entries.values() for result in (first.runtime, second.runtime))
    assert library.object == same.object
    assert (first.built, second.built) == (1, 0)
    assert (first.runtime.built, second.runtime.built) == (1, 0)
    assert builder.store.names() == (first.entries[conv(fake="runtime")].name,)
    assert runtime_store.names() == (library.name,)


def test_objects_that_do_not_call_the_runtime_do_not_wait_for_it(config: Config) -> None:
    """A network without such an object gets no runtime, nor an error about it."""
    with disk_builder(config, runtime_store=Operators(Memory())) as builder:
        result = builder.build(needed(conv(1), conv(2)), "net")
    assert result.runtime is None


def test_a_stored_object_that_calls_a_missing_runtime_has_it_built(config: Config) -> None:
    """When only the library is gone, only the library is built."""
    with disk_builder(config, runtime_store=Operators(Memory())) as builder:
        builder.build(needed(conv(fake="runtime")), "net")
    with disk_builder(config, runtime_store=Operators(Memory())) as builder:
        result = builder.build(needed(conv(fake="runtime")), "net")
    assert result.built == 0
    assert result.runtime is not None
    forbidden = disk_builder(replace(config, forbid_compile=True), runtime_store=Operators(Memory()))
    with pytest.raises(CompileForbiddenError, match="halideruntime_"):
        forbidden.build(needed(conv(fake="runtime")), "net")


def test_the_runtime_is_compiled_once_it_is_known_to_be_called_and_not_counted(config: Config) -> None:
    """An operator that calls nothing does not pay for it; one that does gets it, and progress counts operators only."""
    seen, runtime_store = Recorder(), Operators(Memory())
    with disk_builder(replace(config, workers=1), seen, runtime_store=runtime_store) as builder:
        assert builder.build(needed(conv(1)), "net").runtime is None
        assert started(seen) == ["conv"]
        assert builder.build(needed(conv(2, fake="runtime")), "net").runtime is not None
    assert started(seen) == ["conv", "conv", "halideruntime"]
    assert [event.name.split("_")[0] for event in seen.of(events.CompileFinished)] == ["conv"] * 2
    assert [event.built for event in seen.of(events.BuildFinished)] == [1, 1]


def started(seen: Recorder) -> list[str]:
    """Return the operator types that were compiled, in order."""
    return [event.name.split("_")[0] for event in seen.of(events.CompileStarted)]


def test_what_networks_have_by_themselves_needs_no_runtime(config: Config) -> None:
    """An object that calls nothing else of the compiler's is linked without it."""
    runtime_store = Operators(Memory())
    with disk_builder(config, runtime_store=runtime_store, provided={"halide_do_par_for"}) as builder:
        assert builder.build(needed(conv(fake="runtime")), "net").runtime is None
    with disk_builder(config, runtime_store=runtime_store, provided={"halide_malloc"}) as builder:
        assert builder.build(needed(conv(fake="runtime")), "net").runtime is not None


def test_longest_operators_come_first_in_one_order() -> None:
    """The order follows from the descriptors, not from the order in which a network uses them."""
    winograd = replace(conv(), family="winograd")
    copy = replace(conv(), family="copy")
    expected = [winograd, conv(1), conv(2), copy]
    for shuffled in (expected[::-1], [copy, conv(2), conv(1), winograd]):
        assert sorted(shuffled, key=longest_first) == expected
