"""The cases of ``onnx.backend.test``: a model, inputs, and the outputs that are expected."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import OptionalProto, SequenceProto, TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-converted", "pytorch-operator")

RANDOM = re.compile(r"bernoulli|randomnormal|randomuniform|multinomial|training_dropout(?!.*zero_ratio)")
"""Cases whose expected values are one sample of many: types and shapes are compared."""


class Case(NamedTuple):
    """One case.

    Attributes:
        name: Its name, without ``test_``.
        model: The model.
        data: Pairs of inputs and expected outputs, in the model's order.
        rtol: Relative tolerance that the case allows.
        atol: Absolute tolerance that the case allows.
    """

    name: str
    model: onnx.ModelProto
    data: Sequence[tuple[Sequence[Any], Sequence[Any]]]
    rtol: float
    atol: float

    @property
    def is_random(self) -> bool:
        """Whether its values are random."""
        return RANDOM.search(self.name) is not None

    @property
    def operators(self) -> tuple[str, ...]:
        """The operator types in it, sorted."""
        return tuple(sorted({node.op_type for node in self.model.graph.node}))


def cases(kinds: Sequence[str] = KINDS) -> Iterator[Case]:
    """Yield all cases of some kinds."""
    for kind in kinds:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = load_model_tests(kind=kind)
        for case in found:
            yield _read(case)


def _read(case: Any) -> Case:
    name = case.name.removeprefix("test_")
    if case.model is not None:
        data = [(_values(given), _values(expected)) for given, expected in case.data_sets]
        return Case(name, case.model, data, case.rtol, case.atol)
    folder = Path(case.model_dir)
    model = onnx.load(folder / "model.onnx")
    sets = sorted(folder.glob("test_data_set_*"))
    data = [(_stored(each, "input", model.graph.input), _stored(each, "output", model.graph.output)) for each in sets]
    return Case(name, model, data, case.rtol, case.atol)


def _values(values: Sequence[Any]) -> list[Any]:
    return [numpy_helper.to_array(value) if isinstance(value, TensorProto) else value for value in values]


def _stored(folder: Path, side: str, declared: Sequence[onnx.ValueInfoProto]) -> list[Any]:
    count = len(list(folder.glob(f"{side}_*.pb")))
    return [_parsed((folder / f"{side}_{i}.pb").read_bytes(), declared[i].type) for i in range(count)]


def _parsed(data: bytes, declared: onnx.TypeProto) -> Any:
    kind = declared.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(SequenceProto.FromString(data))
    if kind == "optional_type":
        return numpy_helper.to_optional(OptionalProto.FromString(data))
    return numpy_helper.to_array(TensorProto.FromString(data))
