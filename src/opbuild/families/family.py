"""Family: a kernel family as lowering and the builder know it; nothing of any compiler.

A family computes one thing in several *variants*. ``choose`` returns the variant that is fastest for given extents, and
``describe`` the descriptor of one with the extents for which it is legal; each family writes both for its own operands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import log2, prod
from typing import Any, Protocol

from opbuild.dtypes import itemsize
from opbuild.kernel.opdesc import FREE, HIGH_PERFORMANCE, Dim, OpDesc, Operand
from opbuild.platform.records import NamedTuple, dataclass, field, replace
from opbuild.target.level import CPU
from opbuild.target.machine import Machine

Variant = dict[str, Any]
"""How a kernel computes: what ``OpDesc.variant`` holds."""

FLOATS, INTEGERS = ("float32", "float64"), ("int32", "int64")

ANY_RANK = 6
"""Rank of the kernels that serve every lower rank, of families for which dimensions of one element may be added."""


Choose = Callable[..., Any]
"""Returns what a family chooses for the extents that follow it, given what it must know of the machine."""


def first_of(candidates: Callable[..., Sequence[Any]]) -> Callable[..., Any]:
    """Return the ``choose`` of a family that takes the first of the variants among which tuning searches."""
    return lambda *extents: candidates(*extents)[0]


def for_machine(machine: Machine) -> Choose:
    """Return a function that chooses variants for a machine."""
    return lambda family, *extents: family.choose(*extents, machine)


@dataclass(frozen=True)
class VariantPart:
    """A part of a family's variants.

    Attributes:
        least: Its value in the variant that is legal for every extent, or what returns it for the attributes; None for
            a part that sets no limit: it stays as it is.
        lacking: What it costs to run a kernel without it, in powers of two of the time, nearly.
        milliseconds: What compiling takes more with it.
        is_extra: Whether only some variants have it, of which none is legal for every extent.
    """

    least: Any = None
    lacking: float = 0.5
    milliseconds: int = 0
    is_extra: bool = False


_PLAIN = VariantPart()


def only_variant(_machine: Machine) -> Variant:
    """Return the variant of a family that has one."""
    return {}


def lanes_of_row(row: int, machine: Machine) -> Variant:
    """Return the variant that takes a vector of the elements of a row side by side, or one where there are too few.

    Of a level's own lanes: two registers, 16 on AVX2, take 1.05 to 1.5 times as long (CumSum, ArgMax).
    """
    return {"lanes": machine.lanes if row >= machine.lanes else 1}


def _of_rank(dims: Sequence[Dim], rank: int) -> tuple[Dim, ...]:
    """Return dimensions, with further ones outside up to a number of them."""
    return (*dims, *(Dim() for _ in range(rank - len(dims))))


def _unchanged(_desc: OpDesc, _operand: Operand, _number: int, dim: Dim) -> Dim:
    return dim


def without_multiples(_desc: OpDesc, _operand: Operand, _number: int, dim: Dim) -> Dim:
    """Return a dimension of any extent that its least and greatest one allow, of ``opened`` kernels."""
    return replace(dim, multiple=1)


Dims = Sequence[tuple[int, int]]
"""Extents and strides of an operand, innermost first."""


def rounded(rounds: str) -> tuple[tuple[str, ...], Variant]:
    """Return the operator types and the attribute of kernels that round results to a type of 16 bits; none if empty."""
    return (("Cast",), {"rounds": rounds}) if rounds else ((), {})


def zeroed(zeros: str) -> Variant:
    """Return the attribute of kernels with weights that are 0 instead of NaN; none if empty."""
    return {"zeros": zeros} if zeros else {}


BYTES = 64
"""Bytes that one core moves in a nanosecond where most lie in its second-level cache (100 to
200 GB/s there, 40 in memory)."""


def elements(dims: Dims) -> int:
    """Return the elements of an operand of these extents."""
    return prod(extent for extent, _ in dims)


Count = Callable[[Sequence[Dims], Dims], int]
"""Returns the multiplications of a call, given its operands and the first that it writes."""


def products_of(first: int, last: int) -> Count:
    """Return the count of a convolution: an output has the taps and channels that its weights' dimensions hold."""
    return lambda dims, out: elements(out) * elements(dims[1][first:last])


