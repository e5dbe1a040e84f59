"""A graph after partitioning as plain data: which parts and which operators of torch run, in which order.

It can be stored, and runs without Dynamo, FX or the module that it came from.

A file names what is called. Nothing that it names is looked up as an attribute before torch's dispatcher has confirmed
that there is such an operator, in one of the namespaces that count; what changes its arguments in place, or takes a
text that names something outside (a file), is refused, because no graph that is saved has it.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from opbuild.errors import InvalidModelError, OpbuildError, RunError, UnsupportedOperatorError
from opbuild.frontend.torch.builder import FUNCTIONS
from opbuild.frontend.torch.program import AtenProgram, Ref, from_plain, plain, program_from_json, program_to_json
from opbuild.platform.records import NamedTuple
from opbuild.torch.part import Part
from opbuild.torch.report import Graph, add
from opbuild.torch.settings import Settings

TORCHS = frozenset(("aten", "prims"))
"""Namespaces of torch's own operators, which every stored graph may call."""

_NAME = re.compile(r"([a-zA-Z]\w{0,99})\.(\w{1,199})\.([a-zA-Z]\w{0,99})", re.ASCII)
"""A namespace, an operator and its overload."""

_OUTSIDE = frozenset(("filename", "s"))
"""Texts that name a file (``from_file``), or are printed (``_print``); all others of torch's choose a mode."""

_CHECKS = frozenset(
    (
        *("_assert_async", "_assert_scalar", "_assert_tensor_metadata"),
        "sym_constrain_range",
        "sym_constrain_range_for_size",
    )
)
"""Operators that have no result, and fail where something is not as it was when the module was saved."""


def overload(target: str, namespaces: Collection[str] | None = TORCHS) -> Any:
    """Return the overload that a text names, such as ``aten.add.Tensor``.

    Args:
        target: The text, whoever wrote it.
        namespaces: Where operators count; None: all that are registered in this process.

    Raises:
        InvalidModelError: If it names none that a stored graph may call.
    """
    parts = _NAME.fullmatch(target)
    if parts is None:
        raise InvalidModelError(f"{target!r:.200} is no name of an operator", "save the module again")
    space, name, kind = parts.groups()
    if namespaces is not None and space not in namespaces:
        hint = f"give namespaces=[{space!r}] if you trust the file and what registers these operators"
        raise InvalidModelError(f"it calls {target}, and only operators of {', '.join(sorted(namespaces))} count", hint)
    if not _is_registered(f"{space}::{name}", "" if kind == "default" else kind):
        raise InvalidModelError(f"torch has no operator {target!r}", "import what registers it")
    found = getattr(getattr(getattr(torch.ops, space), name), kind)  # which is registered, so these are no others
    if not isinstance(found, torch._ops.OpOverload):
        raise InvalidModelError(f"{target!r} is no operator", "save the module again")
    schema = found._schema
    names_outside = any(each.name in _OUTSIDE and str(each.type) == "str" for each in schema.arguments)
    reaches_outside = names_outside or (not schema.returns and name not in _CHECKS)
    if schema.is_mutable or (space in TORCHS and reaches_outside):
        raise InvalidModelError(f"{target!r} does more than to compute a result", "save the module again")
    return found


def _is_registered(name: str, kind: str) -> bool:
    """Return whether the dispatcher has an operator; those of TorchScript alone, as ``aten::save``, do not count."""
    try:
        torch._C._dispatch_find_schema_or_throw(name, kind)
    except RuntimeError:
        return False
    return True


_PART, _SYM = "part.", "sym."

_KINDS = (torch.dtype, torch.layout, torch.memory_format)
_NAMED: Mapping[str, Any] = {
    str(each).removeprefix("torch."): each for each in vars(torch).values() if isinstance(each, _KINDS)
}
"""Element types, layouts and formats of torch by their names."""


class FlatStep(NamedTuple):
    """One call: of a part (``part.NAME``), of an overload (``aten.add.Tensor``), of a function of sizes (``sym.mul``).

    Attributes:
        target: What is called.
        name: The name of its result.
        args: Arguments: references, numbers, texts, what torch calls by name, lists and mappings of these, None.
        kwargs: Arguments by name.
    """

    target: str
    name: str
    args: list[Any]
    kwargs: Mapping[str, Any]


class Flat(NamedTuple):
    """A graph after partitioning.

    Attributes:
        inputs: Names of what it is given.
        programs: The parts by name.
        steps: The calls.
        outputs: The results, as arguments are.
    """

    inputs: tuple[str, ...]
    programs: Mapping[str, AtenProgram]
    steps: tuple[FlatStep, ...]
    outputs: Sequence[Any]

    def to_json(self) -> Any:
        """Return it as JSON."""
        programs = {name: program_to_json(each) for name, each in self.programs.items()}
        steps = [[each.target, each.name, _plain(each.args), _plain(each.kwargs)["map"]] for each in self.steps]
        return [self.inputs, programs, steps, _plain(self.outputs)]

    @classmethod
    def from_json(cls, found: Any) -> Flat:
        """Return the symbolic part that ``to_json`` wrote.

        Raises:
            ValueError, TypeError, LookupError, AttributeError: If it is something else.
        """
        inputs, programs, steps, outputs = found
        read = {name: program_from_json(each) for name, each in programs.items()}
        known = set(map(_text, inputs))
        taken = []
        for target, name, args, kwargs in steps:
            values = _read({"map": kwargs}, known)
            taken.append(FlatStep(_text(target), _text(name), [_read(each, known) for each in args], values))
            known.add(name)
        return cls(tuple(inputs), read, tuple(taken), [_read(each, known) for each in outputs])

    @property
    def namespaces(self) -> set[str]:
        """The namespaces of the operators of torch that it calls."""
        return {step.target.partition(".")[0] for step in self.steps if not step.target.startswith((_PART, _SYM))}


