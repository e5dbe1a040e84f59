"""What makes a model ready for each input signature: whole, in parts, or at any size by numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING

from opbuild.kernel.free import FREE
from opbuild.models.source import ModelSource
from opbuild.pipeline.any_size import AnySize
from opbuild.pipeline.images import Wanted
from opbuild.pipeline.part_sizes import PartSource
from opbuild.pipeline.parts import PartBinder
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.runtime.binding import Binding, Bound, Shapes
from opbuild.runtime.endpoint import Endpoint

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from opbuild.builder.build import Builder

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
        self._source = source
        behind = stores.behind(executor if waits else None)
        declared = [(FREE,) * len(each.shape) if each.name in any_shape else each.shape for each in inputs]

        def first(wanted: Wanted) -> Binding:
            return bind(wanted, stores, first_builder)

        def gently(wanted: Wanted) -> Binding:
            return bind(wanted, behind, lambda: make_builder(behind.setup, behind, is_urgent=False))

        def later(wanted: Wanted) -> Binding:
            """Bind a part behind a cut; most need nothing that is not there, and no compile server."""
            return bind(wanted, stores, lambda: make_builder(stores.setup, stores))

        def new_sizes(part: PartSource, declared: Sequence[Sequence[int]]) -> AnySize:
            return AnySize(part, behind, declared, lambda: make_builder(behind.setup, behind), is_open=True)

        self._sizes = AnySize(
            source,
            behind,
            declared,
            lambda: make_builder(behind.setup, behind),
            PartBinder(source, behind.images, gently, gently, new_sizes).first,
            is_open=is_open or (waits and source.declaration.is_open),
        )
        self._parts = PartBinder(source, stores.images, first, later, new_sizes)

    def bind(self, signature: Shapes) -> Bound:
        """Make the model ready for one signature."""
        try:
            bound: Bound | None = self._sizes.bind(signature)
            if bound is not None:
                return bound
            bound = self._parts.first(signature, self._sizes)
            self._source.remember()  # also what was stored before: that build may have been killed
        finally:
            self._source.release()
        self._sizes.begin(signature, bound)
        return bound

    def wait(self) -> None:
        """Wait until what serves further sizes is there."""
        self._sizes.wait()
