"""Programs: what binds a source to the shapes of its inputs, lowered with open extents where that is possible."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from opbuild.graph.types import TensorType
from opbuild.kernel.free import FREE
from opbuild.pipeline.any_size import AnySize
from opbuild.pipeline.images import Wanted
from opbuild.pipeline.opening import Openable
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.report import Clock
from opbuild.runtime.binding import Binding, Shapes

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.graph.types import Graph

MOST_STORED = 32
"""Sizes of a source that are stored alone, where it can not be lowered with open extents: one whose values have a new
shape at each call would otherwise fill the folder."""


class Programs:
    """See the module.

    Args:
        source: What is bound.
        stores: Where things are kept.
        behind: The same, of what nobody waits for.
        bind: Starts what is stored of one network, or builds it.

    Attributes:
        is_open: Whether any extent of its inputs is open.
    """

    def __init__(
        self,
        source: Openable,
        stores: Stores,
        behind: Stores,
        bind: Callable[[Wanted, Stores, Callable[[], Builder]], Binding],
    ) -> None:
        declared = [each.shape or () for each in source.declaration.inputs]
        self._source, self._stores, self._bind, self._fixed = source, stores, bind, 0
        self.is_open = any(FREE in shape for shape in declared)
        self._sizes = AnySize(source, behind, declared, lambda: make_builder(behind.setup, behind), is_open=True)

    def bind_stored(self, shapes: Shapes) -> Binding | None:
        """Return the network for some shapes by a program that is there or stored; None if there is none."""
        return self._sizes.bind_there(shapes) if self.is_open else None

    def bind(self, shapes: Shapes) -> Binding:
        """Return the network for some shapes: by a program whose conditions hold, else by a further one.

        Raises:
            ModelError, BuildError: If there can be none.
        """
        bound = self._sizes.bind_any(shapes) if self.is_open and not self._stores.setup.debug.active else None
        return bound or self._bound_alone(shapes)

    def _bound_alone(self, shapes: Shapes) -> Binding:
        self._fixed += 1
        source, stores = self._source, self._stores
        inputs = zip(source.declaration.inputs, shapes, strict=True)
        types = {name: TensorType(dtype, shape) for (name, dtype, _), shape in inputs}
        key = stores.images.key(source.declaration.name, source.digest, types) if self._fixed <= MOST_STORED else None
        read = Read(source, shapes)
        wanted = Wanted(key, read, lambda: source.edited, cut=lambda: read(Clock()).follows)
        bound = self._bind(wanted, stores, lambda: make_builder(stores.setup, stores))
        return bound._replace(is_new=True)


class Read:
    """A graph of a source, read when it is first needed."""

    def __init__(self, source: Openable, shapes: Shapes) -> None:
        self._source, self._shapes = source, shapes
        self._found: Graph | None = None

    def __call__(self, clock: Clock) -> Graph:
        """Return it."""
        if self._found is None:
            self._found = self._source.graph(self._shapes, clock)
        return self._found
