"""Random networks against ONNX Runtime, by every way in which a model is run.

``OPBUILD_FUZZ=5000`` tries so many networks, in as many processes as there are cores, and prints what became of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from generated.random_networks import RandomNetwork, make_network
from generated.shrinking import shrink, with_outputs
from generated.ways import every_way
from opbuild.errors import BuildError, OpbuildError, RunError
from support.comparison import onnxruntime_outputs
from support.fuzzing import CAMPAIGN, check_seeds
from support.known_differences import known_difference
from support.tiers import spans

Array = npt.NDArray[Any]

MOST_NOISE = 32
"""How often the error that a value is said to have may be exceeded: the estimates are of single roundings."""

pytestmark = [pytest.mark.timeout(14400)] if CAMPAIGN else []


def expected_of(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the outputs of a model by ONNX Runtime, or node by node if that has no kernel for one of them."""
    feeds = {value.name: feeds[value.name] for value in model.graph.input}
    try:
        return onnxruntime_outputs(model, feeds, optimized=False)
    except Exception as error:
        if not any(said in str(error) for said in ("NOT_IMPLEMENTED", "INVALID_GRAPH")):
            raise
    if len(model.graph.node) == 1:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return tuple(np.asarray(output) for output in ReferenceEvaluator(model).run(None, dict(feeds)))
    return node_by_node(model, feeds)


def node_by_node(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> tuple[Array, ...]:
    """Return the outputs of a model whose nodes are run alone, each result rounded to its element type.

    ONNX Runtime has few kernels for float16 and keeps values between the others in float32, without the infinities
    that they have in float16.
    """
    values = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer} | dict(feeds)
    for node in model.graph.node:
        given = {name: values[name] for name in node.input if name}
        graph = onnx.helper.make_graph(
            [node],
            "node",
            [onnx.helper.make_tensor_value_info(name, _kind(array), array.shape) for name, array in given.items()],
            [onnx.ValueInfoProto(name=name) for name in node.output],
        )
        alone = onnx.helper.make_model(graph, opset_imports=model.opset_import, ir_version=model.ir_version)
        alone = onnx.shape_inference.infer_shapes(alone)
        values.update(zip(node.output, expected_of(alone, given), strict=True))
    return tuple(values[value.name] for value in model.graph.output)


def difference(got: Array, wanted: Array, noise: float) -> str | None:
    """Return how an output differs from what is expected of it, or None."""
    if (got.dtype, got.shape) != (wanted.dtype, wanted.shape):
        return f"is {got.dtype}{list(got.shape)}, not {wanted.dtype}{list(wanted.shape)}"
    if got.dtype == bool or got.dtype.kind in "iu":
        wrong = got != wanted
    else:
        with np.errstate(all="ignore"):  # infinities
            apart = np.abs(got.astype("f8") - wanted.astype("f8"))
        wrong = ~((got == wanted) | (apart <= MOST_NOISE * noise) | (np.isnan(got) & np.isnan(wanted)))
    if not wrong.any():
        return None
    place = tuple(int(at) for at in np.argwhere(wrong)[0])
    return (
        f"differs in {int(wrong.sum())} of {wrong.size} elements, first at {list(place)}: {got[place]} instead of "
        f"{wanted[place]} (error {noise:.1e})"
    )


def fault(
    model: onnx.ModelProto, feeds: Mapping[str, Array], noise: Mapping[str, float], folder: Path
) -> tuple[str, str]:
    """Return the outcome of a model, and of its first output that is wrong."""
    try:
        wanted = expected_of(model, feeds)
    except Exception as error:
        return "unknown", f"{error}"
    try:
        ways = every_way(model, feeds, folder)
    except (BuildError, RunError) as error:
        return "foreign", f"{type(error).__name__}: {error}"  # whatever could be read must be built, and run
    except OpbuildError as error:
        return "refused", f"{type(error).__name__}: {error}"
    for way, results in ways.items():
        for value, got, right in zip(model.graph.output, results, wanted, strict=True):
            said = difference(got, right, noise.get(value.name, 0.0))
            if said and _kind(right) == onnx.TensorProto.FLOAT16:
                place = list(model.graph.output).index(value)
                said = difference(got, node_by_node(model, feeds)[place], noise.get(value.name, 0.0))
            if said:
                known = known_difference(model, feeds)
                return ("known", known) if known else ("wrong", f"{way}: output {value.name} {said}")
            first = ways["cold"][list(model.graph.output).index(value)]
            if got.tobytes() != first.tobytes() and way in ("again", "warm", "strided"):
                return "wrong", f"{way}: output {value.name} has other bits than before"
    return "right", ""


def inside(model: onnx.ModelProto, feeds: Mapping[str, Array]) -> dict[str, Array]:
    """Return the values inside a model, by name."""
    inferred = onnx.shape_inference.infer_shapes(model)
    types = {value.name: value.type.tensor_type.elem_type for value in inferred.graph.value_info}
    names = [name for node in model.graph.node for name in node.output if types.get(name)]
    names += [value.name for value in model.graph.output if value.name not in names]
    shown = {name: np.zeros((), onnx.helper.tensor_dtype_to_np_dtype(types[name])) for name in types}
    known = {value.name: value for value in model.graph.output}
    whole = with_outputs(model, feeds, {**shown, **{n: np.zeros((), _dtype(known[n])) for n in known}}, names)
    for value in whole.graph.output:
        value.type.tensor_type.ClearField("shape")
    return dict(zip(names, expected_of(whole, feeds), strict=True))


def _kind(array: Array) -> int:
    return int(onnx.helper.np_dtype_to_tensor_dtype(array.dtype))


def _dtype(value: onnx.ValueInfoProto) -> np.dtype[Any]:
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))


def shown(model: onnx.ModelProto) -> str:
    """Return a model as text."""
    return onnx.printer.to_text(model)[:6000]


def try_network(seed: int, folder: Path) -> tuple[str, str]:
    """Make the network of a seed, run it in every way, and make it small if it fails."""
    network: RandomNetwork = make_network(seed)
    outcome, said = fault(network.model, network.feeds, network.noise, folder)
    if outcome not in ("wrong", "foreign"):
        return outcome, said
    model, feeds = network.model, network.feeds
    try:
        values = inside(model, feeds)
        model, feeds = shrink(
            model, feeds, values, lambda m, f: fault(m, f, network.noise, folder)[0] in ("wrong", "foreign")
        )
        outcome, said = fault(model, feeds, network.noise, folder)
    except Exception as error:  # the model as it was drawn tells enough
        said += f"\n(not made smaller: {error!r})"
    return outcome, f"{said}\n{shown(model)}"


@pytest.mark.parametrize("seeds", spans(10, 4))
def test_random_networks_give_what_onnxruntime_gives(seeds: range, tmp_path: Path) -> None:
    """Every operator that has a kernel, in random company: shapes, types, outputs that share values, open sizes."""
    tally = check_seeds("random networks", lambda seed: try_network(seed, tmp_path), seeds)
    assert tally.outcomes["right"] >= 0.9 * len(seeds), tally
