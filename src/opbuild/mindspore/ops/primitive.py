"""``Primitive``: an operator as an object, with its attributes given when it is made."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.mindspore.arguments import ArgumentTypeError, Attributes, keyword_only

__all__ = ["Primitive"]


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


def primitive(name: str, function: Callable[..., Any], doc: str = "", passes: str | None = None, /,
              **attributes: Any) -> Callable[..., Primitive]:  # fmt: skip
    """Return the class of an operator.

    Args:
        name: MindSpore's name of the primitive.
        function: Computes it: called with the operands, and with the attributes by name.
        doc: What ``help`` says of it; by default what it says of the function.
        passes: The attributes that the function takes behind the operands, in order; by default all, by name.
        attributes: The attributes that the constructor takes, in order, with their defaults; ``...`` for one that
            must be given. Those of a lambda are by default its keyword-only arguments.
    """
    attributes = attributes or (keyword_only(function) if function.__name__ == "<lambda>" else {})
    taken = Attributes(name, attributes)

    def __init__(self: Primitive, *args: Any, **kwargs: Any) -> None:  # noqa: N807 - becomes a method
        Primitive.__init__(self, name)
        self.attributes.update(taken.bind(args, kwargs))

    def __call__(self: Primitive, *operands: Any) -> Any:  # noqa: N807
        if passes is not None:
            return function(*operands, *(self.attributes[key] for key in passes.split()))
        return function(*operands, **{key: self.attributes[key] for key in attributes})

    doc = f"{doc or function.__doc__ or name}\n\nA primitive: ``{name}{taken}(operands)``."
    members = {"__init__": __init__, "__call__": __call__, "__doc__": doc, "__module__": __name__}
    return type(name, (Primitive,), members)


def operator(function: Callable[..., Any]) -> Callable[..., Primitive]:
    """Return the class of the operator that a function computes: it has its name and its documentation.

    Its attributes are the function's keyword-only arguments.
    """
    return primitive(function.__name__, function, **keyword_only(function))


def primitives(**functions: Callable[..., Any]) -> dict[str, Callable[..., Primitive]]:
    """Return the classes of operators without attributes: of each the name, and the function that computes it."""
    return {name: primitive(name, function) for name, function in functions.items()}
