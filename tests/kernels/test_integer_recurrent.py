"""LSTMs of int8, whose states become bytes at each step: ONNX Runtime's numbers, and the host's definition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from kernels.harness import run_program
from kernels.lowered import program_of as lowered_nodes
from kernels.small_models import Array, families_of, model_of, program_of, run_model
from opbuild.backend.host.evaluate import evaluate
from opbuild.graph.types import Node
from opbuild.target.host import host_problem
from opbuild.target.level import LEVELS, Level
from support.comparison import exact_weights, onnxruntime_outputs

HERE = [level for level in LEVELS if host_problem(level) is None and level.name != "x86-64"]
STEP = 2e-2
"""What one state may be away that was rounded to the other side of a tie, and what it changed behind it."""

RARE = 2e-4
"""What states are away on average: most follow from the same bytes."""

KNOWN = ("w", "r", "b", "p", "sw", "zw", "sr", "zr")
NAMES = ("x", "w", "r", "b", "lengths", "h", "c", "p", "sw", "zw", "sr", "zr")


def drawn(dtype: str, shape: tuple[int, ...], seed: int = 3) -> Array:
    """Return random bytes, all that the type has and that ONNX Runtime multiplies exactly."""
    info = np.iinfo(dtype)
    return exact_weights(np.random.default_rng(seed).integers(info.min, info.max, shape, dtype, endpoint=True))


def scales(*shape: int) -> Array:
    """Return random scales, small enough for states not to sit at their ends."""
    return np.random.default_rng(5).uniform(0.001, 0.003, shape).astype(np.float32)


@dataclass(frozen=True)
class Layer:
    """A DynamicQuantizeLSTM.

    Attributes:
        steps: Steps of the longest sequence.
        batch: Sequences.
        size: Extent of an input.
        hidden: Hidden units.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        given: Names of the optional inputs that it has.
        columns: Whether each column of weights has a scale of its own.
        kind: The type of the weights.
        zero: Their zero point.
        attrs: Other attributes.
    """

    steps: int = 6
    batch: int = 1
    size: int = 7
    hidden: int = 20
    direction: str = "bidirectional"
    given: tuple[str, ...] = ("b",)
    columns: bool = False
    kind: str = "int8"
    zero: int = 0
    attrs: Mapping[str, Any] = field(default_factory=dict)

    def values(self) -> dict[str, Array]:
        """Return inputs at random."""
        rng, ways, rows = np.random.default_rng(11), 1 + (self.direction == "bidirectional"), 4 * self.hidden
        spread = (ways, rows) if self.columns else (ways,)
        state = (ways, self.batch, self.hidden)
        shapes = {"b": (ways, 2 * rows), "h": state, "c": state, "p": (ways, 3 * self.hidden)}
        found = {"x": rng.standard_normal((self.steps, self.batch, self.size)).astype(np.float32)}
        for number, (name, depth) in enumerate((("w", self.size), ("r", self.hidden))):
            found[name] = drawn(self.kind, (ways, depth, rows), number)
            found[f"s{name}"] = scales(*spread)
            found[f"z{name}"] = np.full(spread, self.zero, self.kind)
        for name in self.given:
            if name == "lengths":
                found[name] = rng.integers(0, self.steps + 1, self.batch).astype(np.int32)
            else:
                found[name] = (rng.standard_normal(shapes[name]) / 4).astype(np.float32)
        return found

    def model(self, known: tuple[str, ...] = KNOWN) -> tuple[onnx.ModelProto, dict[str, Array]]:
        """Return its model and what it is to be fed."""
        values: dict[str, Array] = self.values()
        feeds = {name: values.pop(name) for name in NAMES if name in values and name not in known}
        names = [name if name in feeds or name in values else "" for name in NAMES]
        attrs = {"hidden_size": self.hidden, "direction": self.direction, **self.attrs}
        node = helper.make_node("DynamicQuantizeLSTM", names, ["y", "yh", "yc"], domain="com.microsoft", **attrs)
        return model_of([node], feeds, dict.fromkeys(("y", "yh", "yc"), "float32"), values), feeds


def assert_near(found: Array, expected: Array) -> None:
    """Check states that follow from the same bytes but for rare ties."""
    assert found.shape == expected.shape
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))
    away = np.abs(found - expected)[~np.isnan(expected)]
    assert away.max(initial=0) <= STEP
    assert away.sum() <= RARE * max(away.size, 1)


EVERY = ("b", "lengths", "h", "c", "p")
LAYERS = {
    "of one unit": Layer(hidden=1, size=1),
    "of whole groups": Layer(hidden=64, size=16, steps=20),
    "of 33 units backwards": Layer(hidden=33, direction="reverse"),
    "of 37 units and one direction": Layer(hidden=37, direction="forward", given=()),
    "with everything": Layer(given=EVERY, attrs={"clip": 0.5, "input_forget": 1}),
    "with peepholes": Layer(given=("b", "p"), hidden=18),
    "with a scale for each column": Layer(columns=True, hidden=50, size=3),
    "of uint8": Layer(kind="uint8", zero=128),
    "of uint8 with a scale for each column": Layer(kind="uint8", zero=128, columns=True),
    "with other activations": Layer(attrs={"activations": ["HardSigmoid", "Relu", "Softsign"] * 2}),
    "of one step": Layer(steps=1, given=("b", "h", "c")),
}  # fmt: skip


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_onnx_runtime_gives(name: str) -> None:
    """Of one sequence, which is all that ONNX Runtime quantises together; inputs of all kinds, any number of units."""
    model, feeds = LAYERS[name].model()
    assert {"recurrent", "matmul_integer"} <= set(families_of(program_of(model)))
    assert "host" not in families_of(program_of(model))
    found = run_model(model, feeds)
    for output, expected in zip(("y", "yh", "yc"), onnxruntime_outputs(model, feeds, optimized=False), strict=True):
        assert_near(found[output], expected)


def node_of(layer: Layer) -> tuple[Node, dict[str, Array]]:
    """Return the recurrence alone and its inputs at random."""
    values, ways = layer.values(), 1 + (layer.direction == "bidirectional")
    rng = np.random.default_rng(2)
    projected = rng.standard_normal((layer.steps, layer.batch, ways * 4 * layer.hidden)).astype(np.float32)
    given = {"x": projected, "r": values["r"], "s": scales(ways, 4 * layer.hidden)}
    given |= {name: values[name] for name in ("lengths", "h", "c", "p") if name in values}
    names = tuple(name if name in given else "" for name in ("x", "r", "s", "lengths", "h", "c", "p"))
    attrs = {"hidden_size": layer.hidden, "direction": layer.direction, **layer.attrs}
    return Node("IntegerLSTM", names, ("y", "yh", "yc"), attrs, "layer", "opbuild"), given


def check(layer: Layer, level: Level | None = None, changed: Mapping[str, Any] | None = None) -> dict[str, Array]:
    """Check that the kernel gives what the host gives; return it. ``changed`` are elements of inputs."""
    node, given = node_of(layer)
    for name, (place, value) in (changed or {}).items():
        given[name][place] = value
    with np.errstate(all="ignore"):
        expected = dict(zip(node.outputs, evaluate(node, [given.get(name) for name in node.inputs], 22), strict=True))
    known = {name: given.pop(name) for name in ("r", "s")}
    outputs = {name: ("float32", value.shape) for name, value in reversed(expected.items())}
    program = lowered_nodes([node], given, outputs, known, level=level)
    found = run_program(program, given, level=level)
    assert_near(found["y"], expected["y"])
    return found


@pytest.mark.parametrize("level", HERE, ids=lambda level: level.name)
def test_every_level_computes_the_same(level: Level) -> None:
    """Whether an instruction adds up four products or two: several sequences of all lengths, one task and more."""
    for hidden, batch in ((20, 3), (32, 9), (5, 1)):
        check(Layer(hidden=hidden, batch=batch, given=EVERY), level)


def test_sequences_are_quantised_each_by_itself() -> None:
    """So that none changes another's numbers, of whatever range its states are."""
    layer = Layer(batch=5, given=("h", "c"), attrs={"activations": ["Sigmoid", "Tanh", "Relu"] * 2})
    changed = {"c": ((slice(None), 2), 40.0)}
    together = check(layer, changed=changed)["y"]
    _, given = node_of(layer)
    given["c"][:, 2] = 40.0
    for number in range(layer.batch):
        own = {name: (slice(None), value[:, number : number + 1]) for name, value in given.items() if name in "xhc"}
        alone = check(replace(layer, batch=1), changed=own)["y"]
        np.testing.assert_array_equal(together[:, :, number], alone[:, :, 0])


