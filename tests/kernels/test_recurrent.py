"""RNN, GRU and LSTM as kernels give what the host's step by step definition gives, whatever their attributes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from kernels.harness import run_program
from kernels.hostile import Case
from opbuild.backend.host.evaluate import evaluate
from opbuild.families.recurrent.family import GATES
from opbuild.graph.passes.pipeline import optimize
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.program import HostCall, KernelCall, Program
from opbuild.target.host import host_level
from support.fuzzing import CAMPAIGN, SEED
from support.tiers import halved

Array = npt.NDArray[Any]


def _weights(*shapes: tuple[int, ...]) -> list[Any]:
    """Return weights at random, small enough for errors not to grow from step to step."""
    rng = np.random.default_rng(7)
    return [(rng.standard_normal(shape) / 4).astype(np.float32) for shape in shapes]


def _bytes(*shapes: tuple[int, ...]) -> list[Any]:
    """Return weights of int8 at random."""
    rng = np.random.default_rng(7)
    return [rng.integers(-128, 127, shape, np.int8, endpoint=True) for shape in shapes]


HOSTILE = {
    "recurrent": Case(
        "LSTM",
        lambda n: (3, n, 5),
        lambda _: _weights((1, 80, 5), (1, 80, 20), (1, 160)),
        {"hidden_size": 20},
    ),
    "recurrent steps": Case(
        "GRU",
        lambda n: (n, 2, 5),
        lambda _: _weights((2, 48, 5), (2, 48, 16)),
        {"hidden_size": 16, "direction": "bidirectional"},
        least=1,
    ),
    "recurrent bytes": Case(
        "DynamicQuantizeLSTM",
        lambda n: (n, 1, 5),
        lambda _: [
            *_bytes((2, 5, 80), (2, 20, 80)),
            *[""] * 5,
            *(np.float32([0.002, 0.003]), np.zeros(2, np.int8)) * 2,
        ],
        {"hidden_size": 20, "direction": "bidirectional", "domain": "com.microsoft"},
    ),
}
"""For ``test_every_family``; of bytes one sequence, which is all that ONNX Runtime quantises together."""

OPTIONAL = ("B", "sequence_lens", "initial_h", "initial_c", "P")
ACTIVATIONS = (
    "Tanh", "Sigmoid", "Relu", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu",
    "Softsign", "Softplus",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A recurrent layer.

    Attributes:
        kind: The operator.
        steps: Steps of the longest sequence.
        batch: Sequences.
        size: Extent of an input.
        hidden: Hidden units.
        given: Names of the optional inputs that it has.
        direction: ``forward``, ``reverse`` or ``bidirectional``.
        attrs: Other attributes.
        constant: Inputs that are known when the network is built.
        outputs: The outputs that are asked for.
    """

    kind: str
    steps: int = 5
    batch: int = 3
    size: int = 6
    hidden: int = 20
    given: tuple[str, ...] = ("B",)
    direction: str = "forward"
    attrs: dict[str, Any] = field(default_factory=dict)
    constant: tuple[str, ...] = ("W", "R", "B", "P")
    outputs: tuple[str, ...] = ("Y", "Y_h", "Y_c")

    @property
    def directions(self) -> int:
        """How many there are."""
        return 2 if self.direction == "bidirectional" else 1

    def values(self, seed: int = 0) -> dict[str, Array]:
        """Return inputs at random."""
        rng = np.random.default_rng(seed)
        rows, ways, batch_first = GATES[self.kind] * self.hidden, self.directions, self.attrs.get("layout", 0)
        state = (self.batch, ways, self.hidden) if batch_first else (ways, self.batch, self.hidden)
        shapes = {
            "X": (self.batch, self.steps, self.size) if batch_first else (self.steps, self.batch, self.size),
            "W": (ways, rows, self.size),
            "R": (ways, rows, self.hidden),
            "B": (ways, 2 * rows),
            "sequence_lens": (self.batch,),
            "initial_h": state,
            "initial_c": state,
            "P": (ways, 3 * self.hidden),
        }
        if self.kind != "LSTM":
            shapes = {name: shape for name, shape in shapes.items() if name not in ("initial_c", "P")}
        found: dict[str, Array] = {}
        for name, shape in shapes.items():
            if name in ("X", "W", "R") or name in self.given:
                count = shape[-1] if name in ("W", "R") else 4  # of what is summed up: states neither die nor explode
                found[name] = (rng.standard_normal(shape) / max(1, count) ** 0.5).astype(np.float32)
        if "sequence_lens" in found:
            found["sequence_lens"] = rng.integers(0, self.steps + 1, self.batch).astype(np.int32)
        return found

    def node(self) -> Node:
        """Return the node."""
        names = ["X", "W", "R", *(name if name in self.given else "" for name in OPTIONAL)]
        names = names[: 8 if self.kind == "LSTM" else 6]
        outputs = ("Y", "Y_h", "Y_c" if self.kind == "LSTM" else "", "kept")
        outputs = outputs[: 4 if "kept" in self.outputs else 3 if self.kind == "LSTM" else 2]
        named = tuple(name if name in self.outputs else "" for name in outputs)
        attrs = {"hidden_size": self.hidden, "direction": self.direction, **self.attrs}
        return Node(self.kind, tuple(names), named, attrs, "layer")

    def program(self, values: dict[str, Array], impl_mode: str = "high_performance") -> Program:
        """Return the network of this layer alone, lowered."""
        return lower(self.graph(values), host_level(), Options(impl_mode=impl_mode))

    def graph(self, values: dict[str, Array]) -> Graph:
        """Return the network of this layer alone."""
        known = {name: value for name, value in values.items() if name in self.constant}
        types = {name: TensorType(str(value.dtype), value.shape) for name, value in values.items()}
        node = self.node()
        for name, value in zip(node.outputs, expected(self, values), strict=True):
            types |= {name: TensorType(str(value.dtype), value.shape)} if name else {}
        outputs = tuple(name for name in node.outputs if name)
        given = tuple(name for name in values if name not in known)
        return Graph("one", (node,), given, outputs, types, known, 22)


