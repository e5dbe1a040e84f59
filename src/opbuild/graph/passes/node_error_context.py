"""Naming the node at fault for errors of numpy or onnx while a model is read, typed, folded or rewritten."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from opbuild.errors import InvalidModelError, ModelError
from opbuild.graph.types import Node


@contextmanager
def node_error_context(node: Node, caller: Node | None = None) -> Iterator[None]:
    """Turn errors of other packages for a node's attributes, shapes or constants into one that names the node.

    Args:
        node: The node.
        caller: The node of the model in whose function it is, if it is in one: that one is at fault.

    Raises:
        InvalidModelError: Instead of those.
        ModelError: As it was raised; from here on it has the node's name.
    """
    try:
        yield
    except ModelError as error:
        error.node = error.node or node.name
        if caller is not None:
            error.node = caller.name
            error.message = f"{caller.op_type} node {caller.name!r}: its function is not valid: {error.message}"
        raise
    except (ArithmeticError, AttributeError, LookupError, MemoryError, RuntimeError, TypeError, ValueError) as error:
        what = "more memory than there is" if isinstance(error, MemoryError) else "something that is not valid"
        raise InvalidModelError(
            f"{node.op_type} node {node.name!r}: its attributes or inputs ask for {what} "
            f"({type(error).__name__}: {' '.join(str(error).split())[:200]})",
            "check the node's attributes and constants against ONNX's reference",
        ) from error
