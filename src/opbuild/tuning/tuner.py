"""Tuning a network: its distinct calls, the expensive ones first, each finding kept at once; measuring the machine."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from opbuild.errors import OptionError, ShapeError, TargetError
from opbuild.families.family import TuningQuery, Variant
from opbuild.frontend.models.declaration import inputs_of
from opbuild.frontend.models.source import Model, open_model
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.tuned import LoweringQuery
from opbuild.pipeline.setup import Setup, set_up
from opbuild.pipeline.steps import optimize_graph
from opbuild.pipeline.stores import Stores
from opbuild.pipeline.tuned import applying, family_sources, is_current
from opbuild.platform.files.writing import unwritable_folder
from opbuild.platform.records import NamedTuple, dataclass, field, replace
from opbuild.report import Clock
from opbuild.runtime.profile import random_inputs
from opbuild.store.machine_class import MeasuredMachine, read_measured, system_class, write_measured
from opbuild.store.tuning_database import TuningRecord, append_records, read_database
from opbuild.target.host import host_level
from opbuild.target.level import BuildTarget, Level
from opbuild.text.canonical import canonical_json
from opbuild.tuning.estimate import Costs, Pace
from opbuild.tuning.search import DECIDING_RUNS, Choices, Finding, Pair, judged, median_bound, search
from opbuild.tuning.trial import Forms, NetworkForm, Trials, runs_of_pair, whole_times

if TYPE_CHECKING:
    from opbuild.config import Config
    from opbuild.events import Observer


SIZE = 256
"""Rows and columns of the matrices whose product is timed; its panels stay in a core's caches."""

RUNS = 60

LEAST_FLAGS = 8
"""Words of ``/proc/cpuinfo`` that a level of x86-64 needs to be worth measuring: those before it have no FMA."""


def measure_machine(setup: Setup) -> MeasuredMachine:
    """Measure this machine; it takes seconds, and kernels are built through the store.

    Whatever level a setup is for, each that is worth building for is measured. A class that was measured before stays
    the machine's unless a rate is clearly out of it.

    Raises:
        BuildError: If they cannot be built.
    """
    setup = replace(setup, level=host_level())
    config = replace(setup.config, num_threads=1)
    peak = {level.name: _rate(replace(setup, config=config, level=level)) for level in worth_building(setup.level)}
    rates = {name: round(rate, 1) for name, rate in peak.items()}
    date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return MeasuredMachine(system_class(), rates, date).after(read_measured(setup.config, setup.trust))


def worth_building(level: Level) -> list[Level]:
    """Return a level and those below it that are worth building for."""
    return [level, *(each for each in level.lower() if len(each.flags) >= LEAST_FLAGS)]


def _rate(setup: Setup) -> float:
    """Return the best rate of products, multiplications and additions in a nanosecond."""
    form = Forms(_product(SIZE), setup, [np.ones((SIZE, SIZE), np.float32)]).make({})
    best = min(sum(form.run(time.thread_time_ns)) for _ in range(RUNS))
    return 2 * SIZE**3 / max(best, 1)


def _product(size: int) -> Graph:
    square = TensorType("float32", (size, size))
    weights = np.ones((size, size), np.float32)
    node = Node("MatMul", ("x", "w"), ("y",), name="product")
    return Graph("product", (node,), ("x",), ("y",), dict.fromkeys(("x", "w", "y"), square), {"w": weights})


GROUP = 12
"""Queries that are searched at once; what was found of them is kept together."""

MOST = 12
"""Candidates of a query at most, those first that its family holds for the fastest."""

LEAST_SHARE = 0.003
"""Of the network's time: calls below it are left alone."""

_FIRST_LOOKS = 5

_KERNEL_SECONDS = 1.0
"""Seconds that compiling a kernel takes where nobody knows it."""

_BATCHES = 2
"""Kernels that are compiled together, for each worker: while they are, nothing is asked whether the time is up."""


class TuningProgress(NamedTuple):
    """The progress of tuning.

    Attributes:
        done: Distinct calls that are known.
        total: Distinct calls that are worth it.
        found: How many of those that were searched have something faster.
        tried: Candidates that were measured.
        untried: Candidates that were not yet.
        left: Seconds that all of them take, without a budget.
    """

    network: str
    done: int
    total: int
    found: int
    tried: int
    untried: int
    left: float


