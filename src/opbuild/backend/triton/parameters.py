"""Parameters of kernels whose text is made for a descriptor: each is there because the text mentions it.

A stride that the descriptor states is a number in the text: what is repeated, by a stride of 0, is not even indexed.
"""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument
from opbuild.kernel.opdesc import FREE, OpDesc
from opbuild.platform.records import NamedTuple


class Index(NamedTuple):
    """The places of a tile along one dimension of an operand.

    Attributes:
        places: An expression of them, in 64 bits, in the tile's shape but for other dimensions, which have 1.
        inside: An expression of which of them are inside; empty if all are.
    """

    places: str
    inside: str = ""


class KernelParameters:
    """The parameters of a kernel, in the order in which its text first mentions them.

    Args:
        desc: The kernel's descriptor.

    Attributes:
        arguments: What each parameter is.
    """

    def __init__(self, desc: OpDesc) -> None:
        self._operands = desc.operands
        self.arguments: dict[str, Argument] = {}

    def extent(self, number: int, dim: int) -> str:
        """Return the extent of an operand's dimension; operands and dimensions are counted as in the descriptor."""
        return self._named(f"{self._operands[number].name}_extent{dim}", Argument(EXTENT, number, dim))

    def stride(self, number: int, dim: int) -> str:
        """Return a stride, by its number if the descriptor has it."""
        known = self._operands[number].dims[dim].stride
        if known != FREE:
            return str(known)
        return self._named(f"{self._operands[number].name}_stride{dim}", Argument(STRIDE, number, dim))

    def place(self, number: int, indices: Sequence[str]) -> str:
        """Return the address of elements of an operand, by an index for each of its first dimensions."""
        terms = [self._named(self._operands[number].name, Argument(ADDRESS, number))]
        for dim, index in enumerate(indices):
            stride = self.stride(number, dim)
            if index and stride != "0":
                terms.append(index if stride == "1" else f"{index} * {stride}")
        return " + ".join(terms)

    def load(self, number: int, indices: Sequence[Index]) -> str:
        """Return the text that reads elements of an operand, 0 instead of those outside."""
        dims = self._operands[number].dims
        guards = [index.inside for index, dim in zip(indices, dims, strict=True) if index.inside and dim.stride != 0]
        mask = f", mask={' & '.join(guards)}, other=0" if guards else ""
        return f"tl.load({self.place(number, [index.places for index in indices])}{mask})"

    def store(self, number: int, indices: Sequence[Index], value: str) -> str:
        """Return the text that writes a value to elements of an operand, but for those outside."""
        guards = [index.inside for index in indices if index.inside]
        mask = f", mask={' & '.join(guards)}" if guards else ""
        return f"tl.store({self.place(number, [index.places for index in indices])}, {value}{mask})"

    def of(self, number: int) -> list[str]:
        """Return the address and the strides of an operand that are parameters."""
        found = self.arguments.items()
        return [name for name, (kind, operand, _) in found if operand == number and kind != EXTENT]

    def _named(self, name: str, argument: Argument) -> str:
        self.arguments.setdefault(name, argument)
        return name
