"""Implementations of operators, asked of all families; lowering names none of them.

A family's ``lowering.py`` says with ``serves`` what it computes, at what cost and where: operators of graphs, and what
others ask for while they lower (``ASKED``). What only another target than CPUs runs stands beside it, in a file of the
target's own (``lowering_cuda.py``). A new family, or another implementation of an operator, is a folder of
``opbuild.families``, wherever on that package's path; nothing lists it. Its decorators are read as text, once a
process and only by who lowers, so that a module is loaded when one of its operators is first met.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain
from typing import Any, Protocol, TypeVar

from opbuild import families
from opbuild.lowering import rules
from opbuild.platform.records import dataclass
from opbuild.platform.registry import Operator, Registry
from opbuild.target.level import CPU

ASKED = "lowering"
"""The domain of what is no operator of graphs: products, convolutions, copies."""


class NotServedError(Exception):
    """Raised by an implementation before it emits anything: it does not serve this node, and why.

    The host backend takes what none serves.
    """


class Asking(Protocol):
    """The state of lowering, as far as asking needs it."""

    target: str

    def either(self, ways: Iterable[tuple[int, Callable[[], object]]]) -> bool:
        """Emit a computation in one of several ways, as ``Lowering.either`` does."""


Cost = float | Callable[..., float]

Where = Callable[..., Any]
"""Given what its function is given, returns 1 where that serves, else 0: a number that may be open."""

_DECORATOR = "\n@serves("
_OPERATORS = re.compile(r'\s*((?:"[\w.]+",?\s*)*)(\*?)')
"""What follows the decorator: operators in quotes, and a star before what is not known from the text."""


@dataclass(frozen=True, eq=False)
class Implementation:
    """One way to compute something.

    Attributes:
        emit: Emits its calls. It returns False, or raises ``NotServedError``, where it does not serve after all; what
            has operands that are known later, as copies, returns a call that is made of views.
        cost: The time that it takes, 1 for the usual one, or what returns it, given what ``emit`` is given; the
            cheapest that serves is taken.
        where: Where it serves; None: everywhere.
        target: The class of devices that runs it.
    """

    emit: Callable[..., Any]
    cost: Cost = 1.0
    where: Where | None = None
    target: str = CPU


Implementations = tuple[Implementation, ...]


def _joined(one: Implementations, other: Implementations) -> Implementations:
    both = (*one, *other)
    if len({(each.emit.__module__, each.emit.__qualname__) for each in both}) < len(both):
        raise ValueError(f"{other[0].emit.__qualname__} is registered twice for one operator")
    return both


IMPLEMENTATIONS: Registry[Implementations] = Registry("implementation", join=_joined)
"""All that may compute an operator, by the operator."""

_ranked: dict[tuple[Operator, str], tuple[Implementations, Implementations]] = {}
"""By operator and target all that is registered, and of that those for the target or the CPU beside it."""

_known: set[tuple[str, str]] = set()
"""Folders, and which of their modules are declared."""

F = TypeVar("F", bound=Callable[..., Any])


def serves(*operators: str, cost: Cost = 1.0, where: Where | None = None, target: str = CPU) -> Callable[[F], F]:
    """Register a function that emits the computation of some operators.

    Args:
        operators: Their types, each after its domain and a dot if it is not ONNX's: text as it stands here, or none
            of it, for then the module is loaded to see what it serves.
        cost: As in ``Implementation``.
        where: As there.
        target: As there.
    """

    def register(function: F) -> F:
        for name in operators:
            domain, _, op_type = name.rpartition(".")
            IMPLEMENTATIONS.register(op_type, domain=domain)((Implementation(function, cost, where, target),))
        return function

    return register


def implementations(operator: Operator, target: str = CPU) -> Implementations:
    """Return all that may compute an operator on a target or the CPU beside it.

    The cheapest is the first where their costs are numbers; of equal ones the target's own.
    """
    _declare_new(target)
    found = IMPLEMENTATIONS.get(operator, ())
    known, ranked = _ranked.get((operator, target), ((), ()))
    if known is not found:
        served = (each for each in found if each.target in (CPU, target))
        own = tuple(sorted(served, key=lambda each: each.target == CPU))
        ranked = own if any(callable(each.cost) for each in own) else tuple(sorted(own, key=_number))
        _ranked[operator, target] = found, ranked
    return ranked


def operators() -> set[Operator]:
    """Return the operators of graphs that have implementations; loads all."""
    _declare_new()
    return {(domain, op_type) for domain, op_type in IMPLEMENTATIONS if domain != ASKED}


def call_of(op_type: str) -> Callable[..., Any]:
    """Return the maker of a call, once its views are known, of something that lowering asks for."""
    return implementations((ASKED, op_type))[0].emit


def ask(lowering: Asking, operator: Operator, *what: Any) -> None:
    """Emit the computation of an operator: at each size by the cheapest implementation that serves there.

    Args:
        lowering: The state of lowering.
        operator: The operator.
        what: What implementations are given: the node, or what is asked for.

    Raises:
        NotServedError: If none serves.
    """
    found = implementations(operator, lowering.target)
    if len(found) == 1 and found[0].where is None:
        found[0].emit(lowering, *what)
        return
    if any(callable(each.cost) for each in found):
        found = tuple(sorted(found, key=lambda each: _number(each, lowering, *what)))
    refused = [NotServedError(f"no kernel for {operator[1]}")]
    ways = ((_flag(each, lowering, what), partial(_emitted, each, lowering, what, refused)) for each in found)
    for flag, emit in ways:
        if not isinstance(flag, int):  # it is open: each size takes its own
            if lowering.either(chain(((flag, emit),), ways)):
                return
            break
        if flag and emit():
            return
    raise refused[-1]


def _flag(implementation: Implementation, lowering: Asking, what: Sequence[Any]) -> Any:
    return 1 if implementation.where is None else implementation.where(lowering, *what)


def _number(implementation: Implementation, *what: Any) -> float:
    cost = implementation.cost
    return cost(*what) if callable(cost) else cost


def _emitted(
    implementation: Implementation, lowering: Asking, what: Sequence[Any], refused: list[NotServedError]
) -> bool:
    try:
        return implementation.emit(lowering, *what) is not False
    except NotServedError as reason:
        refused.append(reason.with_traceback(None))  # whose frames would hold all of a build, and the list itself
        return False


def _declare_new(target: str = CPU) -> None:
    """Declare the rules, and a target's modules in all folders on the families' path, that were not seen before."""
    inside = ("/lowering",) if target == CPU else ("/lowering", f"/lowering_{target}")
    for package, files in ((rules, ("",)), (families, inside)):
        for path in package.__path__:
            for file in files:
                if (path, file) not in _known:
                    for module, text in _texts(path, file):
                        _declare(f"{package.__name__}.{module.replace('/', '.')}", text)
                    _known.add((path, file))  # now: another thread that comes meanwhile looks itself


def _declare(module: str, text: str) -> None:
    """Tell the registry the operators that the decorators of a module declare."""
    said, is_all = _declared_operators(text)
    for domain, op_type in said:
        IMPLEMENTATIONS.declare(module, {domain: (op_type,)})
    if not is_all:
        IMPLEMENTATIONS.declare(module)


def _declared_operators(text: str) -> tuple[dict[Operator, None], bool]:
    """Return the operators in a module's decorators, and whether these are all that it serves."""
    found = [_OPERATORS.match(each) for each in text.split(_DECORATOR)[1:]]
    names = (name for each in found if each for name in each[1].split('"')[1::2])
    parts = (name.rpartition(".") for name in names)
    return {(domain, op_type): None for domain, _, op_type in parts}, not any(each and each[2] for each in found)


def _texts(path: str, inside: str) -> Iterator[tuple[str, str]]:
    """Yield the names and texts of a folder's modules, or of one in each of its folders."""
    for name in sorted(os.listdir(path)):  # noqa: PTH208
        folder, dot, _ = name.partition(".")
        if bool(dot) != bool(inside):
            with suppress(OSError), open(f"{path}/{folder}{inside}.py", "rb", buffering=0) as source:  # noqa: PTH123
                yield f"{folder}{inside}", source.read().decode()
