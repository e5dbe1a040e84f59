"""Reports of the graphs that torch handed over: operators compiled, operators left to torch and why."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from opbuild.platform.locks import Lock
from opbuild.platform.records import dataclass, field
from opbuild.report import Report as BuildReport
from opbuild.text.plural import counted


class Built(Protocol):
    """A part of a graph that opbuild computes."""

    @property
    def report(self) -> BuildReport:
        """The report of the build for the sizes and weights that it was called with last."""

    @property
    def built(self) -> int:
        """Operators that were compiled for all sizes and weights together."""


@dataclass(eq=False)
class Graph:
    """One graph that torch handed over.

    Attributes:
        name: Its name.
        compiled: Operators of ATen that opbuild computes, and how many of each.
        partitioned: Operators that torch computes, and how many of each, by name and reason.
        parts: What opbuild computes of it.
        fallbacks: Errors for which parts are left to torch, as was asked for.
        refrozen: How often weights were packed again because they had changed.
    """

    name: str
    compiled: Counter[str] = field(default_factory=Counter)
    partitioned: Counter[tuple[str, str]] = field(default_factory=Counter)
    parts: list[Built] = field(default_factory=list)
    fallbacks: list[str] = field(default_factory=list)
    refrozen: int = 0
    _tensors: tuple[weakref.ref[torch.Tensor], ...] = ()
    _code: frozenset[tuple[str, str]] = frozenset()

    @property
    def builds(self) -> tuple[BuildReport, ...]:
        """The reports of the build of each part, for the sizes and weights that it was called with last."""
        return tuple(part.report for part in self.parts)

    @property
    def built(self) -> int:
        """Operators that were compiled for it, for all its sizes and weights; not those that the store had."""
        return sum(part.built for part in self.parts)

    def belongs_to(self, tensors: Sequence[torch.Tensor], code: Any) -> bool:
        """Return whether it was made from a module with some of these tensors, or from a function of this code."""
        own = {id(each()) for each in self._tensors}
        if any(id(each) in own for each in tensors):
            return True
        return code is not None and (code.co_filename, code.co_name) in self._code


@dataclass(frozen=True)
class Report:
    """The report of a model's graphs.

    Attributes:
        graphs: The graphs, in the order in which torch handed them over.
    """

    graphs: tuple[Graph, ...]

    @property
    def compiled(self) -> Counter[str]:
        """Operators of ATen that opbuild computes, and how many of each."""
        return sum((graph.compiled for graph in self.graphs), Counter[str]())

    @property
    def partitioned(self) -> Counter[tuple[str, str]]:
        """Operators that torch computes, and how many of each, by name and reason."""
        return sum((graph.partitioned for graph in self.graphs), Counter[tuple[str, str]]())

    @property
    def fallbacks(self) -> tuple[str, ...]:
        """Errors for which parts are left to torch."""
        return tuple(each for graph in self.graphs for each in graph.fallbacks)

    @property
    def built(self) -> int:
        """Operators that were compiled; those that the store had are not among them."""
        return sum(graph.built for graph in self.graphs)

    def __str__(self) -> str:
        graphs, compiled = counted(len(self.graphs), "graph"), counted(self.compiled.total(), "operator")
        lines = [f"{graphs}: {compiled} compiled ({self.built} built), {self.partitioned.total()} left to torch"]
        lines += [f"  {count} {name}: {why}" for (name, why), count in sorted(self.partitioned.items())]
        lines += [f"  fallback: {each}" for each in self.fallbacks]
        return "\n".join(lines)


_GRAPHS: list[weakref.ref[Graph]] = []
_LOCK = Lock()


def add(graph: Graph) -> None:
    """Take note of a graph, for as long as its compiled code is there."""
    with _LOCK:
        _GRAPHS[:] = [each for each in _GRAPHS if each() is not None]
        _GRAPHS.append(weakref.ref(graph))


def reset() -> None:
    """Forget all graphs, as ``torch.compiler.reset`` forgets compiled code."""
    with _LOCK:
        _GRAPHS.clear()


def report(model: Any = None) -> Report:
    """Return the report of a model's graphs, those that torch has not dropped since.

    Args:
        model: A module or a function, compiled or not; None: all that was compiled in this process.
    """
    with _LOCK:
        graphs = tuple(graph for each in _GRAPHS if (graph := each()) is not None)
    if model is None:
        return Report(graphs)
    inner = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", None) or model
    tensors, code = list[torch.Tensor](), getattr(inner, "__code__", None)
    if isinstance(inner, torch.nn.Module):
        tensors = [*inner.parameters(), *inner.buffers()]
        code = None if tensors else getattr(type(inner).forward, "__code__", None)
    return Report(tuple(graph for graph in graphs if graph.belongs_to(tensors, code)))
