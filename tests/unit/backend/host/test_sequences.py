"""Sequences and optional values on the host: lists and None."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import RunError
from opbuild.graph.types import Node

NEWEST = onnx.defs.onnx_opset_version()
A, B, C = np.array([1.0, 2]), np.array([[3.0]]), np.array(4)


def run(op_type: str, *inputs: Any, outputs: int = 1, **attrs: Any) -> Any:
    """Return the first output of a node."""
    names = tuple("" if each is None else f"i{index}" for index, each in enumerate(inputs))
    return evaluate(Node(op_type, names, ("o",) * outputs, attrs, "node"), list(inputs), NEWEST)[0]


def same(found: Any, wanted: list[Any]) -> None:
    """Assert that a sequence has these elements, with their types."""
    assert isinstance(found, list)
    assert [(each.dtype, each.tolist()) for each in found] == [(each.dtype, each.tolist()) for each in wanted]


def test_sequences_are_made_and_changed_without_changing_others() -> None:
    """Each operator gives a new list: what another node reads stays as it was."""
    abc = run("SequenceConstruct", A, B, C)
    same(abc, [A, B, C])
    same(run("SequenceEmpty"), [])
    same(run("SequenceInsert", abc, A), [A, B, C, A])
    same(run("SequenceInsert", abc, A, np.array(0)), [A, A, B, C])
    same(run("SequenceInsert", abc, A, np.array(-1)), [A, B, A, C])
    same(run("SequenceInsert", abc, A, np.array(3)), [A, B, C, A])
    same(run("SequenceErase", abc), [A, B])
    same(run("SequenceErase", abc, np.array(-3)), [B, C])
    same(abc, [A, B, C])


def test_elements_and_lengths_are_read() -> None:
    """Places count from either end; an element of a sequence may be text."""
    abc = [A, B, C]
    assert run("SequenceAt", abc, np.array(1)) is B
    assert run("SequenceAt", abc, np.array(-1, np.int32)).tolist() == 4
    length = run("SequenceLength", abc)
    assert (length.dtype, length.shape, int(length)) == (np.int64, (), 3)
    words = run("SequenceAt", [np.array(["a"], object)], np.array(0))
    assert words.tolist() == ["a"]


@pytest.mark.parametrize(
    ("split", "keepdims", "axis", "wanted"),
    [
        (None, 1, 0, [[[0, 1, 2]], [[3, 4, 5]]]),
        (None, 0, 0, [[0, 1, 2], [3, 4, 5]]),
        (None, 0, -1, [[0, 3], [1, 4], [2, 5]]),
        (np.array(2), 0, 1, [[[0, 1], [3, 4]], [[2], [5]]]),
        (np.array([1, 2]), 1, 1, [[[0], [3]], [[1, 2], [4, 5]]]),
        (np.array([0, 2], np.int32), 1, 0, [[], [[0, 1, 2], [3, 4, 5]]]),
    ],
)
def test_a_tensor_is_split_to_a_sequence(split: Any, keepdims: int, axis: int, wanted: list[Any]) -> None:
    """By lengths, by one length, or to single elements; dimensions go away only in the last case."""
    found = run("SplitToSequence", np.arange(6).reshape(2, 3), split, axis=axis, keepdims=keepdims)
    assert [each.tolist() for each in found] == wanted


def test_a_sequence_is_joined() -> None:
    """Along an axis that is there, or along a new one."""
    parts = [np.array([[1, 2]]), np.array([[3, 4]])]
    assert run("ConcatFromSequence", parts, axis=1).tolist() == [[1, 2, 3, 4]]
    assert run("ConcatFromSequence", parts, axis=-1, new_axis=1).tolist() == [[[1, 3], [2, 4]]]


def test_an_optional_value_may_be_empty() -> None:
    """None is an empty one; a tensor or a sequence has itself as its element."""
    assert run("Optional") is None
    assert run("Optional", A) is A
    assert run("OptionalGetElement", [A]) == [A]
    for value, wanted in ((A, True), ([], True), (None, False)):
        found = run("OptionalHasElement", value)
        assert (found.dtype, found.shape, bool(found)) == (np.bool_, (), wanted)
    assert not run("OptionalHasElement")


WRONG: list[tuple[str, list[Any], dict[str, Any], str]] = [
    ("SequenceAt", [[A], np.array(1)], {}, "place 1 is outside a sequence of 1; its inputs are a sequence of 1, int64"),
    ("SequenceAt", [[], np.array(-1)], {}, "outside"),
    ("SequenceErase", [[], None], {}, "outside"),
    ("SequenceInsert", [[A], B, np.array(2)], {}, "place 2 is outside"),
    ("OptionalGetElement", [None], {}, "is empty"),
    ("ConcatFromSequence", [[]], {"axis": 0}, "is empty"),
    ("SplitToSequence", [A, np.array([1, 2])], {}, "do not make up 2"),
    ("SplitToSequence", [A, np.array(0)], {}, "0 elements"),
]


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "message"), WRONG)
def test_what_a_sequence_has_not_is_an_error_that_names_the_node(
    op_type: str, inputs: list[Any], attrs: dict[str, Any], message: str
) -> None:
    """Python's own indices would count on from the other end, or cut."""
    with pytest.raises(RunError, match=f"{op_type} node 'node' failed on the host: .*{message}"):
        run(op_type, *inputs, **attrs)


