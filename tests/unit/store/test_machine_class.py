"""Classes of machines: what is measured flickers, the class that follows from it does not."""

from __future__ import annotations

import random
from dataclasses import asdict

import pytest

from opbuild.cli.main import main
from opbuild.config import Config
from opbuild.families.family import TuningQuery
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.tuned import applying
from opbuild.platform.files.private import publish
from opbuild.platform.files.trust import PRIVATE
from opbuild.store.machine_class import (
    SHIPPED,
    MeasuredMachine,
    caches,
    machine_file,
    read_measured,
    system_class,
    write_measured,
)
from opbuild.store.tuning_database import TuningDatabase, line_of, parse_database
from opbuild.target.host import host_level
from opbuild.tuning import tuner as machine
from support.fuzzing import INPUTS, SEED
from support.seeds import try_seeds
from support.tuned_records import record

LEVEL = host_level().name
QUESTION = TuningQuery("conv", "[1]")


def measured(rate: float, before: MeasuredMachine | None = None) -> MeasuredMachine:
    """Return the result of adding a measurement of this machine, which gives a rate, to one before."""
    return MeasuredMachine(system_class(), {LEVEL: rate}).after(before)


def flickers(seed: int) -> tuple[str, str]:
    """Measure a machine again and again, with noise of a factor of 1.19 each way; then one of twice the rate.

    The class stays. A record of this machine's, or of its twin's, counts on both, and on the other one does not.
    """
    draw = random.Random(seed)
    rate = 2 ** draw.uniform(1, 11)
    known = first = measured(rate * 2 ** draw.uniform(-0.25, 0.25))
    for _ in range(6):
        known = measured(rate * 2 ** draw.uniform(-0.25, 0.25), known)
        if known.name(LEVEL) != first.name(LEVEL):
            return "wrong", f"{seed}: {first} became {known}"
    twin = measured(rate * 2 ** draw.uniform(-0.25, 0.25))
    if known.shares(twin.name(LEVEL), LEVEL) is None or twin.shares(known.name(LEVEL), LEVEL) is None:
        return "wrong", f"{seed}: {known} shares nothing with its twin {twin}"
    other = measured(known.classes[LEVEL] * 2 ** draw.choice((draw.uniform(-4, -0.8), draw.uniform(0.8, 4))), known)
    if other.name(LEVEL) == known.name(LEVEL):
        return "wrong", f"{seed}: {other} is still what {known} was"
    much = measured(rate * draw.choice((0.5, 2.0)) ** draw.randint(1, 3))
    exact = measured(rate)
    if exact.shares(much.name(LEVEL), LEVEL) is not None:
        return "wrong", f"{seed}: {exact} shares with {much}"
    return "same name" if twin.name(LEVEL) == known.name(LEVEL) else "a step apart", ""


def test_a_machine_that_is_measured_again_keeps_its_class_and_shares_with_its_twin() -> None:
    """However near a rate is to a bound of its class; twice the rate is another class, which shares nothing."""
    tally = try_seeds("classes of machines", flickers, range(SEED, SEED + INPUTS))
    assert not tally.faults, tally.faults


