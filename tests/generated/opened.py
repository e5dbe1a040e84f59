"""Random networks of one operator, one of whose extents is opened, and what programs are made for its sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import onnx

from generated.random_networks import Maker, NotPossibleError, RandomNetwork
from opbuild.backend.evaluate import evaluate
from opbuild.frontend.onnx_model import OnnxModel, load_model
from opbuild.graph.extents import example_value, parts
from opbuild.graph.types import Graph
from opbuild.kernel.opdesc import FREE
from opbuild.lowering.context import Options
from opbuild.lowering.lower import lower
from opbuild.pipeline.steps import optimize_graph
from opbuild.program import Program
from opbuild.runtime.binding import Shapes
from opbuild.runtime.memory_plan import views_of
from opbuild.runtime.numbering import numbered
from opbuild.runtime.record import Record
from opbuild.runtime.symbolic import numbers_of
from opbuild.runtime.weights import Packer, pack_constants
from opbuild.target.level import LEVELS
from support.lowered import lower_open
from support.networks import Array


class Opened(NamedTuple):
    """A network with one open extent.

    Attributes:
        network: The network as it was made.
        model: The same, the extent open in its declared inputs.
        inputs: The shapes of its inputs, ``FREE`` where they are open.
    """

    network: RandomNetwork
    model: onnx.ModelProto
    inputs: Shapes

    def shapes(self, extent: int) -> Shapes:
        """Return the shapes of the inputs in a size."""
        return tuple(tuple(extent if each == FREE else each for each in shape) for shape in self.inputs)

    def feeds(self, extent: int) -> dict[str, Array]:
        """Return inputs in a size, made of the elements of those that the network was made with."""
        names = [value.name for value in self.model.graph.input]
        known = self.network.feeds
        return {name: np.resize(known[name], shape) for name, shape in zip(names, self.shapes(extent), strict=True)}

    def growth(self, extent: int) -> float:
        """Return how many times as many elements a size has as the network was made with."""
        sizes = ((self.network.feeds[each.name].size, shape) for each, shape in self._open(extent))
        return max((float(np.prod(shape)) / max(size, 1) for size, shape in sizes), default=1.0)

    def _open(self, extent: int) -> list[tuple[onnx.ValueInfoProto, tuple[int, ...]]]:
        pairs = zip(self.model.graph.input, self.shapes(extent), self.inputs, strict=True)
        return [(value, shape) for value, shape, declared in pairs if FREE in declared]


def opened(operator: Callable[[Maker], None], seed: int) -> Opened | None:
    """Return a random network of one operator with one open extent; None if this seed gives none.

    The same extent in the same place of several inputs is one.
    """
    rng = np.random.default_rng(seed)
    maker = Maker(rng)
    try:
        operator(maker)
        network = maker.finish()
    except NotPossibleError:
        return None
    arrays = [network.feeds[value.name] for value in network.model.graph.input]
    places = [(axis, extent) for array in arrays for axis, extent in enumerate(array.shape) if extent > 1]
    if not places:
        return None
    place = places[int(rng.integers(len(places)))]
    shapes = tuple(tuple(FREE if each == place else each[1] for each in enumerate(array.shape)) for array in arrays)
    model = onnx.ModelProto()
    model.CopyFrom(network.model)
    for value, shape in zip(model.graph.input, shapes, strict=True):
        for dimension, extent in zip(value.type.tensor_type.shape.dim, shape, strict=True):
            if extent == FREE:
                dimension.dim_param = "n"
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    return Opened(network, model, shapes)


class Sizes:
    """An open network at several sizes.

    Args:
        model: The network.
        declared: The shapes of its inputs by name, ``FREE`` where they are open.
    """

    def __init__(self, model: OnnxModel, declared: Mapping[str, Sequence[int]]) -> None:
        self._model, self._declared = model, declared

    @classmethod
    def of(cls, network: Opened) -> Sizes:
        """Return those of a network of one operator."""
        names = [value.name for value in network.model.graph.input]
        return cls(load_model(network.model.SerializeToString()), dict(zip(names, network.inputs, strict=True)))

    def graph(self, shapes: Shapes) -> Graph:
        """Return the optimized network for shapes that may be open."""
        return optimize_graph(self._model.bind(dict(zip(self._declared, shapes, strict=True)), evaluate))

    def closed(self, shapes: Shapes) -> Program:
        """Return it lowered for one size."""
        return lower(self.graph(shapes), LEVELS[-1], Options())

    def open(self, shapes: Shapes) -> Program:
        """Return it lowered with open extents at a size."""
        return lower_open(self.graph, list(self._declared.values()), shapes, LEVELS[-1], Options())

    def records(self, sizes: Sequence[Shapes]) -> list[Record]:
        """Return the records that serve sizes that come in this order."""
        made: list[Record] = []
        for shapes in sizes:
            if all(numbers_of(each, shapes) is None for each in made):
                made.append(record_of(self.open(shapes)))
        return made


def record_of(program: Program) -> Record:
    """Return the record of a program lowered with open extents."""
    constants = pack_constants(program, Packer())
    places, notes = constants.positions, {"lowering": {}}
    return numbered(program, places, constants.places, notes)


def fixed(value: Any) -> Any:
    """Return a number, or what is made of numbers, as it is in the size at hand."""
    return tuple(map(fixed, value)) if isinstance(value, tuple) else example_value(value)


def example_views(program: Program) -> list[tuple[int, int, tuple[tuple[int, int], ...]]]:
    """Return all views of a program in the size at hand, those of what is repeated each time."""
    found = []
    for repeated, part in groupby(program.calls, lambda call: getattr(call, "repeated", None)):
        calls = [*part]
        for time in range(1 if repeated is None else example_value(repeated.count)):
            for view in (view for call in calls for view in views_of(call)):
                first, more = map(example_value, parts(view.offset))
                found.append((view.buffer, first + time * more, fixed(view.dims)))
    return found
