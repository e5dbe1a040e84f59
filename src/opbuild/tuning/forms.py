"""Forms of a network: the same with other variants of some calls, built through the store and run call by call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import cast

import numpy as np

from opbuild.backend.evaluate import evaluate
from opbuild.dtypes import numpy_dtype
from opbuild.errors import BuildError, RunError
from opbuild.families.family import TuningQuery, Variant
from opbuild.files.mapping import anonymous
from opbuild.graph.types import Array, Graph
from opbuild.kernel.opdesc import OpDesc
from opbuild.lowering.lower import lower
from opbuild.lowering.tuned import FixedAnswers, LoweringQuery, Tuned, kernels_of
from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stages import planned
from opbuild.pipeline.steps import lowering_options
from opbuild.platform.records import replace
from opbuild.program import Program
from opbuild.report import Clock
from opbuild.runtime.arena import storage
from opbuild.runtime.executor import Executor, load_code
from opbuild.runtime.record import KernelStep
from opbuild.session import Session
from opbuild.tuning.search import Choices


class NetworkForm:
    """A built network whose calls can be timed and looked at.

    Args:
        executor: Runs it.
        asked: What families were asked while it was lowered.
        inputs: What it is run on.

    Attributes:
        asked: The same.
        nodes: The nodes of each call.
        nbytes: Bytes of weights and of memory for what lies between calls.
    """

    def __init__(self, executor: Executor, asked: Mapping[TuningQuery, LoweringQuery], inputs: Sequence[Array]) -> None:
        self.asked, self._executor = asked, executor
        self._memory = anonymous(executor.arena_size)
        self._arena = executor.prepare(self._memory)
        self._outputs = [np.zeros(port.type.shape, numpy_dtype(port.type.dtype)) for port in executor.outputs]
        self._arena.attach(inputs, self._outputs)
        ports = (*executor.inputs, *executor.outputs)
        self._given = {port.buffer: each for port, each in zip(ports, (*inputs, *self._outputs), strict=True)}
        self.nodes = [frozenset(step.nodes) for step in executor.record.steps]
        self.nbytes = executor.arena_size + int(executor.record.constants.nbytes.sum())

    def run(self, clock: Callable[[], int]) -> list[int]:
        """Run it once and return the time of each call.

        Raises:
            RunError: If a call fails.
        """
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
    """Builds forms of one network.

    Args:
        graph: The network, optimized.
        setup: What is built for; stored networks are left alone.
        inputs: What forms are run on.
    """

    def __init__(self, graph: Graph, setup: Setup, inputs: Sequence[Array]) -> None:
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
        """Return the form with some answers, built.

        Raises:
            BuildError: If a kernel cannot be built.
        """
        asked, program = self._lowered(choices)
        needed = planned([self._graph], [program])
        with self._session.builder() as builder:
            (network,) = self._session.build(needed, builder, self._packer, Clock())
        modules = load_code(network.built.code, self._setup.config.num_threads)
        executor = Executor(network.record, modules, network.constants.arrays, evaluate)
        return NetworkForm(executor, asked, self._inputs)

    def kernels(self, question: TuningQuery, variants: Sequence[Variant | None]) -> dict[str, str]:
        """Return the digests of the pipelines of kernels of some variants, by the operators' names."""
        kernels: dict[OpDesc, None] = {}
        for variant in variants:
            asked, program = self._lowered({question: variant})
            kernels |= dict.fromkeys(kernels_of(program, asked, question))
        with self._session.builder() as builder:
            return dict(builder.defined(kernels).values())

    def _lowered(self, choices: Choices) -> tuple[dict[TuningQuery, LoweringQuery], Program]:
        found = Tuned(FixedAnswers(choices))
        program = lower(self._graph, self._setup.level, replace(self._options, chooser=found))
        return found.asked, program


def sites_of(asked: Mapping[TuningQuery, LoweringQuery], question: TuningQuery) -> frozenset[str]:
    """Return the nodes for which a question was asked; none if it was not."""
    return frozenset(asked[question].sites) if question in asked else frozenset()


def all_sites(asked: Mapping[TuningQuery, LoweringQuery], questions: Sequence[TuningQuery]) -> list[frozenset[str]]:
    """Return the nodes of some questions, each alone."""
    return [frozenset({node}) for node in sorted(set(chain.from_iterable(sites_of(asked, q) for q in questions)))]