def test_measuring_six_times_on_a_busy_machine_gives_one_class(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Of what was measured as 256, 16, 16, 64, 64 and 64 us to wake a thread nothing is in the class."""
    rates = iter([150.0, 155.0, 128.0, 180.0, 152.3, 151.9])
    monkeypatch.setattr(machine, "worth_building", lambda level: [level])
    monkeypatch.setattr(machine, "_rate", lambda setup: next(rates))
    classes = set()
    for _ in range(6):
        assert main(["env", "--measure"]) == 0
        (line,) = (each for each in capfd.readouterr().out.splitlines() if each.startswith("class "))
        classes.add(line.split()[1])
    assert classes == {f"128GF/{caches()}"}


def test_a_much_faster_machine_under_the_same_description_has_another_class() -> None:
    """A virtual machine that was moved: what was measured before is not held against it."""
    assert measured(400.0, measured(128.0)).name(LEVEL) == measured(400.0).name(LEVEL)


def test_what_was_measured_by_an_earlier_release_still_counts() -> None:
    """The file has what waking a thread costs, and no class."""
    config = Config.from_environment()
    path = machine_file(config)
    old = {"system": system_class(), "peak": {LEVEL: 127.0}, "waking": 256000, "date": "2026-11-27"}
    publish(path, PRIVATE.write_memo(path, old))
    found = read_measured(config, PRIVATE)
    assert found is not None
    assert found.name(LEVEL) == f"128GF/{caches()}"


@pytest.mark.parametrize("classes", [{LEVEL: 130.0}, {LEVEL: "128"}, {LEVEL: None}, [1], {LEVEL: -1.0}, {LEVEL: 0.0}])
def test_a_class_that_is_no_step_is_as_if_nothing_was_measured(classes: object) -> None:
    """Whoever wrote it, no class of other names comes of it."""
    config = Config.from_environment()
    path = machine_file(config)
    publish(path, PRIVATE.write_memo(path, {**asdict(measured(128.0)), "classes": classes}))
    assert read_measured(config, PRIVATE) is None


def test_records_of_earlier_releases_name_the_class_without_what_waking_costs() -> None:
    """Two of them for one question are of one place then, and the later counts."""
    old = record(QUESTION, {"tile": 1}, {"tile": 2}, machine=f"128GF/{caches()}/wake-256us")
    late = record(QUESTION, {"tile": 1}, {"tile": 3}, machine=f"128GF/{caches()}/wake-16us")
    database = parse_database(b"\n".join(line_of(each, PRIVATE) for each in (old, late)), PRIVATE)
    assert {each.machine for each in database.records} == {f"128GF/{caches()}"}
    (only,) = database.latest().values()
    assert only.choice == {"tile": 3}


def test_what_the_release_ships_counts_whatever_waking_a_thread_took() -> None:
    """Its records name machines with what that cost; they count on each of their caches and rate."""
    for path in sorted(SHIPPED.glob("*.jsonl")):
        for each in parse_database(path.read_bytes(), PRIVATE).records:
            rate, caches_ = each.machine.partition("GF/")[::2]
            assert rate.isdecimal()
            assert caches_ == path.stem.partition("_")[2].replace("_", "/")


def test_of_records_that_count_the_one_of_the_nearest_class_does() -> None:
    """Then the later one; those of a class that is two steps away do not."""
    setup = set_up(Config.from_environment(num_threads=2), None, None)
    write_measured(setup.config, setup.trust, measured(128.0))

    def chosen(*rates: int) -> int:
        made = (
            record(QUESTION, {"tile": 1}, {"tile": 2 + number}, machine=f"{rate}GF/{caches()}", system="a twin")
            for number, rate in enumerate(rates)
        )
        (found,) = applying(TuningDatabase(tuple(made)), setup).values()
        assert found.choice is not None
        return int(found.choice["tile"]) - 2

    assert chosen(128, 181) == 0
    assert chosen(181, 128, 91, 256) == 1
    assert chosen(128, 128) == 1
    far = record(QUESTION, {"tile": 1}, {"tile": 2}, machine=f"256GF/{caches()}")
    assert not applying(TuningDatabase((far,)), setup)
    assert not applying(
        TuningDatabase((record(QUESTION, {"tile": 1}, {"tile": 2}, machine="128GF/L1-1K/L2-2K"),)), setup
    )


def test_the_class_is_that_of_each_level() -> None:
    """One level's rate that is clearly out changes that level's class alone."""
    lower = "a lower level"
    before = MeasuredMachine(system_class(), {LEVEL: 128.0, lower: 64.0}).after(None)
    after = MeasuredMachine(system_class(), {LEVEL: 150.0, lower: 200.0}).after(before)
    assert after.name(LEVEL) == before.name(LEVEL)
    assert after.name(lower) == f"181GF/{caches()}"
