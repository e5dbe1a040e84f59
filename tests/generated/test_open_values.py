"""Random networks whose numbers follow from extents: what is bound once is right at each size at which it may be.

``OPBUILD_FUZZ=5000`` tries so many networks, and prints which steps need more than one lowering.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pytest

import opbuild
from generated.opened import Sizes
from generated.random_values import INPUTS, ONCE, STEPS, WIDTH, Step, ValueMaker, sizes
from opbuild.backend.evaluate import evaluate
from opbuild.errors import ModelError, OutOfRangeError, RunError
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.graph.extents import SymbolicExtent
from opbuild.graph.formulas import Numbers
from opbuild.graph.passes.pipeline import simplify
from opbuild.graph.polynomials import from_bits
from opbuild.graph.symbolic_numbers import Real, bits_of
from opbuild.graph.tables import TABLES
from opbuild.graph.types import TABLE, Array, Graph, Node, TensorType
from opbuild.pipeline.symbolic_lowering import symbolic_shapes
from opbuild.runtime.binding import Shapes
from opbuild.runtime.symbolic import numbers_of
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, SEED, check_seeds
from support.tiers import spans

SIZES = 10
RUN = CAMPAIGN // 20 or 2
DECLARED = {name: tuple(each if isinstance(each, int) else -1 for each in shape) for name, shape in INPUTS}

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


class Filled(NamedTuple):
    """What fills in the numbers of a graph with open extents.

    Attributes:
        graph: The graph.
        places: Where the numbers are, by what is open.
        numbers: Returns them for extents; None where the graph is not for these.
        kept: What is open: as long as it is there, its ``id`` is its own.
    """

    graph: Graph
    places: Mapping[int, int]
    numbers: Callable[[tuple[int, ...]], list[int] | None]
    kept: Sequence[Any]

    def at(self, size: tuple[int, ...]) -> Graph | None:
        """Return the graph at a size; None if it is not for it."""
        numbers = self.numbers(size)
        if numbers is None:
            return None

        def filled(value: Any) -> Any:
            if isinstance(value, (tuple, list)):
                return tuple(map(filled, value))
            if isinstance(value, Real):
                return from_bits(numbers[self.places[id(value)]])
            if isinstance(value, SymbolicExtent):
                return numbers[self.places[id(value)]]
            return value

        types = {n: TensorType(each.dtype, filled(each.shape)) for n, each in self.graph.types.items()}
        constants = {
            name: value
            if value.dtype != object
            else np.array(filled(tuple(value.reshape(-1))), types[name].dtype).reshape(value.shape)
            for name, value in self.graph.constants.items()
        }
        nodes = []
        for node in self.graph.nodes:
            attrs = {name: filled(value) for name, value in node.attrs.items()}
            if node.op_type == TABLE and node.domain == "opbuild":
                kind = types[node.outputs[0]]
                found = TABLES[attrs["table"]](*attrs["arguments"], kind.dtype)
                assert (found.dtype.name, found.size) == (kind.dtype, kind.size)
                constants[node.outputs[0]] = found.reshape(kind.shape)
            else:
                nodes.append(node.with_(attrs=attrs))
        return self.graph.with_(nodes=tuple(nodes), types=types, constants=constants)


def shapes_of(size: tuple[int, ...]) -> Shapes:
    """The shapes of the inputs at a size."""
    given = dict(zip("npq", size, strict=True))
    return tuple(tuple(given[each] if isinstance(each, str) else each for each in shape) for _, shape in INPUTS)


def bound(model: OnnxModel, shapes: Shapes) -> Graph:
    """A network bound to shapes, simplified, as the host backend can run it."""
    return simplify(model.bind(dict(zip(DECLARED, shapes, strict=True)), evaluate), evaluate)


def opened(model: OnnxModel, size: tuple[int, ...]) -> Filled:
    """A network bound with open extents at a size."""
    extents, shapes, variables = symbolic_shapes(list(DECLARED.values()), shapes_of(size))
    graph, numbers, places, kept = bound(model, shapes), Numbers(extents), {}, []

    def collect(value: Any) -> None:
        if isinstance(value, (tuple, list)):
            for each in value:
                collect(each)
        elif isinstance(value, (SymbolicExtent, Real)):
            kept.append(value)
            places[id(value)] = numbers.place(bits_of(value) if isinstance(value, Real) else value)

    collect([each.shape for each in graph.types.values()])
    collect([list(each.reshape(-1)) for each in graph.constants.values() if each.dtype == object])
    collect([list(node.attrs.values()) for node in graph.nodes])
    formulas = numbers.formulas()

    def filled(at: tuple[int, ...]) -> list[int] | None:
        given = shapes_of(at)
        return formulas([given[index][axis] for index, axis in variables])

    return Filled(graph, places, filled, kept)


def feeds(seed: int, size: tuple[int, ...]) -> dict[str, Array]:
    """Inputs at a size."""
    rng = np.random.default_rng(seed)
    shapes = shapes_of(size)
    return {name: rng.uniform(-1, 1, s).astype(np.float32) for name, s in zip(DECLARED, shapes, strict=True)}


def results(graph: Graph, given: Mapping[str, Array]) -> list[Array]:
    """A graph's outputs, by the host backend."""
    values: dict[str, Any] = {**graph.constants, **given}

    def run(node: Node) -> None:
        found = evaluate(node, [values[name] if name else None for name in node.inputs], graph.opset)
        values.update(zip(node.outputs, found, strict=False))

    for node in graph.nodes:
        run(node)
    return [values[name] for name in graph.outputs]


