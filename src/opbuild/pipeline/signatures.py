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
from opbuild.pipeline.segments import SegmentBinder
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
        self._source, self._stores, self._behind, self._bind = source, stores, stores.behind(), bind
        if waits:
            self._behind = stores.behind(executor)
        self._first_builder = first_builder
        behind = self._behind
        declared = [(FREE,) * len(each.shape) if each.name in any_shape else each.shape for each in inputs]
        self._sizes = AnySize(
            source,
            behind,
            declared,
            lambda: make_builder(behind.setup, behind),
            self._better,
            is_open=is_open or (waits and source.declaration.is_open),
        )
        self._segments = SegmentBinder(source, declared, self)
        self._first_segment = self.programs(self._segments.first)

    def bind(self, signature: Shapes) -> Bound:
        """Make the model ready for one signature."""
        try:
            bound = self._sizes.bind(signature)
            if bound is not None:
                return bound
            wanted = self._wanted(signature, self._stores, lambda: self._started(signature))
            first = self._bind(wanted, self._stores, self._first_builder)
            self._source.remember()  # also what was stored before: that build may have been killed
        finally:
            self._source.release()
        found = self._segments.bind(first, signature)
        self._sizes.begin(signature, found)
        return found

    def programs(self, source: Openable) -> Programs:
        """Return the programs of a source, of which there is no other."""
        return Programs(source, self._behind, self._bind_later)

    def _bind_later(self, wanted: Wanted, _: Stores, __: Callable[[], Builder]) -> Binding:
        stores = self._stores
        return self._bind(wanted, stores, lambda: make_builder(stores.setup, stores))

    def _better(self, signature: Shapes, sizes: AnySize) -> Bound:
        behind = self._behind
        wanted = self._wanted(signature, behind, sizes.bind_stored)
        return self._bind(wanted, behind, lambda: make_builder(behind.setup, behind, is_urgent=False))

    def _wanted(self, signature: Shapes, stores: Stores, otherwise: Callable[[], Binding | None]) -> Wanted:
        source = self._source
        types = {name: each for name, each in source.types(signature).items() if is_tensor(each)}
        read = Read(self._segments.first, self._segments.first.tensors(signature))
        return Wanted(
            stores.images.key(source.declaration.name, source.digest, types),
            read,
            lambda: source.edited,
            otherwise,
            self._sizes,
            cut=lambda: read(Clock()).follows,
        )

    def _started(self, signature: Shapes) -> Binding | None:
        """Return what is there of a network that is not stored for a signature, or its first segment; or None."""
        return self._sizes.bind_stored() or self._begun(signature)

    def _begun(self, signature: Shapes) -> Binding | None:
        """Return the first segment by numbers; None if the network has only one, or no extent is open."""
        first = self._segments.first
        shapes = first.tensors(signature)
        if not self._first_segment.is_open:
            return None
        bound = self._first_segment.bind_stored(shapes)
        if bound is not None or first.walk(shapes, Clock()).cut is None:
            return bound
        return self._first_segment.bind(shapes)

    def wait(self) -> None:
        """Wait until what serves further sizes is there."""
        self._sizes.wait()
