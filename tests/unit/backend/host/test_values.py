"""The host backend's numbers where ONNX and numpy differ, and its errors."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from opbuild.backend.host.evaluate import evaluate
from opbuild.errors import RunError, UnsupportedOperatorError
from opbuild.graph.types import Node
from opbuild.operations.evaluation import apply, cast, evaluate_expression
from opbuild.operations.expression import ACC, arg, const
from opbuild.operations.table import OPERATIONS

SPECIAL = np.array([-np.inf, -2.5, -1, -0.0, 0, 0.5, 1.5, 2.5, 88.8, np.inf, np.nan], np.float32)


def f32(*values: float) -> np.ndarray:
    """Return float32 values."""
    return np.array(values, np.float32)


@pytest.mark.parametrize("name", [each.name for each in OPERATIONS.values() if each.has_floats])
@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_floating_operations_keep_their_type_and_never_warn(name: str, dtype: str) -> None:
    """float32 in, float32 out; NaN and infinities pass without a warning."""
    operands = [SPECIAL.astype(dtype)] * OPERATIONS[name].arity
    if name == "where":
        operands[0] = np.isnan(SPECIAL)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = apply(name, *operands)
    assert str(found.dtype) in (dtype, "bool")
    assert found.shape == SPECIAL.shape


def test_integer_division_rounds_towards_zero() -> None:
    """As C does, unlike numpy; a zero divisor gives 0 without a trap."""
    a, b = np.array([7, -7, 7, -7, 5], np.int32), np.array([2, 2, -2, -2, 0], np.int32)
    assert apply("div", a, b).tolist() == [3, -3, -3, 3, 0]
    assert apply("floor_div", a, b).tolist()[:4] == [3, -4, -4, 3]
    assert apply("mod", a, b).tolist()[:4] == [1, 1, -1, -1]
    assert apply("fmod", a, b).tolist()[:4] == [1, -1, 1, -1]


def test_round_is_to_even() -> None:
    """ONNX rounds halves to the even neighbour."""
    assert apply("round", f32(0.5, 1.5, 2.5, -0.5)).tolist() == [0, 2, 2, 0]


def test_extremes_and_relu_pass_nan_on() -> None:
    """NaN in one operand is NaN in the result."""
    nan, one = f32(np.nan), f32(1)
    for name in ("max", "min"):
        assert np.isnan(apply(name, nan, one)).all()
        assert np.isnan(apply(name, one, nan)).all()
    assert np.isnan(apply("relu", nan)).all()


def test_activations_do_not_overflow() -> None:
    """Exponentials of large numbers saturate instead of giving NaN."""
    x = f32(-1000, 1000)
    assert apply("sigmoid", x).tolist() == [0, 1]
    assert apply("softplus", x).tolist() == [0, 1000]
    assert apply("mish", x).tolist() == [0, 1000]
    assert apply("elu", x, f32(1)).tolist() == [-1, 1000]


def test_half_precision_rounds_once() -> None:
    """float16 is computed in float32: a gelu of float16 is the rounded gelu of float32."""
    x = np.linspace(-4, 4, 101).astype(np.float16)
    np.testing.assert_array_equal(apply("gelu", x), apply("gelu", x.astype(np.float32)).astype(np.float16))


def test_cast_truncates_and_knows_truth() -> None:
    """Floats become integers towards zero; everything but 0 is true, NaN too."""
    assert cast(f32(-1.9, 1.9, 300), "int8").tolist() == [-1, 1, 44]
    assert cast(f32(0, -0.0, np.nan, 0.1), "bool").tolist() == [False, False, True, True]


def test_an_expression_is_its_operations() -> None:
    """Nested operations, constants, casts and the accumulator."""
    expression = ("relu", ("add", ("mul", ACC, arg(0)), const(1.0)))
    found = evaluate_expression(expression, [f32(2, -3)], f32(1, 1))
    assert found.tolist() == [3, 0]
    assert evaluate_expression(("cast", "int32", arg(0)), [f32(2.7)]).dtype == np.int32
    assert np.isposinf(evaluate_expression(const(np.inf), []))
    assert evaluate_expression(("user", "twice", arg(0)), [f32(2)], user={"twice": lambda x: 2 * x}).tolist() == [4]


def test_an_expression_that_cannot_be_evaluated_says_why() -> None:
    """An unknown operation, a missing accumulator, a user operator without numpy definition."""
    for expression, words in (
        (("frobnicate", arg(0)), "'frobnicate' is not an operation"),
        (ACC, "reads an accumulator"),
        (("user", "mine", arg(0)), "'mine' has no numpy definition"),
    ):
        with pytest.raises(UnsupportedOperatorError, match=words):
            evaluate_expression(expression, [f32(1)])


def test_an_index_out_of_range_is_an_error_that_names_the_node() -> None:
    """Gather on the host checks what a kernel cannot."""
    node = Node("Gather", ("x", "i"), ("y",), {}, "lookup")
    with pytest.raises(RunError, match="node 'lookup': index 3 is out of range: it must be from -3 to 2"):
        evaluate(node, [f32(1, 2, 3), np.array([3])], 21)


def test_the_reference_evaluator_serves_the_rest() -> None:
    """An operator without a numpy implementation still runs."""
    node = Node("Trilu", ("x",), ("y",), {"upper": 0}, "lower")
    (found,) = evaluate(node, [np.ones((3, 3), np.float32)], 21)
    assert found.tolist() == np.tril(np.ones((3, 3))).tolist()


def test_an_operator_that_nobody_knows_is_an_error_that_names_the_node() -> None:
    """Unknown to numpy and to the reference evaluator."""
    for domain in ("", "opbuild"):
        with pytest.raises(UnsupportedOperatorError, match="Frobnicate node 'odd'"):
            evaluate(Node("Frobnicate", ("x",), ("y",), {}, "odd", domain), [f32(1)], 21)