def expected(layer: Layer, values: dict[str, Array]) -> Sequence[Array]:
    """Return all outputs as the host computes them."""
    node = replace(layer, outputs=("Y", "Y_h", "Y_c", *(("kept",) if "kept" in layer.outputs else ()))).node()
    with np.errstate(all="ignore"):
        found: Sequence[Array] = evaluate(node, [values.get(name) for name in node.inputs], 22)
    return found


def check(layer: Layer, values: dict[str, Array] | None = None, impl_mode: str = "high_performance") -> None:
    """Check that kernels alone give what the host gives."""
    values = layer.values() if values is None else values
    program = layer.program(values, impl_mode)
    found = run_program(program, values)
    for name, value in zip(("Y", "Y_h", "Y_c", "kept"), expected(layer, values), strict=False):
        if name in found:
            np.testing.assert_allclose(found[name], value, rtol=2e-5, atol=2e-6, err_msg=f"{name} of {layer}")


ALL = OPTIONAL
LAYERS = {
    "lstm": Layer("LSTM"),
    "lstm with everything": Layer(
        "LSTM", batch=9, given=ALL, direction="bidirectional", attrs={"layout": 1, "clip": 0.5, "input_forget": 1}
    ),
    "lstm backwards": Layer("LSTM", given=("sequence_lens", "initial_c"), direction="reverse", hidden=33),
    "gru": Layer("GRU", given=ALL, direction="bidirectional"),
    "gru backwards": Layer("GRU", batch=9, direction="reverse", given=("B", "initial_h")),
    "linear gru": Layer("GRU", given=ALL, attrs={"linear_before_reset": 1}),
    "linear gru without bias": Layer("GRU", given=(), attrs={"linear_before_reset": 1}, direction="bidirectional"),
    "rnn": Layer("RNN", given=ALL, direction="bidirectional"),
    "rnn of one": Layer("RNN", batch=1, hidden=1, size=1, direction="reverse"),
    "directions of their own": Layer(
        "GRU",
        given=ALL,
        direction="bidirectional",
        attrs={"activations": ["Sigmoid", "Tanh", "HardSigmoid", "Softsign"], "clip": 1.5},
    ),
}


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_gives_what_its_definition_gives(name: str) -> None:
    """In one task and in several; nothing is written outside the outputs."""
    check(LAYERS[name])


