"""The values that the stages of the data path hand each other: ``Planned -> Packed, Built -> Assembled``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from opbuild.errors import UnsupportedOperatorError
from opbuild.graph.breaks import GraphBreak
from opbuild.graph.types import Graph, Node
from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.records import dataclass, field, replace
from opbuild.program import HostCall, Program
from opbuild.report import OperatorReport

if TYPE_CHECKING:
    from opbuild.kernel.networks import Answers
    from opbuild.runtime.memory_plan import MemoryPlan
    from opbuild.runtime.record import Record
    from opbuild.runtime.weights import PackedConstants


@dataclass(frozen=True)
class HostNode:
    """A node that runs without a kernel, and why none serves it."""

    node: Node
    why: str

    @property
    def portable(self) -> bool:
        """Whether it runs where the onnx package is not installed."""
        from opbuild.backend.host.evaluate import is_native

        return is_native(self.node)


@dataclass(frozen=True, eq=False)
class Planned:
    """The graphs, programs and kernels that a model needs, before anything is compiled.

    Attributes:
        graphs: The optimized graph of each program.
        programs: A program for each input signature.
        kernels: The distinct kernels, each with the nodes that need it.
        host: The nodes that no kernel serves, by name.
    """

    graphs: tuple[Graph, ...]
    programs: tuple[Program, ...]
    kernels: Mapping[OpDesc, tuple[str, ...]]
    host: Mapping[str, HostNode]

    @property
    def name(self) -> str:
        """The network's name."""
        return self.programs[0].name


@dataclass(frozen=True, eq=False)
class PackedProgram:
    """A program with its constants packed and its memory planned, which is done while kernels are compiled.

    Attributes:
        program: The program.
        constants: Its constants.
        memory: Where its temporaries lie; None if it has symbolic extents: each size has its own plan.
    """

    program: Program
    constants: PackedConstants
    memory: MemoryPlan | None


@dataclass(frozen=True, eq=False)
class Built:
    """Kernels, compiled or found, and linked.

    Attributes:
        symbols: The symbol of each kernel.
        code: The kernels, linked, of each device; empty if there are none.
        operators: What became of each kernel.
        checked_order: Symbols of the kernels whose order of tasks is checked while they run.
        certain: Whether every kernel is what its key says; otherwise nothing made of them may be kept.
        warned: Whether the user was told that something cannot be stored.
        borrowed: How many of them are lower levels'.
        compiler: Digest of the compiler that made them; empty: the release brings all of them.
    """

    symbols: Mapping[OpDesc, str]
    code: bytes = b""
    operators: Mapping[OpDesc, OperatorReport] = field(default_factory=dict)
    checked_order: tuple[str, ...] = ()
    certain: bool = True
    warned: bool = False
    borrowed: int = 0
    compiler: str = ""

    @property
    def compiled(self) -> bool:
        """Whether anything was compiled."""
        return any(operator.status == "built" for operator in self.operators.values())


@dataclass(frozen=True, eq=False)
class Assembled:
    """A network for one input signature: to be run, stored, or written to a file.

    Attributes:
        record: How it runs.
        constants: Its packed constants.
        built: Its kernels, perhaps among others.
        operators: What became of its own kernels.
        answers: What families were asked for it, and the variants that were taken.
    """

    record: Record
    constants: PackedConstants
    built: Built
    operators: tuple[OperatorReport, ...]
    answers: Answers = ()

    def followed_by(self, follows: GraphBreak | None) -> Assembled:
        """Return it as a segment of a network, with the break behind it; itself if there is none."""
        return self if follows is None else replace(self, record=replace(self.record, follows=follows))


def planned(graphs: Sequence[Graph], programs: Sequence[Program]) -> Planned:
    """Return the needs of several programs together."""
    kernels: dict[OpDesc, tuple[str, ...]] = {}
    host: dict[str, HostNode] = {}
    for program in programs:
        host.update(host_nodes(program))
        for desc, nodes in program.descriptors().items():
            kernels[desc] = tuple(dict.fromkeys((*kernels.get(desc, ()), *nodes)))
    return Planned(tuple(graphs), tuple(programs), kernels, host)


def host_nodes(program: Program) -> dict[str, HostNode]:
    """Return the nodes of a program that no kernel serves, by name."""
    return {
        call.node.name: HostNode(
            call.node, str(program.notes.get(call.node.name, f"no kernel for {call.node.op_type}"))
        )
        for call in program.calls
        if isinstance(call, HostCall) and call.computes
    }


def require_portable(nodes: Iterable[HostNode]) -> None:
    """Refuse nodes that an offline model cannot have.

    Raises:
        UnsupportedOperatorError: If one runs only where the onnx package is; the message names all of them.
    """
    refused = [each.node for each in nodes if not each.portable]
    if refused:
        names = ", ".join(sorted({f"{node.op_type} ({node.name})" for node in refused}))
        raise UnsupportedOperatorError(
            f"these operators have no kernel and run only where the onnx package is installed: {names}",
            "an offline model cannot have them: use opbuild.compile, or replace them in the model",
            command="an offline model cannot have them: use opbuild run or build, or replace them in the model",
        )
