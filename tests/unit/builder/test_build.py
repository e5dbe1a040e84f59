"""The builder: what is compiled, what is reused, why, and what observers see."""

from __future__ import annotations

import fcntl
from dataclasses import replace

import pytest

from opbuild import events
from opbuild.builder.build import Builder
from opbuild.builder.client import CompileServer
from opbuild.builder.job import FORCED
from opbuild.config import Config
from opbuild.errors import BuildError, CompileForbiddenError
from opbuild.kernel.interfaces import Found
from opbuild.kernel.reason import Reason
from opbuild.store.blobs import Memory
from opbuild.store.operators import Operators
from support.fake_compiler import FakeCompiler
from support.samples import LEVEL, Recorder, conv, disk_builder, needed


def test_deciding_is_a_function_of_the_answer() -> None:
    """A hit is up to date unless a rebuild is forced; a miss is rebuilt for the store's reason."""
    store = Operators(Memory())

    def decided(*, force: bool = False) -> Found | Reason:
        (job,) = Builder(store, FakeCompiler(), LEVEL, Config(), force=force).plan(needed(conv()))
        return job.decision

    assert decided() == Reason("absent", "not in the store")
    with Builder(store, FakeCompiler(), LEVEL, Config()) as builder:
        built = builder.build(needed(conv()), "net").entries[conv()]
    found = decided()
    assert isinstance(found, Found)
    assert (found.entry.name, found.entry.object) == (built.name, built.object)
    assert decided(force=True) == FORCED


def test_a_second_build_compiles_nothing(config: Config) -> None:
    """What one build stored, the next one reuses, byte for byte (F45, F66)."""
    wanted = needed(*(conv(tile) for tile in range(5)))
    with disk_builder(config) as builder:
        first = builder.build(wanted, "net")
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        second = builder.build(wanted, "net")
    assert (first.built, first.reused, second.built, second.reused) == (5, 0, 0, 5)
    assert list(first.entries) == list(second.entries) == list(wanted)
    assert all(first.entries[desc].object == second.entries[desc].object for desc in wanted)


def test_only_what_changed_is_compiled_and_the_reason_names_the_field(config: Config) -> None:
    """One changed operator is built, with the first field that differs from the nearest entry (F46, F69)."""
    with disk_builder(config) as builder:
        builder.build(needed(conv(1), conv(20, other=True)), "net")
        result = builder.build(needed(conv(1), conv(2)), "net")
    assert [decision.outcome for decision in result.decisions] == ["reused", "built"]
    assert result.decisions[0].reason == Reason("stored", "in the store")
    assert result.decisions[1].reason.code == "changed"
    assert result.decisions[1].reason.text.startswith("variant tile 1 -> 2 since conv_relu_")
    assert result.decisions[1].nodes == ("node_1",)
    assert result.decisions[1].milliseconds > 0


def test_the_first_of_its_kind_says_so(config: Config) -> None:
    """An operator type that the store never saw has a reason of its own (F69)."""
    with disk_builder(config) as builder:
        result = builder.build(needed(conv()), "net")
    assert result.decisions[0].reason == Reason("absent", "not in the store")


def test_a_damaged_entry_is_built_again_for_the_stores_reason(config: Config) -> None:
    """The store's reason is kept, not replaced by a guess (F69)."""
    with disk_builder(config) as builder:
        entry = builder.build(needed(conv()), "net").entries[conv()]
        (config.kernel_meta / f"{entry.name}.o").unlink()
        result = builder.build(needed(conv()), "net")
    assert result.decisions[0].reason == Reason("incomplete", ".o is missing beside .info and .json")


def test_force_compiles_what_is_stored(config: Config) -> None:
    """With ``force`` everything is compiled, and the reason says so."""
    with disk_builder(config) as builder:
        builder.build(needed(conv()), "net")
    with disk_builder(config, force=True) as builder:
        result = builder.build(needed(conv()), "net")
    assert [decision.reason for decision in result.decisions] == [FORCED]


def test_a_plan_compiles_nothing(config: Config) -> None:
    """A dry run has the build's own decisions, and leaves the store empty."""
    with disk_builder(config) as builder:
        plans = builder.plan(needed(conv(1), conv(2)))
        assert [type(plan.decision) for plan in plans] == [Reason, Reason]
        assert builder.store.names() == ()
        builder.build(needed(conv(1)), "net")
        assert [type(plan.decision) for plan in builder.plan(needed(conv(1), conv(2)))] == [Found, Reason]


def test_forbidden_compiling_names_operators_nodes_and_reasons(config: Config) -> None:
    """With compiling forbidden, the error says what would have been compiled, for whom and why."""
    with disk_builder(config) as builder:
        builder.build(needed(conv(1)), "net")
    builder = disk_builder(replace(config, forbid_compile=True))
    with pytest.raises(CompileForbiddenError) as caught:
        builder.build(needed(conv(1), conv(2)), "net")
    message = str(caught.value)
    assert f"{builder.key(conv(2)).name(0)} (of node_1): variant tile 1 -> 2" in message
    assert "[changed]" in message
    assert builder.key(conv(1)).name(0) + " (of" not in message


def test_many_forbidden_operators_make_a_short_message(config: Config) -> None:
    """The list is cut, and says how many more there are."""
    builder = disk_builder(replace(config, forbid_compile=True))
    with pytest.raises(CompileForbiddenError, match="100 operators would have") as caught:
        builder.build(needed(*(conv(tile) for tile in range(100))), "net")
    assert "and 80 more" in str(caught.value)


