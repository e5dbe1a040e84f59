"""Operators that users define: the registry that every stage asks, and the source text that keys their kernels.

An operator is known by domain and type. Its kernel is compiled, perhaps in another process, from source text: the
function's own and that of the module-level functions and plain constants which it mentions, transitively. The text is
part of the descriptor, so editing any of it builds the kernel again, and nothing else does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from opbuild.errors import OptionError
from opbuild.platform.digest import blake3_of
from opbuild.platform.records import dataclass

if TYPE_CHECKING:
    from opbuild.graph.types import TensorType

Infer = Callable[..., Any]
SEPARATOR = "\n# next operator\n"
"""Stands between the sources of several operators, which are executed apart: they may use the same names."""


@dataclass(frozen=True, eq=False)
class UserOperator:
    """One operator.

    Attributes:
        op_type: Its type, as in ``Node.op_type``.
        domain: Its domain, as in ``Node.domain``.
        source: Text that defines it; of an elementwise one also ``OPERATORS``, a dict from its name to its function.
        is_elementwise: Whether it computes one element at a time, and so joins fused chains.
        arity: Number of its inputs; None for any number.
        infer: For a whole definition: from the types of the inputs and the attributes to the output's shape, and
            perhaps dtype.
        function: Name of the defining function in ``source``.
        schedule: Name of the scheduling function in ``source``, empty for the default schedule.
        shape_source: What identifies ``infer``.
    """

    op_type: str
    domain: str
    source: str
    is_elementwise: bool
    arity: int | None
    infer: Infer | None = None
    function: str = ""
    schedule: str = ""
    shape_source: str = ""

    def output_type(self, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
        """Return the type of the output: broadcast of the inputs, or the result of the operator's own function.

        Raises:
            OptionError: If that function returns something else than a shape or a TensorType.
        """
        from opbuild.graph.types import TensorType, broadcast_shapes  # numpy, which the compile server does without

        if self.infer is None:
            shape = broadcast_shapes(type_.shape for type_ in types)
            if shape is None:
                shown = ", ".join(str(list(type_.shape)) for type_ in types)
                raise OptionError(f"operator {self.op_type}: shapes {shown} do not broadcast together")
            return TensorType(types[0].dtype, shape)
        found = self.infer(*types, **attrs)
        if isinstance(found, TensorType):
            return found
        if isinstance(found, (tuple, list)) and all(isinstance(extent, int) for extent in found):
            return TensorType(types[0].dtype, tuple(found))
        raise OptionError(
            f"the shape function of operator {self.op_type} returned {found!r}",
            "return a tuple of ints or a TensorType",
        )


_REGISTERED: dict[tuple[str, str], UserOperator] = {}


def register(operator: UserOperator) -> None:
    """Make an operator known, in place of one of the same domain and type.

    Raises:
        OptionError: If an elementwise operator of this type is known in another domain: expressions have no domains.
    """
    other = by_name(operator.op_type)
    if operator.is_elementwise and other is not None and other.domain != operator.domain:
        raise OptionError(
            f"an elementwise operator {operator.op_type} is already defined in domain {other.domain}",
            "choose another name",
        )
    _REGISTERED[operator.domain, operator.op_type] = operator


def find(domain: str, op_type: str) -> UserOperator | None:
    """Return the operator of this domain and type, if there is one."""
    return _REGISTERED.get((domain, op_type))


def known_types() -> frozenset[str]:
    """Return the types of all operators that are known in this process."""
    return frozenset(op_type for _, op_type in _REGISTERED)


def by_name(name: str) -> UserOperator | None:
    """Return the elementwise operator that expressions call ``name``, the one registered last."""
    found = [each for each in _REGISTERED.values() if each.op_type == name and each.is_elementwise]
    return found[-1] if found else None


def combined_source(names: Sequence[str]) -> str:
    """Return the source of several elementwise operators as one text, whatever order they are named in.

    Raises:
        OptionError: If one is not registered in this process.
    """
    texts = []
    for name in sorted(set(names)):
        operator = by_name(name)
        if operator is None:
            raise OptionError(
                f"operator {name} is not registered", "import the module that defines it before compiling"
            )
        texts.append(operator.source)
    return SEPARATOR.join(texts)


def digest() -> str:
    """Return a digest of all operators known in this process, empty if there are none; stored networks depend on it."""
    if not _REGISTERED:
        return ""
    texts = [[*key, operator.source, operator.shape_source] for key, operator in sorted(_REGISTERED.items())]
    return blake3_of(repr(texts).encode())
