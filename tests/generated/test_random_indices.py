"""Indices of every operator that reads some: ONNX Runtime's result if all are in range, else an error that names one.

Each is tried as data, as a constant and behind other operators, in networks of one size and of any, in sessions and
offline models, and once more after the error.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

import opbuild
from generated.random_indices import OPERATORS, Array, Drawn, Rng
from opbuild.errors import InvalidModelError, OutOfRangeError
from opbuild.onnxruntime import InferenceSession
from opbuild.onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument
from support.fuzzing import check_seeds
from support.tiers import spans

WAYS = ("fixed", "opened", "shifted", "session", "offline")


def expected(drawn: Drawn) -> Array:
    """Return ONNX Runtime's result."""
    session = onnxruntime.InferenceSession(drawn.model().SerializeToString(), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["o0"], drawn.feeds())[0])


def close(found: object, wanted: Array) -> bool:
    """Return whether a result is the one wanted, but for rounding."""
    return np.allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


class Tried:
    """A network that was made in one way."""

    def __init__(self, drawn: Drawn, way: str, shift: int, folder: Path) -> None:
        model = drawn.model(opened=way == "opened", shift=shift)
        self.way, self.shift, self.name = way, shift, f"i{drawn.index}"
        if way == "session":
            self.session = InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        elif way == "offline":
            self.network = opbuild.load(opbuild.export(model, folder / f"{os.getpid()}.om"))
        else:
            self.network = opbuild.compile(model)

    def __call__(self, feeds: dict[str, Array]) -> object:
        feeds = {**feeds, self.name: np.asarray(feeds[self.name] - self.shift, feeds[self.name].dtype)}
        if self.way == "session":
            return self.session.run(["o0"], feeds)[0]
        return self.network(feeds)


def try_one(make: int, seed: int, folder: Path) -> tuple[str, str]:
    """Return the outcome of one operator, and a remark on it."""
    rng = np.random.default_rng([seed, make])
    drawn = OPERATORS[make](rng)
    way = str(rng.choice(WAYS))
    if way == "offline" and drawn.attrs.get("sampling_ratio") == 0:
        way = "fixed"  # no kernel has as many samples as a region is large
    if problem := try_constant(drawn, rng):
        return "wrong", f"{drawn.op_type} {drawn.attrs} with known indices: {problem}"
    bad, value = drawn.outside(rng)
    shift = 3 if way == "shifted" and abs(value) < 2**30 else 0
    network, wanted = Tried(drawn, way, shift, folder), expected(drawn)
    where = f"{drawn.op_type} {drawn.attrs} {way} {[np.shape(each) for each in drawn.inputs]} {value}"
    for turn in ("first", "again"):
        if not close(network(drawn.feeds()), wanted):
            return "wrong", f"{where}: {turn} another result"
        if problem := refuses(network, drawn, bad, value):
            return "wrong", f"{where}: {problem}"
    return way, ""


def refuses(network: Tried, drawn: Drawn, bad: Array, value: int) -> str:
    """Return the problem of a network with an index out of range; empty if it says which one it is."""
    try:
        network(drawn.feeds(bad))
    except (OutOfRangeError, InvalidArgument) as error:
        said = str(error)
        is_told = f"index {value} is out of range" in said and "reads" in said
        return "" if is_told else f"it said {said}"
    return "no error"


def try_constant(drawn: Drawn, rng: Rng) -> str:
    """Return the problem where the indices are a constant of the model."""
    bad, value = drawn.outside(rng)
    try:
        network = opbuild.compile(drawn.model(known=bad))
        network(drawn.feeds())
        return f"{value} is no error"
    except InvalidModelError as error:
        return "" if f"index {value} is out of range" in str(error) else str(error)
    except OutOfRangeError as error:
        return f"the network was built, {error}"


@pytest.mark.slow
@pytest.mark.parametrize("seeds", spans(2, 1))
@pytest.mark.parametrize("make", range(len(OPERATORS)), ids=[each.__name__ for each in OPERATORS])
def test_an_index_out_of_range_is_an_error_and_one_in_range_is_right(make: int, seeds: range, tmp_path: Path) -> None:
    """Whatever reads it, however it is served; and the network goes on being right."""
    onnxruntime.set_default_logger_severity(4)
    assert onnx.defs.onnx_opset_version() >= 24
    name = OPERATORS[make].__name__
    check_seeds(name, lambda seed: try_one(make, seed, tmp_path), seeds)