def test_observers_see_each_step(config: Config) -> None:
    """Events tell the numbers, each start with its reason, each end with its time and the progress (F70)."""
    seen = Recorder()
    with disk_builder(config, seen) as builder:
        builder.build(needed(conv(1)), "first")
        seen.events.clear()
        builder.build(needed(conv(1), conv(2), conv(3)), "net")
    assert seen.events[0] == events.BuildStarted("net", 3, 2)
    assert [(event.done, event.to_compile) for event in seen.of(events.CompileFinished)] == [(1, 2), (2, 2)]
    started = seen.of(events.CompileStarted)
    assert {event.name for event in started} == {builder.key(conv(tile)).name(0) for tile in (2, 3)}
    assert all(event.reason.startswith("variant tile 1 -> ") for event in started)
    finished = seen.events[-1]
    assert isinstance(finished, events.BuildFinished)
    assert (finished.network, finished.built, finished.reused) == ("net", 2, 1)


def test_the_caller_works_while_operators_compile(config: Config) -> None:
    """``start`` returns before the compiles end, so that weights are packed meanwhile."""
    seen = Recorder()
    with disk_builder(config, seen) as builder:
        pending = builder.start(needed(conv(1, milliseconds=500)), "net")
        assert seen.of(events.CompileFinished) == []
        result = pending.result()
        assert result is pending.result()
    assert result.built == 1
    assert len(seen.of(events.BuildFinished)) == 1


def test_workers_are_obeyed(config: Config) -> None:
    """No more operators compile at once than MS_BUILD_PROCESS_NUM allows (F65)."""
    seen = Recorder()
    with disk_builder(replace(config, workers=1), seen) as builder:
        builder.build(needed(*(conv(tile, milliseconds=5) for tile in range(4))), "net")
    kinds = [type(event) for event in seen.events[1:-1]]
    assert kinds == [events.CompileStarted, events.CompileFinished] * 4


def test_more_requests_and_answers_than_pipes_hold_do_not_wait_for_each_other(
    config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build of many operators ends where pipes are narrow: answers are read while requests are still sent."""

    class Narrow(CompileServer):
        def __init__(self, import_string: str, workers: int) -> None:
            super().__init__(import_string, workers)
            for descriptor in (self._requests, self._answers):
                fcntl.fcntl(descriptor, fcntl.F_SETPIPE_SZ, 4096)

    monkeypatch.setattr("opbuild.builder.client.CompileServer", Narrow)
    many = [conv(tile, padding="x" * 2000) for tile in range(100)]
    with disk_builder(config) as builder:
        assert builder.build(needed(*many), "net").built == len(many)


def test_the_device_is_in_the_names_it_builds(config: Config) -> None:
    """DEVICE_ID ends the name of what this device builds; another device finds it nevertheless (F35)."""
    with disk_builder(replace(config, device_id=5)) as builder:
        result = builder.build(needed(conv()), "net")
    assert result.entries[conv()].name.endswith("_5")
    with disk_builder(replace(config, forbid_compile=True)) as builder:
        assert builder.build(needed(conv()), "net").reused == 1


def test_names_do_not_grow_from_build_to_build(config: Config) -> None:
    """Ten builds in one process leave one entry under one name (F47)."""
    with disk_builder(config, force=True) as builder:
        names = {builder.build(needed(conv()), "net").entries[conv()].name for _ in range(3)}
    assert len(names) == 1
    assert len(builder.store.names()) == 1


def test_an_empty_network_builds(config: Config) -> None:
    """A network whose nodes all run on the host needs no operator, no compiler process and no runtime."""
    with disk_builder(config, runtime_store=Operators(Memory())) as builder:
        result = builder.build({}, "net")
    assert (result.entries, result.runtime, result.decisions) == ({}, None, ())


def test_a_compiler_that_is_not_installed_is_an_error_that_says_so(config: Config) -> None:
    """Without the compiler no key can be made; the error names it and what to install."""

    class Absent(FakeCompiler):
        def library(self) -> None:
            return None

    with pytest.raises(BuildError, match="the compiler fake is not installed"):
        Builder(Operators(Memory()), Absent(), LEVEL, config).build(needed(conv()), "net")


def test_a_distrusted_store_is_a_warning(config: Config) -> None:
    """Building into a folder that everybody may write to works and warns once (F58)."""
    config.kernel_meta.mkdir(parents=True)
    config.kernel_meta.chmod(0o777)
    seen = Recorder()
    with disk_builder(config, seen) as builder:
        result = builder.build(needed(conv()), "net")
    assert len(result.warnings) == len(seen.of(events.Warned)) == 1
    assert "everybody may write" in result.warnings[0]


def test_a_store_that_cannot_be_written_costs_one_warning(config: Config) -> None:
    """The build goes on with the objects in memory, and says once that nothing was stored (F54, F61, F68)."""
    config.kernel_meta.parent.mkdir(parents=True)
    config.kernel_meta.write_bytes(b"a file where the folder belongs")
    seen = Recorder()
    with disk_builder(config, seen) as builder:
        result = builder.build(needed(*(conv(tile) for tile in range(3))), "net")
    assert result.built == 3
    assert all(entry.object for entry in result.entries.values())
    assert [event.message for event in seen.of(events.Warned)] == list(result.warnings)
    assert len(result.warnings) == 1
    assert result.warnings[0].startswith("3 operators are used but not stored")


def test_the_compiler_identity_is_remembered_beside_the_store(config: Config) -> None:
    """kernel_meta holds operators only; what is remembered of them and of the compiler lies in network_meta."""
    with disk_builder(config) as builder:
        builder.build(needed(conv()), "net")
        origins = f"{builder.key(conv()).operator_stem}.origins"
    assert len(list(config.kernel_meta.iterdir())) == 3
    assert {path.name for path in config.network_meta.iterdir()} == {"compiler.json", origins}
    assert isinstance(builder.store, Operators)
