"""Forms of a network, the same with other variants of some calls, and trials of one beside the network as it is."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import cast

import numpy as np

from opbuild.backend.evaluate import evaluate
from opbuild.dtypes import numpy_dtype
from opbuild.errors import BuildError, RunError
from opbuild.families.family import TuningQuery, Variant
from opbuild.graph.types import Array, Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import FixedAnswers, LoweringQuery, Tuned, kernels_of
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stages import planned
from opbuild.pipeline.steps import lowering_options
from opbuild.platform.files.mapping import anonymous
from opbuild.platform.records import replace
from opbuild.program import Program
from opbuild.report import Clock
from opbuild.runtime.accuracy import relative_error
from opbuild.runtime.arena import storage
from opbuild.runtime.executor import Executor, load_code
from opbuild.runtime.record import KernelStep
from opbuild.session import Session
from opbuild.tuning.search import Choices, Pair


class NetworkForm:
    """A built network whose calls can be timed and looked at.

    Attributes:
        nbytes: Bytes of weights and of memory for what lies between calls.
    """

    def __init__(
        self, executor: Executor, queries: Mapping[TuningQuery, LoweringQuery], inputs: Sequence[Array]
    ) -> None:
        self.queries, self._executor = queries, executor
        self._memory = anonymous(executor.arena_size)
        self._arena = executor.prepare(self._memory)
        self._outputs = [np.zeros(port.type.shape, numpy_dtype(port.type.dtype)) for port in executor.outputs]
        self._arena.attach(inputs, self._outputs)
        ports = (*executor.inputs, *executor.outputs)
        self._given = {port.buffer: each for port, each in zip(ports, (*inputs, *self._outputs), strict=True)}
        self.nodes = [frozenset(step.nodes) for step in executor.record.steps]
        self.nbytes = executor.arena_size + int(executor.record.constants.nbytes.sum())

    def run(self, clock: Callable[[], int]) -> list[int]:
        """Run it once and return the time of each call."""
        times = []
        for function, arguments in self._arena.steps:
            started = clock()
            failed = function(*arguments)
            times.append(clock() - started)
            if failed:
                raise RunError(f"call {len(times)} of {self._executor.record.name} failed while it was tuned")
        return times

    def results(self, sites: Sequence[frozenset[str]]) -> tuple[list[Array | None], list[Array]]:
        """Run it once; return the arrays written last for sets of nodes, None where the host does, and the outputs."""
        last = [max((place for place, nodes in enumerate(self.nodes) if nodes & site), default=-1) for site in sites]
        found: dict[int, Array] = {}
        for place, (function, arguments) in enumerate(self._arena.steps):
            function(*arguments)
            step = self._executor.record.steps[place]
            if place in last and isinstance(step, KernelStep):
                found[place] = self._written(step)
        return [found.get(place) for place in last], [each.copy() for each in self._outputs]

    def first_call(self, site: frozenset[str]) -> int:
        """Return the place of the first call for some nodes."""
        return next((place for place, nodes in enumerate(self.nodes) if nodes & site), len(self.nodes))

    def _written(self, step: KernelStep) -> Array:
        view = step.views[-step.writes]
        given = self._given.get(view.buffer)
        found = storage(view.buffer, self._executor, self._memory) if given is None else given
        memory = cast("Array", found).reshape(-1)
        strides = [stride * memory.itemsize for _, stride in view.dims]
        shape = [extent for extent, _ in view.dims]
        return np.lib.stride_tricks.as_strided(memory[view.offset :], shape, strides).copy()


class Forms:
    """Builds forms of one optimized network, to be run on some inputs; stored networks are left alone.

    Attributes:
        kernel_seconds: Seconds that compiling a kernel of a family with variants took, the mean of the last form's.
    """

    def __init__(self, graph: Graph, setup: Setup, inputs: Sequence[Array]) -> None:
        self.kernel_seconds = 0.0
        self._graph, self._setup, self._inputs = graph, setup, inputs
        self._session = Session(setup)
        self._packer = self._session.stores.packer()
        self._options = lowering_options(setup.config)

    def compile(self, turns: Sequence[Choices]) -> None:
        """Compile the kernels of several forms together, so that making each finds them; failures fail there."""
        kernels: dict[OpDesc, tuple[str, ...]] = {}
        for choices in turns:
            with suppress(AssertionError):  # a variant that is not legal
                kernels |= self._lowered(choices)[1].descriptors()
        with self._session.builder() as builder, suppress(BuildError):
            builder.build(kernels, self._graph.name)

    def make(self, choices: Choices) -> NetworkForm:
        """Return the form with some answers, built."""
        queries, program = self._lowered(choices)
        needed = planned([self._graph], [program])
        with self._session.builder() as builder:
            (network,) = self._session.build(needed, builder, self._packer, Clock())
        tunable = {query.family for query in queries}
        times = [each.milliseconds for desc, each in network.built.operators.items() if desc.family in tunable]
        self.kernel_seconds = sum(times) / max(len(times), 1) / 1e3
        modules = load_code(network.built.code, self._setup.config.num_threads)
        executor = Executor(network.record, modules, network.constants.arrays, evaluate)
        return NetworkForm(executor, queries, self._inputs)

    def kernels(self, query: TuningQuery, variants: Sequence[Variant | None]) -> dict[str, str]:
        """Return the digests of the pipelines of kernels of some variants, by the operators' names."""
        kernels: dict[OpDesc, None] = {}
        for variant in variants:
            queries, program = self._lowered({query: variant})
            kernels |= dict.fromkeys(kernels_of(program, queries, query))
        with self._session.builder() as builder:
            return dict(builder.defined(kernels).values())

    def _lowered(self, choices: Choices) -> tuple[dict[TuningQuery, LoweringQuery], Program]:
        found = Tuned(FixedAnswers(choices))
        program = lower(self._graph, self._setup.level, replace(self._options, chooser=found))
        return found.queries, program


