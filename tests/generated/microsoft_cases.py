"""Random nodes of com.microsoft's operators: what a case is, how one is drawn, and the model of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]

MICROSOFT, NCHWC = "com.microsoft", "com.microsoft.nchwc"


class Case(NamedTuple):
    """One node.

    Attributes:
        inputs: Its inputs; None where one is left out.
        attrs: Its attributes.
        outputs: Which of its outputs are asked for.
        known: Places of inputs that are constants of the model.
        tolerance: How much of the greatest magnitude of an output, and at least of 1, a result may differ.
        steps: How much a whole number may differ.
        expected: What is right, where ONNX Runtime has no kernel for CPUs.
    """

    inputs: Sequence[Array | None]
    attrs: Mapping[str, Any] = MappingProxyType({})
    outputs: Sequence[bool] = (True,)
    known: Sequence[int] = ()
    tolerance: float = 2e-5
    steps: int = 0
    expected: Sequence[Array] | None = None


class Draw:
    """Draws numbers, shapes and choices from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def int(self, least: int, most: int) -> int:
        """Return an integer from least to most."""
        return int(self.random.integers(least, most + 1))

    def yes(self, chance: float = 0.5) -> bool:
        """Return True as often as that."""
        return bool(self.random.random() < chance)

    def one(self, *choices: Any) -> Any:
        """Return one of several."""
        return choices[self.int(0, len(choices) - 1)]

    def f(self, *shape: int, dtype: Any = np.float32) -> Array:
        """Return normal floats."""
        return np.asarray(self.random.standard_normal(shape), dtype)

    def positive(self, *shape: int) -> Array:
        """Return floats between a tenth and one."""
        return self.random.uniform(0.1, 1, shape).astype(np.float32)

    def ints(self, least: int, most: int, *shape: int, dtype: Any = np.int64) -> Array:
        """Return integers from least to most."""
        return np.asarray(self.random.integers(least, most + 1, shape)).astype(dtype)

    def bytes(self, dtype: Any, *shape: int) -> Array:
        """Return whole numbers of a type, all of its range."""
        if np.dtype(dtype).itemsize > 2:
            return np.frombuffer(self.random.bytes(int(np.prod(shape)) * np.dtype(dtype).itemsize), dtype).reshape(
                shape
            )
        info = ml_dtypes.iinfo(dtype)
        return self.ints(int(info.min), int(info.max), *shape).astype(dtype)

    def maybe(self, make: Callable[[], Array], chance: float = 0.5) -> Array | None:
        """Return an array, or None."""
        return make() if self.yes(chance) else None

    def shape(self, least: int, most: int, largest: int = 7) -> tuple[int, ...]:
        """Return a shape with so many dimensions."""
        return tuple(self.int(1, largest) for _ in range(self.int(least, most)))


Generator = Callable[[Draw], Case]

GENERATORS: dict[tuple[str, str], Generator] = {}
"""What draws a case of each operator, by its domain and type."""


def draws(*op_types: str, domain: str = MICROSOFT) -> Callable[[Generator], Generator]:
    """Register the decorated function as what draws cases of operators."""

    def register(function: Generator) -> Generator:
        GENERATORS.update(((domain, op_type), function) for op_type in op_types)
        return function

    return register


def model_of(case: Case, op_type: str, domain: str, opset: int = 21) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """Return the model of a case, and what is fed to it."""
    names = ["" if value is None else f"x{index}" for index, value in enumerate(case.inputs)]
    while names and not names[-1]:
        names.pop()
    outputs = [f"y{index}" if wanted else "" for index, wanted in enumerate(case.outputs)]
    node = helper.make_node(op_type, names, outputs, "node", domain=domain, **case.attrs)
    known, given, feeds = [], [], {}
    for index, (name, value) in enumerate(zip(names, case.inputs, strict=False)):
        if value is None:
            continue
        if index in case.known:
            known.append(numpy_helper.from_array(value, name))
        else:
            given.append(helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape))
            feeds[name] = value
    results = [onnx.ValueInfoProto(name=name) for name in outputs if name]
    if op_type == "MultiHeadAttention":  # ONNX Runtime does not tell the type of its scores
        for each in results:
            each.type.tensor_type.elem_type = onnx.TensorProto.FLOAT
    graph = helper.make_graph([node], "one", given, results, known)
    versions = [helper.make_opsetid("", opset), *(helper.make_opsetid(each, 1) for each in (MICROSOFT, NCHWC))]
    return helper.make_model(graph, opset_imports=versions, ir_version=10), feeds