@halved
@pytest.mark.parametrize("constant", [(), ("W", "R", "B", "P")])
@pytest.mark.parametrize("batch", [1, 3, 9])
@pytest.mark.parametrize("direction", ["forward", "reverse", "bidirectional"])
def test_a_layer_gives_what_its_gradient_needs(direction: str, batch: int, constant: tuple[str, ...]) -> None:
    """Beside its states or alone, 0 behind a sequence's end; whether a kernel multiplies the inputs or not."""
    lstm, gru = {"layout": 1, "clip": 0.5, "input_forget": 1}, {"linear_before_reset": 1}
    for outputs in (("Y", "Y_h", "Y_c", "kept"), ("kept",)):
        for kind, given, attrs in (("LSTM", (), {}), ("LSTM", ALL, lstm), ("GRU", (), gru), ("GRU", ALL, gru)):
            check(Layer(kind, batch=batch, given=given, direction=direction, attrs=attrs, constant=constant,
                        outputs=outputs, hidden=37))  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("kind", GATES)
def test_weights_known_only_at_run_time_are_packed_at_each_call(kind: str) -> None:
    """So are biases; hidden units beyond the last whole panel are weighed too."""
    for linear in (0, 1) if kind == "GRU" else (0,):
        attrs = {"linear_before_reset": linear} if linear else {}
        for hidden in (5, 32, 37):
            check(Layer(kind, hidden=hidden, given=ALL, direction="bidirectional", attrs=attrs, constant=()))


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_every_activation_has_a_kernel(activation: str) -> None:
    """With its alpha and beta, of values that are bounded before."""
    attrs = {"activations": [activation], "activation_alpha": [0.75], "activation_beta": [0.25], "clip": 2.0}
    check(Layer("RNN", steps=3, attrs=attrs))


@pytest.mark.parametrize("extents", [(0, 3, 20), (5, 0, 20), (1, 1, 20), (70, 2, 20), (2, 40, 20)])
def test_sequences_of_any_number_and_length(extents: tuple[int, int, int]) -> None:
    """None, one, or many; a sequence of no steps ends in zeros whatever its first state is."""
    steps, batch, hidden = extents
    check(Layer("LSTM", steps, batch, hidden=hidden, given=("B", "initial_h", "initial_c", "sequence_lens")))


@pytest.mark.parametrize("kind", GATES)
def test_many_sequences_are_one_kernel_that_multiplies_their_inputs_too(kind: str) -> None:
    """No product of all steps comes before, as it does for few sequences, or weights known only at run time."""
    layer = Layer(kind, batch=11, given=ALL, direction="bidirectional", attrs={"layout": 1})
    check(layer)
    assert _families(layer) == {"recurrent"}
    for other in (replace(layer, batch=7), replace(layer, constant=("R", "B", "P"))):
        assert _families(other) >= {"matmul", "recurrent"}


def test_a_gru_that_resets_products_has_its_inputs_multiplied_before() -> None:
    """Those of its candidate may not be added to the state's before these are reset."""
    layer = Layer("GRU", batch=11, attrs={"linear_before_reset": 1})
    check(layer)
    assert _families(layer) >= {"matmul", "recurrent"}


def _families(layer: Layer) -> set[str]:
    program = layer.program(layer.values())
    return {call.desc.family for call in program.calls if isinstance(call, KernelCall)}


@pytest.mark.parametrize("wanted", [("Y",), ("Y_h",), ("Y_c",)])
def test_outputs_that_nobody_asks_for_are_not_kept(wanted: tuple[str, ...]) -> None:
    """Without the sequence of states no memory for it is there."""
    layer = Layer("LSTM", steps=50, outputs=wanted)
    check(layer)
    program = layer.program(layer.values())
    kept = [buffer.size for buffer in program.buffers if buffer.kind == "temporary"]
    assert sum(size == 50 * 3 * 20 for size in kept) == 0


@pytest.mark.slow
def test_nan_and_infinity_spoil_their_own_sequence_alone() -> None:
    """From the step on at which they come; what was before and other sequences keep their values."""
    many = Layer("GRU", batch=9, given=ALL, direction="bidirectional")
    for layer in (LAYERS["lstm with everything"], LAYERS["gru"], LAYERS["linear gru"], LAYERS["rnn"], many):
        values = layer.values()
        x = values["X"] if layer.attrs.get("layout") else values["X"].swapaxes(0, 1)
        x[0, 2, 3], x[1, 4, 0] = np.nan, np.inf
        values["initial_h"].reshape(-1)[-1] = -np.inf
        check(layer, values)


