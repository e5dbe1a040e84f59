"""Trees that are none end with an error that names the node and the attribute, whoever wrote them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

from generated.random_trees import Case, random_case
from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import InvalidModelError, OpbuildError
from opbuild.frontend.onnx_model import load_model
from support.fuzzing import CAMPAIGN, check_seeds

CASES = CAMPAIGN or 150


def forest(op_type: str = "TreeEnsembleRegressor", least: int = 3) -> Case:
    """Return random trees of an operator, without shared branches."""
    for seed in range(1000):
        case = random_case(seed)
        roots = [tree for tree in case.trees if not hasattr(tree, "votes")]
        if case.op_type == op_type and len(roots) >= least and not case.is_shared and not case.doubles:
            case.attrs = {name: value for name, value in case.written().items() if not name.startswith("base")}
            return case
    raise AssertionError("there is no such case")


def changed(case: Case, name: str, index: int, value: Any) -> None:
    """Change one value of an attribute."""
    values = list(case.attrs[name])
    values[index] = value
    case.attrs[name] = values


def fails(case: Case, *words: str) -> None:
    """Check that a model is refused, with words in the message."""
    with pytest.raises(OpbuildError) as caught:
        load_model(case.model()).bind({}, evaluate)
    for word in ("'trees'", *words):
        assert word in str(caught.value), str(caught.value)


LISTS = ("treeids", "nodeids", "featureids", "modes", "truenodeids", "falsenodeids", "values",
         "missing_value_tracks_true")  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_a_list_of_nodes_that_is_too_short(name: str) -> None:
    """Both lengths are said."""
    case = forest()
    case.attrs[f"nodes_{name}"] = case.attrs[f"nodes_{name}"][:-1]
    fails(case, "values, and", f"{len(case.attrs['nodes_modes' if name != 'modes' else 'nodes_values'])}")


@pytest.mark.parametrize("name", [*(f"nodes_{each}" for each in LISTS[:-1]), "target_ids", "target_weights"])
def test_a_list_that_is_missing(name: str) -> None:
    """Its name is said."""
    case = forest()
    del case.attrs[name]
    fails(case, f"'{name}' is missing")


def test_a_child_that_there_is_not() -> None:
    """The attribute, the node and the tree are said."""
    case = forest()
    inner = case.attrs["nodes_modes"].index("BRANCH_LEQ") if "BRANCH_LEQ" in case.attrs["nodes_modes"] else 0
    changed(case, "nodes_truenodeids", inner, 99999)
    fails(case, "'nodes_truenodeids' names node 99999 of tree", "which there is not")


def test_a_node_that_leads_back_to_its_root() -> None:
    """A walk down would never end."""
    case = forest()
    modes = case.attrs["nodes_modes"]
    inner = next(place for place, mode in enumerate(modes) if mode != "LEAF")
    changed(case, "nodes_falsenodeids", inner, case.attrs["nodes_nodeids"][inner])
    fails(case, "'nodes_falsenodeids'", "back to itself")


def test_a_node_that_is_there_twice() -> None:
    """Nobody can tell which of the two is meant."""
    case = forest()
    changed(case, "nodes_nodeids", 1, case.attrs["nodes_nodeids"][0])
    changed(case, "nodes_treeids", 1, case.attrs["nodes_treeids"][0])
    fails(case, "'nodes_nodeids' has node", "twice")


def test_targets_features_and_modes_that_there_are_not() -> None:
    """What is named, and how many there are."""
    case = forest()
    changed(case, "target_ids", 0, 77)
    fails(case, "'target_ids' names target 77 at 0")
    case = forest()
    inner = next(place for place, mode in enumerate(case.attrs["nodes_modes"]) if mode != "LEAF")
    changed(case, "nodes_featureids", inner, 50)
    fails(case, "'nodes_featureids' names feature 50", f"there are {case.x.shape[1]}")
    case = forest()
    changed(case, "nodes_modes", 0, "BRANCH_MAYBE")
    fails(case, "'nodes_modes' has 'BRANCH_MAYBE'")


def test_base_values_labels_and_names_of_functions() -> None:
    """Numbers of them that do not fit, and names that there are not."""
    case = forest()
    case.attrs["base_values"] = [0.5] * (case.targets + 1)
    fails(case, "'base_values' has", "values, not")
    case = forest()
    case.attrs["aggregate_function"] = "MEDIAN"
    fails(case, "'aggregate_function' is 'MEDIAN'")
    case = forest("TreeEnsembleClassifier")
    del case.attrs["classlabels_int64s"]
    fails(case, "'classlabels_int64s'")


def test_trees_with_leaves_of_their_own() -> None:
    """Roots, leaves, modes and sets that there are not."""
    case = forest("TreeEnsemble")
    case.attrs["tree_roots"] = [10**6]
    fails(case, "'tree_roots' names node 1000000")
    case = forest("TreeEnsemble")
    place = case.attrs["nodes_trueleafs"].index(1)
    changed(case, "nodes_truenodeids", place, 10**6)
    fails(case, "'nodes_truenodeids' names leaf 1000000")
    case = forest("TreeEnsemble")
    count = len(case.attrs["nodes_featureids"])
    case.attrs["nodes_modes"] = numpy_helper.from_array(np.full(count, 6, np.uint8))
    case.attrs["membership_values"] = numpy_helper.from_array(np.array([1.0], np.float32))
    if count > 1:
        fails(case, "'membership_values' has 1 sets", f"{count} nodes")


def _damaged(seed: int) -> tuple[str, str]:
    """Change a value, a length or a kind in random trees, and read them."""
    draw = np.random.default_rng(seed)
    case = random_case(seed)
    if "classlabels_strings" in case.attrs:
        case.attrs = case.written()  # a graph alone has no text
    names = [name for name, value in case.attrs.items() if isinstance(value, list) and value]
    name = names[draw.integers(len(names))]
    values = list(case.attrs[name])
    place = int(draw.integers(len(values)))
    kind = int(draw.integers(4))
    if kind == 0:
        del values[place]
    elif kind == 1:
        values.insert(place, values[place])
    else:
        numbers = (-1, 0, 1, 2, 5, 10**6, 2**31, 2**63 - 1, -(2**63))
        wrong = numbers[draw.integers(len(numbers))]
        values[place] = "LEAF" if isinstance(values[place], str) else type(values[place])(wrong)
    case.attrs[name] = values
    try:
        model = case.model()
    except ValueError:
        return "no model", ""
    try:
        graph = load_model(model).bind({}, evaluate)
        found = {**graph.constants, "x": case.x}
        for node in graph.nodes:
            found.update(zip(node.outputs, evaluate(node, [found[each] for each in node.inputs], 21), strict=False))
    except InvalidModelError as error:
        return ("refused", "") if "'trees'" in str(error) and "attribute" in str(error) else ("wrong", str(error))
    except OpbuildError as error:
        return "wrong", str(error)
    return "read", ""


@pytest.mark.slow
def test_damaged_trees_are_refused_or_read() -> None:
    """An error names the node and an attribute; nothing else ends, and nothing goes on for ever."""
    assert check_seeds("damaged trees", _damaged, CASES).outcomes["refused"]
