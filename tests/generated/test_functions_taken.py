"""The table of operators that are replaced by their functions says what lowering says."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
import pytest

from generated import random_functions
from opbuild.errors import ModelError
from opbuild.frontend import operator_examples
from opbuild.frontend.expansion import is_foreign
from support.fuzzing import INPUTS, check_seeds
from support.lowered_decision import Decided, decisions

NEWEST = onnx.defs.onnx_opset_version()


def is_compared(each: Decided) -> bool:
    """Return whether it matters what the table says, and lowering knows better.

    Nothing is left of a node of which all is known, as empty lists are, whichever is taken. Where tensors have no
    elements nothing is computed, and functions that reshape cannot always be bound: the table keeps all such nodes.
    """
    pairs = zip(each.known, each.types, strict=True)
    is_known = all(known or kind is None or not kind.size for known, kind in pairs)
    is_empty = any(kind is not None and 0 in kind.shape for kind in each.types[:3])
    may_be_kept = is_foreign(each.node, NEWEST) or each.node.op_type == "Attention"
    return not is_known and not (is_empty and may_be_kept and not each.by_table)


def differences(models: Iterable[onnx.ModelProto]) -> list[str]:
    """Return where the table and lowering differ, about the nodes of models and of their functions."""
    return [str(each) for model in models for each in decisions(model) if differs(each)]


def differs(each: Decided) -> bool:
    """Return whether the table says something else than lowering."""
    return is_compared(each) and each.by_table != each.by_lowering


def check(seed: int) -> str:
    """Compare what is decided about a random node."""
    try:
        found = differences([random_functions.model(seed)])
    except ModelError:
        return "refused"
    assert not found, "\n".join(found)
    return "right"


def test_the_table_decides_on_random_nodes_as_lowering_does() -> None:
    """For attributes, element types, ranks, optional inputs and outputs, and known inputs of all operators."""
    tally = check_seeds("functions taken", check, 2 * INPUTS, processes=0)
    assert tally.outcomes["right"] > 0.9 * tally.outcomes.total()


def test_each_operator_with_a_function_is_compared() -> None:
    """A new release of onnx has new ones; what is not drawn has a reason."""
    made = {
        model.graph.node[0].op_type for model in map(random_functions.model, range(len(random_functions.OPERATORS)))
    }
    assert made == {op_type for _, op_type in random_functions.SCHEMAS} - set(random_functions.NO_NODES)


@pytest.mark.slow
@pytest.mark.parametrize(
    "op_type", [name for _, name in random_functions.SCHEMAS if name in operator_examples.operator_types()]
)
def test_the_table_decides_on_usual_nodes_as_lowering_does(op_type: str) -> None:
    """Each form of an operator that the table of operators has, of each element type."""
    models = [each.model for each in operator_examples.examples(op_type) if each.model is not None]
    assert not differences(models)
