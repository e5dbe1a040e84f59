"""Program: operators of ATen in order, as plain data; a part of a torch module before its sizes are known."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Literal

from opbuild.graph.types import TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.platform.digest import blake3_of
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.canonical import canonical_json

Kind = Literal["tensor", "frozen", "size"]


class Ref(NamedTuple):
    """An argument that an input or an earlier step gives."""

    name: str


class Input(NamedTuple):
    """An input of a program.

    Attributes:
        name: Its name.
        kind: ``tensor``; ``frozen``: a tensor that is a constant of the network; ``size``: an integer.
        type: Its type, -1 for open extents; that of a size is not used.
        order: Its dimensions from the one that is outermost in memory to the innermost.
        place: Where the value of a size stands: an input and its dimension; None if no tensor has it as an extent.
    """

    name: str
    kind: Kind
    type: TensorType
    order: tuple[int, ...] = ()
    place: tuple[int, int] | None = None


class AtenStep(NamedTuple):
    """One operator.

    Attributes:
        target: An overload such as ``aten.add.Tensor``, or a function of integers such as ``sym.mul``.
        name: Its name, which is that of its result.
        args: Arguments: references, numbers, texts, element types by numpy's names, lists of these, None.
        kwargs: Arguments by name.
        types: The types of its results, -1 for open extents; None for results that are no tensors.
    """

    target: str
    name: str
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    types: tuple[TensorType | None, ...]


class Output(NamedTuple):
    """A result of a program.

    Attributes:
        name: The input or step that gives it.
        is_size: Whether it is an integer.
        order: Its dimensions from the one that is to be outermost in memory to the innermost.
    """

    name: str
    is_size: bool
    order: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False)
class AtenProgram:
    """Operators of ATen in order.

    Attributes:
        name: The network's name.
        inputs: What it is given.
        steps: Its operators.
        outputs: What it gives.
        updates: Outputs that replace inputs, as pairs of positions, an output's and an input's, of equal types that lie
            in one order; see ``Graph.updates``.
    """

    name: str
    inputs: tuple[Input, ...]
    steps: tuple[AtenStep, ...]
    outputs: tuple[Output, ...]
    updates: tuple[tuple[int, int], ...] = ()

    @lazy_property
    def digest(self) -> str:
        """Digest of all that decides its results, but the values of its inputs."""
        parts = [self.name, self.inputs, self.steps, self.outputs, *[self.updates] * bool(self.updates)]
        return blake3_of(canonical_json(plain(parts)).encode())

    @property
    def operators(self) -> list[str]:
        """The names of its operators, without the arithmetic of sizes."""
        return [step.target for step in self.steps if not step.target.startswith("sym.")]

    @lazy_property
    def given(self) -> tuple[int, ...]:
        """Positions of the inputs that the network has: tensors, and sizes that no tensor's extent tells."""
        given = (each.kind == "tensor" or (each.kind == "size" and each.place is None) for each in self.inputs)
        return tuple(index for index, is_given in enumerate(given) if is_given)

    @lazy_property
    def frozen(self) -> tuple[int, ...]:
        """Positions of the inputs that are constants of the network."""
        return tuple(index for index, each in enumerate(self.inputs) if each.kind == "frozen")

    @lazy_property
    def tensors(self) -> tuple[int, ...]:
        """Positions of the outputs that are tensors."""
        return tuple(index for index, each in enumerate(self.outputs) if not each.is_size)

    @lazy_property
    def is_open(self) -> bool:
        """Whether sizes of its inputs are open."""
        return any(each.kind == "size" or FREE in each.type.shape for each in self.inputs)

    def thawed(self, positions: Collection[int]) -> AtenProgram:
        """Return the same program with some of its constants, by their positions, as tensors that it is given."""
        inputs = tuple(
            each._replace(kind="tensor") if index in positions else each for index, each in enumerate(self.inputs)
        )
        return AtenProgram(self.name, inputs, self.steps, self.outputs, self.updates)

    def declared(self, index: int) -> TensorType:
        """Return the type of an input as the network has it: its dimensions as they lie in memory.

        A size is the first extent of a tensor without elements, less the second one, so that it may be open as every
        extent may.
        """
        each = self.inputs[index]
        if each.kind == "size":
            return TensorType("uint8", (FREE, FREE, 0))
        return TensorType(each.type.dtype, tuple(each.type.shape[axis] for axis in each.order))