def outcome(make: Callable[[], list[Array]]) -> list[Array] | str:
    """Return the results of a network, or its problem."""
    try:
        return make()
    except (ModelError, RunError) as error:
        return type(error).__name__


@pytest.mark.parametrize("seeds", spans(80, 12))
def test_what_is_bound_once_gives_at_each_size_what_is_bound_for_it_alone(seeds: range) -> None:
    """Where its conditions hold, its numbers are those of that size; where a size is refused, they do not hold."""
    found: Counter[str] = Counter()

    def one(seed: int) -> None:
        model = load_model(ValueMaker(seed).model().SerializeToString())
        made: list[Filled] = []
        for size in sizes(seed, SIZES):
            given = feeds(seed, size)
            wanted = outcome(lambda given=given, size=size: results(bound(model, shapes_of(size)), given))
            if isinstance(wanted, str):
                found["refused"] += 1
                assert all(isinstance(outcome_at(each, size, given), (str, type(None))) for each in made)
                continue
            got = [each for each in (outcome_at(each, size, given) for each in made) if each is not None]
            if not got:
                found["bound"] += 1
                made.append(opened(model, size))
                got = [outcome_at(made[-1], size, given) or "nothing"]
            for each in got:
                assert not isinstance(each, str), (size, each)
                found["compared"] += 1
                for one, other in zip(each, wanted, strict=True):
                    np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=str(size))

    check_seeds("open values", one, seeds, processes=0)
    assert found["compared"] > 2 * found["bound"], found


def outcome_at(filled: Filled, size: tuple[int, ...], given: Mapping[str, Array]) -> list[Array] | str | None:
    """Return the results of a network bound before at a size, or its problem; None if it is not for it."""
    graph = filled.at(size)
    return None if graph is None else outcome(lambda: results(graph, given))


@pytest.mark.parametrize("seeds", spans(50, 8))
def test_networks_are_lowered_once(seeds: range) -> None:
    """What has the same structure at each size is lowered at the first that comes, whatever its numbers are."""
    lowered: dict[str, Counter[int]] = {}

    def one(seed: int) -> None:
        assert programs(seed, ONCE) <= 1
        step = STEPS[seed % len(STEPS)]
        lowered.setdefault(step.__name__, Counter())[programs(seed, (step,))] += 1

    check_seeds("open values, lowered", one, seeds, processes=0)
    for step, counts in sorted(lowered.items() if CAMPAIGN else ()):
        print(f"{step}: {dict(sorted(counts.items()))}")
    counts = sum(lowered.values(), Counter[int]())
    assert counts[1] > (counts.total() - counts[0]) / 2, lowered


def programs(seed: int, steps: Sequence[Step]) -> int:
    """Return how many programs a network of some steps needs for the sizes that it takes."""
    served = Sizes(load_model(ValueMaker(seed, steps).model().SerializeToString()), DECLARED)
    shapes = [shapes_of(size) for size in sizes(seed, SIZES)]
    return len(served.records([each for each in shapes if is_taken(served, each)]))


