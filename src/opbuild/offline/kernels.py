"""The kernels of a model at a size, and of its other sizes: what warming builds together, and packing packs.

Of a network in segments they are those of the segments to which made-up values lead (``dry_run``), at the sizes at
which these are met, and those that compute a segment at any size, since data decide it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from opbuild.families.catalogue import find
from opbuild.graph.types import DTYPES
from opbuild.kernel.free import FREE
from opbuild.offline.dry_run import dry_run
from opbuild.offline.ranges import Search
from opbuild.pipeline.source import FirstSegment
from opbuild.platform.records import NamedTuple
from opbuild.report import Clock

if TYPE_CHECKING:
    from opbuild.frontend.models.source import ModelSource
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.runtime.binding import Shapes
    from opbuild.session import Session


class ModelKernels(NamedTuple):
    """The kernels of a model.

    Attributes:
        own: Those for a size, and of its program for others if there may be any, each with the nodes that need it.
        behind: Those of later segments.
        are_all: Whether no later segment is unknown.
    """

    own: Mapping[OpDesc, tuple[str, ...]]
    behind: Mapping[OpDesc, tuple[str, ...]]
    are_all: bool = True

    @property
    def all(self) -> dict[OpDesc, tuple[str, ...]]:
        """All of them."""
        return {**self.own, **self.behind}


def kernels_of(source: ModelSource, signature: Shapes, session: Session) -> ModelKernels:
    """Return the kernels of a model at a size.

    Raises:
        ModelError: If it is not valid for the size.
    """
    source.keeps = True
    walked, own = source.walk(signature, Clock()), Search(session)
    own.add(session.plan([walked.graph], Clock()).kernels, {})
    declared = [
        (FREE,) * len(shape) if known is None else known
        for known, shape in zip(source.declaration.shapes, signature, strict=True)
    ]
    first = FirstSegment(source, declared)
    if source.declaration.is_open:
        with suppress(Exception):  # from what does not know symbolic extents
            own.segment(first, [first.tensors(signature)])
    if walked.follows is None:
        return ModelKernels(own.kernels, {})
    if any(each.dtype not in DTYPES for each in source.declaration.inputs):  # nobody makes up texts
        return ModelKernels(own.kernels, {}, are_all=False)
    behind = Search(session)
    for each in dry_run(source, first, [signature])[1:]:
        if each.breaks:
            behind.segment(each.source, [*each.breaks])
    return ModelKernels(own.kernels, behind.kernels | without_limits(behind.kernels))


def without_limits(kernels: Mapping[OpDesc, tuple[str, ...]]) -> dict[OpDesc, tuple[str, ...]]:
    """Return the kernels that compute at any size in place of others."""
    return {find(desc.family).without_limits(desc): nodes for desc, nodes in kernels.items()}
