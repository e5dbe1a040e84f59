"""Kernels that a network has loaded, and which of them computes a call in a size."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.families.catalogue import find, with_rank
from opbuild.graph.types import Array
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import replace
from opbuild.runtime.devices.device import Modules
from opbuild.runtime.dynamic import Answers, ChosenKernel, Decision, LoadedKernel
from opbuild.runtime.record import CHOICES, Record
from opbuild.runtime.symbolic import argument, dims_of, run_kinds, symbolic_of
from opbuild.runtime.symbols import NONE, Decided, SymbolicChoice
from opbuild.target.level import CPU
from opbuild.target.machine import Machine
from opbuild.text.canonical import canonical_json

Dims = list[tuple[tuple[int, int], ...]]
"""Extents and strides of each operand."""

MOST_KNOWN = 1024
"""Choices that are remembered."""


class LoadedKernels:
    """The kernels that the bindings of one network have loaded. One thread at a time may use it."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._kernels: dict[str, LoadedKernel] = {}
        self._alike: defaultdict[str, list[LoadedKernel]] = defaultdict(list)
        self._meanings: dict[str, str] = {}
        self._known: dict[tuple[Any, ...], tuple[Any, ChosenKernel | None]] = {}

    def add(self, symbols: Mapping[OpDesc, str], modules: Modules) -> None:
        """Add the kernels of a network's code."""
        self._known.clear()
        for desc, symbol in symbols.items():
            if desc.canonical() not in self._kernels:
                module = modules[desc.device]
                kernel = self._kernels[desc.canonical()] = LoadedKernel(desc, symbol, module, module.kernel(symbol))
                self._alike[self._meaning(desc)].append(kernel)

    @property
    def descriptors(self) -> list[OpDesc]:
        """The kernels that are loaded."""
        return [kernel.desc for kernel in self._kernels.values()]

    def alike(self, desc: OpDesc) -> list[OpDesc]:
        """Return the kernels that compute the same as another one, those most like it first."""
        family, kernels = find(desc.family), self._alike.get(self._meaning(desc), ())
        return sorted((kernel.desc for kernel in kernels), key=lambda other: family.distance(desc, other))

    def __len__(self) -> int:
        return len(self._kernels)

    def answers(self, record: Record, numbers: Array) -> Answers:
        """Ask families for the variants of a record's calls in a size."""
        symbolic, known = symbolic_of(record), numbers.tolist()
        tuned = {(family, asked): choice for family, asked, choice in record.notes.get(CHOICES, ())}
        variants = tuple([self._answer(choice, known, tuned) for choice in symbolic.choices])
        run = frozenset(run_kinds(record, numbers))
        idle = {each.choice for number, each in enumerate(symbolic.decided) if number not in run}
        pairs = zip(variants, symbolic.choices, strict=True)
        suits = all((variant is not None) == each.answered or n in idle for n, (variant, each) in enumerate(pairs))
        return Answers(variants, run, suits)

    def decide(self, record: Record, numbers: Array, answers: Answers) -> Decision:
        """Choose the kernels of a record for several signatures in a size.

        A family that would now leave a call to others can still compute it: its variant without limits is for any size.
        """
        chosen: list[ChosenKernel | None] = []
        replaced = set()
        pairs = zip(symbolic_of(record).decided, dims_of(record, numbers), strict=True)
        for number, (each, dims) in enumerate(pairs):
            if number not in answers.run:  # at this size it is computed otherwise
                same = next(iter(self._alike.get(self._meaning(each.desc), ())), None)
                chosen.append(None if same is None else ChosenKernel(same, 0))
                continue
            answer = each.desc.variant if each.choice == NONE else answers.variants[each.choice]
            wanted = find(each.desc.family).without_limits(each.desc).variant if answer is None else answer
            found = self._chosen(each, wanted, dims)
            if found is None or found.kernel.desc.variant != wanted:
                replaced.add(number)
            chosen.append(found)
        return Decision(tuple(chosen), frozenset(replaced))

    def _answer(self, choice: SymbolicChoice, numbers: Sequence[int], tuned: Mapping[tuple[str, str], Any]) -> Any:
        arguments = [argument(each, numbers) for each in choice.arguments]
        if tuned and (known := (choice.family, canonical_json(arguments))) in tuned:
            return tuned[known]
        return find(choice.family).choose(*arguments, self._machine)

    def _chosen(self, each: Decided, wanted: Any, dims: Dims) -> ChosenKernel | None:
        """Return the kernel that computes a class of calls: most classes have the same extents at the next size."""
        key = each.desc.canonical(), tuple(dims)
        known = self._known.get(key)
        if known is None or known[0] != wanted:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            kernel = self._closest_kernel(each, wanted, dims)
            found = None if kernel is None else ChosenKernel(kernel, self._work(kernel.desc, dims))
            known = self._known[key] = wanted, found
        return known[1]

    def _closest_kernel(self, each: Decided, wanted: Any, dims: Dims) -> LoadedKernel | None:
        exact = self._kernels.get(each.desc.canonical())
        if exact is not None and exact.desc.variant == wanted and exact.desc.problem(dims) is None:
            return exact
        family = find(each.desc.family)
        fitting = [
            kernel
            for kernel in self._alike.get(self._meaning(each.desc), ())
            if kernel.desc.problem(with_rank(kernel.desc, dims)) is None
        ]
        model = replace(each.desc, variant=wanted)
        return min(fitting, key=lambda kernel: family.distance(model, kernel.desc), default=None)

    def _work(self, desc: OpDesc, dims: Dims) -> int:
        if desc.device != CPU:  # which divides a call as it likes
            return 0
        return round(find(desc.family).work(desc, dims, self._machine))

    def _meaning(self, desc: OpDesc) -> str:
        found = self._meanings.get(desc.canonical())
        if found is None:
            found = self._meanings[desc.canonical()] = meaning(desc)
        return found


def meaning(desc: OpDesc) -> str:
    """Return the identity of a descriptor's computation, equal for kernels that may stand for each other."""
    parts, any_rank = desc.components(), find(desc.family).any_rank
    ranks = [None if any_rank else len(operand.dims) for operand in desc.operands]
    operands = [[o.name, o.dtype, o.format, rank] for o, rank in zip(desc.operands, ranks, strict=True)]
    decides = [desc.impl_mode, desc.source, desc.target]
    return canonical_json([parts["op_types"], desc.family, parts["attrs"], operands, *decides])
