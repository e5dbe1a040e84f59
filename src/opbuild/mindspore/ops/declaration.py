"""Declares functions and operators in a row: one expression of others, another one under a name of its own, a class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from inspect import signature
from typing import Any, TypeVar

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, Attributes, keyword_only, nchw
from opbuild.mindspore.execution import cast
from opbuild.mindspore.tensor import Tensor

__all__ = ["Primitive"]

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., object])


def formula(what: str, function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function with a description of its result as its documentation; its variable gives it its name."""

    def call(name: str) -> None:
        named(function, name, f"Return {what}.")

    return names.row(function, call)


def named(function: Function, name: str, doc: str) -> Function:
    """Return a function under its name, which also stands in the messages of wrong arguments."""
    function.__doc__ = doc
    inner: Any = function
    while inner is not None:
        inner.__name__ = inner.__qualname__ = name
        inner = getattr(inner, "__wrapped__", None)
    return function


def name_table(table: Mapping[str, Any], module: str, says: str) -> None:
    """Give rows of a table, and what else has no name of its own, the names and if it has none the documentation."""
    names.call_rows(table, module)
    for name, value in table.items():
        if "<" in getattr(value, "__qualname__", ""):
            named(value, name, value.__doc__ or says.format(name))


def need_tensor(value: Any, name: str) -> Tensor:
    """Return ``value`` if it is a tensor, and refuse anything else in the name of a function."""
    if not isinstance(value, Tensor):
        raise ArgumentTypeError(f"{name} was given a {type(value).__name__}", "give a Tensor")
    return value


def floating(value: Any, name: str) -> Tensor:
    """Return the tensor, converted to float32 if it holds integers or truth values."""
    tensor = need_tensor(value, name)
    return tensor if tensor.is_floating_point() else cast(tensor, "float32")


def of_tensor(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first argument must be a tensor."""
    return _taking(need_tensor, 1, function)


def of_tensors(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first two arguments must be tensors."""
    return _taking(need_tensor, 2, function)


def of_floats(function: Callable[..., Result]) -> Callable[..., Result]:
    """Return a function whose first argument must be a tensor, which it gets in floats."""
    return _taking(floating, 1, function)


def _taking(taken: Callable[[Any, str], Tensor], count: int, function: Callable[..., Result]) -> Callable[..., Result]:
    first = function.__code__.co_varnames[:count]

    @wraps(function)
    def checked(*args: Any, **given: Any) -> Result:
        name = checked.__name__
        given.update({key: taken(given[key], name) for key in first if key in given})
        return function(*(taken(each, name) for each in args[:count]), *args[count:], **given)

    return checked


def spelled(function: Callable[..., Result], doc: str = "", fixed: Mapping[str, object] | None = None, /,
            **arguments: str) -> Callable[..., Result]:  # fmt: skip
    """Return a function under another name, that of its variable.

    Args:
        function: What it does.
        doc: What ``help`` says of it; by default what it says of the function.
        fixed: Arguments that it always has.
        arguments: Names of its arguments, and what ``function`` calls them.
    """
    chosen = dict(fixed or {})
    original = signature(function)
    called = {theirs: own for own, theirs in arguments.items()}
    parameters = [each.replace(name=called.get(each.name, each.name))
                  for each in original.parameters.values() if each.name not in chosen]  # fmt: skip
    shown = original.replace(parameters=parameters)

    def other(*args: object, **given: object) -> Result:
        if chosen:  # what is behind a fixed argument has another place
            args, given = (), shown.bind(*args, **given).arguments
        return function(*args, **{arguments.get(key, key): value for key, value in given.items()}, **chosen)

    def call(name: str) -> None:
        what = (function.__doc__ or "").partition("\n")[0].removeprefix("Return").lstrip(", ")
        for own, theirs in arguments.items():
            what = what.replace(f"``{theirs}``", f"``{own}``")
        of = f"{function.__name__}({', '.join(each.name for each in parameters)})"
        named(other, name, doc or f"Return ``{of}``: {what}")

    other.__name__ = function.__name__
    other.__signature__ = shown  # type: ignore[attr-defined]
    return names.row(other, call)


class Primitive:
    """An operator that is called like a function.

    Subclasses take their attributes in ``__init__`` and compute in ``__call__``.
    """

    def __init__(self, name: str = "") -> None:
        self.name = name or type(self).__name__
        self.attributes: dict[str, Any] = {}

    def add_prim_attr(self, name: str, value: Any) -> Primitive:
        """Keep an attribute for programs that ask; it changes nothing."""
        self.attributes[name] = value
        return self

    def shard(self, *strategies: Any) -> Primitive:
        """Return the primitive: there is one device."""
        return self

    def set_device(self, device: str) -> Primitive:
        """Return the primitive: there is one device."""
        return self

    def __call__(self, *operands: Any) -> Any:
        """Apply the operator."""
        raise ArgumentTypeError(f"the primitive {self.name} cannot be called", "use a class of opbuild.mindspore.ops")

    def __repr__(self) -> str:
        listed = ", ".join(f"{key}={value}" for key, value in self.attributes.items())
        return f"Prim[{self.name}]<{listed}>" if listed else f"Prim[{self.name}]"


def primitive(function: Callable[..., Any], doc: str = "", passes: str | None = None, /,
              **attributes: Any) -> Callable[..., Primitive]:  # fmt: skip
    """Return the class of an operator, which is called as its variable.

    Args:
        function: Computes it: called with the operands, and with the attributes by name.
        doc: What ``help`` says of it; by default what it says of the function.
        passes: The attributes that the function takes behind the operands, in order; by default all, by name.
        attributes: The attributes that the constructor takes, in order, with their defaults; ``...`` for one that
            must be given. Those of a lambda are by default its keyword-only arguments.
    """
    attributes = attributes or (keyword_only(function) if function.__name__ == "<lambda>" else {})
    taken = Attributes("", attributes)

    def __init__(self: Primitive, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        Primitive.__init__(self, taken.owner)
        self.attributes.update(taken.bind(args, kwargs))
        nchw(self.attributes.get("data_format", "NCHW"))

    def __call__(self: Primitive, *operands: Any) -> Any:  # noqa: N807
        if passes is not None:
            return function(*operands, *(self.attributes[key] for key in passes.split()))
        return function(*operands, **{key: self.attributes[key] for key in attributes})

    def call(name: str) -> None:
        made.__name__ = made.__qualname__ = taken.owner = name
        made.__doc__ = f"{doc or function.__doc__ or name}\n\nA primitive: ``{name}{taken}(operands)``."

    made = type(function.__name__, (Primitive,), {"__init__": __init__, "__call__": __call__})
    return names.row(made, call)


def operator(function: Callable[..., Any]) -> Callable[..., Primitive]:
    """Return the class of the operator that a function computes: it has its name and its documentation.

    Its attributes are the function's keyword-only arguments.
    """
    found = primitive(function, **keyword_only(function))
    found.__module__ = function.__module__
    return found