def sites_of(queries: Mapping[TuningQuery, LoweringQuery], query: TuningQuery) -> frozenset[str]:
    """Return the nodes for which a query was asked; none if it was not."""
    return frozenset(queries[query].sites) if query in queries else frozenset()


def all_sites(asked: Mapping[TuningQuery, LoweringQuery], queries: Sequence[TuningQuery]) -> list[frozenset[str]]:
    """Return the nodes of some queries, each alone."""
    return [frozenset({node}) for node in sorted(set(chain.from_iterable(sites_of(asked, q) for q in queries)))]


TOLERANCES = {"float16": 5e-2, "bfloat16": 5e-2}
TOLERANCE = 2e-3
"""Differences to what the network as it is computes, relative to the greatest value: below it lies what another order
of sums or Winograd makes of a deep network, far above it what a wrong kernel does."""


CACHED = 64 * 2**20
"""Bytes of weights and memory from which on no cache has anything left of a network's run before."""


class Trials:
    """Measures forms beside the form that is known to be best, by a clock in nanoseconds.

    That is this thread's processor's where it computes alone, else the wall's.

    Attributes:
        refused: Answers that could not be built or computed something else, each with the reason.
    """

    def __init__(
        self,
        forms: Forms,
        base: NetworkForm,
        choices: Choices,
        threads: int,
    ) -> None:
        self._forms, self._base, self._choices = forms, base, choices
        self._clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
        self.refused: list[tuple[TuningQuery, str]] = []

    def measure(self, choices: Choices, runs: int) -> dict[TuningQuery, list[Pair]]:
        """Return the times of the calls of each query, as ``search`` asks for them."""
        if not choices:
            return {}
        wrong = ""
        try:
            form = self._forms.make({**self._choices, **choices})
            culprits = self._different(form, list(choices))
        except (BuildError, AssertionError) as error:  # lowering asserts that a variant is legal
            culprits, wrong = list(choices), str(error)
        if not culprits:
            return self._timed(form, list(choices), runs)
        if len(choices) == 1:
            self.refused.append((culprits[0], wrong or "it computes something else"))
            return {}
        if len(culprits) == len(choices):  # nobody knows which one it is
            half = len(culprits) // 2
            groups = [culprits[:half], culprits[half:]]
        else:
            groups = [culprits, [each for each in choices if each not in culprits]]
        found: dict[TuningQuery, list[Pair]] = {}
        for group in groups:
            found |= self.measure({each: choices[each] for each in group}, runs)
        return found

    def _different(self, form: NetworkForm, queries: list[TuningQuery]) -> list[TuningQuery]:
        """Return the queries whose calls are the first to compute something else; all if only the outputs tell."""
        asked = self._base.queries
        sites = sorted(all_sites(asked, queries), key=self._base.first_call)
        expected, outputs = self._base.results(sites)
        found, own_outputs = form.results(sites)
        for site, one, other in zip(sites, found, expected, strict=True):
            if one is not None and other is not None and one.ndim == other.ndim and _differ(*_common_part(one, other)):
                return [each for each in queries if site & sites_of(asked, each)]
        same = not any(_differ(*pair) for pair in zip(own_outputs, outputs, strict=True))
        return [] if same else queries

    def _timed(self, form: NetworkForm, queries: Sequence[TuningQuery], runs: int) -> dict[TuningQuery, list[Pair]]:
        """Run both in turn."""
        asked = self._base.queries
        places = [
            [
                [place for place, nodes in enumerate(each.nodes) if nodes & sites_of(asked, query)]
                for each in (self._base, form)
            ]
            for query in queries
        ]
        pairs: dict[TuningQuery, list[Pair]] = {query: [] for query in queries}
        for number in range(runs):
            times: dict[int, list[int]] = {}
            for which in (0, 1) if number % 2 else (1, 0):
                times[which] = _run((self._base, form)[which], self._clock)
            for query, (before, after) in zip(queries, places, strict=True):
                pairs[query].append(
                    (sum(times[0][place] for place in before) / 1e9, sum(times[1][place] for place in after) / 1e9)
                )
        return pairs


def whole_times(one: NetworkForm, other: NetworkForm, runs: int, threads: int) -> list[Pair]:
    """Return the seconds of whole runs of two forms, in turn."""
    clock = time.thread_time_ns if threads == 1 else time.perf_counter_ns
    pairs = []
    for number in range(runs):
        times: dict[int, float] = {}
        for which in (0, 1) if number % 2 else (1, 0):
            times[which] = sum(_run((one, other)[which], clock)) / 1e9
        pairs.append((times[0], times[1]))
    return pairs


def runs_of_pair(form: NetworkForm) -> int:
    """Return how many runs of a network a pair of times takes."""
    return 4 if form.nbytes < CACHED else 2


def _run(form: NetworkForm, clock: Callable[[], int]) -> list[int]:
    """Return the times of a run; a cache may hold data of a network, which in use follows itself, too."""
    if form.nbytes < CACHED:
        form.run(clock)
    return form.run(clock)


def _common_part(one: Array, other: Array) -> tuple[Array, Array]:
    """Return the part that both arrays have: rows may be written up to whole tiles."""
    within = tuple(slice(0, min(extents)) for extents in zip(one.shape, other.shape, strict=True))
    return one[within], other[within]


def _differ(one: Array, other: Array) -> bool:
    return not relative_error(one, other) <= TOLERANCES.get(one.dtype.name, TOLERANCE)
