"""What makes a model ready for each input signature: whole, in parts, or at any size by numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from opbuild.graph.cut import is_tensor
from opbuild.kernel.free import FREE
from opbuild.models.source import ModelSource
from opbuild.pipeline.any_size import AnySize
from opbuild.pipeline.images import Wanted
from opbuild.pipeline.programs import Programs, Read
from opbuild.pipeline.segments import FirstSegment, SegmentBinder
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.endpoint import Endpoint

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from opbuild.builder.build import Builder
    from opbuild.pipeline.opening import Openable

Bind = Callable[[Wanted, Stores, "Callable[[], Builder]"], Binding]
"""Starts what is stored, or builds it with a builder that is then made."""


class Signatures:
    """See the module.

    Args:
        source: The model.
        inputs: Its inputs as declared.
        any_shape: Inputs of which every extent may differ.
        stores: Where things are kept.
        bind: Makes one network ready.
        first_builder: Makes the builder of what the caller waits for.
        executor: Compiles what serves further sizes, if the caller waits for those.
        is_open: Whether there is no signature yet.
        waits: Whether the caller waits for further sizes.
    """

    def __init__(
        self,
        source: ModelSource,
        inputs: Sequence[Endpoint],
        any_shape: Collection[str],
        stores: Stores,
        bind: Bind,
        first_builder: Callable[[], Builder],
        executor: Executor | None,
        *,
        is_open: bool,
        waits: bool,
    ) -> None:
        behind = stores.behind(executor if waits else None)
        declared = [(FREE,) * len(each.shape) if each.name in any_shape else each.shape for each in inputs]
        self._source, self._stores, self._first_builder = source, stores, first_builder
        self._requests = _Requests(source, declared, stores, behind, bind)
        self._sizes = AnySize(
            source,
            behind,
            declared,
            lambda: make_builder(behind.setup, behind),
            self._requests.better,
            is_open=is_open or (waits and source.declaration.is_open),
        )
        self._segments = SegmentBinder(source, self._requests.first, self._requests)
        self._first = self._requests.programs(self._requests.first)

    def bind(self, signature: Shapes) -> Bound:
        """Make the model ready for one signature."""
        try:
            bound = self._sizes.bind(signature)
            if bound is not None:
                return bound
            request = self._requests.of(signature, self._stores, lambda: self._started(signature), self._sizes)
            first = self._requests.bind(request, self._stores, self._first_builder)
            self._source.remember()  # also what was stored before: that build may have been killed
        finally:
            self._source.release()
        found = self._segments.bind(first, signature)
        self._sizes.begin(signature, found)
        return found

    def _started(self, signature: Shapes) -> Binding | None:
        """Return what is there of a network that is not stored for a signature, or its first segment; or None."""
        return self._sizes.bind_stored() or self._begun(signature)

    def _begun(self, signature: Shapes) -> Binding | None:
        """Return the first segment by numbers; None if the network has only one, or no extent is open."""
        first = self._requests.first
        shapes = first.tensors(signature)
        if not self._first.is_open:
            return None
        bound = self._first.bind_stored(shapes)
        if bound is not None or first.walk(shapes, Clock()).cut is None:
            return bound
        return self._first.bind(shapes)

    def wait(self) -> None:
        """Wait until what serves further sizes is there."""
        self._sizes.wait()


class _Requests:
    """Makes requests for networks, and the programs of sources; it knows nobody who asks.

    Attributes:
        first: What comes before the model's first graph break.
        bind: Makes one network ready.
    """

    def __init__(
        self, source: ModelSource, declared: Sequence[Sequence[int]], stores: Stores, behind: Stores, bind: Bind
    ) -> None:
        self._source, self._stores, self._behind, self.bind = source, stores, behind, bind
        self.first = FirstSegment(source, declared)

    def programs(self, source: Openable) -> Programs:
        """Return the programs of a source, of which there is no other."""
        return Programs(source, self._stores, self._behind, self.bind)

    def better(self, signature: Shapes, sizes: AnySize) -> Binding:
        """Build the whole network for a size that was asked for again, gently."""
        behind = self._behind
        request = self.of(signature, behind, sizes.bind_stored, sizes)
        return self.bind(request, behind, lambda: make_builder(behind.setup, behind, is_urgent=False))

    def of(self, signature: Shapes, stores: Stores, otherwise: Callable[[], Binding | None], sizes: AnySize) -> Wanted:
        """Return the request for the network, or its first segment, at one signature."""
        source = self._source
        types = {name: each for name, each in source.types(signature).items() if is_tensor(each)}
        read = Read(self.first, self.first.tensors(signature))
        key = stores.images.key(source.declaration.name, source.digest, types)
        return Wanted(key, read, lambda: source.edited, otherwise, sizes, cut=lambda: read(Clock()).follows)
