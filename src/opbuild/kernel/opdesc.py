"""OpDesc: everything that decides an operator's code, and nothing else.

Two calls with equal descriptors can be served by the same object file. A descriptor therefore never holds names of
nodes, paths, weights' values, ranks, devices or times. Extents and strides that travel in the buffers are ``FREE``;
what is left as a number is compiled in. Each dimension states the extents for which the schedule is legal (``min``,
``max``, ``multiple``): kernels are compiled without checks, so ``OpDesc.check`` on the real views, once when a
signature is bound, is what keeps an extent below a tile from writing outside a buffer.

The compiler's runtime library has one too (``runtime_desc``), for objects that call more of it than a network has by
itself: those with checks or messages, to be debugged. It is compiled by the same compiler for the same level, and
stored and keyed like an operator, but it is nobody's operator: it has no operands and no kernel symbol, and networks
link it once beside all their kernels.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from opbuild.kernel.free import FREE
from opbuild.platform.records import dataclass, field
from opbuild.target.level import CPU
from opbuild.text.canonical import canonical_json

__all__ = ["FREE", "HIGH_PERFORMANCE", "HIGH_PRECISION", "Dim", "OpDesc", "Operand"]

HIGH_PERFORMANCE, HIGH_PRECISION = "high_performance", "high_precision"
"""The implementation modes, by ATC's names."""


@dataclass(frozen=True)
class Dim:
    """One dimension of an operand, innermost first.

    Attributes:
        extent: Number of elements, or ``FREE``.
        stride: Distance between neighbours in elements, or ``FREE``.
        min: Least extent for which the schedule is legal (0: even an empty one).
        max: Greatest such extent, or ``FREE`` for no limit.
        multiple: The extent must be a multiple of this.
    """

    extent: int = FREE
    stride: int = FREE
    min: int = 0
    max: int = FREE
    multiple: int = 1

    def problem(self, extent: int, stride: int) -> str | None:
        """Return the reason that a real extent and stride do not fit this dimension, or None if they do."""
        if self.extent not in (FREE, extent):
            return f"extent {extent} is not {self.extent}"
        if self.stride not in (FREE, stride):
            return f"stride {stride} is not {self.stride}"
        if extent < self.min:
            return f"extent {extent} is below {self.min}"
        if self.max != FREE and extent > self.max:
            return f"extent {extent} is above {self.max}"
        if extent % self.multiple:
            return f"extent {extent} is not a multiple of {self.multiple}"
        return None


@dataclass(frozen=True)
class Operand:
    """One tensor argument of a kernel.

    Attributes:
        name: The argument's name in the definition, e.g. ``x``, ``w``, ``bias``.
        dtype: Element type, a numpy name (``bool`` is one byte).
        dims: Dimensions, innermost first.
        format: The layout's name as ``.info`` shows it: ``ND``, ``NCHW``, ``NC1HWC0``, ``FRACTAL_Z``.
    """

    name: str
    dtype: str
    dims: tuple[Dim, ...]
    format: str = "ND"


