"""The implementation mode ``high_precision`` against ``high_performance``: errors, and what they cost.

Errors are the root mean square of the difference from the definition in float64 (every operator on the host), relative
to the root mean square of the result. The two modes are timed in turn, and the ratio of their times counts.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import measure
import models
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import opbuild
from opbuild.backend.host.evaluate import evaluate
from opbuild.frontend.onnx_model import load_model
from support.networks import bert, bert_input

MODES = ("high_performance", "high_precision")
NETWORKS = ("resnet50", "squeezenet", "bert")
CONV = {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}
LAST = {"axes": np.array([-1], np.int64)}
OPERATORS: dict[str, tuple[str, dict[str, Any], tuple[int, ...], dict[str, Any]]] = {
    "Exp": ("Exp", {}, (1 << 20,), {}),
    "Tanh": ("Tanh", {}, (1 << 20,), {}),
    "Sigmoid": ("Sigmoid", {}, (1 << 20,), {}),
    "Gelu": ("Gelu", {}, (1 << 20,), {}),
    "Log of 1 + exp": ("Softplus", {}, (1 << 20,), {}),
    "Softmax 1024 x 1000": ("Softmax", {"axis": -1}, (1024, 1000), {}),
    "LayerNormalization 512 x 1024": ("LayerNormalization", {}, (512, 1024), {"scale": np.ones(1024, np.float32)}),
    "ReduceSum 1024 x 1024": ("ReduceSum", {"keepdims": 0}, (1024, 1024), LAST),
    "MatMul 1 x 2048 x 1000": ("MatMul", {}, (1, 2048), {"w": (2048, 1000)}),
    "MatMul 384 x 768 x 768": ("MatMul", {}, (384, 768), {"w": (768, 768)}),
    "GlobalAveragePool 256 x 56 x 56": ("GlobalAveragePool", {}, (1, 256, 56, 56), {}),
    "AveragePool 3 x 3, 64 x 56 x 56": ("AveragePool", {"kernel_shape": (3, 3)}, (1, 64, 56, 56), {}),
    "Conv 3 x 3, 64 x 56 x 56": ("Conv", CONV, (1, 64, 56, 56), {"w": (64, 64, 3, 3)}),
    "Conv 3 x 3, 128 x 28 x 28": ("Conv", CONV, (1, 128, 28, 28), {"w": (128, 128, 3, 3)}),
    "Conv 3 x 3, 256 x 14 x 14": ("Conv", CONV, (1, 256, 14, 14), {"w": (256, 256, 3, 3)}),
}


def main() -> int:
    """Measure, print a table, write the results; return 1 if a network is less accurate in the accurate mode."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each mode; the median counts")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    arguments = parser.parse_args()
    console = Console()
    table = Table(title=f"high_precision against high_performance, {measure.THREADS} threads", title_justify="left")
    for column in ("", *(f"error, {mode}" for mode in MODES), "time"):
        table.add_column(column, justify="right" if column else "left")
    rows = []
    with tempfile.TemporaryDirectory() as cache, console.status("") as status:
        for name in (*OPERATORS, *NETWORKS):
            status.update(f"{name} ...")
            row = one_case(name, Path(cache), arguments.rounds, arguments.seconds)
            rows.append(row)
            errors = [f"{row[mode]:.1e}" for mode in MODES]
            table.add_row(name, *errors, f"x {row['ratio']:.2f}")
    console.print(table)
    measure.write_results(arguments.json, "precision", rows)
    return int(any(row[MODES[0]] < row[MODES[1]] for row in rows if row["case"] in NETWORKS))


def one_case(name: str, cache: Path, rounds: int, seconds: float) -> dict[str, Any]:
    """Measure a network or an operator in both modes."""
    model, data = case(name)
    reference = evaluate_widely(model, data)
    networks = {
        mode: opbuild.compile(
            model.SerializeToString(), cache_path=cache, num_threads=measure.THREADS, op_select_implmode=mode
        )
        for mode in MODES
    }
    medians = measure.alternate(
        {mode: lambda network=network: network(data) for mode, network in networks.items()}, rounds, seconds
    )
    errors = {mode: rms_error(np.asarray(network(data)), reference) for mode, network in networks.items()}
    return {"case": name, **errors, "ratio": medians[MODES[1]] / medians[MODES[0]]}


def case(name: str) -> tuple[onnx.ModelProto, dict[str, np.ndarray]]:
    """Return a model and its inputs."""
    if name == "bert":
        return bert(), bert_input()
    rng = np.random.default_rng(0)
    if name not in OPERATORS:
        model = models.network(name)
        known = {tensor.name for tensor in model.graph.initializer}
        value = next(each for each in model.graph.input if each.name not in known)
        shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
        return model, {value.name: rng.standard_normal(shape).astype(np.float32)}
    op_type, attrs, shape, given = OPERATORS[name]
    tensors = [
        numpy_helper.from_array(value if isinstance(value, np.ndarray) else he_weights(rng, value), constant)
        for constant, value in given.items()
    ]
    node = helper.make_node(op_type, ["x", *given], ["y"], **attrs)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "one", [x], [y], tensors)
    data = rng.standard_normal(shape).astype(np.float32)
    if op_type not in ("Conv", "MatMul"):
        data *= 4
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), {"x": data}


def he_weights(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
    """Return weights that keep the size of what they multiply."""
    return (rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:]))).astype(np.float32)


def evaluate_widely(model: onnx.ModelProto, data: dict[str, np.ndarray]) -> np.ndarray:
    """Return a network's first output, every operator evaluated on the host with float64 for float32."""
    graph = load_model(model).bind({name: array.shape for name, array in data.items()}, evaluate)
    values = {name: widened(array) for name, array in {**graph.constants, **data}.items()}
    for node in graph.nodes:
        to_float = node.op_type == "Cast" and graph.types[node.outputs[0]].dtype == "float32"
        wide = node.with_(attrs={"to": "float64"}) if to_float else node
        results = evaluate(wide, [values[name] if name else None for name in node.inputs], graph.opset)
        values.update(zip(node.outputs, map(widened, results), strict=True))
    return values[graph.outputs[0]]


def widened(array: np.ndarray) -> np.ndarray:
    """Return float32 numbers as float64, others as they are."""
    return array.astype(np.float64) if array.dtype == np.float32 else array


def rms_error(output: np.ndarray, reference: np.ndarray) -> float:
    """Return the relative root mean square error."""
    difference = output.astype(np.float64) - reference
    return float(np.sqrt(np.mean(difference**2) / np.mean(reference**2)))


if __name__ == "__main__":
    sys.exit(main())
