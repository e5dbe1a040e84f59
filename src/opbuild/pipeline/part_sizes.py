"""Parts whose inputs have open extents: what follows data is bound to new sizes by numbers, as whole networks are.

Behind a NonZero, or in a loop whose values grow, each call may bring another extent. The first two sizes of a part are
built; if they differ in extents only, the part is lowered once more with those open (``pipeline.any_size``).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from opbuild.graph.cut import Cut, cut_to_json
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.free import FREE
from opbuild.models.declaration import Declaration, Declared
from opbuild.models.source import ModelSource
from opbuild.platform.digest import blake3_of
from opbuild.platform.records import replace
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Shapes
from opbuild.runtime.parts import Part
from opbuild.text.canonical import canonical_json

if TYPE_CHECKING:
    from opbuild.frontend.walk import Walked
    from opbuild.pipeline.any_size import AnySize

MOST_OPEN = 64
"""Parts of a network that are kept with open extents."""

Types = Mapping[str, TensorType]
WalkOpen = Callable[[Types], "Walked"]
"""Returns a part as the front end has it, for types of its inputs whose extents may be open."""


Build = Callable[[Callable[[], Binding | None], "Cut | None"], Part]
"""Builds a part, or starts it as it is stored, or takes what the first argument returns if it is not stored; then the
second one comes after it."""


class PartSource:
    """A part of a network as what ``AnySize`` takes for a model.

    Args:
        declaration: Its inputs, -1 where they are open.
        digest: Digest of all that decides what it computes, but for its open extents.
        graph: Returns its graph for the shapes of its inputs.
        is_edited: Returns whether the model is no longer the one that was read.

    Attributes:
        keeps: Not used: what it is made from is kept anyway.
    """

    keeps = True

    def __init__(
        self,
        declaration: Declaration,
        digest: str,
        graph: Callable[[Shapes], Graph],
        is_edited: Callable[[], bool],
    ) -> None:
        self.declaration = declaration
        self.digest = digest
        self._graph = graph
        self._is_edited = is_edited

    @property
    def edited(self) -> bool:
        """Whether the model is no longer the one that was read."""
        return self._is_edited()

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs."""
        with clock("read"):
            return self._graph(shapes)

    def forget(self) -> None:
        """Do nothing; see ``keeps``."""


NewSizes = Callable[[PartSource, Sequence[Sequence[int]]], "AnySize"]
"""Makes what binds a part to any size, given the shapes of its inputs with -1 where they are open."""


class PartSizes:
    """The sizes of all parts of one network. One thread at a time may use it.

    Args:
        model: The network's model.
        new_sizes: Makes what binds one of them to any size.
    """

    def __init__(self, model: ModelSource, new_sizes: NewSizes) -> None:
        self._name, self._model, self._new_sizes = model.declaration.name, model, new_sizes
        self._first: OrderedDict[str, tuple[Part, Types]] = OrderedDict()
        self._open: dict[str, AnySize | None] = {}

    def bind(
        self,
        state: str,
        types: Types,
        build: Build,
        walk: WalkOpen,
        walked: Callable[[Clock], Walked],
    ) -> Part:
        """Return a part for the types of its inputs.

        Args:
            state: Names it, whatever the types of its inputs are.
            types: The types; behind them the numbers that decide, as extents.
            build: Builds it.
            walk: Returns it for types whose extents may be open.
            walked: Returns it for these types.
        """
        known = self._first.get(state)
        if known is None or not _differ_in_extents(known[1], types):
            return self._built_first(state, types, build)
        first, other = known
        sizes = self._open.get(state)
        if sizes is None:
            sizes = self._open[state] = self._opened(state, first.cut, other, types, walk)
        bound = sizes.bind(tuple(each.shape for each in types.values()))
        if bound is not None:
            return Part(bound.executor, first.cut, bound.report, walked, by_numbers=True)
        part = build(sizes.bind_stored, first.cut)
        sizes.begin(tuple(each.shape for each in types.values()), Binding(part.executor, part.report))
        return part

    def _built_first(self, state: str, types: Types, build: Build) -> Part:
        part = build(lambda: None, None)
        self._first[state] = (part, types)
        if len(self._first) > MOST_OPEN:
            gone, _ = self._first.popitem(last=False)
            self._open.pop(gone, None)
        return part

    def _opened(self, state: str, cut: Cut, first: Types, second: Types, walk: WalkOpen) -> AnySize:
        """Return what binds a part to any size, given two sizes of it and the cut behind it."""
        shown, model, network = _shown(cut), self._model, self._name

        def graph(shapes: Shapes) -> Graph:
            opened = zip(second.items(), shapes, strict=True)
            walked = walk({name: TensorType(each.dtype, shape) for (name, each), shape in opened})
            if walked.cut is None or _shown(walked.cut) != shown:
                raise ValueError(f"a part of {network} ends otherwise for other extents")
            return walked.graph

        declared = tuple(
            Declared(name, one.dtype, tuple(a if a == b else FREE for a, b in zip(one.shape, other.shape, strict=True)))
            for (name, one), other in zip(first.items(), second.values(), strict=True)
        )
        digest = blake3_of(f"{model.digest} {state} {shown}".encode())
        declaration = Declaration(network, declared, (), ())
        source = PartSource(declaration, digest, graph, lambda: model.edited)
        return self._new_sizes(source, [each.shape or () for each in declared])


def _differ_in_extents(one: Types, other: Types) -> bool:
    """Return whether values have other types, but the same element types and ranks."""
    if one == other or one.keys() != other.keys():
        return False
    pairs = zip(one.values(), other.values(), strict=True)
    return all(a.dtype == b.dtype and len(a.shape) == len(b.shape) for a, b in pairs)


def _shown(cut: Cut) -> str:
    """Return a text for all that a cut says; raises ``ValueError`` where an open extent is among its constants."""
    others = [array for array in cut.constants.values() if array.dtype == object]
    if others:  # text, most likely
        from opbuild.frontend.open_values import is_open_value

        if any(map(is_open_value, others)):
            raise ValueError("a constant follows from open extents")
    return canonical_json(cut_to_json(replace(cut, why="")))