class Row(NamedTuple):
    """One distinct call.

    Attributes:
        query: What its family is asked.
        default: The family's own answer.
        known: Whether the database knew it before, so that nothing was measured.
    """

    query: TuningQuery
    nodes: tuple[str, ...]
    default: Variant | None
    finding: Finding
    known: bool
    choice: Variant | None


@dataclass
class TunedNetwork:
    """The result of tuning a network.

    Attributes:
        machine: The class of the machine.
        level: The level of the code.
        rows: Its calls, the expensive ones first.
        skipped: Calls that take too little time to be worth it.
        tried: Candidates that were measured.
        untried: Calls that are worth it and were not searched to the end.
        untried_share: What they take, of the network's time.
        left: Seconds that searching them takes.
        nodes: Nodes whose calls were to be tuned.
        whole: Seconds of the network by its tables and as it is tuned, in turn.
        ended: Why it ended before all was searched; empty if it did not.
        refused: Candidates that could not be built or computed something else, each with the reason.
        cut: Whether only its first segment was tuned, what follows being bound when it is called.
    """

    network: str
    machine: str
    level: str
    rows: list[Row] = field(default_factory=list)
    skipped: int = 0
    tried: int = 0
    untried: int = 0
    untried_share: float = 0.0
    left: float = 0.0
    nodes: int = 0
    whole: list[Pair] = field(default_factory=list)
    ended: str = ""
    refused: list[tuple[TuningQuery, str]] = field(default_factory=list)
    seconds: float = 0.0
    cut: bool = False

    @property
    def verdict(self) -> Finding:
        """The judgement of the whole network's times."""
        return judged({}, self.whole)

    @property
    def is_slower(self) -> bool:
        """Whether the whole network takes longer as it is tuned, with the confidence that a gain needs."""
        return bool(self.whole) and median_bound([before / after for before, after in self.whole if after]) < 1


def tune_model(
    model: Model,
    config: Config,
    *,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    target: str | BuildTarget | None = None,
    budget: float = inf,
    operators: Sequence[str] = (),
    again: bool = False,
    observer: Observer | None = None,
    tell: Callable[[TuningProgress], None] = lambda progress: None,
    is_stopped: Callable[[], bool] = lambda: False,
    clock: Callable[[], float] = time.monotonic,
) -> TunedNetwork:
    """Tune the calls of a network on this machine, and keep the results in the tuning database.

    Args:
        model: As ``opbuild.compile`` takes it.
        config: Settings; threads, store and database are theirs.
        input_shapes: Shapes that the model leaves open.
        target: The level whose code is tuned (default this machine's); it must run here.
        budget: Seconds, of which the last ones are for deciding on what is best so far.
        operators: Operator types whose calls are tuned; empty for all.
        again: Whether calls are measured again that the database knows.
        observer: Told of the builds.
        tell: Told how far it is.
        is_stopped: Whether no further candidates are to be tried, as if the budget were spent.
        clock: Returns the time in seconds.

    Raises:
        ModelError: If the model is at fault, or a shape is open.
        OptionError: If the database cannot be written.
        TargetError: If the level is unknown, or its code cannot run here, or it is a device.
        BuildError: If the network cannot be built.
    """
    setup = set_up(config, target, observer, stores_networks=False)
    if setup.device is not None:
        raise TargetError(
            f"calls on {setup.device} cannot be tuned: there are variants of CPUs' kernels alone",
            "tune without a target; what is found for the CPU counts beside the device, too",
            command="leave --target out; what is found for the CPU counts beside the device, too",
        )
    _check_database(setup)
    graph, cut = _graph(model, setup, input_shapes or {})
    tuner = Tuner(graph, setup, budget, operators, tell, is_stopped, clock)
    tuner.result.cut = cut
    tuner.run(again=again)
    return tuner.result


