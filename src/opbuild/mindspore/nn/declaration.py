"""Declares layers as functions: of the inputs, and by keyword only of the constructor's arguments.

A function with logic is decorated, ``@cell``; another one, or a lambda, is a row: ``ELU = layer(ops.elu, alpha=1.0)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from inspect import Parameter as Argument
from inspect import signature
from typing import Any, TypeVar

from opbuild.mindspore import names
from opbuild.mindspore.arguments import Attributes, defaults_of, keyword_only
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.parameter import Parameter

__all__: list[str] = []

Layer = TypeVar("Layer")
Checks = Mapping[str, Callable[..., Any]]
Made = Mapping[str, Callable[[Any], Any]]


def layer(function: Callable[..., Any], doc: str = "", inputs: str = "", base: type[Cell] = Cell,
          checks: Checks | None = None, made: Made | None = None, **attributes: Any) -> Any:  # fmt: skip
    """Return the class of a layer, which is called as its variable.

    Args:
        function: Computes it: called with the inputs, and with the attributes by name; if its first argument is
            ``self``, with the layer before.
        doc: What ``help`` says of it; by default what it says of the function.
        inputs: What MindSpore calls the inputs of ``construct``; by default as the function does.
        base: The class that it derives from; what that takes is among the attributes.
        checks: Of attributes that not every value is allowed for: called with it, or with several named together, and
            what to call it in the message.
        made: Attributes that are made of others when the layer is: parameters, and parts.
        attributes: What the constructor takes, in order, with the defaults; ``...`` for one that must be given. By
            default the function's keyword-only arguments.
    """
    passed = attributes or keyword_only(function)
    taken = Attributes("", passed)
    of_self = next(iter(signature(function).parameters), "") == "self"
    given = dict.fromkeys(inputs.split(), ...) if inputs else _operands(function, {} if of_self else passed)
    named = Attributes("", given)
    by_name = keyword_only(function) if of_self else passed

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        chosen = taken.bind(args, kwargs)
        base.__init__(self, **{key: chosen[key] for key in base._constructor_takes if key in chosen})
        for keys, check in (checks or {}).items():
            check(*(chosen[key] for key in keys.split()), f"{keys} of {taken.owner}")
        for key, value in chosen.items():
            setattr(self, key, value)
        for key, make in (made or {}).items():
            setattr(self, key, make(self))

    def construct(self: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the result."""
        inputs = named.bind(args, kwargs)
        more = {key: inputs.pop(key) for key, default in given.items() if default is not ...}
        own = (self,) if of_self else ()
        return function(*own, *inputs.values(), **more, **{key: getattr(self, key) for key in by_name})

    def call(name: str) -> None:
        taken.owner, named.owner = name, f"{name}.construct"
        for method in (found, __init__, construct):
            method.__qualname__ = name if method is found else f"{name}.{method.__name__}"
        found.__name__ = name
        found.__doc__ = doc or f"{function.__doc__ or name}\n\nA layer: ``{name}{taken}``."

    __init__.__signature__, construct.__signature__ = taken.method, named.method  # type: ignore[attr-defined]
    found = type(function.__name__, (base,), {"__init__": __init__, "construct": construct})
    return names.row(found, call)


def cell(base: type[Cell] = Cell, checks: Checks | None = None,
         made: Made | None = None) -> Callable[[Callable[..., Any]], Any]:  # fmt: skip
    """Return a decorator that makes a function the layer of its name and documentation; arguments as of ``layer``."""

    def declare(function: Callable[..., Any]) -> Any:
        found = layer(function, function.__doc__ or "", base=base, checks=checks, made=made)
        found.__module__ = function.__module__
        return found

    return declare


def derived(base: type[Layer], doc: str, takes: str = "", **members: Any) -> type[Layer]:
    """Return a class that differs from its base in its name, the text of ``help``, and attributes of the class.

    It may differ in what its constructor ``takes``, too, in order: with the defaults that ``members`` or the base's
    constructor has. What the base's does not take is an attribute before that runs.
    """
    made = type(base.__name__, (base,), {"__doc__": doc, **members})
    known = signature(base.__init__).parameters
    taken = Attributes("", {
        key: members[key] if key in members else defaults_of(base.__init__, key)[key] for key in takes.split()
    })  # fmt: skip

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        given = taken.bind(args, kwargs)
        for key in given.keys() - known.keys():
            setattr(self, key, given.pop(key))
        base.__init__(self, **given)

    if takes:
        __init__.__signature__ = taken.method  # type: ignore[attr-defined]
        made.__init__ = __init__  # type: ignore[misc]

    def call(name: str) -> None:
        made.__name__ = made.__qualname__ = taken.owner = name

    return names.row(made, call)


def parameter(start: Any, shape: tuple[int, ...], dtype: Any, name: str, usual: Any = None,
              requires_grad: bool = True) -> Parameter:  # fmt: skip
    """Return a parameter that starts as an initializer, a name or a tensor says; if it is None, as is ``usual``."""
    values = initializer(usual if start is None else start, shape, float32 if dtype is None else dtype)
    return Parameter(values, name, requires_grad)


def _operands(function: Callable[..., Any], attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of a function beside the layer and the attributes, with the defaults."""
    return {
        name: ... if parameter.default is Argument.empty else parameter.default
        for name, parameter in signature(function).parameters.items()
        if name not in attributes and name != "self" and parameter.kind is Argument.POSITIONAL_OR_KEYWORD
    }