@pytest.mark.parametrize("extents", [(0, 3, 20), (5, 0, 20), (1, 1, 16), (40, 2, 20), (2, 40, 20)])
def test_sequences_of_any_number_and_length(extents: tuple[int, int, int]) -> None:
    """None, one, or many."""
    steps, batch, hidden = extents
    check(Layer(steps, batch, hidden=hidden, given=("lengths", "h", "c")))


def test_nan_and_infinity_spoil_their_own_sequence_alone() -> None:
    """From the step on at which they come; other sequences keep their numbers."""
    layer = Layer(batch=3, direction="forward", given=("h",), attrs={"activations": ["Sigmoid", "Tanh", "Tanh"]})
    clean = check(layer)["y"]
    found = check(layer, changed={"x": ((2, 0, 5), np.nan), "h": ((0, 1, 3), np.inf)})["y"]
    np.testing.assert_array_equal(found[:2, :, 0], clean[:2, :, 0])
    assert np.isnan(found[3:, :, 0]).all()
    assert np.isnan(found[:, :, 1]).all()
    np.testing.assert_array_equal(found[:, :, 2], clean[:, :, 2])


@pytest.mark.slow
def test_large_layers_are_divided_by_their_units() -> None:
    """A step of one sequence is divided among tasks; all numbers of them give the same bytes."""
    check(Layer(3, 1, hidden=400, direction="forward", given=()))
    check(Layer(3, 2, hidden=800, given=("lengths",)))


@pytest.mark.parametrize(
    ("layer", "known"),
    [
        (Layer(kind="uint8", zero=100), KNOWN),
        (Layer(), tuple(name for name in KNOWN if name != "r")),
    ],
    ids=["zero points beside the middle", "weights known only at run time"],
)
def test_weights_that_may_not_be_int8_are_dequantised(layer: Layer, known: tuple[str, ...]) -> None:
    """Their layer is one of float32, as near to ONNX Runtime's as bytes are to floats."""
    model, feeds = layer.model(known)
    assert "matmul_integer" not in families_of(program_of(model))
    expected = onnxruntime_outputs(model, feeds, optimized=False)[0]
    np.testing.assert_allclose(run_model(model, feeds)["y"], expected, atol=0.05)