class Tuner:
    """Tunes one network; ``result`` has the records so far."""

    def __init__(
        self,
        graph: Graph,
        setup: Setup,
        budget: float,
        operators: Sequence[str],
        tell: Callable[[TuningProgress], None],
        is_stopped: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._graph, self._setup, self._tell, self._is_stopped, self._clock = graph, setup, tell, is_stopped, clock
        self._started = clock()
        self._budget, self._deadline = budget, self._started + budget
        wanted = {each.lower() for each in operators}
        self._nodes = {
            node.name
            for node in graph.nodes
            if not wanted or wanted & {each.lower() for each in (node.op_type, *node.origins)}
        }
        inputs = random_inputs({name: graph.types[name] for name in graph.inputs})
        self._forms = Forms(graph, setup, list(inputs.values()))
        self._measured = _machine(setup)
        self.result = TunedNetwork(
            graph.name, self._measured or system_class(setup.level), setup.level.name, nodes=len(self._nodes)
        )
        self._tried: set[tuple[TuningQuery, str]] = set()
        self._compiled: set[tuple[TuningQuery, str]] = set()

    def run(self, *, again: bool) -> None:
        """Search until all is known, or the budget is spent."""
        database = read_database(self._setup.config.tune_bank, self._setup.trust)
        known = {} if again else applying(database, self._setup)
        table = self._forms.make({})
        shares, seconds = _shares(table)
        choices: dict[TuningQuery, Variant | None] = {}
        done: set[TuningQuery] = set()
        base, pace = table, self._pace(table, seconds)
        while True:
            for query, asked in base.queries.items():
                record = known.get(query)
                if query not in done and record is not None and self._is_current(record, query, asked):
                    done.add(query)
                    choices[query] = record.choice
                    self._add(query, asked, _finding_of(record), known=True, choice=record.choice)
            base = self._forms.make(choices) if choices else table
            groups = self._groups(base.queries, done, shares)
            pace.plan([each.values() for each in groups])
            tell = partial(self._progress, pace, len(done), groups)
            tell()
            if not groups:
                break
            if self._is_over():
                break
            group = self._fitting(groups[0], pace)
            found = search(
                {query: _candidates(base.queries[query]) for query in group},
                partial(self._measure, self._trials(base, choices), pace, tell),
                partial(self._compile, choices, pace, tell),
                self._is_over,
            )
            choices |= {query: each.choice for query, each in found.items() if each.found}
            self._keep(base.queries, found)
            done |= set(found)
        self._note_untried(base.queries, done, shares, pace)
        if any(row.choice != row.default for row in self.result.rows):
            self.result.whole = whole_times(table, base, DECIDING_RUNS, self._setup.config.num_threads)
            if self.result.is_slower:
                self._restore_defaults()
        self.result.rows.sort(key=lambda row: -_share(shares, row.nodes))
        self.result.seconds = self._clock() - self._started

    def _pace(self, form: NetworkForm, seconds: float) -> Pace:
        """Return the pace that is expected of a network that takes some seconds; leave time for what decides."""
        pair = runs_of_pair(form) * seconds
        self._deadline -= min(2 * DECIDING_RUNS * pair, max(self._budget, 0.0) / 2)
        began = self._clock()
        self._forms.make({})
        making = self._clock() - began
        kernel = (self._forms.kernel_seconds or _KERNEL_SECONDS) / self._setup.config.workers
        return Pace(Costs(kernel, making, pair), self._clock)

    def _fitting(self, group: Mapping[TuningQuery, int], pace: Pace) -> list[TuningQuery]:
        """Return the first queries of a group, as many as can be searched to the end before the time is up."""
        queries, left = list(group), self._deadline - self._clock()
        while len(queries) > 1 and pace.seconds([group[each] for each in queries]) > left:
            queries.pop()
        return queries

    def _is_current(self, record: TuningRecord, query: TuningQuery, asked: LoweringQuery) -> bool:
        """Return whether a record still tells of a query: its kernels are defined as those that were measured."""
        if record.default != asked.default or record.choice not in asked.candidates:
            return False
        counts = is_current(record, self._setup)
        if counts is None:
            return self._forms.kernels(query, (record.default, record.choice)) == record.kernels
        return counts

    def _is_open(self, query: TuningQuery, asked: LoweringQuery, done: set[TuningQuery]) -> bool:
        return query not in done and len(asked.candidates) > 1 and bool(asked.sites & self._nodes)

    def _groups(
        self, queries: Mapping[TuningQuery, LoweringQuery], done: set[TuningQuery], shares: Mapping[str, float]
    ) -> list[dict[TuningQuery, int]]:
        """Return the open queries with their numbers of candidates, the most expensive ones first.

        A group is searched at once; no two in it are of one node.
        """
        open_ = [(_share(shares, each.sites), q) for q, each in queries.items() if self._is_open(q, each, done)]
        groups: list[dict[TuningQuery, int]] = []
        taken: list[set[str]] = []
        for share, query in sorted(open_, key=lambda each: -each[0]):
            sites = queries[query].sites
            if share < LEAST_SHARE:
                continue
            place = next(
                (n for n, each in enumerate(groups) if len(each) < GROUP and not sites & taken[n]), len(groups)
            )
            if place == len(groups):
                groups.append({})
                taken.append(set())
            groups[place][query] = len(_candidates(queries[query]))
            taken[place] |= sites
        return groups

    def _trials(self, base: NetworkForm, choices: Choices) -> Trials:
        trials = Trials(self._forms, base, dict(choices), self._setup.config.num_threads)
        trials.refused = self.result.refused
        return trials

    def _measure(
        self, trials: Trials, pace: Pace, tell: Callable[[], None], choices: Choices, runs: int
    ) -> dict[TuningQuery, list[Pair]]:
        """Measure answers, and tell how far it is."""
        with pace.measuring(runs):
            found = trials.measure(choices, runs)
        self._tried |= _named(choices)
        tell()
        return found

    def _is_over(self) -> bool:
        """Return whether no further candidates are to be tried; the result says why."""
        if self._is_stopped():
            self.result.ended = "it was stopped"
        elif self._clock() > self._deadline:
            self.result.ended = "the time is up"
        return bool(self.result.ended)

    def _compile(self, choices: Choices, pace: Pace, tell: Callable[[], None], turns: Sequence[Choices]) -> None:
        """Compile what is measured next, as much at once as keeps the workers busy, until no more is to be tried."""
        batch, new = list[Choices](), set[tuple[TuningQuery, str]]()
        for number, turn in enumerate(turns, 1):
            batch.append({**choices, **turn})
            new |= _named(turn) - self._compiled
            if len(new) < _BATCHES * self._setup.config.workers and number < len(turns):
                continue
            if self._is_over():
                break
            with pace.compiling(len(new)):
                self._forms.compile(batch)
            self._compiled |= new
            tell()
            batch, new = [], set()

    def _keep(self, queries: Mapping[TuningQuery, LoweringQuery], found: Mapping[TuningQuery, Finding]) -> None:
        """Write the result to the tuning database, and remember it."""
        for query, finding in found.items():
            each = queries[query]
            choice = finding.choice if finding.found else each.answer
            self._write(query, finding, each.default, choice)
            self._add(query, each, finding, known=False, choice=choice)

    def _restore_defaults(self) -> None:
        """Make the tables' choice the one that counts again, of all that this run found."""
        for number, row in enumerate(self.result.rows):
            if not row.known and row.choice != row.default:
                self._write(row.query, row.finding, row.default, row.default)
                self.result.rows[number] = row._replace(choice=row.default)

    def _write(self, query: TuningQuery, finding: Finding, default: Variant | None, choice: Variant | None) -> None:
        config = self._setup.config
        record = TuningRecord(
            *query, self._setup.level.name, self._measured, system_class(self._setup.level), config.num_threads,
            family_sources(query.family), default, choice, 1e6 * finding.before, 1e6 * finding.after,
            min(finding.bound, 99.0), finding.spread, finding.pairs,
            time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), self._graph.name,
            self._forms.kernels(query, (default, choice)),
        )  # fmt: skip
        append_records(config.tune_bank, [record], self._setup.trust)

    def _add(
        self, query: TuningQuery, asked: LoweringQuery, finding: Finding, *, known: bool, choice: Variant | None
    ) -> None:
        self.result.rows.append(Row(query, tuple(sorted(asked.sites)), asked.default, finding, known, choice))

    def _progress(self, pace: Pace, done: int, groups: Sequence[Mapping[TuningQuery, int]]) -> None:
        left = sum(map(len, groups))
        found = sum(row.finding.found and not row.known for row in self.result.rows)
        ahead = {query for group in groups for query in group}
        untried = sum(sum(group.values()) for group in groups) - sum(query in ahead for query, _ in self._tried)
        self._tell(TuningProgress(self._graph.name, done, done + left, found, len(self._tried), untried, pace.left))

    def _note_untried(
        self,
        queries: Mapping[TuningQuery, LoweringQuery],
        done: set[TuningQuery],
        shares: Mapping[str, float],
        pace: Pace,
    ) -> None:
        """Take note of what was tried, and what is left to the next run or alone."""
        untried = [query for group in self._groups(queries, done, shares) for query in group]
        open_ = sum(self._is_open(query, each, done) for query, each in queries.items())
        sites = set[str]().union(*(queries[query].sites for query in untried))
        result = self.result
        result.tried, result.untried, result.skipped = len(self._tried), len(untried), open_ - len(untried)
        result.untried_share, result.left = _share(shares, sites), pace.left
        if not untried:
            result.ended = ""


