"""Random ONNX networks over every operator that has a kernel, with the error that each of their values may have.

A generator of values keeps for each an interval that holds all elements, and how far another correct computation may be
from this one: 0 for what is exact (whole numbers that no rounding touches), so that most mistakes of indices and
layouts show as differences of numbers that must be equal. What is not continuous (``Floor``, ``ArgMax``, comparisons)
is applied to exact values only; a value whose interval is too wide for an operator is scaled into it first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

OPSET = 21
FLOATS = ("float32", "float16", "float64")
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
TYPES = (*FLOATS, *SIGNED, *UNSIGNED, "bool")
EPSILON = {"float32": 2.0**-23, "float16": 2.0**-10, "float64": 2.0**-22}
"""Relative error of one rounding; float64's is that of functions which peers compute in float32."""
WHOLE = {"float32": 2**24, "float16": 2**11, "float64": 2**53}
"""Whole numbers up to here are exact."""
EXTENTS = (1, 1, 1, 2, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33)
MOST_ELEMENTS = 20_000
SPECIAL = (math.nan, math.inf, -math.inf, -0.0)
"""Values among the elements of some networks; intervals and errors are of the others."""
WIDEST = 64.0
"""Largest magnitude of values that are not exact; larger ones are scaled, or their error would hide mistakes."""


