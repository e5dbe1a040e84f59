"""Latency of quantised networks beside ONNX Runtime, and beside their own float32, for one thread and two.

Networks are quantised by ONNX Runtime's tools: ``dynamic`` finds the ranges of activations at each call, ``static`` has
them in the model (QDQ). The figures that count are ratios: all are measured in turn, so a machine that is busy or hot
slows all of them. Processors with AMX compute ONNX Runtime's products with it, and opbuild's with VNNI.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from pathlib import Path

import measure
import models
import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, quantize_dynamic, quantize_static
from rich.console import Console
from rich.table import Table

import opbuild

NETWORKS: Mapping[str, Callable[[], onnx.ModelProto]] = {"bert": models.transformer}
TARGET_FLOAT, TARGET_ONNXRUNTIME = 0.45, 0.9
TOLERANCE = 0.1
"""Of the greatest output: what is rounded to a byte beside a tie differs by a step of its scale."""


class Samples(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
    """Random data for a model's inputs, from which ranges of activations are taken."""

    def __init__(self, model: onnx.ModelProto) -> None:
        self._samples = iter([data_for(model, seed) for seed in range(4)])

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next sample."""
        return next(self._samples, None)


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("networks", nargs="*", default=[*NETWORKS], metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--forms", nargs="*", default=["dynamic", "static"], choices=("dynamic", "static"))
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=9, help="turns of each; the median counts")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    arguments = parser.parse_args()
    rows = []
    console, table = Console(width=130), Table(title="Quantised networks", title_justify="left")
    for column in ("network", "form", "threads", "int8 ms", "of float32", "", "of ONNX Runtime", "", "host", "error"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryDirectory() as folder, console.status(""):
        for name, form, threads in product(arguments.networks, arguments.forms, arguments.threads):
            row = one_network(name, form, threads, Path(folder), arguments.rounds, arguments.seconds)
            rows.append({"network": name, "form": form, "threads": threads, **row})
            table.add_row(name, form, str(threads), *_shown(row))
    console.print(table)
    measure.write_results(arguments.json, "quantized", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def _shown(row: Mapping[str, float]) -> Iterator[str]:
    yield f"{row['int8_ms']:.2f}"
    for name, target in (("of_float32", TARGET_FLOAT), ("of_onnxruntime", TARGET_ONNXRUNTIME)):
        yield f"{row[name]:.2f}"
        yield measure.verdict(row[name], target)
    yield f"{row['host']:.0f}"
    yield f"{row['error']:.1e}" if row["error"] <= TOLERANCE else f"[red]{row['error']:.1e}[/]"


def one_network(name: str, form: str, threads: int, folder: Path, rounds: int, seconds: float) -> dict[str, float]:
    """Measure a network quantised in one form, in both runtimes, and in float32; compare the outputs of both."""
    model = NETWORKS[name]()
    quantized = quantized_model(model, form, folder / f"{name} {form}.onnx")
    data = data_for(model, 99)
    networks = {
        "int8": opbuild.compile(quantized, cache_path=folder, num_threads=threads),
        "float32": opbuild.compile(model, cache_path=folder, num_threads=threads),
    }
    sessions = {
        "onnxruntime": measure.ort_session(str(quantized), threads),
        "onnxruntime float32": measure.ort_session(model.SerializeToString(), threads),
    }
    error = measure.relative_error(
        np.asarray(next(iter(networks["int8"].run(data).values()))), sessions["onnxruntime"].run(None, data)[0]
    )
    functions: dict[str, Callable[[], object]] = {
        key: lambda network=network: network.run(data) for key, network in networks.items()
    }
    functions |= {key: lambda session=session: session.run(None, data) for key, session in sessions.items()}
    medians = measure.alternate(functions, rounds, seconds)
    return {
        **{f"{key.replace(' ', '_')}_ms": value * 1e3 for key, value in medians.items()},
        "of_float32": medians["int8"] / medians["float32"],
        "of_onnxruntime": medians["int8"] / medians["onnxruntime"],
        "host": float(len(networks["int8"].report.host)),
        "error": error,
    }


def quantized_model(model: onnx.ModelProto, form: str, path: Path) -> Path:
    """Write a model quantised in one form; return its file."""
    if not path.exists():
        source = path.with_suffix(".float.onnx")
        onnx.save(model, source)
        if form == "dynamic":
            quantize_dynamic(source, path)
        else:
            quantize_static(source, path, Samples(model))
    return path


def data_for(model: onnx.ModelProto, seed: int) -> dict[str, np.ndarray]:
    """Return data for a model's inputs: small whole numbers, or normally distributed ones."""
    random, found = np.random.default_rng(seed), {}
    for port in model.graph.input:
        kind = port.type.tensor_type
        shape = tuple(dim.dim_value for dim in kind.shape.dim)
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        whole = np.issubdtype(dtype, np.integer)
        found[port.name] = (random.integers(0, 2, shape) if whole else random.standard_normal(shape)).astype(dtype)
    return found


if __name__ == "__main__":
    sys.exit(main())
