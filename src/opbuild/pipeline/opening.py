"""Opening: a model on its way to a template, from lowering it with open extents to what is kept of that.

The first network of a model is built together with the kernels that its template needs, so that the next size needs
nothing more; other templates are made on their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from opbuild.backend.evaluate import evaluate
from opbuild.errors import BuildError, OpbuildError
from opbuild.kernel.opdesc import OpDesc
from opbuild.pipeline.images import Declares
from opbuild.pipeline.loaded import LoadedKernels
from opbuild.pipeline.stages import Built
from opbuild.pipeline.steps import link_kernels, lowering_options, optimize_graph
from opbuild.pipeline.stores import Stores, make_builder
from opbuild.pipeline.templates import kernels_of_any_size, lower_open
from opbuild.program import Program
from opbuild.report import Clock
from opbuild.runtime.assembly import make_record
from opbuild.runtime.binding import Shapes
from opbuild.runtime.dynamic import DynamicNetwork
from opbuild.runtime.record import Record
from opbuild.runtime.reports import record_notes
from opbuild.runtime.symbolic import symbolic_of
from opbuild.runtime.weights import Constants, Packer, pack_constants

if TYPE_CHECKING:
    from opbuild.builder.build import Builder
    from opbuild.graph.types import Graph


T = TypeVar("T")


class Openable(Declares, Protocol):
    """A model, or a part of one, that can be lowered with open extents."""

    keeps: bool

    @property
    def edited(self) -> bool:
        """Whether it may no longer be what was read; raises ``ModelError`` if it surely is something else."""

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return its graph for the shapes of its inputs."""

    def forget(self) -> None:
        """Give back the memory of what it was read from."""


class Opening:
    """See the module. It lowers the model when it is made.

    Args:
        source: The model.
        stores: Where things are kept.
        declared: The shapes of the inputs, -1 where they are open.
        shapes: The size at hand.
        alike: Says which kernels are there or wanted; see ``kernels_of_any_size``.

    Attributes:
        kernels: Kernels that compute it at any size, with the nodes that need them.

    Raises:
        Exception: Any, from what does not know open extents: then each size is built as it is.
    """

    def __init__(
        self,
        source: Openable,
        stores: Stores,
        declared: Sequence[Sequence[int]],
        shapes: Shapes,
        alike: Callable[[OpDesc], Sequence[OpDesc]],
    ) -> None:
        self._source, self._stores, self._shapes = source, stores, shapes
        config = stores.setup.config

        def graph(opened: Shapes) -> Graph:
            return optimize_graph(source.graph(opened, Clock()), float32=config.forces_float32)

        program = lower_open(graph, declared, shapes, stores.setup.level, lowering_options(config))
        self._lowered: Program | None = program
        self._packed: tuple[Packer, Constants, Record] | None = None
        self._is_edited = True
        self.kernels = kernels_of_any_size(program, alike)

    def pack(self, packer: Packer) -> None:
        """Pack its constants, and make the record: what needs no kernel.

        Args:
            packer: What packs them; what it packed before is not packed again.
        """
        program, self._lowered = self._needed(self._lowered), None
        constants = pack_constants(program, packer)
        record = make_record(
            program,
            {},
            None,
            constant_of=constants.positions,
            constants=constants.places,
            notes=record_notes((), program.notes),
        )
        self._packed = packer, constants, record
        self._is_edited = self._source.edited  # which raises, before what is packed serves anybody

    def network(self, built: Built, kernels: LoadedKernels) -> DynamicNetwork:
        """Return the network as it is bound, which was tried at the size at hand.

        Args:
            built: Its kernels.
            kernels: Those among others.

        Raises:
            BuildError: If it lacks a kernel, or does not serve the size at which it was made.
        """
        lacking = [desc for desc in self.kernels if desc not in built.symbols]
        if lacking:
            raise BuildError(f"{lacking[0].op_type} for any size was not built")
        _, constants, record = self._needed(self._packed)
        images = self._stores.images
        network = DynamicNetwork(record, constants.arrays, evaluate, images.blocks)
        if network.bind(self._shapes, kernels.decide, len(kernels)) is None:
            raise BuildError("a record for several sizes does not serve the one at which it was made")
        return network

    def keep(self, number: int, built: Built) -> None:
        """Store the record, the ``number``-th of the model, if it is what its key says.

        Args:
            number: Counted from 0.
            built: The kernels that are stored with it.
        """
        images = self._stores.images
        if not built.certain or self._is_edited:
            return
        packer, constants, record = self._needed(self._packed)
        images.keep_open(images.open_key(self._source, number), record, built, constants, packer)

    def build(self, new_builder: Callable[[], Builder]) -> Built:
        """Build its kernels, and link those for the size at hand that are there already.

        Raises:
            BuildError: If that is not possible.
        """
        setup, record = self._stores.setup, self._needed(self._packed)[2]
        with new_builder() as builder:
            own = dict.fromkeys((each.desc for each in symbolic_of(record).decided), ())
            there = {job.desc: () for job in builder.plan(own) if not job.must_compile}
            result = builder.build({**there, **self.kernels}, record.name, setup.find_linker)
            self._stores.count(result)
            return link_kernels(result, setup)

    def _needed(self, step: T | None) -> T:
        if step is None:
            raise BuildError("a template is made in another order", "this is an error in opbuild; please report it")
        return step


def build_for_other_sizes(
    descs: Iterable[OpDesc], later: Iterable[Openable], shapes: Shapes, stores: Stores, name: str
) -> None:
    """Build the kernels without limits that compute what some kernels do at any size; nobody waits for them.

    Args:
        descs: The kernels.
        later: What will be asked for at other sizes, as far as that can be guessed; what it needs is built too.
        shapes: The size at hand.
        stores: Where they are kept.
        name: The network's name.
    """
    from opbuild.families.catalogue import find

    wanted: dict[OpDesc, tuple[str, ...]] = {find(desc.family).without_limits(desc): () for desc in descs}
    for each in later:
        declared = [given.shape or () for given in each.declaration.inputs]
        with suppress(Exception):  # a guess may be anything
            wanted |= Opening(each, stores, declared, shapes, lambda _: ()).kernels
    with suppress(OpbuildError), make_builder(stores.setup, stores, is_urgent=False) as builder:
        stores.count(builder.build(wanted, name))
