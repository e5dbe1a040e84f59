"""A graph after partitioning as plain data: which parts and which operators of torch run, in which order.

It can be stored, and runs without Dynamo, FX or the module that it came from.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from opbuild.errors import InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.torch.program import Program
from opbuild.frontend.torch.program_json import program_from_json, program_to_json
from opbuild.frontend.torch.sizes import FUNCTIONS
from opbuild.platform.records import NamedTuple
from opbuild.torch.part import Part
from opbuild.torch.report import Graph, add
from opbuild.torch.settings import Settings

_PART = "part."


class FlatStep(NamedTuple):
    """One call: of a part (``part.NAME``), of an overload (``aten.add.Tensor``), of a function of sizes (``sym.mul``).

    Attributes:
        target: What is called.
        name: The name of its result.
        args: Arguments as JSON; see ``as_json``.
        kwargs: Arguments by name.
    """

    target: str
    name: str
    args: Sequence[Any]
    kwargs: Mapping[str, Any]


class Flat(NamedTuple):
    """A graph after partitioning.

    Attributes:
        inputs: Names of what it is given.
        programs: The parts by name.
        steps: The calls.
        outputs: The results as JSON.
    """

    inputs: tuple[str, ...]
    programs: Mapping[str, Program]
    steps: tuple[FlatStep, ...]
    outputs: Sequence[Any]

    def to_json(self) -> Any:
        """Return it as JSON."""
        programs = {name: program_to_json(each) for name, each in self.programs.items()}
        return [self.inputs, programs, self.steps, self.outputs]

    @classmethod
    def from_json(cls, found: Any) -> Flat:
        """Return what ``to_json`` wrote.

        Raises:
            ValueError, TypeError, LookupError: If it is something else.
        """
        inputs, programs, steps, outputs = found
        read = {name: program_from_json(each) for name, each in programs.items()}
        return cls(tuple(inputs), read, tuple(FlatStep(*each) for each in steps), outputs)


class Runner:
    """Runs a flat graph. Any thread may call it.

    Args:
        flat: The graph.
        settings: How its parts are built.

    Raises:
        InvalidModelError: If it calls what there is not.
    """

    def __init__(self, flat: Flat, settings: Settings) -> None:
        self.graph = Graph("loaded")
        self._inputs = flat.inputs
        self._outputs = flat.outputs
        strict = settings._replace(on_error="raise")  # there is no module that could compute a part instead
        parts = {_PART + name: Part(program, _nothing, strict, self.graph) for name, program in flat.programs.items()}
        self._calls = [(parts.get(step.target) or _function(step.target), step) for step in flat.steps]
        self.graph.compiled.update(
            step.target for each in flat.programs.values() for step in each.steps if not step.target.startswith("sym.")
        )
        self.graph.partitioned.update(
            (step.target, "it was left to torch when it was saved")
            for step in flat.steps
            if not step.target.startswith((_PART, "sym."))
        )
        add(self.graph)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the results.

        Args:
            inputs: A value for each input.

        Raises:
            ModelError, BuildError: If a part can not be built.
            RunError: If one fails while it runs.
        """
        values = dict(zip(self._inputs, inputs, strict=True))
        with torch.no_grad():
            for call, step in self._calls:
                kwargs = {name: _filled(each, values) for name, each in step.kwargs.items()}
                values[step.name] = call(*(_filled(each, values) for each in step.args), **kwargs)
        return [_filled(each, values) for each in self._outputs]


def flat_of(module: torch.fx.GraphModule, programs: Mapping[str, Program]) -> Flat:
    """Return a graph after partitioning as plain data.

    Args:
        module: The graph, which calls its parts.
        programs: The parts by the names of the submodules.

    Raises:
        UnsupportedOperatorError: If it can not be written down.
    """
    inputs, steps, outputs = list[str](), list[FlatStep](), list[Any]()
    for node in module.graph.nodes:
        if node.op == "placeholder":
            inputs.append(node.name)
        elif node.op == "output":
            results = node.args[0]
            outputs = [as_json(each) for each in (results if isinstance(results, (tuple, list)) else (results,))]
        else:
            steps.append(FlatStep(_target(node), node.name, as_json(node.args), as_json(dict(node.kwargs))["map"]))
    return Flat(tuple(inputs), programs, tuple(steps), outputs)


def _target(node: torch.fx.Node) -> str:
    if node.op == "call_module":
        return _PART + str(node.target)
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target)
    name = "getitem" if node.target is operator.getitem else getattr(node.target, "__name__", "")
    if node.op == "call_function" and (name == "getitem" or f"sym.{name}" in FUNCTIONS):
        return f"sym.{name}"
    raise _unsupported(f"{node.op} {node.target}")


def as_json(value: Any) -> Any:
    """Return an argument as JSON.

    Raises:
        UnsupportedOperatorError: If there is no form for its kind.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, torch.fx.Node):
        return {"ref": value.name}
    if isinstance(value, (list, tuple)):
        return [as_json(each) for each in value]
    if isinstance(value, dict):
        return {"map": {name: as_json(each) for name, each in value.items()}}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, (torch.dtype, torch.layout, torch.memory_format)):
        return {"torch": str(value).removeprefix("torch.")}
    raise _unsupported(f"an argument of type {type(value).__name__}")


def _filled(value: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(value, list):
        return [_filled(each, values) for each in value]
    if not isinstance(value, dict):
        return value
    ((kind, found),) = value.items()
    if kind == "ref":
        return values[found]
    if kind == "float":
        return float.fromhex(found)
    if kind == "device":
        return torch.device(found)
    return {name: _filled(each, values) for name, each in found.items()} if kind == "map" else getattr(torch, found)


def _function(target: str) -> Callable[..., Any]:
    """Return what a step calls.

    Raises:
        InvalidModelError: If there is no such function.
    """
    if target == "sym.getitem":
        return operator.getitem
    if target.startswith("sym.") and target in FUNCTIONS:
        return FUNCTIONS[target]
    try:
        space, name, overload = target.split(".")
        found: Callable[..., Any] = getattr(getattr(getattr(torch.ops, space), name), overload)
    except (ValueError, AttributeError) as error:
        raise InvalidModelError(f"torch has no operator {target!r}", "import what registers it") from error
    return found


def _nothing(*_: Any) -> Any:
    raise InvalidModelError("a stored part has no module", "this is an error in opbuild; please report it")


def _unsupported(what: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(f"{what} can not be saved", "use torch.compile for this model")
