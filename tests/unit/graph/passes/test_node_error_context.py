"""Errors about a model name the node that is at fault, as a field: what reads them reads no message."""

from __future__ import annotations

import pickle

import pytest

from opbuild.errors import ModelError, UnsupportedOperatorError
from opbuild.graph.passes.infer import node_error_context
from opbuild.graph.types import Node


def test_a_node_is_not_named_for_a_value_of_its_name() -> None:
    """The message about ``last`` mentions the value ``first``, and the error was given to the node of that name."""
    last = Node("Reshape", ("x", "first"), ("y",), {}, "last")
    with pytest.raises(ModelError) as caught, node_error_context(last):
        raise ModelError("Reshape needs the values of 'first'", "give it a constant")
    assert caught.value.node == "last"


def test_the_innermost_node_is_named() -> None:
    """An error that has a node keeps it on its way out."""
    inner, outer = (Node("Abs", ("x",), ("y",), {}, name) for name in ("inner", "outer"))
    with pytest.raises(UnsupportedOperatorError) as caught, node_error_context(outer), node_error_context(inner):
        raise UnsupportedOperatorError("no", "replace it")
    assert caught.value.node == "inner"


def test_a_node_survives_a_process() -> None:
    """Errors travel between ranks and workers as they are."""
    error = ModelError("no", "yes", command="--yes")
    error.node = "last"
    copy = pickle.loads(pickle.dumps(error))
    assert (copy.message, copy.hint, copy.command_hint, copy.node) == ("no", "yes", "--yes", "last")
