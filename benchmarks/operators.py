"""Latency of single operators beside ONNX Runtime: selection, scatters, pools, sampling, three dimensions, transforms.

A row is an operator at extents of real models. The figure that counts is the ratio: the two are measured in turn, so a
machine that is busy or hot slows both.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import measure
import numpy as np
import onnx
from onnx import helper, numpy_helper
from rich.console import Console
from rich.table import Table

import opbuild

TARGET = 1.0
TOLERANCE = 1e-4

_random = np.random.default_rng(0)


def _floats(*shape: int) -> np.ndarray:
    return _random.standard_normal(shape).astype(np.float32)


def _places(high: int, *shape: int) -> np.ndarray:
    return _random.integers(0, high, shape)


class Row(NamedTuple):
    """One operator.

    Attributes:
        op_type: Its type.
        what: What is particular.
        inputs: Makes its inputs, None for an absent one.
        known: Numbers of those that are constants of the model.
        attrs: Its attributes.
        outputs: How many outputs it has.
    """

    op_type: str
    what: str
    inputs: Callable[[], Sequence[np.ndarray | None]]
    known: Sequence[int] = ()
    attrs: Mapping[str, Any] = {}
    outputs: int = 1


def _regions() -> list[np.ndarray]:
    corners = _random.uniform(0, 150, (300, 2))
    boxes = np.concatenate([corners, corners + _random.uniform(5, 50, (300, 2))], 1).astype(np.float32)
    return [_floats(1, 256, 50, 50), boxes, np.zeros(300, np.int64)]


def _deep(x: Sequence[int], weights: Sequence[int]) -> Callable[[], list[np.ndarray | None]]:
    return lambda: [_floats(*x), _floats(*weights)]


_CUBE = {"kernel_shape": [3, 3, 3], "strides": [2, 2, 2], "pads": [1] * 6}
_ALIGN = {"output_height": 7, "output_width": 7, "sampling_ratio": 2, "spatial_scale": 0.25}

ROWS = (
    Row("TopK", "50 of 50,000", lambda: [_floats(1, 50000), np.array([50])], (1,), outputs=2),
    Row("TopK", "all of 50,000", lambda: [_floats(1, 50000), np.array([50000])], (1,), outputs=2),
    Row("TopK", "300 of 8,400", lambda: [_floats(1, 8400), np.array([300])], (1,), outputs=2),
    Row("TopK", "8 of 64, 4,096 rows", lambda: [_floats(4096, 64), np.array([8])], (1,), outputs=2),
    Row("ScatterND", "50,000 rows of 64 added", lambda: [_floats(10000, 64), _places(10000, 50000, 1),
        _floats(50000, 64)], attrs={"reduction": "add"}),
    Row("ScatterElements", "64 x 1,000 of 5,000", lambda: [_floats(64, 5000), _places(5000, 64, 1000),
        _floats(64, 1000)], attrs={"axis": 1}),
    Row("GridSample", "64 channels, 64 x 64", lambda: [_floats(1, 64, 64, 64), _floats(1, 64, 64, 2) / 2],
        attrs={"mode": "linear"}),
    Row("GridSample", "deformable attention", lambda: [_floats(8, 32, 40, 40), _floats(8, 300, 4, 2) / 2],
        attrs={"mode": "linear"}),
    Row("RoiAlign", "300 regions of 256 channels", _regions, attrs=_ALIGN),
    Row("Conv", "3 x 3 x 3, 64 channels, 8 x 28 x 28", _deep((1, 64, 8, 28, 28), (64, 64, 3, 3, 3)), (1,),
        {"pads": [1] * 6}),
    Row("Conv", "3 x 3 x 3, 256 channels, 4 x 14 x 14", _deep((1, 256, 4, 14, 14), (256, 256, 3, 3, 3)), (1,),
        {"pads": [1] * 6}),
    Row("Conv", "3 x 7 x 7, 3 channels, 16 x 112 x 112", _deep((1, 3, 16, 112, 112), (64, 3, 3, 7, 7)), (1,),
        {"pads": [1, 3, 3, 1, 3, 3], "strides": [1, 2, 2]}),
    Row("Conv", "3 x 3 x 3, 1 channel, 32 x 64 x 64", _deep((1, 1, 32, 64, 64), (16, 1, 3, 3, 3)), (1,),
        {"pads": [1] * 6}),
    Row("Conv", "3 x 3, weights given to the call", _deep((1, 64, 56, 56), (64, 64, 3, 3)), (),
        {"pads": [1, 1, 1, 1]}),
    Row("ConvTranspose", "2 x 2 x 2, stride 2", _deep((1, 64, 8, 16, 16), (64, 32, 2, 2, 2)), (1,),
        {"strides": [2, 2, 2]}),
    Row("MaxPool", "3 x 3 x 3, stride 2", lambda: [_floats(1, 32, 16, 56, 56)], attrs=_CUBE),
    Row("AveragePool", "3 x 3 x 3, stride 2", lambda: [_floats(1, 32, 16, 56, 56)], attrs=_CUBE),
    Row("MaxPool", "with indices", lambda: [_floats(1, 64, 112, 112)],
        attrs={"kernel_shape": [2, 2], "strides": [2, 2]}, outputs=2),
    Row("LpPool", "3 x 3", lambda: [_floats(1, 64, 56, 56)], attrs={"kernel_shape": [3, 3]}),
    Row("Einsum", "bhid,bhjd->bhij", lambda: [_floats(1, 12, 128, 64), _floats(1, 12, 128, 64)],
        attrs={"equation": "bhid,bhjd->bhij"}),
    Row("Trilu", "1,024 x 1,024", lambda: [_floats(1024, 1024)]),
    Row("CumSum", "64 x 4,096", lambda: [_floats(64, 4096), np.array(1)], (1,)),
    Row("OneHot", "4,096 of 1,000", lambda: [_places(1000, 4096), np.array(1000), np.float32([0, 1])], (1,)),
    Row("Hardmax", "64 x 1,000", lambda: [_floats(64, 1000)]),
    Row("STFT", "400 of 16,000", lambda: [_floats(1, 16000, 1), np.array(160), None, np.array(400)], (1, 3)),
    Row("MatMul", "float64, 128 x 768 x 768", lambda: [_random.standard_normal((128, 768)),
        _random.standard_normal((768, 768))], (1,)),
    Row("MatMul", "float64, 1 x 2,048 x 1,000", lambda: [_random.standard_normal((1, 2048)),
        _random.standard_normal((2048, 1000))], (1,)),
    Row("DFT", "8 x 1,024", lambda: [_floats(8, 1024, 1)], attrs={"onesided": 1}),
)  # fmt: skip


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("operators", nargs="*", help="operator types; default: all rows")
    parser.add_argument("--threads", type=int, default=measure.THREADS)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each runtime; the median counts")
    parser.add_argument("--seconds", type=float, default=0.1, help="length of a turn")
    arguments = parser.parse_args()
    console, table = Console(width=130), Table(title=f"Operators, {arguments.threads} threads", title_justify="left")
    for column in ("operator", "", "opbuild ms", "ONNX Runtime ms", "ratio", "", "error"):
        table.add_column(column, justify="left" if column == "operator" else "right")
    rows = []
    with tempfile.TemporaryDirectory() as cache, console.status(""):
        for row in ROWS:
            if arguments.operators and row.op_type not in arguments.operators:
                continue
            found = one_row(row, cache, arguments.threads, arguments.rounds, arguments.seconds)
            rows.append({"operator": row.op_type, "what": row.what, **found})
            error = f"{found['error']:.1e}" if found["error"] <= TOLERANCE else f"[red]{found['error']:.1e}[/]"
            times = (f"{found['opbuild_ms']:.3f}", f"{found['onnxruntime_ms']:.3f}", f"{found['ratio']:.3f}")
            table.add_row(row.op_type, row.what, *times, measure.verdict(found["ratio"], TARGET), error)
    console.print(table)
    measure.write_results(arguments.json, "operators", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def one_row(row: Row, cache: str, threads: int, rounds: int, seconds: float) -> dict[str, float]:
    """Measure one operator in both runtimes and compare their first outputs."""
    model, data = model_of(row)
    network = opbuild.compile(model, cache_path=cache, num_threads=threads)
    if network.report.host:
        raise SystemExit(f"{row.op_type} ({row.what}) runs on the host: there is nothing to measure")
    session = measure.ort_session(model, threads)
    error = measure.relative_error(np.asarray(network.run(None, data)[0]), session.run(None, data)[0])
    medians = measure.alternate(
        {"onnxruntime": lambda: session.run(None, data), "opbuild": lambda: network.run(None, data)}, rounds, seconds
    )
    return {
        "opbuild_ms": medians["opbuild"] * 1e3,
        "onnxruntime_ms": medians["onnxruntime"] * 1e3,
        "ratio": medians["opbuild"] / medians["onnxruntime"],
        "error": error,
    }


def model_of(row: Row) -> tuple[bytes, dict[str, np.ndarray]]:
    """Return a model of one operator and what it is fed."""
    inputs = row.inputs()
    names = [f"x{number}" if value is not None else "" for number, value in enumerate(inputs)]
    data = {name: value for name, value in zip(names, inputs, strict=True) if value is not None}
    constants = [numpy_helper.from_array(data.pop(names[number]), names[number]) for number in row.known]
    ports = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in data.items()
    ]
    results = [f"y{number}" for number in range(row.outputs)]
    node = helper.make_node(row.op_type, names, results, "node", **row.attrs)
    made = [helper.make_empty_tensor_value_info(name) for name in results]
    graph = helper.make_graph([node], "one", ports, made, constants)
    model: onnx.ModelProto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return model.SerializeToString(), data


if __name__ == "__main__":
    sys.exit(main())