def products_of_rows(dims: Sequence[Dims], out: Dims) -> int:
    """Return the multiplications of a product of matrices: an output has a row of the left operand."""
    return elements(out) * dims[0][0][0]


def products_of_images(dims: Sequence[Dims], out: Dims) -> int:
    """Return the multiplications of a gradient of weights: an element has all positions of all images."""
    return elements(out) * elements((*dims[0][1:3], dims[0][4]))


def moved_bytes(desc: OpDesc, shapes: Sequence[Dims], _machine: Machine) -> float:
    """Return the nanoseconds that one core takes to read and write all operands: the work of mere movement."""
    return (
        sum(
            prod(extent for extent, stride in dims if stride) * itemsize(operand.dtype)
            for operand, dims in zip(desc.operands, shapes, strict=True)
        )
        / BYTES
    )


def moving(times: float) -> Callable[[OpDesc, Sequence[Dims], Machine], float]:
    """Return the ``work`` of a family that takes so many times as long as reading and writing all operands."""
    return lambda desc, shapes, machine: times * moved_bytes(desc, shapes, machine)


@dataclass(frozen=True, eq=False)
class Family:
    """A kernel family.

    Attributes:
        name: Its name, which is its folder's.
        choose: Returns the variant for extents and a machine; None where another family is faster.
        attributes: Names of the attributes that say what it computes; one that has ``epilogue`` takes one.
        variant: The parts of its variants by name.
        types: Element types of its first operand; empty if it takes any.
        implied: Attributes that all its kernels have, so that descriptors need not say them.
        milliseconds: What compiling takes on one core, roughly; only the order matters.
        least_extent: Least extent in the variant without limits, of dimensions that have a limit in others.
        any_stride: Whether single elements may lie at any distance.
        any_rank: Whether all operands have the same dimensions, so that some of one element may be added.
        opened: Returns one dimension of an operand without limits, from the one that was found by these rules.
        work: Returns the nanoseconds that a call takes on one core, roughly, for its operands' extents and strides.
        candidates: Takes what ``choose`` takes and returns the answers among which tuning searches, those first that
            are likely to be fast: each is legal for these extents, and None leaves them to other families. Without it
            there is nothing to tune. Only these are believed of a database.
        products: Counts the multiplications with additions of a call, as the direct algorithm computes it; None where
            reports count none.
        is_certain: Whether its kernels take no memory, so that no call can fail.
        overwrites: Whether a call may write where it reads, if no vector (``width`` of its variant) of a row overlaps
            another one: each element is read before it is written, and once.
        updates: Whether a call changes a part of what its output holds, so that this must be there before.
    """

    name: str
    choose: Callable[..., Variant | None]
    attributes: tuple[str, ...] = ()
    variant: Mapping[str, VariantPart] = field(default_factory=dict)
    types: tuple[str, ...] = ()
    implied: Mapping[str, Any] = field(default_factory=dict)
    milliseconds: int = 55
    least_extent: int = 0
    any_stride: bool = False
    any_rank: bool = False
    opened: Callable[[OpDesc, Operand, int, Dim], Dim] = _unchanged
    work: Callable[[OpDesc, Sequence[Dims], Machine], float] = moved_bytes
    candidates: Callable[..., Sequence[Variant | None]] | None = None
    products: Count | None = None
    is_certain: bool = False
    overwrites: bool = False
    updates: bool = False

    def desc(
        self,
        op_types: tuple[str, ...],
        inputs: tuple[Operand, ...],
        outputs: tuple[Operand, ...],
        attrs: Mapping[str, Any],
        variant: Variant,
        impl_mode: str = HIGH_PERFORMANCE,
        source: str = "",
    ) -> OpDesc:
        """Return a descriptor of this family; the arguments are those of ``OpDesc``.

        Raises:
            AssertionError: If the family has no such attribute, or no such part of a variant.
        """
        unknown = (attrs.keys() - set(self.attributes)) | (variant.keys() - self.variant.keys())
        if unknown:
            raise AssertionError(f"the family {self.name} has no {', '.join(sorted(unknown))}")
        return OpDesc(op_types, self.name, inputs, outputs, attrs, variant, impl_mode, source)

    def without_limits(self, desc: OpDesc) -> OpDesc:
        """Return the variant of a kernel that is legal for every extent that its operator can have.

        A device's kernels are as they are: their limits hold at every size of a call, or they have none.
        """
        if desc.device != CPU:
            return desc
        least = {
            name: self._least_size(desc, name, value)
            for name, value in desc.variant.items()
            if not self.variant.get(name, _PLAIN).is_extra
        }
        return replace(
            desc,
            inputs=tuple(self._open(desc, operand) for operand in desc.inputs),
            outputs=tuple(self._open(desc, operand) for operand in desc.outputs),
            variant=least,
        )

    def more_general(self, desc: OpDesc) -> tuple[OpDesc, ...]:
        """Return kernels that compute wherever one does, the fastest first: for more dimensions, and for any extent.

        Their operands have no fewer dimensions: views get some of one element.
        """
        plain = self.without_limits(desc)
        if not self.any_rank:
            return (plain,)
        inputs, outputs = (
            tuple(replace(each, dims=_of_rank(each.dims, ANY_RANK)) for each in operands)
            for operands in (desc.inputs, desc.outputs)
        )
        return replace(desc, inputs=inputs, outputs=outputs), plain

    def distance(self, wanted: OpDesc, other: OpDesc) -> float:
        """Return the distance of another variant: the likely loss of time, in powers of two."""
        total = 0.0
        for name in sorted({*wanted.variant, *other.variant}):
            values: list[Any] = [wanted.variant.get(name), other.variant.get(name)]
            if values[0] == values[1]:
                continue
            if any(isinstance(value, (bool, str)) or value is None for value in values):
                lacking = self.variant.get(name, _PLAIN).lacking
                total += lacking if values[0] else lacking / 4
            else:
                one, two = (log2(max(value, 0.5)) for value in values)
                total += abs(one - two)
        return total

    def cost(self, desc: OpDesc) -> int:
        """Return the time that compiling a kernel takes on one core, in milliseconds, roughly."""
        parts = (part.milliseconds for name, part in self.variant.items() if desc.variant.get(name))
        return self.milliseconds + sum(parts)

    def _least_size(self, desc: OpDesc, name: str, value: Any) -> Any:
        least = self.variant.get(name, _PLAIN).least
        if callable(least):
            return least(desc.attrs)
        return value if least is None else least

    def _open(self, desc: OpDesc, operand: Operand) -> Operand:
        dims = [self._opened(desc, operand, number) for number in range(len(operand.dims))]
        return replace(operand, dims=_of_rank(dims, ANY_RANK) if self.any_rank else tuple(dims))

    def _opened(self, desc: OpDesc, operand: Operand, number: int) -> Dim:
        dim = operand.dims[number]
        if dim.min > 1:
            dim = replace(dim, min=self.least_extent)
        if self.any_stride and (number == 0 or self.any_rank) and operand.format != "NC1HWC0":
            dim = replace(dim, stride=FREE)
        return self.opened(desc, operand, number, dim)


class TuningQuery(NamedTuple):
    """A query of a family's choice: one distinct call of a network, as far as its variant depends on it.

    Attributes:
        family: The family's name.
        arguments: What its ``choose`` is called with but for the machine, as canonical JSON.
    """

    family: str
    arguments: str


class TunedVariant(NamedTuple):
    """The answer of a tuning database.

    Attributes:
        variant: The variant; None: another family.
        origin: Where it is from, for readers.
        is_shipped: Whether the release's database says so.
    """

    variant: Variant | None
    origin: str
    is_shipped: bool = False


class TuningSource(Protocol):
    """The results of tuning."""

    def answers(self, query: TuningQuery, default: Variant | None) -> Iterable[TunedVariant]:
        """Return the variants known to be faster than ``default``, the family's own answer, the best known first."""