def _named(choices: Choices) -> set[tuple[TuningQuery, str]]:
    """Return answers so that they can be counted."""
    return {(query, canonical_json(answer)) for query, answer in choices.items()}


def _candidates(asked: LoweringQuery) -> list[Variant | None]:
    return [each for each in asked.candidates if each != asked.answer][:MOST]


def _shares(form: NetworkForm) -> tuple[dict[str, float], float]:
    """Return each node's share of the network's time, and its seconds."""
    runs = [form.run(time.perf_counter_ns) for _ in range(_FIRST_LOOKS)]
    times = [min(each) for each in zip(*runs, strict=True)]
    shares: dict[str, float] = {}
    for nodes, taken in zip(form.nodes, times, strict=True):
        for node in nodes:
            shares[node] = shares.get(node, 0.0) + taken / (sum(times) or 1)
    return shares, sum(times) / 1e9


def _share(shares: Mapping[str, float], nodes: Sequence[str] | set[str]) -> float:
    return sum(shares.get(node, 0.0) for node in nodes)


def _finding_of(record: TuningRecord) -> Finding:
    before, after = record.before / 1e6, record.after / 1e6
    return Finding(record.choice, record.is_tuned, before, after, record.bound, record.spread, record.pairs)


def _check_database(setup: Setup) -> None:
    """Refuse a database that could not be written once all is measured."""
    folder = setup.config.tune_bank.parent
    if setup.config.tune_bank_path.strip() and not folder.is_dir():
        what, hint = (
            ("that is no folder", "name one") if folder.exists() else ("there is no such folder", "make it first")
        )
        raise OptionError(f"TUNE_BANK_PATH is {str(folder)!r}, and {what}", hint)
    problem = unwritable_folder(folder)
    if not problem and setup.config.tune_bank.exists() and not os.access(setup.config.tune_bank, os.W_OK):
        problem = f"{setup.config.tune_bank} cannot be written"
    if problem:
        raise OptionError(f"what tuning finds cannot be kept: {problem}", "set TUNE_BANK_PATH to another folder")


def _machine(setup: Setup) -> str:
    """Return the class of this machine, which is measured now if it was not."""
    measured = read_measured(setup.config, setup.trust)
    if measured is None or not measured.name(setup.level.name):
        measured = measure_machine(setup)
        if not write_measured(setup.config, setup.trust, measured):
            return ""  # nobody would find records of a class that is forgotten
    return measured.name(setup.level.name)


def _graph(model: Model, setup: Setup, shapes: Mapping[str, Sequence[int]]) -> tuple[Graph, bool]:
    """Return the optimized graph of a model, and whether it is only the network's first segment."""
    source = open_model(model, Stores(setup).models)
    _, signature = inputs_of(source.declaration, shapes)
    if signature is None:
        open_ = next(name for name, _, shape in source.declaration.inputs if shape is None or min(shape, default=0) < 0)
        raise ShapeError(f"input {open_!r} has an open shape", f'give it: --shape "{open_}:..."')
    walked = source.walk(signature, Clock())
    return optimize_graph(walked.graph, float32=setup.config.forces_float32), walked.follows is not None
