"""``@opbuild.operator``: operators that users add in Python, as Halide expressions or whole Halide definitions."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from opbuild.arguments import checks_arguments
from opbuild.errors import OptionError
from opbuild.graph import shape_rules, user_operators
from opbuild.graph.types import TensorType
from opbuild.graph.user_operators import UserOperator
from opbuild.platform.records import dataclass
from opbuild.text.plural import counted
from opbuild.user_operators.source import source_of, text_of

Shape = Callable[..., "tuple[int, ...] | TensorType"]


@dataclass(frozen=True, eq=False)
class Operator:
    """The operator that ``@operator`` makes of a function.

    Attributes:
        function: The function itself; calling the operator calls it, so that one definition may use another.
        definition: What the build knows of it.
    """

    function: FunctionType
    definition: UserOperator

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function, on Halide expressions or parameters."""
        return self.function(*args, **kwargs)


@checks_arguments
def operator(
    op_type: str, domain: str = "custom", *, shape: Shape | None = None, schedule: Callable[..., Any] | None = None
) -> Callable[[Callable[..., Any]], Operator]:
    """Make a function an operator of networks: nodes of this domain and type are built from it.

    Without ``shape`` the function is elementwise: it gets one Halide expression for each input and returns one. Its
    inputs broadcast together, the output has the type of the first, and it joins the elementwise chains around it.
    With ``shape`` it is a whole definition: it gets one ``hl.ImageParam`` for each input (dimensions innermost first,
    row-major data) and returns an ``hl.Func``; the node's attributes are passed by name.

    The kernel is keyed by the text of the function and of what it mentions of its module: functions and plain
    constants. ``hl`` (halide), ``math`` and ``np`` (numpy) may be used. See ``docs/guides/custom_operators.md``.

    Args:
        op_type: The operator's type; a name like ``MyOp``.
        domain: Its domain in models.
        shape: Gets the ``TensorType`` of each input and the attributes by name; returns the output's row-major shape
            (its element type is then the first input's), or its ``TensorType``.
        schedule: Gets the ``hl.Func`` returned and the parameters; schedules it. By default the innermost dimension is
            vectorised and the outermost one runs in parallel. It must be legal for every extent, e.g. by splitting with
            ``hl.TailStrategy.GuardWithIf``: kernels have no checks.

    Raises:
        OptionError: If a name is not allowed or taken, or if the source cannot be carried by text.
    """
    if not op_type.isidentifier() or not domain or domain in ("ai.onnx", "opbuild"):
        problem = f"operator {op_type!r} of domain {domain!r} is not allowed"
        raise OptionError(problem, "give a type that is an identifier and a domain of your own, such as 'my'")

    def define(function: Callable[..., Any]) -> Operator:
        if not isinstance(function, FunctionType):
            raise OptionError(f"operator {op_type} is given {function!r}, which is no function", "put it above a def")
        if shape is None and schedule is not None:
            raise OptionError(
                f"operator {op_type} has a schedule but no shape", "an elementwise operator needs no schedule"
            )
        definition = UserOperator(
            op_type,
            domain,
            _source(op_type, function, schedule, elementwise=shape is None),
            shape is None,
            _arity(function) if shape is None else None,
            shape,
            function.__name__,
            schedule.__name__ if schedule is not None else "",
            text_of(shape) if shape is not None else "",
        )
        user_operators.register(definition)
        _register_shape(definition)
        return Operator(function, definition)

    return define


def _source(op_type: str, function: FunctionType, schedule: Callable[..., Any] | None, elementwise: bool) -> str:
    text = source_of(function, *([schedule] if isinstance(schedule, FunctionType) else []))
    return f"{text}\nOPERATORS = {{{op_type!r}: {function.__name__}}}" if elementwise else text


def _arity(function: FunctionType) -> int | None:
    parameters = inspect.signature(function).parameters.values()
    return None if any(p.kind is p.VAR_POSITIONAL for p in parameters) else len(parameters)


def _register_shape(definition: UserOperator) -> None:
    def typed(call: shape_rules.ShapeCall) -> shape_rules.Types:
        types = [call.type(index) for index in range(len(call.types))]
        if definition.arity is not None and len(types) != definition.arity:
            call.fail(f"it takes {counted(definition.arity, 'input')}, not {len(types)}")
        return (definition.output_type(types, dict(call.node.attrs)),)

    shape_rules.RULES[definition.domain, definition.op_type] = typed