@pytest.mark.slow
def test_high_precision_is_at_least_as_near() -> None:
    """Sums of many products are added up in float64; the states between steps stay float32."""
    layer = Layer("LSTM", 2, 1, 4, 500)
    values = layer.values()
    exact = expected(layer, {name: value.astype(np.float64) for name, value in values.items()})[0]
    errors = [
        np.abs(run_program(layer.program(values, mode), values, (1,))["Y"] - exact).max()
        for mode in ("high_precision", "high_performance")
    ]
    assert errors[0] <= errors[1]
    assert errors[0] <= 1e-7


def test_lengths_beyond_the_sequences_are_the_hosts_to_refuse() -> None:
    """Known ones; those known only at run time are bounded by what there is."""
    layer = Layer("LSTM", given=("sequence_lens",), constant=("W", "R", "sequence_lens"))
    values = layer.values()
    assert {type(call) for call in layer.program(values).calls} == {KernelCall}
    beyond = {**values, "sequence_lens": np.array([1, 6, 5], np.int32)}
    types = replace(layer, constant=("W", "R")).program(values)
    found = run_program(types, beyond)
    full = run_program(types, {**values, "sequence_lens": np.array([1, 5, 5], np.int32)})
    np.testing.assert_array_equal(found["Y"], full["Y"])


@pytest.mark.slow
def test_large_layers_are_divided_by_their_units() -> None:
    """A step of one sequence is divided among tasks; all numbers of them give the same bytes."""
    check(Layer("LSTM", 3, 1, 16, 256))
    check(Layer("GRU", 3, 2, 16, 400, direction="bidirectional"))


def _drawn(draw: random.Random) -> Layer:
    """Return any layer."""
    kind, direction = draw.choice(list(GATES)), draw.choice(("forward", "reverse", "bidirectional"))
    attrs: dict[str, Any] = {"layout": draw.randint(0, 1)}
    if draw.random() < 0.3:
        count = {"RNN": 1, "GRU": 2, "LSTM": 3}[kind] * (2 if direction == "bidirectional" else 1)
        attrs["activations"] = draw.choices(ACTIVATIONS[:3], k=count)
    if draw.random() < 0.3:
        attrs["clip"] = draw.choice((0.5, 2.0))
    if kind != "RNN" and draw.random() < 0.5:
        attrs["linear_before_reset" if kind == "GRU" else "input_forget"] = 1
    given = tuple(name for name in OPTIONAL if draw.random() < 0.5)
    constant = tuple(name for name in ("W", "R", "B", "P") if draw.random() < 0.7)
    extents = (draw.randint(1, 9), draw.randint(1, 12), draw.randint(0, 40), draw.randint(1, 70))
    return Layer(kind, *extents, given, direction, attrs, constant)


@pytest.mark.slow
def test_any_layer_gives_what_its_definition_gives() -> None:
    """Layers of all attributes at random; a campaign tries more."""
    draw = random.Random(SEED)
    for number in range(CAMPAIGN // 10 or 6):
        layer = _drawn(draw)
        check(layer, layer.values(number))


def test_float16_is_computed_in_float32_and_rounded_at_the_end() -> None:
    """Weights are converted when the network is built; kernels alone give what the host gives."""
    for layer in (LAYERS["lstm with everything"], Layer("GRU", given=ALL, outputs=("Y_h",), direction="bidirectional")):
        wide = layer.values()
        values = {name: value if name == "sequence_lens" else value.astype(np.float16) for name, value in wide.items()}
        program = lower(optimize(layer.graph(values), evaluate), host_level())
        found = run_program(program, values)
        exact = dict(zip(("Y", "Y_h", "Y_c"), expected(layer, values), strict=False))
        for name, value in found.items():
            assert value.dtype == np.float16
            np.testing.assert_allclose(value, exact[name], rtol=2**-10, atol=2**-14)


def test_float64_is_the_hosts() -> None:
    """Kernels are float32's."""
    layer = Layer("LSTM")
    values = {name: value.astype(np.float64) for name, value in layer.values().items()}
    assert [type(call) for call in layer.program(values).calls] == [HostCall]
