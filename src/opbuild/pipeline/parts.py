"""Networks in parts: each part is started or built as any network is, once it is known what the one before it gives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError
from opbuild.graph.cut import Answer, Cut, is_tensor
from opbuild.graph.types import MOST_DIMENSIONS, TensorType
from opbuild.models.source import ModelSource
from opbuild.pipeline.images import Ahead, Images, Wanted
from opbuild.pipeline.part_sizes import NewSizes, PartSizes
from opbuild.platform.lazily import lazily
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.parts import MOST_STATES, KnownParts, Part, Parts

if TYPE_CHECKING:
    from opbuild.frontend.rest import Rest
    from opbuild.frontend.walk import Walked
    from opbuild.pipeline.any_size import AnySize

MOST_STORED = 32
"""Answers to one cut for which parts are stored and started as they are stored: a network whose values have a new shape
at each call would otherwise fill the folder."""


NUMBERS = ""
"""What stands for a part's inputs for the numbers among the values that decided: a name that no value has."""


def numbers_type(numbers: Sequence[int]) -> TensorType:
    """Return numbers as extents, in dimensions that no tensor has: so none is taken for an equal extent of an input."""
    return TensorType("int64", (*(0,) * MOST_DIMENSIONS, *numbers))


class PartBinder:
    """Makes networks of one model ready, whole or in parts.

    Args:
        source: The model.
        images: The stored networks.
        first: Starts what is stored of a network's first part, or builds it.
        later: The same of another part.
        new_sizes: Makes what binds a part to any size.
    """

    def __init__(
        self,
        source: ModelSource,
        images: Images,
        first: Callable[[Wanted], Binding],
        later: Callable[[Wanted], Binding],
        new_sizes: NewSizes,
    ) -> None:
        self._source = source
        self._images = images
        self._bind_first = first
        self._bind_later = later
        self._known = KnownParts()
        self._answers: dict[str, int] = {}
        self._new_sizes = new_sizes

    def first(self, signature: Shapes, sizes: AnySize) -> Bound:
        """Return the network for one input signature.

        Args:
            signature: The shapes of its inputs.
            sizes: What binds the whole network to any size: it may have what is stored, and is built along.

        Raises:
            ModelError, BuildError: If it can not be bound.
        """
        source = self._source  # what a part keeps must not know this binder, which keeps the parts
        types = source.types(signature)
        tensors = {name: each for name, each in types.items() if is_tensor(each)}
        walked = _Walked(lambda clock: source.walk(signature, clock))

        def walk_open(opened: Mapping[str, TensorType]) -> Walked:
            return source.walk(tuple(opened.get(name, each).shape for name, each in types.items()), Clock())

        def build(_: Callable[[], Binding | None], end: Cut | None = None) -> Part:
            binding = self._bound(tensors, "", walked, stored=True, otherwise=sizes.bind_stored, ahead=sizes)
            cut = end if binding.executor.is_filled else binding.executor.record.cut
            if cut is None:
                raise _WholeError(binding)
            return Part(binding.executor, cut, binding.report, walked)

        try:
            part = self._first_sizes.bind("", tensors, build, walk_open, walked)
        except _WholeError as whole:
            return whole.binding
        from opbuild.runtime.in_parts import InParts

        results = [output.name for output in source.declaration.outputs]
        return InParts(part, Parts(self._next, evaluate, self._known), types, results)

    def _next(self, part: Part, answer: Answer, types: Mapping[str, TensorType], body: bool) -> Part:
        """Return the part behind another one, or the first one of its loop's body; see ``runtime.parts.BindNext``."""
        source, cut = self._source, part.cut
        state = cut.body.state if body and cut.body else cut.state

        def rest(clock: Clock, given: Answer) -> Rest:
            before = part.walked(clock)
            found: Rest | None = before.body if body else before.rest
            if found is None:
                raise BuildError(f"nothing comes after {cut.path}", "this is an error in opbuild; please report it")
            return found.answered(given, cut.path)

        def walk_open(opened: Mapping[str, TensorType]) -> Walked:
            own = {name: each for name, each in opened.items() if name != NUMBERS}
            numbers = opened[NUMBERS].shape[MOST_DIMENSIONS:] if NUMBERS in opened else ()
            return source.go_on(rest(Clock(), answer.with_numbers(numbers)).with_types(own), Clock())

        walked = _Walked(lambda clock: source.go_on(rest(clock, answer), clock))

        def build(otherwise: Callable[[], Binding | None] = lambda: None, end: Cut | None = None) -> Part:
            if len(self._answers) > MOST_STATES:
                self._answers.clear()
            count = self._answers[state] = self._answers.get(state, 0) + 1
            binding = self._bound(types, answer.digest(state), walked, stored=count <= MOST_STORED, otherwise=otherwise)
            return self._part(binding, walked, end)

        sizes = {**types, NUMBERS: numbers_type(answer.numbers)} if answer.numbers else types
        return self._sizes.bind(answer.without_numbers().digest(state), sizes, build, walk_open, walked)

    @lazily
    def _first_sizes(self) -> PartSizes:
        return PartSizes(self._source, self._new_sizes)

    @lazily
    def _sizes(self) -> PartSizes:
        return PartSizes(self._source, self._new_sizes)

    def _bound(
        self,
        types: Mapping[str, TensorType],
        part: str,
        walked: _Walked,
        *,
        stored: bool,
        otherwise: Callable[[], Binding | None],
        ahead: Ahead = Ahead(),  # noqa: B008  it has no state
    ) -> Binding:
        source = self._source
        key = self._images.key(source.declaration.name, source.digest, types, part) if stored else None
        wanted = Wanted(
            key,
            lambda clock: walked(clock).graph,
            lambda: source.edited,
            otherwise,
            ahead,
            cut=lambda: walked(Clock()).cut,
        )
        binding = self._bind_later(wanted) if part else self._bind_first(wanted)
        walked.drop_graph()
        return binding

    def _part(self, binding: Binding, walked: _Walked, end: Cut | None = None) -> Part:
        executor = binding.executor
        cut = end if executor.is_filled else executor.record.cut
        if cut is None:
            raise BuildError("a part of a network lacks its end", "this is an error in opbuild; please report it")
        return Part(executor, cut, binding.report, walked, by_numbers=executor.is_filled)


class _WholeError(Exception):
    """A network needs no cut."""

    def __init__(self, binding: Binding) -> None:
        super().__init__()
        self.binding = binding


class _Walked:
    """A part as the front end has it, made when it is first needed: if it is stored, for a successor that is new."""

    def __init__(self, walk: Callable[[Clock], Walked]) -> None:
        self._walk = walk
        self._found: Walked | None = None

    def __call__(self, clock: Clock) -> Walked:
        if self._found is None:
            self._found = self._walk(clock)
        return self._found

    def drop_graph(self) -> None:
        """Give back the memory of the graph, which was built."""
        if self._found is not None:
            self._found = self._found.without_graph()
