"""``@opbuild.operator``: operators that users add in Python, as Halide expressions or whole Halide definitions.

The source text of one is its function with all that it mentions of its module.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any

from opbuild.arguments import checks_arguments
from opbuild.errors import OptionError
from opbuild.graph import shape_rules, user_operators
from opbuild.graph.types import TensorType
from opbuild.graph.user_operators import UserOperator
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.plural import counted

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
        source = source_of(function, *([schedule] if isinstance(schedule, FunctionType) else []))
        if shape is None:
            source += f"\nOPERATORS = {{{op_type!r}: {function.__name__}}}"
        parameters = inspect.signature(function).parameters.values()
        has_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
        definition = UserOperator(
            op_type,
            domain,
            source,
            shape is None,
            None if has_any or shape is not None else len(parameters),
            shape,
            function.__name__,
            schedule.__name__ if schedule is not None else "",
            text_of(shape) if shape is not None else "",
        )
        user_operators.register(definition)
        _register_shape(definition)
        return Operator(function, definition)

    return define


def _register_shape(definition: UserOperator) -> None:
    def typed(call: shape_rules.ShapeCall) -> shape_rules.Types:
        types = [call.type(index) for index in range(len(call.types))]
        if definition.arity is not None and len(types) != definition.arity:
            call.fail(f"it takes {counted(definition.arity, 'input')}, not {len(types)}")
        return (definition.output_type(types, dict(call.node.attrs)),)

    shape_rules.RULES[definition.domain, definition.op_type] = typed


PROVIDED = {"hl": "halide", "math": "math", "np": "numpy"}
"""Modules that the source may use, by the names under which it finds them."""

_UNSEEN = frozenset({"__import__", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars"})
"""Built-in functions by which code depends on what its text does not hold."""


def source_of(*functions: FunctionType) -> str:
    """Return the text that defines functions: themselves, and the names of their module they mention, transitively.

    Raises:
        OptionError: If the source cannot be found, or if the function uses what no text can carry: variables of an
            enclosing function, modules other than halide, math and numpy, objects that are no plain constants, files,
            or two things of one name.
    """
    texts: dict[str, _NamedText] = {}
    for function in functions:
        _collect(function, texts)
    return "\n".join(texts[name].text for name in sorted(texts))


class _NamedText(NamedTuple):
    """The text that defines a name, and the name's value."""

    text: str
    value: Any


def _collect(function: FunctionType, texts: dict[str, _NamedText]) -> None:
    name = function.__name__
    if name in texts:
        _check_same(name, function, texts)
        return
    if function.__closure__:
        held = ", ".join(function.__code__.co_freevars)
        problem = f"operator function {name} uses variables of the function around it: {held}"
        raise OptionError(problem, "define it, and what it uses, at the top of a module")
    tree = _parsed(function)
    _check_free_names(name, tree)
    texts[name] = _NamedText(ast.unparse(tree), function)
    for mentioned in sorted({node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}):
        if mentioned in function.__globals__ and mentioned not in _local_names(tree):
            _collect_global(mentioned, function.__globals__[mentioned], name, texts)


def _collect_global(name: str, value: Any, user: str, texts: dict[str, _NamedText]) -> None:
    value = getattr(value, "function", value)
    if name in texts:
        _check_same(name, value, texts)
        return
    if isinstance(value, ModuleType):
        if PROVIDED.get(name) != value.__name__:
            problem = f"operator function {user} uses module {value.__name__} as {name}"
            raise OptionError(problem, "only hl (halide), math and np (numpy) are there when it is compiled")
    elif isinstance(value, FunctionType):
        if value.__name__ != name:
            raise OptionError(f"operator function {user} uses {value.__name__} as {name}", "use it under its own name")
        _collect(value, texts)
    elif _is_plain(value):
        texts[name] = _NamedText(f"{name} = {value!r}", value)
    else:
        raise OptionError(
            f"operator function {user} uses {name}, a {type(value).__name__}",
            "use numbers, strings, tuples, lists and dicts of them, or functions of the same module",
        )


def _check_same(name: str, value: Any, texts: dict[str, _NamedText]) -> None:
    """Refuse a name that stands for different things in different modules: in the text it is one."""
    known = texts[name].value
    if known is not value and (isinstance(value, FunctionType) or repr(known) != repr(value)):
        raise OptionError(
            f"operator functions use two different things called {name}, of different modules", "rename one of them"
        )


def _check_free_names(name: str, tree: ast.FunctionDef) -> None:
    """Refuse names that would make the operator depend on something that is not in its text, and so not in its key."""
    for node in ast.walk(tree):
        modules: list[str] = []
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        for module in modules:
            if module.split(".")[0] not in PROVIDED.values():
                raise OptionError(
                    f"operator function {name} imports {module}",
                    "only halide, math and numpy are there when it is compiled; import functions at the module's top",
                )
        if isinstance(node, ast.Name) and node.id in _UNSEEN and node.id not in _local_names(tree):
            raise OptionError(
                f"operator function {name} calls {node.id}", "what it computes must follow from its own text"
            )


def _parsed(function: FunctionType) -> ast.FunctionDef:
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError) as error:
        problem = f"the source of operator function {function.__name__} cannot be read: {error}"
        raise OptionError(problem, "define it with def in a file") from error
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        raise OptionError(f"operator function {function.__name__} is no plain function", "define it with def")
    definition.decorator_list = []
    definition.returns = None
    for argument in ast.walk(definition.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    if ast.get_docstring(definition) is not None and len(definition.body) > 1:
        definition.body = definition.body[1:]
    return definition


def _local_names(tree: ast.FunctionDef) -> set[str]:
    stored = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    return stored | {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(_is_plain(key) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (bool, int, float, str))


def text_of(function: object) -> str:
    """Return the identity of a function that is called in this process only: its source, or else its code."""
    try:
        return inspect.getsource(function)  # type: ignore[arg-type]  # anything else raises TypeError
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        return repr((code.co_code, code.co_consts, code.co_names)) if code is not None else repr(function)