# -- random values -----------------------------------------------------------------------------------------------------

X = np.linspace(0, 1, 20000, dtype=np.float32)
DRAWS: list[tuple[str, list[Any], dict[str, Any], str, tuple[int, ...], float, float]] = [
    ("RandomNormal", [], {"shape": (100, 200), "mean": 3.0, "scale": 2.0}, "float32", (100, 200), 3, 2),
    ("RandomNormalLike", [X], {"dtype": 11}, "float64", (20000,), 0, 1),
    ("RandomUniform", [], {"shape": (20000,), "low": -1.0, "high": 3.0}, "float32", (20000,), 1, 4 / 12**0.5),
    ("RandomUniformLike", [X.astype(np.float16)], {}, "float16", (20000,), 0.5, 1 / 12**0.5),
    ("Bernoulli", [np.full(20000, 0.25)], {"dtype": 9}, "bool", (20000,), 0.25, (3 / 16) ** 0.5),
    ("Multinomial", [np.log(np.float32([[1, 3]]))], {"sample_size": 20000}, "int32", (1, 20000), 0.75, (3 / 16) ** 0.5),
    ("Dropout", [np.ones(20000, "f"), np.array(0.75, "f"), np.array(True)], {}, "float32", (20000,), 1, 3**0.5),
]
"""Operator, inputs, attributes; and of what is drawn: element type, shape, mean, deviation."""


@pytest.mark.parametrize(("op_type", "inputs", "attrs", "dtype", "shape", "mean", "deviation"), DRAWS)
def test_random_values_have_their_distribution_and_a_seed_repeats_them(
    op_type: str,
    inputs: list[Any],
    attrs: dict[str, Any],
    dtype: str,
    shape: tuple[int, ...],
    mean: float,
    deviation: float,
) -> None:
    """20,000 values: their mean is within five of its own deviations, for seeds that are fixed."""
    drawn = run(op_type, *inputs, seed=1.0, **attrs)
    assert (str(drawn.dtype), drawn.shape) == (dtype, shape)
    values = drawn.astype(np.float64)
    assert abs(values.mean() - mean) < 5 * deviation / 20000**0.5
    assert abs(values.std() - deviation) < 0.05 * deviation
    np.testing.assert_array_equal(run(op_type, *inputs, seed=1.0, **attrs), drawn)
    assert (run(op_type, *inputs, seed=2.0, **attrs) != drawn).any()
    assert (run(op_type, *inputs, **attrs) != run(op_type, *inputs, **attrs)).any()


def test_a_uniform_value_never_reaches_its_upper_bound() -> None:
    """Rounded to float16, one value in 4,096 would."""
    drawn = run("RandomUniform", shape=(20000,), dtype=10, seed=1.0)
    assert drawn.dtype == np.float16
    assert drawn.max() < 1


@pytest.mark.parametrize("inputs", [[A], [A, np.array(0.5)], [A, np.array(0.5), np.array(False)],
                                    [A, np.array(0.0), np.array(True)]])  # fmt: skip
def test_dropout_passes_values_on_unless_it_trains(inputs: list[Any]) -> None:
    """Inference, and a ratio of 0."""
    found, mask = evaluate(Node("Dropout", ("a", "b", "c")[: len(inputs)], ("o", "m"), {}, "node"), inputs, NEWEST)
    assert (found.tolist(), mask.tolist()) == (A.tolist(), [True, True])
