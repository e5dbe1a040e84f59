"""The release's databases and its pack: the pack has what the databases choose, and what it lacks is not chosen."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

import opbuild
from kernels.plan import descriptors, graphs_of
from opbuild.config import Config
from opbuild.families.family import TuningQuery, Variant
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import LoweringQuery, Tuned
from opbuild.pipeline import tuned as tuned_pipeline
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.tuned_lowering import lower_with_records
from opbuild.platform.files.trust import PRIVATE
from opbuild.platform.imports import Modules
from opbuild.platform.release import code
from opbuild.report import Report
from opbuild.store.machine_class import (
    SHIPPED,
    MeasuredMachine,
    caches,
    deciding_digest,
    machine_file,
    shipped_database,
    system_class,
    write_measured,
)
from opbuild.store.tuning_database import TuningRecord, line_of, parse_database
from opbuild.target.level import BY_NAME, Level
from opbuild.tuning.trial import FixedAnswers
from support.small_network import SHAPE, small_model
from support.tuned_records import record, remember

LEVEL = BY_NAME["x86-64-v3"]


@pytest.fixture
def databases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a release's databases, which are not looked at for what they are called but by level and caches."""
    monkeypatch.setattr("opbuild.store.machine_class.SHIPPED", tmp_path / "banks")
    monkeypatch.setenv("OPBUILD_SHIPPED_BANK", "1")
    (tmp_path / "banks").mkdir()
    return tmp_path / "banks"


def graph() -> Graph:
    """Return a product and a softmax."""
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]
    (found,) = graphs_of(iter([model]))
    return found


def product_asked(level: Level) -> tuple[TuningQuery, LoweringQuery]:
    """Return the query of the family of products for the network."""
    found = Tuned(FixedAnswers({}))
    lower(graph(), level, Options(chooser=found))
    return next((query, asked) for query, asked in found.queries.items() if query.family == "matmul")


def other_choice(level: Level, **about: object) -> TuningRecord:
    """Return a record that another candidate than the tables' beats theirs."""
    query, asked = product_asked(level)
    other = next(each for each in asked.candidates if each != asked.default)
    known = {"level": level.name, "system": system_class(level), **about}
    return record(query, asked.default, other, **known)


def write(path: Path, *records: TuningRecord) -> None:
    """Write a database of the release."""
    path.write_bytes(b"".join(line_of(each, PRIVATE) + b"\n" for each in records))


def product_variants(kernels: Mapping[OpDesc, object]) -> list[Variant]:
    """Return the variants of products among kernels."""
    return [dict(each.variant) for each in kernels if each.family == "matmul"]


def has_choice(kernels: Mapping[OpDesc, object], chosen: TuningRecord) -> bool:
    """Return whether one of the kernels is what a record chooses."""
    assert chosen.choice is not None
    return any(chosen.choice.items() <= variant.items() for variant in product_variants(kernels))


def test_the_pack_has_what_a_database_of_the_release_chooses_for_machines_of_any_caches(databases: Path) -> None:
    """A record of the level, for other caches and threads than are here, puts its kernel into the plan of the pack."""
    chosen = other_choice(LEVEL, threads=7, system="elsewhere")
    assert not has_choice(descriptors([graph()], LEVEL), chosen)
    write(databases / "x86-64-v3_L1-31K_L2-127K.jsonl", chosen)
    plan = descriptors([graph()], LEVEL)
    assert has_choice(plan, chosen)
    assert len(product_variants(plan)) > 1, "the tables' choice is for all other machines"


def test_what_is_chosen_for_another_level_or_of_other_sources_is_not_in_the_pack(databases: Path) -> None:
    """Levels whose names begin alike are two, and a stale record says nothing."""
    chosen = other_choice(LEVEL)
    before = descriptors([graph()], LEVEL)
    write(
        databases / "x86-64-v3_L1-31K_L2-127K.jsonl",
        replace(chosen, sources="older"),
        replace(chosen, level="x86-64-v4"),
    )
    write(databases / "x86-64-v3-more_L1-31K_L2-127K.jsonl", chosen)
    assert descriptors([graph()], LEVEL) == before


class MadePack:
    """A pack with some kernels.

    Args:
        families: The families that it has files of.
        lacks: What it has not of them.
    """

    def __init__(self, families: set[str], lacks: TuningRecord | None) -> None:
        self._families, self._lacks = families, lacks

    def file(self, family: str) -> bool | None:
        """Say whether there is a file."""
        return family in self._families or None

    def has(self, desc: OpDesc) -> bool:
        """Say whether there is a kernel."""
        return self._lacks is None or not has_choice({desc: None}, self._lacks)


