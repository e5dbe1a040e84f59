"""Tuning a network with an in-memory machine: what is kept, what a second run does, and what an interruption costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from opbuild.config import Config
from opbuild.errors import CompileError, OptionError, ShapeError, TargetError
from opbuild.families.family import TuningQuery, Variant
from opbuild.graph.types import Array, Graph
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import FixedAnswers, LoweringQuery, Tuned
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.steps import lowering_options
from opbuild.pipeline.tuned import applying, family_sources
from opbuild.store.machine_class import system_class
from opbuild.store.tuning_database import TuningDatabase, TuningRecord, read_database
from opbuild.target.host import host_level
from opbuild.tuning import tuner
from opbuild.tuning.listing import listed
from opbuild.tuning.search import Choices, Pair
from opbuild.tuning.trial import Trials, sites_of
from opbuild.tuning.tuner import TunedNetwork, TuningProgress, tune_model
from support.small_network import small_model
from support.tuned_records import product, record, remember

SHAPES = {"x": (64, 256)}
PRODUCT = product("panels", 64, 256, 256)
SOFTMAX = TuningQuery("softmax", "[false,true,1,256]")
FAST: dict[str, Variant | None] = {}
"""By family the candidate that is fast: the last one that is tried at this machine's level."""


class MadeForm:
    """A form that is lowered and not built: a call for each query, of a microsecond."""

    nbytes = 0

    def __init__(self, queries: Mapping[TuningQuery, LoweringQuery]) -> None:
        self.queries = queries
        self.nodes = [sites_of(queries, query) for query in queries]

    def run(self, clock: Callable[[], int]) -> list[int]:
        """Take a microsecond for each call."""
        return [1000] * len(self.nodes)


class MadeForms:
    """Makes forms without a compiler.

    Attributes:
        defined: The digest of what sources define.
        kernel_seconds: What compiling a kernel took.
    """

    defined = "0" * 32
    kernel_seconds = 2.0

    def __init__(self, graph: Graph, setup: Setup, inputs: Sequence[Array]) -> None:
        self._graph, self._setup = graph, setup

    def make(self, choices: Choices) -> MadeForm:
        """Lower the network with some answers."""
        found, options = Tuned(FixedAnswers(choices)), lowering_options(self._setup.config)
        lower(self._graph, self._setup.level, type(options)(chooser=found))
        return MadeForm(found.queries)

    def compile(self, turns: Sequence[Choices]) -> None:
        """Compile nothing."""

    def kernels(self, query: TuningQuery, variants: Sequence[Variant | None]) -> dict[str, str]:
        """Return a kernel for each variant, of a pipeline that the test may change."""
        return {f"{query.family}_{number}": self.defined for number, _ in enumerate(variants)}