def size_shape(size: int) -> tuple[int, int, int]:
    """Return the shape of the tensor that stands for a size; see ``AtenProgram.declared``."""
    return max(size, 0), max(-size, 0), 0


def floats_in_doubles(program: AtenProgram) -> list[int]:
    """Return the inputs whose digits beyond float32 would be seen, if they were floats of Python's.

    Those are declared as float32 and handed over as float64; only a program that computes float64 would tell.
    """
    if not any(each is not None and each.dtype == "float64" for step in program.steps for each in step.types):
        return []
    types = [(index, program.inputs[index].type) for index in program.given if program.inputs[index].kind == "tensor"]
    return [index for index, each in types if each.dtype == "float32" and not each.shape]


def refs(value: Any) -> Sequence[str]:
    """Return the names that an argument refers to."""
    if isinstance(value, Ref):
        return (value.name,)
    if isinstance(value, Mapping):
        return [name for each in value.values() for name in refs(each)]
    return [name for each in value for name in refs(each)] if isinstance(value, (list, tuple)) else ()


def plain(value: Any, other: Callable[[Any], Any] = lambda value: value) -> Any:
    """Return a part of a program as plain JSON, in which each value has one form; ``other`` returns that of others."""
    if isinstance(value, Ref):
        return {"ref": value.name}
    if isinstance(value, TensorType):
        return [value.dtype, *value.shape]
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, Mapping):
        return {"map": {str(name): plain(each, other) for name, each in value.items()}}
    return [plain(each, other) for each in value] if isinstance(value, (list, tuple)) else other(value)


def from_plain(found: Any, other: Callable[[str, Any], Any], sequence: Callable[[Any], Any] = tuple) -> Any:
    """Return the argument that ``plain`` wrote.

    ``other`` returns what a kind of value stands for that is neither a number nor a mapping.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: If it is something else.
    """
    if isinstance(found, list):
        return sequence(from_plain(each, other, sequence) for each in found)
    if not isinstance(found, dict):
        return found
    ((kind, value),) = found.items()
    if kind == "float":
        return float.fromhex(value)
    if kind == "map":
        return {name: from_plain(each, other, sequence) for name, each in value.items()}
    return other(kind, value)


def program_to_json(program: AtenProgram) -> Any:
    """Return a program as plain JSON."""
    return plain([program.name, program.inputs, program.steps, program.outputs])


def program_from_json(found: Any) -> AtenProgram:
    """Return the program that ``program_to_json`` wrote.

    Raises:
        ValueError, TypeError, LookupError: If it is something else.
    """
    name, inputs, steps, outputs = found
    results = tuple(Output(str(output), bool(is_size), tuple(order)) for output, is_size, order in outputs)
    return AtenProgram(str(name), tuple(map(_input, inputs)), tuple(map(_step, steps)), results)


def _type(found: Sequence[Any]) -> TensorType:
    return TensorType(str(found[0]), tuple(map(int, found[1:])))


def _input(found: Sequence[Any]) -> Input:
    name, kind, type_, order, place = found
    if kind not in ("tensor", "frozen", "size"):
        raise ValueError(f"there is no input of kind {kind!r}")
    return Input(str(name), kind, _type(type_), tuple(order), None if place is None else (place[0], place[1]))


def _step(found: Sequence[Any]) -> AtenStep:
    target, name, args, kwargs, types = found
    kinds = tuple(None if each is None else _type(each) for each in types)
    return AtenStep(str(target), str(name), from_plain(args, _ref), from_plain(kwargs, _ref), kinds)


def _ref(kind: str, value: Any) -> Ref:
    if kind != "ref":
        raise ValueError(f"there is no value of kind {kind!r}")
    return Ref(value)