@dataclass(frozen=True)
class OpDesc:
    """A descriptor of one (possibly fused) operator.

    Attributes:
        op_types: Operator types that it computes, in order, e.g. ``("Conv", "Add", "Relu")``; they name its files.
        family: The kernel family whose definition and schedule build it, e.g. ``conv``.
        attrs: What is computed: JSON values only (kernel size, stride, epilogue expression, ...).
        inputs: Input operands, in argument order.
        outputs: Output operands; they follow the inputs in the argument list.
        variant: How it is computed: tile sizes, algorithm, parallel or serial. JSON scalars only.
        impl_mode: ``high_performance``, or ``high_precision`` where that compiles to something else.
        source: Source text of a user-defined operator, else empty.
        target: What it is for, ``device:architecture``; empty: a CPU, of which level the build says.
    """

    op_types: tuple[str, ...]
    family: str
    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    variant: Mapping[str, Any] = field(default_factory=dict)
    impl_mode: str = HIGH_PERFORMANCE
    source: str = ""
    target: str = ""

    def __hash__(self) -> int:
        return hash(self.canonical())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OpDesc) and self.canonical() == other.canonical()

    @property
    def op_type(self) -> str:
        """The joined operator type that names the files: lower case, ``conv_add_relu``."""
        return "_".join(self.op_types).lower()

    @property
    def is_precise(self) -> bool:
        """Whether the kernel computes in the mode ``high_precision``."""
        return self.impl_mode == HIGH_PRECISION

    @property
    def device(self) -> str:
        """The class of devices that it is for."""
        return self.target.partition(":")[0] or CPU

    @property
    def is_dynamic_shape(self) -> bool:
        """Whether any extent is read at run time."""
        return any(dim.extent == FREE for operand in self.operands for dim in operand.dims)

    @property
    def operands(self) -> tuple[Operand, ...]:
        """All operands in argument order: inputs, then outputs."""
        return self.inputs + self.outputs

    def components(self) -> dict[str, Any]:
        """Return the descriptor as named JSON values; each is one component of the key.

        What differs between two operators is looked for in this order: a variant's limits follow from the variant.
        """
        return {
            "op_types": list(self.op_types),
            "family": self.family,
            "attrs": _plain(self.attrs),
            "variant": _plain(self.variant),
            "inputs": [_operand(operand) for operand in self.inputs],
            "outputs": [_operand(operand) for operand in self.outputs],
            "impl_mode": self.impl_mode,
            "source": self.source,
            **({"target": self.target} if self.target else {}),
        }

    def canonical(self) -> str:
        """Return the one JSON text that equal descriptors share."""
        cached = self.__dict__.get("_canonical")
        if cached is None:
            cached = canonical_json(self.components())
            object.__setattr__(self, "_canonical", cached)
        return str(cached)

    @staticmethod
    def from_components(parts: Mapping[str, Any]) -> OpDesc:
        """Rebuild a descriptor from ``components()``.

        Raises:
            KeyError, TypeError, ValueError: If ``parts`` did not come from ``components()``.
        """
        return OpDesc(
            op_types=tuple(parts["op_types"]),
            family=parts["family"],
            attrs=parts["attrs"],
            inputs=tuple(_from_operand(operand) for operand in parts["inputs"]),
            outputs=tuple(_from_operand(operand) for operand in parts["outputs"]),
            variant=parts["variant"],
            impl_mode=parts["impl_mode"],
            source=parts["source"],
            target=target if ":" in (target := parts.get("target", "")) else "",  # a key names CPUs' levels there
        )

    def problem(self, shapes: Sequence[Sequence[tuple[int, int]]]) -> str | None:
        """Return the reason that real operands do not fit, or None if this descriptor's kernel may run on them.

        Args:
            shapes: For each operand in argument order its ``(extent, stride)`` pairs, innermost first.
        """
        if len(shapes) != len(self.operands):
            return f"{len(shapes)} operands given, {len(self.operands)} needed"
        for operand, dims in zip(self.operands, shapes, strict=True):
            if len(dims) != len(operand.dims):
                return f"{operand.name} has {len(dims)} dimensions, not {len(operand.dims)}"
            for index, (dim, (extent, stride)) in enumerate(zip(operand.dims, dims, strict=True)):
                problem = dim.problem(extent, stride)
                if problem:
                    return f"{operand.name} dimension {index}: {problem}"
        return None


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} cannot be part of an operator descriptor")


def _operand(operand: Operand) -> dict[str, Any]:
    return {
        "name": operand.name,
        "dtype": operand.dtype,
        "format": operand.format,
        "dims": [[dim.extent, dim.stride, dim.min, dim.max, dim.multiple] for dim in operand.dims],
    }


def _from_operand(parts: Mapping[str, Any]) -> Operand:
    return Operand(parts["name"], parts["dtype"], tuple(Dim(*dim) for dim in parts["dims"]), parts["format"])


_LIMIT = 2**63
MOST_KNOWN = 4096
"""Descriptors that are remembered by their texts: some 10 MB."""
_TEXTS = ("family", "impl_mode", "source", "target")


@lru_cache(MOST_KNOWN)
def desc_from_text(text: str) -> OpDesc:
    """Return the descriptor whose ``canonical()`` was stored, the same one each time.

    The programs of a network have most kernels in common: making each anew took 11 of the 17 ms that it took to load
    the next program of a depth transformer (AMD Zen 4).

    Raises:
        ValueError: If it is something else.
    """
    try:
        desc = OpDesc.from_components(json.loads(text))
        sound = (
            all(isinstance(getattr(desc, name), str) for name in _TEXTS)
            and all(isinstance(each, dict) for each in (desc.attrs, desc.variant))
            and all(isinstance(each, str) for each in desc.op_types)
            and all(map(_is_operand, desc.operands))
        )
        desc.canonical()  # which is kept with it; what is nested too deeply has none
    except (KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a descriptor: {error!s:.200}") from error
    if not sound:
        raise ValueError("not a descriptor")
    return desc


def _is_operand(operand: Operand) -> bool:
    texts = (operand.name, operand.dtype, operand.format)
    return all(isinstance(each, str) for each in texts) and all(map(_is_dim, operand.dims))


def _is_dim(dim: Dim) -> bool:
    numbers = (dim.extent, dim.stride, dim.min, dim.max, dim.multiple)
    return all(type(each) is int and -_LIMIT <= each < _LIMIT for each in numbers) and dim.multiple > 0


RUNTIME_FAMILY = "runtime"

_RUNTIME_PREFIX = "halide_"


def runtime_desc() -> OpDesc:
    """Return the descriptor of the compiler's runtime library."""
    return OpDesc(op_types=("HalideRuntime",), family=RUNTIME_FAMILY, inputs=(), outputs=())


def needs_runtime(undefined: Iterable[str], provided: Collection[str] = ()) -> bool:
    """Return whether an object must be linked with the runtime library.

    Args:
        undefined: The object's undefined symbols.
        provided: Symbols that networks have without it.
    """
    return any(symbol.startswith(_RUNTIME_PREFIX) and symbol not in provided for symbol in undefined)