class Machine:
    """A machine on which one candidate of each family takes half the time.

    Attributes:
        measured: The queries of each measurement.
        now: The time in seconds: each takes one.
        stop: Called before each with how many there were.
    """

    def __init__(self) -> None:
        self.measured: list[set[TuningQuery]] = []
        self.now = 0.0
        self.stop: Callable[[int], None] = lambda count: None

    def trials(self, *_: Any) -> Machine:
        """Stand for ``Trials``."""
        self.refused: list[tuple[TuningQuery, str]] = []
        return self

    def measure(self, choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        """Return times without noise."""
        self.stop(len(self.measured))
        self.measured.append(set(choices))
        self.now += 1.0
        return {q: [(1e-3, 5e-4 if choice == FAST[q.family] else 2e-3)] * runs for q, choice in choices.items()}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """Put the machine in the place of forms, trials and measurements, with one query a group."""
    made = Machine()
    monkeypatch.setattr(tuner, "Forms", MadeForms)
    monkeypatch.setattr(tuner, "Trials", made.trials)
    monkeypatch.setattr(tuner, "_machine", lambda setup: "made of numbers")
    monkeypatch.setattr(tuner, "whole_times", lambda *_: [(2.0, 1.0)] * 24)
    monkeypatch.setattr(tuner, "GROUP", 1)
    setup = set_up(config(), None, None)
    queries = MadeForms(tuner._graph(MODEL, setup, SHAPES)[0], setup, ()).make({}).queries
    FAST.update({query.family: tuner._candidates(asked)[-1] for query, asked in queries.items()})
    return made


MODEL = small_model().SerializeToString()


def config(**settings: Any) -> Config:
    """Return settings with two threads."""
    return Config.from_environment(num_threads=2, **settings)


def tuned(**options: Any) -> TunedNetwork:
    """Tune the small network."""
    return tune_model(MODEL, config(), input_shapes=SHAPES, **options)


def kept() -> list[TuningRecord]:
    """Return the records in the tuning database."""
    return list(read_database(config().tune_bank, tuner.set_up(config(), None, None).trust).records)


def test_what_is_faster_is_kept_with_all_that_it_depends_on(machine: Machine) -> None:
    """A record has the default, the choice, times, the machine, threads and sources; the report says all of it."""
    result = tuned()
    assert {each.family: each.choice for each in kept()} == FAST
    (one,) = (each for each in kept() if each.family == "matmul")
    assert (one.arguments, one.machine, one.threads) == (PRODUCT.arguments, "made of numbers", 2)
    assert one.sources == family_sources("matmul")
    assert (one.before, one.after, one.network) == (pytest.approx(1000), pytest.approx(500), "small")
    assert one.bound == 0.5
    assert [row.choice for row in result.rows] == [FAST[row.query.family] for row in result.rows]
    assert result.verdict.bound == 0.5
    assert not result.ended


def test_a_second_run_measures_nothing_that_is_known(machine: Machine) -> None:
    """``again`` does, and so it is where the sources are others now."""
    tuned()
    before = len(machine.measured)
    again = tuned()
    assert len(machine.measured) == before
    assert all(row.known for row in again.rows)
    assert [row.choice for row in again.rows] == [FAST[row.query.family] for row in again.rows]
    tuned(again=True)
    assert len(machine.measured) == 2 * before
    stale = [record(TuningQuery(e.family, e.arguments), e.default, e.choice, machine=e.machine, sources="older",
                    date="2027-01-01T00:00:00Z") for e in kept()]  # fmt: skip
    remember(*stale, num_threads=2)
    tuned()
    assert len(machine.measured) == 3 * before


@pytest.mark.parametrize(("defined", "measured"), [("0" * 32, 1), ("1" * 32, 2)])
def test_what_other_sources_define_as_before_is_not_measured_again(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, defined: str, measured: int
) -> None:
    """Nor where it is to be found out; where a kernel is another one, all is measured."""
    tuned()
    once = len(machine.measured)
    assert all(each.kernels == {f"{each.family}_0": "0" * 32, f"{each.family}_1": "0" * 32} for each in kept())
    remember(*(replace(each, sources="older", date="2027-01-01T00:00:00Z") for each in kept()), num_threads=2)
    monkeypatch.setattr(MadeForms, "defined", defined)
    tuned()
    assert len(machine.measured) == measured * once
    assert (kept()[-1].sources == "older") is (measured == 1)


def test_ctrl_c_keeps_what_was_found_and_the_next_run_goes_on(machine: Machine) -> None:
    """At every measurement in turn: queries that were decided are not searched again."""
    tuned()
    total, (first, second) = len(machine.measured), [row.query for row in tuned().rows]
    config().tune_bank.unlink()
    for moment in range(total):
        machine.measured.clear()

        def stop(count: int, moment: int = moment) -> None:
            if count == moment:
                raise KeyboardInterrupt

        machine.stop = stop
        with pytest.raises(KeyboardInterrupt):
            tuned()
        known = {TuningQuery(each.family, each.arguments) for each in kept()}
        machine.stop = lambda count: None
        machine.measured.clear()
        result = tuned()
        assert not known & set().union(*machine.measured)
        assert {row.query for row in result.rows} == {first, second}
        config().tune_bank.unlink()


def test_what_makes_the_whole_network_slower_is_taken_back(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The later records count: those of the tables' choices, so that nothing is searched again either."""
    monkeypatch.setattr(tuner, "whole_times", lambda *_: [(1.0, 1.1)] * 24)
    result = tuned()
    assert result.is_slower
    assert all(row.choice == row.default for row in result.rows)
    latest = {each.place: each for each in kept()}.values()
    assert len(latest) == 2
    assert not any(each.is_tuned for each in latest)
    machine.measured.clear()
    assert not tuned().whole
    assert not machine.measured


def test_a_lower_level_is_tuned_as_a_machine_that_has_no_more(machine: Machine) -> None:
    """Its records count for builds at that level and not for this machine's own, and are listed as ones that count."""
    lower = next(iter(host_level().lower()), None)
    if lower is None:
        pytest.skip("this machine has the lowest level")
    result = tuned(target=lower)
    assert result.level == lower.name
    assert {(each.level, each.system) for each in kept()} == {(lower.name, system_class(lower))}
    database = TuningDatabase(tuple(kept()))
    assert applying(database, set_up(config(), lower, None))
    assert not applying(database, set_up(config(), None, None))
    assert {each.state for each in listed(config()).rows} == {"counts"}
    with pytest.raises(TargetError, match="cannot run here"):
        tuned(target="rv64gc" if host_level().triple != "riscv-64-linux" else "x86-64")


def test_a_spent_budget_ends_it_and_says_so(machine: Machine) -> None:
    """Nothing is measured with none; what is left is found later."""
    result = tuned(budget=-1.0)
    assert (result.ended, result.rows, machine.measured) == ("the time is up", [], [])
    assert (result.skipped, result.untried, result.tried) == (0, 2, 0)
    assert result.untried_share == pytest.approx(1)
    assert len(tuned().rows) == 2


def test_only_the_operators_that_are_named_are_tuned(machine: Machine) -> None:
    """By the types of the model's nodes, however they are written."""
    assert [row.query for row in tuned(operators=["matmul"]).rows] == [PRODUCT]
    assert {each.family for each in kept()} == {"matmul"}


def test_how_far_it_is_is_told(machine: Machine) -> None:
    """The counts only grow, and end with all that is worth it."""
    told: list[TuningProgress] = []
    tuned(tell=told.append)
    assert [each.done for each in told] == sorted(each.done for each in told)
    assert [each.tried for each in told] == sorted(each.tried for each in told)
    assert (told[0].tried, told[0].untried, told[-1].untried) == (0, told[-1].tried, 0)
    assert (told[-1].done, told[-1].total, told[-1].found, told[-1].left) == (2, 2, 2, 0)


def test_how_long_the_rest_takes_is_told_before_anything_is_tried_and_corrected_by_what_it_took(
    machine: Machine,
) -> None:
    """Kernels of 2 seconds for 2 workers were expected; measuring takes a second each time, and compiling nothing."""
    told: list[TuningProgress] = []
    result = tuned(tell=told.append, clock=lambda: machine.now)
    first = told[0]
    assert first.left == pytest.approx(first.untried * 2.0 / config().workers, rel=0.01)
    assert told[len(told) // 2].left < first.left
    assert result.seconds == len(machine.measured)
    assert result.left == 0


def test_a_budget_ends_it_on_time_and_runs_that_follow_come_to_the_end(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next goes on where the one before stopped: of calls that do not fit in the time together one is searched."""
    monkeypatch.setattr(tuner, "GROUP", 12)
    monkeypatch.setattr(tuner, "MOST", 4)
    first, second = (tuned(budget=3.5, clock=lambda: machine.now) for _ in range(2))
    assert first.ended == "the time is up"
    assert first.seconds <= 3.5 + 2, "what had begun, and the deciding runs"
    assert (len(first.rows), first.untried, first.tried) == (1, 1, 4)
    assert first.left > 0
    assert {row.known for row in second.rows} == {True, False}
    assert (second.untried, second.ended, len(kept())) == (0, "", 2)


def test_a_part_of_the_budget_is_left_for_what_decides(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as the pairs of runs take of the call and of the network, and at most half of it."""
    monkeypatch.setattr(MadeForm, "run", lambda form, clock: [20_000_000] * len(form.nodes))  # 7.7 seconds for both
    assert tuned(budget=20.0, clock=lambda: machine.now).seconds <= 20 - 7.68 + 2
    config().tune_bank.unlink()
    assert tuned(budget=4.0, clock=lambda: machine.now).seconds <= 4 / 2 + 2


def test_a_run_that_is_stopped_decides_on_the_best_so_far_and_keeps_it(machine: Machine) -> None:
    """As when the time is up."""
    result = tuned(is_stopped=lambda: len(machine.measured) >= 3)
    assert result.ended == "it was stopped"
    assert result.untried
    assert len(machine.measured) <= 4
    assert len(kept()) == len(result.rows)


def test_a_folder_of_the_database_that_is_missing_is_refused_at_once(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As CANN does: hours of measuring should not end in a mistyped path."""
    monkeypatch.setenv("TUNE_BANK_PATH", str(tmp_path / "missing"))
    with pytest.raises(OptionError, match="there is no such folder"):
        tuned()
    assert not machine.measured


def test_an_open_shape_is_named(machine: Machine) -> None:
    """Variants depend on sizes, so they must be known."""
    with pytest.raises(ShapeError, match="input 'x' has an open shape"):
        tune_model(MODEL, config())


# -- trials ------------------------------------------------------------------------------------------------------------


class Computed:
    """A form of several calls that computes numbers: each call adds its variant's error to what came before.

    Args:
        errors: The error of each call.
    """

    def __init__(self, errors: Sequence[float]) -> None:
        self.errors, self.nbytes = errors, 0
        self.nodes = [frozenset({f"n{place}"}) for place in range(len(errors))]
        self.queries = {
            TuningQuery("made", str(place)): LoweringQuery({f"n{place}"}, {}, {}, tuple) for place in range(len(errors))
        }

    def run(self, clock: Callable[[], int]) -> list[int]:
        """Take a nanosecond more for each call."""
        return list(range(1, 1 + len(self.errors)))

    def first_call(self, site: frozenset[str]) -> int:
        """Return the place of a node's call."""
        return next(place for place, nodes in enumerate(self.nodes) if nodes & site)

    def results(self, sites: Sequence[frozenset[str]]) -> tuple[list[Array | None], list[Array]]:
        """Return the results of calls; the last one's is the output."""
        values = 1.0 + np.cumsum(self.errors)
        arrays: list[Array | None] = [np.full((2, 3), values[self.first_call(site)]) for site in sites]
        return arrays, [np.full(4, values[-1])]


class Answers:
    """Makes ``Computed`` forms: an answer holds its error, or says that it cannot be built or is not legal."""

    def __init__(self, count: int) -> None:
        self.count, self.made = count, 0

    def make(self, choices: Choices) -> Computed:
        """Make a form."""
        self.made += 1
        errors = [0.0] * self.count
        for query, choice in choices.items():
            error = (choice or {})["error"]
            if error == "broken":
                raise CompileError("it cannot be compiled")
            if error == "illegal":
                raise AssertionError("no legal variant was chosen")
            errors[int(query.arguments)] = error
        return Computed(errors)


def trial(count: int, errors: Mapping[int, Any]) -> tuple[set[int], dict[int, str]]:
    """Measure answers together; return which have times, and why others were refused."""
    forms: Any = Answers(count)
    trials = Trials(forms, forms.make({}), {}, threads=2)
    found = trials.measure({TuningQuery("made", str(place)): {"error": error} for place, error in errors.items()}, 3)
    for query, pairs in found.items():
        place = int(query.arguments)
        assert pairs == [((place + 1) / 1e9, (place + 1) / 1e9)] * 3
    return {int(q.arguments) for q in found}, {int(q.arguments): why for q, why in trials.refused}


def test_answers_that_compute_the_same_have_the_times_of_their_own_calls() -> None:
    """A small difference is another order of sums."""
    assert trial(4, {0: 0.0, 2: 1e-4, 3: 0.0}) == ({0, 2, 3}, {})


def test_one_that_computes_something_else_is_found_and_the_others_are_measured() -> None:
    """What comes after it differs too, and is not to blame."""
    times, refused = trial(5, {0: 0.0, 1: 0.5, 2: 0.0, 4: 0.0})
    assert times == {0, 2, 4}
    assert refused == {1: "it computes something else"}


@pytest.mark.parametrize(("kind", "why"), [("broken", "it cannot be compiled"), ("illegal", "no legal variant")])
def test_ones_that_cannot_be_built_are_found_and_the_others_are_measured(kind: str, why: str) -> None:
    """Two of seven, of which nobody says which they are."""
    times, refused = trial(7, {place: kind if place in (2, 5) else 0.0 for place in range(7)})
    assert times == {0, 1, 3, 4, 6}
    assert set(refused) == {2, 5}
    assert all(why in each for each in refused.values())


def test_not_a_number_is_something_else() -> None:
    """Whatever it is compared with."""
    assert trial(2, {0: float("nan"), 1: 0.0})[0] == {1}