class Runner:
    """Runs a flat graph. Any thread may call it.

    Args:
        flat: The graph.
        settings: How its parts are built.
        namespaces: Whose operators it may call; None: all that are registered.

    Raises:
        InvalidModelError: If it calls what there is not, or what it may not call.
    """

    def __init__(self, flat: Flat, settings: Settings, namespaces: Collection[str] | None = TORCHS) -> None:
        self.graph = Graph("loaded")
        self._inputs = flat.inputs
        self._outputs = flat.outputs
        strict = settings._replace(on_error="raise")  # there is no module that could compute a part instead
        parts = {
            _PART + name: Part(program, _missing_part, strict, self.graph) for name, program in flat.programs.items()
        }
        self._calls = [(parts.get(step.target) or _function(step.target, namespaces), step) for step in flat.steps]
        self.graph.compiled.update(name for each in flat.programs.values() for name in each.operators)
        self.graph.partitioned.update(
            (step.target, "it was left to torch when it was saved")
            for step in flat.steps
            if not step.target.startswith((_PART, _SYM))
        )
        add(self.graph)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the results.

        Args:
            inputs: A value for each input.

        Raises:
            ModelError, BuildError: If a part cannot be built.
            RunError: If one fails while it runs, or an operator of torch does.
        """
        values = dict(zip(self._inputs, inputs, strict=True))
        with torch.no_grad():
            for call, step in self._calls:
                values[step.name] = _call_step(call, step, values)
        return [_filled(each, values) for each in self._outputs]


def _call_step(call: Callable[..., Any], step: FlatStep, values: Mapping[str, Any]) -> Any:
    kwargs = {name: _filled(each, values) for name, each in step.kwargs.items()}
    try:
        return call(*(_filled(each, values) for each in step.args), **kwargs)
    except OpbuildError:
        raise
    except Exception as error:  # what torch raises here is of every kind
        hint = "look at the arguments of the call; if they are right, save the module again"
        raise RunError(f"{step.target} fails at {step.name!r:.200}: {error!s:.500}", hint) from error


def flat_of(module: torch.fx.GraphModule, programs: Mapping[str, AtenProgram]) -> Flat:
    """Return a graph after partitioning as plain data.

    Args:
        module: The graph, which calls its parts.
        programs: The parts by the names of the submodules.

    Raises:
        UnsupportedOperatorError: If it cannot be written down.
    """
    inputs, steps, outputs = list[str](), list[FlatStep](), list[Any]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "output":
            results = node.args[0]
            outputs = [_argument(each) for each in (results if isinstance(results, (tuple, list)) else (results,))]
        else:
            steps.append(FlatStep(_target(node), node.name, _argument(node.args), _argument(dict(node.kwargs))))
    return Flat(tuple(inputs), programs, tuple(steps), outputs)


def _target(node: torch.fx.Node) -> str:
    if node.op == "call_module":
        return _PART + str(node.target)
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    name = "getitem" if node.target is operator.getitem else getattr(node.target, "__name__", "")
    if node.op == "call_function" and (name == "getitem" or _SYM + name in FUNCTIONS):
        return _SYM + name
    raise unsupported(f"{node.op} {node.target}")


def _argument(value: Any) -> Any:
    """Return an argument without nodes of the graph; it is an error if there is no form for its kind."""
    if value is None or isinstance(value, (bool, int, float, str, torch.device, *_KINDS)):
        return value
    if isinstance(value, torch.fx.Node):
        return Ref(value.name)
    if isinstance(value, (list, tuple)):
        return [_argument(each) for each in value]
    if isinstance(value, dict):
        return {name: _argument(each) for name, each in value.items()}
    raise unsupported(f"an argument of type {type(value).__name__}")


def _plain(value: Any) -> Any:
    """Return an argument as JSON."""
    return plain(value, _named)


def _named(value: Any) -> Any:
    if isinstance(value, torch.device):
        return {"device": str(value)}
    return value if value is None or isinstance(value, (int, str)) else {"torch": str(value).removeprefix("torch.")}


def _read(found: Any, known: Collection[str]) -> Any:
    """Return the argument that ``_plain`` wrote, which may refer to known names; raises as ``from_plain``."""

    def other(kind: str, value: Any) -> Any:
        if kind == "ref" and value in known:
            return Ref(value)
        if kind == "device":
            return _device(value)
        if kind == "torch":
            return _NAMED[value]
        raise ValueError(f"there is no argument { ({kind: value})!s:.200}")

    return from_plain(found, other, list)


def _device(text: str) -> torch.device:
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise ValueError(f"there is no device {text!r:.200}") from error


def _text(found: Any) -> str:
    if not isinstance(found, str):
        raise TypeError(f"a name is {found!r:.200}")
    return found


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, Ref):
        return values[value.name]
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    return {name: _filled(each, values) for name, each in value.items()} if isinstance(value, dict) else value


def _function(target: str, namespaces: Collection[str] | None) -> Callable[..., Any]:
    """Return the function that a step calls."""
    if target == "sym.getitem":
        return operator.getitem
    found: Callable[..., Any] = (target.startswith(_SYM) and FUNCTIONS.get(target)) or overload(target, namespaces)
    return found


def _missing_part(*_: Any) -> Any:
    raise InvalidModelError("a stored part has no module", "this is an error in opbuild; please report it")


def unsupported(what: str) -> UnsupportedOperatorError:
    """Return the error for a graph that cannot be written down."""
    return UnsupportedOperatorError(f"{what} cannot be saved", "use torch.compile for this model")
