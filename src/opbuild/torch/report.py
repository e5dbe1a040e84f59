"""Reports of the graphs that torch handed over: operators compiled, operators left to torch and why."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Sequence
from typing import Any, Protocol

import torch

from opbuild.platform.locks import Lock
from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.report import Report as BuildReport
from opbuild.text.plural import counted
from opbuild.torch.uncompiled import Span, Uncompiled, Watch, is_torchs_class, module_spans, span_of


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
    _lines: frozenset[tuple[str, int]] = frozenset()

    @property
    def builds(self) -> tuple[BuildReport, ...]:
        """The reports of the build of each part, for the sizes and weights that it was called with last."""
        return tuple(part.report for part in self.parts)

    @property
    def built(self) -> int:
        """Operators that were compiled for it, for all its sizes and weights; not those that the store had."""
        return sum(part.built for part in self.parts)

    def leave(self, targets: Sequence[str], why: str) -> None:
        """Count operators as left to torch that were to be compiled; counts that somebody reads just now stay."""
        with _LOCK:
            self.compiled = self.compiled - Counter(targets)
            self.partitioned = self.partitioned + Counter((target, why) for target in targets)

    def belongs_to(self, model: Model) -> bool:
        """Return whether it was made of a model: with some of its tensors, or none of a module's and of its code."""
        given = [each() for each in self._tensors]
        if any(id(each) in model.tensors for each in given):
            return True
        if model.tensors and any(isinstance(each, torch.nn.Parameter) for each in given):
            return False
        return any(model.has(*each) for each in self._lines) or (model.is_torchs and not self._lines)


class Model(NamedTuple):
    """The properties by which a model is recognized.

    Attributes:
        tensors: The identities of its parameters and buffers.
        spans: The lines of its code.
        is_torchs: Whether its class is one of torch's own, of whose code Dynamo tells nothing.
    """

    tensors: frozenset[int]
    spans: frozenset[Span]
    is_torchs: bool = False

    def has(self, file: str, line: int) -> bool:
        """Return whether a line is of its code."""
        return any(each.has(file, line) for each in self.spans)


def model_of(model: Any) -> Model:
    """Return the properties of a module or a function, compiled or not."""
    inner = getattr(model, "_orig_mod", None) or getattr(model, "_torchdynamo_orig_callable", None) or model
    if not isinstance(inner, torch.nn.Module):
        code = getattr(inner, "__code__", None)
        return Model(frozenset(), frozenset() if code is None else frozenset({span_of(code)}))
    tensors = frozenset(map(id, (*inner.parameters(), *inner.buffers())))
    return Model(tensors, frozenset(module_spans(inner)), is_torchs_class(inner))


@dataclass(frozen=True)
class Report:
    """The report of a model's graphs.

    Attributes:
        graphs: The graphs, in the order in which torch handed them over.
        uncompiled: Functions that Dynamo did not hand over as a whole: torch computes what is not in a graph.
    """

    graphs: tuple[Graph, ...]
    uncompiled: tuple[Uncompiled, ...] = ()

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
        lines = [f"  {count} {name}: {why}" for (name, why), count in sorted(self.partitioned.items())]
        lines += [f"  fallback: {each}" for each in self.fallbacks]
        lines += [f"  {each}" for each in self.uncompiled]
        return "\n".join((self._summary, *lines))

    @property
    def _summary(self) -> str:
        if not self.graphs:
            why = "" if self.uncompiled else "; if it was called, TORCH_LOGS=graph_breaks tells why"
            return f"nothing is compiled: Dynamo handed over no graph{why}"
        graphs, compiled = counted(len(self.graphs), "graph"), counted(self.compiled.total(), "operator")
        done, left = f"{graphs}: {compiled} compiled ({self.built} built)", self.partitioned.total()
        if self.uncompiled:
            return f"{done}; left to torch: {left} of their operators, and what is in no graph"
        return f"{done}, {left} left to torch"


_GRAPHS: list[weakref.ref[Graph]] = []
_WATCH = Watch()
_LOCK = Lock()


def add(graph: Graph) -> None:
    """Take note of a graph, for as long as its compiled code is there."""
    with _LOCK:
        _GRAPHS[:] = [each for each in _GRAPHS if each() is not None]
        _GRAPHS.append(weakref.ref(graph))
        _WATCH.look()


def reset() -> None:
    """Forget all graphs, as ``torch.compiler.reset`` forgets compiled code."""
    with _LOCK:
        _GRAPHS.clear()
        _WATCH.forget()


def report(model: Any = None) -> Report:
    """Return the report of a model's graphs, those that torch has not dropped since.

    Args:
        model: A module or a function, compiled or not; None: all that was compiled in this process.
    """
    with _LOCK:
        graphs = tuple(graph for each in _GRAPHS if (graph := each()) is not None)
        _WATCH.look()
        uncompiled = _WATCH.found()
    if model is None:
        return Report(graphs, uncompiled)
    own = model_of(model)
    return Report(
        tuple(graph for graph in graphs if graph.belongs_to(own)),
        tuple(each for each in uncompiled if (own.is_torchs if each.is_torchs else own.has(each.file, each.line))),
    )