@dataclass(frozen=True)
class Value:
    """A tensor of the network: all elements lie in ``[low, high]`` and may be ``noise`` apart from another's result."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    low: float
    high: float
    noise: float = 0.0

    @property
    def rank(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def bound(self) -> float:
        """Largest magnitude."""
        return max(abs(self.low), abs(self.high))

    @property
    def exact(self) -> bool:
        """Whether every correct computation gives the same elements."""
        return self.noise == 0

    @property
    def floating(self) -> bool:
        """Whether it is of a floating-point type."""
        return self.dtype in FLOATS


@dataclass
class RandomNetwork:
    """A model, what to feed it, and how far each of its values may be off."""

    model: onnx.ModelProto
    feeds: dict[str, Array]
    noise: dict[str, float]


class NotPossibleError(Exception):
    """An operator found no value that it can be applied to."""


@dataclass
class Maker:
    """A network while it is made."""

    rng: np.random.Generator
    values: list[Value] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    feeds: dict[str, Array] = field(default_factory=dict)
    count: int = 0
    special: bool = False

    # -- chance ----------------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Return True with a probability."""
        return bool(self.rng.random() < probability)

    def one_of(self, choices: Sequence[Any]) -> Any:
        """Return one of some things."""
        return choices[int(self.rng.integers(len(choices)))]

    def extent(self) -> int:
        """Return an extent: small, odd, a block, next to a block, seldom 0."""
        return 0 if self.chance(0.01) else int(self.one_of(EXTENTS))

    def shape(self, rank: int) -> tuple[int, ...]:
        """Return a shape of a rank and few elements."""
        while True:
            shape = tuple(self.extent() for _ in range(rank))
            if math.prod(shape) <= MOST_ELEMENTS:
                return shape

    def name(self, prefix: str = "v") -> str:
        """Return a new name."""
        self.count += 1
        return f"{prefix}{self.count}"

    # -- values ----------------------------------------------------------------------------------------

    def contents(self, dtype: str, shape: Sequence[int], exact: bool) -> tuple[Array, float, float]:
        """Return elements of a new tensor, and the interval that they lie in."""
        if dtype == "bool":
            return np.asarray(self.rng.integers(0, 2, tuple(shape)), bool), 0, 1
        if dtype not in FLOATS:
            low = 0 if dtype in UNSIGNED else -5
            return np.asarray(self.rng.integers(low, 6, tuple(shape)), dtype), low, 5
        whole = np.asarray(self.rng.integers(-6, 7, tuple(shape)) / 2, dtype)
        array = whole if exact else np.asarray(self.rng.uniform(-3, 3, tuple(shape)), dtype)
        if self.special:
            values = np.asarray(self.rng.choice(SPECIAL, array.shape), dtype)
            array = np.where(self.rng.random(array.shape) < 0.1, values, array)
        return array, -3, 3

    def input(self, dtype: str, shape: Sequence[int], exact: bool | None = None) -> Value:
        """Return a new input of the network."""
        array, low, high = self.contents(dtype, shape, self.chance(0.5) if exact is None else exact)
        return self.feed(array, low, high)

    def feed(self, array: Array, low: float, high: float) -> Value:
        """Return a new input with given elements."""
        value = Value(self.name("x"), str(array.dtype), array.shape, low, high, noise_of(array))
        self.feeds[value.name] = array
        self.values.append(value)
        return value

    def constant(self, array: Array, low: float | None = None, high: float | None = None) -> Value:
        """Return a constant, an initializer or a Constant node."""
        name = self.name("c")
        if self.chance(0.2):
            self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array)))
        else:
            self.constants[name] = array
        known = array[np.isfinite(array)].astype("f8")
        known = known if known.size else np.zeros(1)
        low, high = float(known.min() if low is None else low), float(known.max() if high is None else high)
        return Value(name, str(array.dtype), array.shape, low, high, noise_of(array))

    def constants_of(self, numbers: Sequence[int], dtype: str = "int64") -> str:
        """Return the name of a constant list of whole numbers, e.g. of axes."""
        return self.constant(np.array(numbers, dtype)).name

    def draw(self, dtype: str, shape: Sequence[int], exact: bool = True) -> Value:
        """Return a constant, or now and then an input, with random elements."""
        if self.chance(0.3):
            return self.input(dtype, shape, exact)
        return self.constant(*self.contents(dtype, shape, exact))

    def pick(self, wanted: Callable[[Value], bool], make: Callable[[], Value] | None = None) -> Value:
        """Return one of the values that are as wanted, the latest most often, or a new one."""
        found = [value for value in self.values if wanted(value)]
        if found and not (make and self.chance(0.1)):
            return found[-1] if self.chance(0.5) else self.one_of(found)
        if make is None:
            raise NotPossibleError
        return make()

    def tensor(self, dtypes: Sequence[str] = TYPES, ranks: Sequence[int] = (0, 1, 2, 3, 4, 5), **more: Any) -> Value:
        """Return a value of some type and rank; ``exact=True`` asks for an exact one."""
        exact = more.get("exact", False)

        def make() -> Value:
            rank = self.one_of([rank for rank in ranks if rank or self.chance(0.2)] or [ranks[0]])
            dtype = self.one_of(dtypes) if self.chance(0.5) else dtypes[0]
            return self.input(dtype, self.shape(rank), exact or None)

        return self.pick(lambda v: v.dtype in dtypes and v.rank in ranks and (v.exact or not exact), make)

    # -- nodes ----------------------------------------------------------------------------------------

    def emit(self, op_type: str, inputs: Sequence[str | Value], count: int = 1, **attrs: Any) -> list[str]:
        """Add a node and return the names of its outputs."""
        names = [each.name if isinstance(each, Value) else each for each in inputs]
        outputs = [self.name() for _ in range(count)]
        self.nodes.append(helper.make_node(op_type, names, outputs, self.name("n"), **attrs))
        return outputs

    def add(self, op_type: str, inputs: Sequence[str | Value], shape: Sequence[int], **how: Any) -> Value:
        """Add a node of one output and return it.

        Args:
            op_type: The operator.
            inputs: Its inputs.
            shape: The output's shape.
            how: ``like``, a value whose type and interval the output has, or ``dtype``, ``low``, ``high``, ``noise``;
                the node's attributes.
        """
        like: Value | None = how.pop("like", None)
        dtype = how.pop("dtype", like.dtype if like else "float32")
        low, high = how.pop("low", like.low if like else 0.0), how.pop("high", like.high if like else 0.0)
        noise = how.pop("noise", like.noise if like else 0.0)
        if math.prod(shape) > 10 * MOST_ELEMENTS or not math.isfinite(float(low) + float(high)):
            raise NotPossibleError
        (name,) = self.emit(op_type, inputs, **how)
        value = Value(name, dtype, tuple(shape), float(low), float(high), float(noise))
        self.values.append(value)
        return self.tamed(value)

    def tamed(self, value: Value) -> Value:
        """Return the value, or a smaller multiple of it if errors could hide mistakes."""
        if not value.floating:
            return value
        largest = WHOLE[value.dtype] if value.exact else WIDEST
        if value.bound <= largest:
            return value
        return self.scaled(value, 2.0 ** -math.ceil(math.log2(value.bound / 8)))

    def scaled(self, value: Value, factor: float, offset: float = 0.0) -> Value:
        """Return ``factor * value + offset``."""
        epsilon = EPSILON[value.dtype]
        by = self.constant(np.array(factor, value.dtype))
        low, high = sorted((value.low * factor, value.high * factor))
        noise = value.noise * abs(factor) + max(abs(low), abs(high)) * epsilon
        (name,) = self.emit("Mul", [value, by])
        made = Value(name, value.dtype, value.shape, low, high, noise)
        if offset:
            (name,) = self.emit("Add", [made, self.constant(np.array(offset, value.dtype))])
            low, high = low + offset, high + offset
            made = Value(name, value.dtype, value.shape, low, high, noise + max(abs(low), abs(high)) * epsilon)
        self.values.append(made)
        return made

    def within(self, value: Value, low: float, high: float) -> Value:
        """Return a value whose elements lie in an interval: this one, or this one scaled and moved."""
        if low <= value.low and value.high <= high:
            return value
        if low == -math.inf:
            low = high - max(value.high - value.low, 1.0)
        if high == math.inf:
            high = low + max(value.high - value.low, 1.0)
        margin = (high - low) * 0.01
        factor = (high - low - 2 * margin) / max(value.high - value.low, 1e-3)
        factor = min(factor, 1.0)
        return self.scaled(value, factor, low + margin - value.low * factor)

    # -- the end ----------------------------------------------------------------------------------------

    def finish(self) -> RandomNetwork:
        """Return the network with some of its values as outputs: the last, aliases, constants, inputs."""
        made = [value for value in self.values if value.name not in self.feeds]
        if not made:
            raise NotPossibleError
        outputs = {made[-1].name: made[-1]}
        read = {name for node in self.nodes for name in node.input}
        outputs |= {value.name: value for value in made if value.name not in read or self.chance(0.15)}
        for value in list(outputs.values()):
            if self.chance(0.15):
                outputs |= {alias.name: alias for alias in self.aliases(value)}
        if self.chance(0.1):
            value = self.constant(*self.contents("float32", (2, 3), True))
            if value.name in self.constants:
                outputs[value.name] = value
        if self.chance(0.1):
            value = self.one_of([value for value in self.values if value.name in self.feeds] or [made[-1]])
            outputs[value.name] = value
        names = list(outputs)
        self.rng.shuffle(names)
        kinds = {name: helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype)) for name, value in outputs.items()}
        graph = helper.make_graph(
            self.nodes,
            "random",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
                for name, array in self.feeds.items()
            ],
            [helper.make_tensor_value_info(name, kinds[name], outputs[name].shape) for name in names],
            [numpy_helper.from_array(array, name) for name, array in self.constants.items()],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        return RandomNetwork(
            model, self.feeds, {value.name: value.noise for value in (*self.values, *outputs.values())}
        )

    def aliases(self, value: Value) -> list[Value]:
        """Return the same value under one or two other names, perhaps in another shape."""
        made = []
        for _ in range(int(self.rng.integers(1, 3))):
            kind = self.one_of(("Identity", "Reshape", "Flatten", "Unsqueeze", "Cast", "Dropout", "Transpose"))
            size = math.prod(value.shape)
            if kind == "Reshape":
                made.append(self.add(kind, [value, self.constants_of([size])], (size,), like=value, allowzero=1))
            elif kind == "Flatten":
                made.append(self.add(kind, [value], (1, size), like=value, axis=0))
            elif kind == "Unsqueeze":
                made.append(self.add(kind, [value, self.constants_of([0])], (1, *value.shape), like=value))
            elif kind == "Cast":
                to = helper.np_dtype_to_tensor_dtype(np.dtype(value.dtype))
                made.append(self.add(kind, [value], value.shape, like=value, to=to))
            elif kind == "Transpose":
                perm = sorted(range(value.rank), key=lambda axis: value.shape[axis] == 1)
                shape = [value.shape[axis] for axis in perm]
                made.append(self.add(kind, [value], shape, like=value, perm=perm) if perm else value)
            elif kind == "Dropout" and not value.floating:
                continue
            else:
                made.append(self.add(kind, [value], value.shape, like=value))
        return made