def is_taken(served: Sizes, shapes: Shapes) -> bool:
    """Return whether a network takes a size."""
    try:
        served.closed(shapes)
    except ModelError:
        return False
    return True


LENGTHS = (17, 18, 25, 40, 59)
ROOM, HEADS, HEAD = 64, 2, 4


def decoder(layers: int = 2) -> Sizes:
    """A decoder of one token behind as many as its caches have: learned positions, a causal mask, growing caches."""
    m, width, names = ValueMaker(0, ()), HEADS * HEAD, [f"past{index}" for index in range(2 * layers)]
    past = m.node("Shape", names[0], start=2, end=3)
    end, first = m.node("Add", past, m.constant([1])), m.constant([0])
    mask = m.constant(np.triu(np.full((ROOM, ROOM), -1e4), 1), "float32")
    seen = m.node("Slice", m.node("Slice", mask, past, end, first), first, end, m.constant([1]))
    x = m.node("Add", "x", m.node("Slice", m.weights(ROOM, width), past, end, first))
    caches = []
    for layer in range(layers):
        heads = m.constant([1, 1, HEADS, HEAD])
        split = [m.node("Reshape", m.node("MatMul", x, m.weights(width, width)), heads) for _ in range(3)]
        q, *new = (m.node("Transpose", each, perm=[0, 2, 1, 3]) for each in split)
        k, v = (m.node("Concat", names[2 * layer + at], each, axis=2) for at, each in enumerate(new))
        scores = m.node("Add", m.node("MatMul", q, m.node("Transpose", k, perm=[0, 1, 3, 2])), seen)
        mixed = m.node("Transpose", m.node("MatMul", m.node("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        x = m.node("Add", x, m.node("Reshape", mixed, m.constant([1, 1, width])))
        caches += [k, v]
    inputs = {"x": (1, 1, width), **dict.fromkeys(names, (1, HEADS, -1, HEAD))}
    return Sizes(load_model(m.written(inputs, [x, *caches]).SerializeToString()), inputs)


def test_a_decoder_is_lowered_once_for_all_lengths() -> None:
    """Its positions begin at the past length, and so does the row of its mask: both are parts of what lies there."""
    lengths = [((1, 1, HEADS * HEAD), *[(1, HEADS, length, HEAD)] * 4) for length in LENGTHS]
    (record,) = decoder().records(lengths)
    assert not record.steps.hosts
    assert all(numbers_of(record, shapes) is not None for shapes in lengths)


def test_an_open_index_out_of_range_is_refused_at_each_size(tmp_path: Path) -> None:
    """As it is where the index is data; sizes at which it is in range are served before and after."""
    m = ValueMaker(0, ())
    row = m.node("Gather", m.weights(16, WIDTH), m.scalar(m.node("Shape", "x", start=0, end=1)), axis=0)
    model = m.written({"x": ("n", WIDTH)}, [row])
    network = opbuild.compile(model, cache_path=tmp_path)
    for rows in (3, 5, 16, 4, 20):
        x = np.zeros((rows, WIDTH), np.float32)
        if rows < 16:
            np.testing.assert_array_equal(network(x), m.value(0)[rows])
            continue
        with pytest.raises(OutOfRangeError, match=f"index {rows} is out of range: it must be from -16 to 15"):
            network(x)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(SEED, SEED + RUN))
def test_every_size_gives_what_onnx_runtime_gives(seed: int, shared_store: Path) -> None:
    """With kernels, and the second time too."""
    model = ValueMaker(seed).model()
    network = opbuild.compile(onnx.ModelProto.FromString(model.SerializeToString()), cache_path=shared_store, workers=2)
    for size in sizes(seed, 6):
        given = feeds(seed, size)
        try:
            wanted = onnxruntime_outputs(model, given, optimized=False)
        except Exception:  # a size that the network does not take
            continue
        got = network(*given.values())
        for value, right in zip(got if isinstance(got, tuple) else (got,), wanted, strict=True):
            np.testing.assert_allclose(value, right, rtol=1e-4, atol=1e-4)
