"""What users write, with the types that they get; ``make check`` runs mypy on it, nothing calls it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import opbuild
from opbuild.events import Event

Array = npt.NDArray[Any]


def calls(net: opbuild.Network, x: Array) -> None:
    """One array from a network with one output, a tuple from others: no check stands in the way of either."""
    y = net(x)
    assert_type(y, Array | Any)
    print(y.shape, y.argmax(), y[0] + 1)
    first, second = net(x)
    print(first, second)


def runs(net: opbuild.Network, x: Array) -> None:
    """A dictionary, or ONNX Runtime's list."""
    assert_type(net.run({"x": x}), dict[str, Array])
    assert_type(net.run(feeds={"x": x}), dict[str, Array])
    assert_type(net.run(x=x), dict[str, Array])
    assert_type(net.run(None, {"x": x}), list[Array])
    assert_type(net.run(["y"], {"x": x}), list[Array])
    assert_type(net.run(("y", "z"), x=x), list[Array])
    assert_type(net.run(output_names=["y"], input_feed={"x": x}), list[Array])
    net.run(3, {"x": x})  # type: ignore[call-overload]  # refused where it is written


def shapes(net: opbuild.Network) -> None:
    """What networks say of themselves."""
    for end in (*net.inputs, *net.outputs, *net.bound_inputs, *net.bound_outputs):
        assert_type(end.name, str)
        assert_type(end.shape, tuple[int, ...])
        assert_type(end.dtype, np.dtype[Any])
    print(np.zeros(net.inputs[0].shape, net.inputs[0].dtype))
    assert_type(net.report, opbuild.Report)
    assert_type(net.report.built, int)
    assert_type([each.milliseconds for each in net.report.operators], list[float])


def builds(model: Path, seen: list[Event]) -> None:
    """Arguments as people give them."""
    assert_type(opbuild.compile(model), opbuild.Network)
    shapes: dict[str, tuple[int, ...]] = {"x": (1, 3)}
    opbuild.compile(model, input_shapes=shapes, observer=seen.append, num_threads=2)
    opbuild.compile(model, input_shapes={"x": (None, 3, -1)})
    opbuild.compile(model, num_threads="2")  # type: ignore[arg-type]
    opbuild.compile(model, threads=2)  # type: ignore[call-arg]
    assert_type(opbuild.export(model, "net", ranges={"x": [1, (1, None), None]}), Path)
    opbuild.export(model, "net", variants=[{"x": (1, 3)}, {"x": [2, 3]}])
    assert_type(opbuild.load("net.om", verify=False), opbuild.Network)


@opbuild.operator("Doubled")
def doubled(x: Any) -> Any:
    """A function of the user's."""
    return x * 2


def errors(model: bytes) -> None:
    """The tree is there after ``import opbuild``."""
    try:
        opbuild.compile(model)
    except opbuild.errors.OpbuildError as error:
        assert_type(error.hint, str)


def watches() -> None:
    """The counts of a process, and its spans."""
    assert_type(opbuild.metrics(), dict[str, float])
    opbuild.instrument()()