@pytest.mark.parametrize(
    ("families", "lacks", "is_taken"),
    [
        ({"matmul", "softmax"}, False, True),
        ({"matmul", "softmax"}, True, False),
        (set(), True, True),
        (None, True, True),
    ],
)
def test_what_the_release_chooses_is_taken_where_its_kernels_come_with_it(
    databases: Path,
    families: set[str] | None,
    lacks: bool,
    is_taken: bool,
    monkeypatch: pytest.MonkeyPatch,
    user_store: Path,
) -> None:
    """A first start compiles nothing for a database; where there is no pack, or none of the family, it counts."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    chosen = other_choice(setup.level)
    write(shipped_database(setup.level.name), chosen)
    pack = None if families is None else MadePack(families, chosen if lacks else None)
    monkeypatch.setattr("opbuild.pipeline.tuned_lowering.release_pack", lambda setup: pack)
    program = lower_with_records(graph(), setup, Options())
    assert has_choice(program.descriptors(), chosen) == is_taken
    assert bool(program.tuned) == is_taken


@pytest.mark.usefixtures("databases")
def test_all_that_decides_what_databases_answer_is_in_one_digest_that_looks_into_none(user_store: Path) -> None:
    """The bytes of both databases, threads, what was measured of the machine, and whether the pack is used."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    path = shipped_database(setup.level.name)

    def digest(threads: int = 2, *, with_pack: bool = True) -> str:
        config = replace(setup.config, num_threads=threads)
        return deciding_digest(setup.level.name, config, setup.trust, with_pack=with_pack)

    write(path, other_choice(setup.level))
    found = [digest(), digest(threads=1), digest(with_pack=False)]
    write(path, other_choice(setup.level), other_choice(setup.level, threads=1))
    found.append(digest())
    machine = machine_file(setup.config)
    machine.parent.mkdir(parents=True, exist_ok=True)
    machine.write_bytes(b"{}")
    found.append(digest())
    remember(other_choice(setup.level), num_threads=2)
    found.append(digest())
    assert len(set(found)) == len(found)
    assert digest() == found[-1]


@pytest.mark.usefixtures("databases", "kept_objects")
def test_a_network_of_which_the_release_withholds_all_is_the_one_without_its_database(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its pack lacks the kernel, so the families' own are taken, and that network is started, which nobody tuned.

    Where the pack is not used the shipped choice is built, and is another network.
    """
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    chosen = other_choice(setup.level)
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = SHAPE[0]

    def start(*, with_pack: bool) -> Report:
        monkeypatch.setattr(Setup, "uses_pack", with_pack)
        pack = MadePack({"matmul"}, chosen) if with_pack else None
        monkeypatch.setattr("opbuild.pipeline.tuned_lowering.release_pack", lambda setup: pack)
        monkeypatch.setattr("opbuild.pipeline.stores.release_pack", lambda setup: None)
        return opbuild.compile(model, cache_path=tmp_path, num_threads=2).report

    untuned = start(with_pack=True)
    write(shipped_database(setup.level.name), chosen)
    for _ in range(2):
        report = start(with_pack=True)
        assert report.image
        assert [each.name for each in report.operators] == [each.name for each in untuned.operators]
    assert not start(with_pack=False).image
    report = start(with_pack=False)
    assert report.image
    assert report.tuned
    assert start(with_pack=True).tuned == {}


def test_measuring_a_machine_leaves_the_releases_database_on(databases: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning measures it first: records of its class count whatever else runs, as before it was measured."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    machine = f"128GF/{caches()}/wake-256us"
    write(shipped_database(setup.level.name), replace(other_choice(setup.level), machine=machine))
    for rate in (None, 128.0, 95.0, 150.0, 170.0):
        if rate is not None:
            write_measured(setup.config, setup.trust, MeasuredMachine(system_class(), {setup.level.name: rate}))
        assert tuned_pipeline.applicable_records(setup) is not None, rate
    write_measured(setup.config, setup.trust, MeasuredMachine(system_class(), {setup.level.name: 256.0}))
    assert tuned_pipeline.applicable_records(setup) is None


@pytest.mark.usefixtures("databases")
def test_what_the_user_tuned_is_taken_whatever_the_pack_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its kernels were built when it was tuned, and whoever carried a database here wants them."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    chosen = other_choice(setup.level)
    remember(chosen, num_threads=2)
    monkeypatch.setattr("opbuild.pipeline.tuned_lowering.release_pack", lambda setup: MadePack({"matmul"}, chosen))
    assert has_choice(lower_with_records(graph(), setup, Options()).descriptors(), chosen)


def test_the_sources_of_a_record_are_those_of_a_release() -> None:
    """A database made in a checkout counts where the release made of it is installed, without comments."""
    modules = tuned_pipeline._compiler().released
    names = ("opbuild.families.conv.halide",)
    assert tuned_pipeline.family_sources("conv") == Modules(without=modules._without, digested=code).digest(names)
    assert "opbuild.families.conv.family" not in modules.closure(names)
    assert "opbuild.errors" not in modules.closure(names)


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.jsonl")), ids=lambda path: path.stem)
def test_each_line_of_the_releases_databases_is_sound(path: Path) -> None:
    """It is a record of the file's level, of something that is faster than the tables' choice."""
    database = parse_database(path.read_bytes(), PRIVATE)
    assert (database.damaged, database.unsigned) == (0, 0)
    assert {each.level for each in database.records} == {path.stem.partition("_")[0]}
    assert all(each.is_tuned and each.bound < 1 for each in database.records)