def noise_of(array: Array) -> float:
    """Return 0 if the elements are whole numbers or halves, which sums keep exact, else the error of one rounding."""
    known = array[np.isfinite(array)]
    if str(array.dtype) not in FLOATS or not np.modf(known * 2)[0].any():
        return 0.0
    return float(np.abs(known).max() * EPSILON[str(array.dtype)])


def make_network(seed: int) -> RandomNetwork:
    """Return the network of a seed."""
    from generated.random_operators import FOR_SPECIAL, OPERATORS

    rng = np.random.default_rng(seed)
    maker = Maker(rng, special=rng.random() < 0.1)
    operators = FOR_SPECIAL if maker.special else OPERATORS
    wanted, tries = int(rng.integers(1, 9) if rng.random() < 0.6 else rng.integers(9, 31)), 0
    while tries < 4 * wanted and sum(len(node.output) > 0 for node in maker.nodes) < wanted:
        tries += 1
        before = len(maker.nodes)
        try:
            maker.one_of(maker.one_of(operators))(maker)
        except NotPossibleError:
            del maker.nodes[before:]
            names = {name for node in maker.nodes for name in node.output} | set(maker.feeds)
            maker.values = [value for value in maker.values if value.name in names]
    try:
        return maker.finish()
    except NotPossibleError:
        return make_network(seed + 2**32)
