"""ProgramSource: a program with its weights, as the data path asks for it."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.backend.evaluate import evaluate
from opbuild.frontend.torch.builder import build_graph
from opbuild.frontend.torch.program import AtenProgram
from opbuild.graph.constants import array_digest
from opbuild.graph.types import Array, Graph
from opbuild.models.declaration import Declaration, Declared
from opbuild.platform.digest import blake3_of
from opbuild.platform.locks import lazy_property
from opbuild.report import Clock
from opbuild.runtime.binding import Shapes


class ProgramSource:
    """A program with its weights; see ``pipeline.opening.Openable``.

    Args:
        program: The program.
        frozen: The values of its frozen inputs.

    Attributes:
        keeps: Whether it is for several sizes; what it is read from stays in memory anyway.
    """

    edited = False

    def __init__(self, program: AtenProgram, frozen: Sequence[Array]) -> None:
        self.program = program
        self.frozen = frozen
        self.keeps = False

    @lazy_property
    def declaration(self) -> Declaration:
        """The declaration of the network: its name, and its inputs."""
        program = self.program
        inputs = tuple(
            Declared(program.inputs[index].name, kind.dtype, kind.shape)
            for index in program.given
            for kind in (program.declared(index),)
        )
        outputs = tuple(Declared(f"y{index}", "", None) for index in program.tensors)
        return Declaration(program.name, inputs, outputs, ())

    @lazy_property
    def digest(self) -> str:
        """Digest of the program and its weights."""
        return blake3_of("\n".join((self.program.digest, *map(array_digest, self.frozen))).encode())

    def graph(self, shapes: Shapes, clock: Clock) -> Graph:
        """Return the graph for the shapes of the program's inputs.

        Raises:
            ModelError: As ``build_graph``.
        """
        with clock("read"):
            return build_graph(self.program, shapes, self.frozen, evaluate)

    def forget(self) -> None:
        """Nothing is kept that the module does not have."""
