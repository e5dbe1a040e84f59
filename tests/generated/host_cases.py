"""Random calls of single operators: for each operator type, inputs and attributes that its schema allows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import onnx
from hypothesis import strategies as st
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
T = TypeVar("T")


@dataclass(eq=False)
class Case:
    """One call of an operator.

    Attributes:
        op_type: The operator.
        inputs: Its inputs, None for an absent one; a dictionary with numpy's numbers, or text, for a map.
        attrs: Its attributes.
        outputs: How many outputs it has.
        known: Which inputs are constants of the model.
        opset: The operator set.
        domain: Its domain; ``opset`` is ONNX's own in any case.
        domain_opset: The operator set of the domain; 0 for the newest.
    """

    op_type: str
    inputs: Sequence[Any]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    known: Sequence[int] = ()
    opset: int = 21
    domain: str = ""
    domain_opset: int = 0

    def model(self) -> onnx.ModelProto:
        """Return the model of this one node."""
        names = ["" if each is None else f"i{index}" for index, each in enumerate(self.inputs)]
        while names and not names[-1]:
            names.pop()
        outputs = [f"o{index}" for index in range(self.outputs)]
        attrs = {name: value for name, value in self.attrs.items() if value is not None and value != []}
        node = helper.make_node(self.op_type, names, outputs, f"the {self.op_type}", domain=self.domain, **attrs)
        graph = helper.make_graph(
            [node],
            "one",
            [_declared(name, value) for name, value in self.feeds().items()],
            [helper.make_empty_tensor_value_info(name) for name in outputs],
            [numpy_helper.from_array(np.asarray(self.inputs[index]), f"i{index}") for index in self._constants()],
        )
        opsets = [helper.make_opsetid("", self.opset)]
        if self.domain:
            newest = max(each.since_version for each in onnx.defs.get_all_schemas() if each.domain == self.domain)
            opsets.append(helper.make_opsetid(self.domain, self.domain_opset or newest))
        return helper.make_model(graph, opset_imports=opsets, ir_version=10)

    def feeds(self) -> dict[str, Any]:
        """Return the inputs that are not constants, by name."""
        constants = self._constants()
        return {
            f"i{index}": each for index, each in enumerate(self.inputs) if each is not None and index not in constants
        }

    def _constants(self) -> list[int]:
        return [index for index in self.known if index < len(self.inputs) and self.inputs[index] is not None]

    def __repr__(self) -> str:
        arrays = [np.asarray(each) if isinstance(each, dict) else each for each in self.inputs]
        shown = ", ".join("absent" if each is None else f"{each.dtype}{list(each.shape)}" for each in arrays)
        small = {f"i{i}": each.tolist() for i, each in enumerate(arrays) if each is not None and each.size <= 12}
        return f"{self.op_type}({shown}) {self.attrs} opset {self.opset}, {self.outputs} output(s), {small}"


def _declared(name: str, value: Any) -> onnx.ValueInfoProto:
    if not isinstance(value, dict):
        return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
    (key, content), *_ = value.items()
    kinds = [
        onnx.TensorProto.STRING if isinstance(each, str) else helper.np_dtype_to_tensor_dtype(np.asarray(each).dtype)
        for each in (key, content)
    ]
    kind = helper.make_map_type_proto(kinds[0], helper.make_tensor_type_proto(kinds[1], []))
    return helper.make_value_info(name, kind)


class Draw:
    """The source of a maker of cases: numbers that shrink, and arrays made of a seed that shrinks too."""

    def __init__(self, draw: Callable[[st.SearchStrategy[Any]], Any]) -> None:
        self._draw = draw
        self._rng = np.random.default_rng(draw(st.integers(0, 2**16)))

    def integer(self, low: int, high: int) -> int:
        """Return an integer from ``low`` to ``high``, both possible."""
        return int(self._draw(st.integers(low, high)))

    def flag(self) -> bool:
        """Return a truth value."""
        return bool(self._draw(st.booleans()))

    def one_of(self, *values: T) -> T:
        """Return one of the values; shrinking prefers the first."""
        found: T = self._draw(st.sampled_from(values))
        return found

    def integers(self, count: int, low: int, high: int) -> list[int]:
        """Return some integers."""
        return [self.integer(low, high) for _ in range(count)]

    def shape(self, rank: int, most: int = 5, least: int = 1) -> tuple[int, ...]:
        """Return a shape."""
        return tuple(self.integers(rank, least, most))

    def maybe(self, value: T) -> T | None:
        """Return the value, or nothing."""
        return value if self.flag() else None

    def subset(self, values: Sequence[int]) -> list[int]:
        """Return some of the values, at least one, in any order."""
        order: list[int] = self._draw(st.permutations(list(values)))
        return order[: self.integer(1, len(order))]

    def axis(self, rank: int) -> int:
        """Return an axis, counted from either end."""
        return self.integer(-rank, rank - 1)

    def array(self, shape: Sequence[int], dtype: str = "float32") -> Array:
        """Return values that differ from each other and repeat now and then: signs, halves, zeros."""
        kind = np.dtype(dtype)
        if kind == np.bool_:
            return self._rng.random(shape) < 0.5
        if np.issubdtype(kind, np.integer):
            low, high = (0, 12) if np.issubdtype(kind, np.unsignedinteger) else (-9, 10)
            return np.asarray(self._rng.integers(low, high, tuple(shape))).astype(kind)
        values = np.asarray(self._rng.standard_normal(tuple(shape)) * 2)
        return np.where(self._rng.random(tuple(shape)) < 0.2, np.round(values), values).astype(kind)

    def below(self, shape: Sequence[int], limit: Sequence[int] | int, dtype: str = "int64", least: int = 0) -> Array:
        """Return integers from ``least`` to below ``limit``."""
        return np.asarray(self._rng.integers(least, limit, tuple(shape))).astype(dtype)

    def chosen(self, count: int, limit: int) -> Array:
        """Return different integers below ``limit``."""
        return self._rng.permutation(limit)[:count].astype(np.int64)

    def positive(self, shape: Sequence[int], dtype: str = "float32") -> Array:
        """Return numbers between 0.1 and 1."""
        return np.asarray(0.1 + 0.9 * self._rng.random(tuple(shape))).astype(dtype)


Maker = Callable[[Draw, str], Case]
MAKERS: dict[str, Maker] = {}
"""What makes cases, by operator type."""


def makes(*op_types: str) -> Callable[[Maker], Maker]:
    """Register the decorated function for operator types."""

    def register(function: Maker) -> Maker:
        MAKERS.update(dict.fromkeys(op_types, function))
        return function

    return register


def cases(op_type: str) -> st.SearchStrategy[Case]:
    """Return a strategy of calls of an operator."""

    @st.composite
    def made(draw: Callable[[st.SearchStrategy[Any]], Any]) -> Case:
        case = MAKERS[op_type](Draw(draw), op_type)
        return _doubled(case) if draw(st.integers(0, 3)) == 3 else case

    return made()


def _doubled(case: Case) -> Case:
    """Return a case with float64 instead of float32 in all inputs of the first one's type, where its schema has it."""
    opset = (case.domain_opset if case.domain else case.opset,)
    schema = onnx.defs.get_schema(case.op_type, *filter(None, opset), case.domain)
    if not case.inputs or not schema.inputs or any(isinstance(each, dict) for each in case.inputs):
        return case
    ports = [schema.inputs[min(index, len(schema.inputs) - 1)].type_str for index in range(len(case.inputs))]
    allowed = {each.type_param_str: each.allowed_type_strs for each in schema.type_constraints}.get(ports[0], ())
    if "tensor(double)" not in allowed:
        return case
    inputs = [
        each.astype(np.float64) if each is not None and port == ports[0] and each.dtype == np.float32 else each
        for each, port in zip(case.inputs, ports, strict=True)
    ]
    return replace(case, inputs=inputs)
