"""Networks quantised to 8 bits by ONNX Runtime's tools, batch 1, against ONNX Runtime and against float32 here.

Both forms that the tools write, QLinearConv (``QOperator``) and pairs of QuantizeLinear and DequantizeLinear (``QDQ``),
calibrated on random images. The outputs of what is quantised are compared with ONNX Runtime's in the same run. The
figures that count are the ratios: all are measured in turn.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import measure
import models
import numpy as np
import onnx
from onnx import version_converter
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from rich.console import Console
from rich.table import Table

import opbuild

FORMS = {
    "QOperator": (QuantFormat.QOperator, False, QuantType.QUInt8),
    "QOperator per channel": (QuantFormat.QOperator, True, QuantType.QUInt8),
    "QDQ per channel": (QuantFormat.QDQ, True, QuantType.QUInt8),
    "QDQ signed": (QuantFormat.QDQ, True, QuantType.QInt8),
}
"""By name: the format, whether weights have a scale for each output channel, the type of activations."""

OF_FLOAT, OF_ONNXRUNTIME = 0.45, 0.9
"""Targets: ratios to our float32 and to ONNX Runtime's 8 bits."""

OPSET = 17
"""ONNX Runtime's tools write operators of this set; older models are converted."""


class Images(CalibrationDataReader):
    """Random images to calibrate with."""

    def __init__(self, name: str, shape: tuple[int, ...]) -> None:
        draw = np.random.default_rng(0)
        self._rest: Iterator[dict[str, np.ndarray]] = iter(
            [{name: draw.standard_normal(shape).astype(np.float32)} for _ in range(2)]
        )

    def get_next(self) -> dict[str, np.ndarray] | None:
        """Return the next image."""
        return next(self._rest, None)


def main() -> int:
    """Measure, print a table, write the results; return 1 if a target is missed or something ran on the host."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("models", nargs="*", default=["resnet50"], help="light networks, or paths of .onnx files")
    parser.add_argument("--forms", nargs="*", default=list(FORMS), choices=list(FORMS))
    parser.add_argument("--threads", type=int, default=measure.THREADS)
    parser.add_argument("--rounds", type=int, default=7, help="turns of each; the median counts")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of a turn")
    arguments = parser.parse_args()
    console = Console(width=140)
    table = Table(title=f"8 bits, {arguments.threads} thread(s)", title_justify="left")
    for column in ("network", "form", "ms", "float32 ms", "ratio", "", "ONNX Runtime ms", "ratio", "", "host", "equal"):
        table.add_column(column, justify="left" if column in ("network", "form") else "right")
    rows = []
    with tempfile.TemporaryDirectory() as folder, console.status("") as status:
        for name in arguments.models:
            plain = prepared(name, Path(folder))
            for form in arguments.forms:
                status.update(f"{name} {form} ...")
                rows.append(one_form(plain, form, Path(folder), arguments))
                table.add_row(*shown(rows[-1]))
    console.print(table)
    measure.write_results(arguments.json, "quantized", rows)
    return int(any(missed(row) for row in rows))


def prepared(name: str, folder: Path) -> Path:
    """Write a network as the quantisation tools want it; return its file."""
    model = onnx.load(name) if name.endswith(".onnx") else models.network(name)
    if next(each.version for each in model.opset_import if not each.domain) < OPSET:
        model = version_converter.convert_version(model, OPSET)
    source, target = folder / "source.onnx", folder / f"{Path(name).stem}.onnx"
    onnx.save(model, source)
    quant_pre_process(source, target, skip_symbolic_shape=True)
    return target


def one_form(plain: Path, form: str, folder: Path, arguments: object) -> dict[str, float | str | bool]:
    """Quantise a network, measure it and what it was made of, and compare its outputs."""
    kind, each, activations = FORMS[form]
    threads, rounds, seconds = (getattr(arguments, name) for name in ("threads", "rounds", "seconds"))
    unquantised = opbuild.compile(plain.read_bytes(), cache_path=folder / "store", num_threads=threads)
    name, shape = unquantised.inputs[0].name, tuple(unquantised.inputs[0].shape)
    path = folder / "quantised.onnx"
    quantize_static(
        plain, path, Images(name, shape), quant_format=kind, per_channel=each,
        activation_type=activations, weight_type=QuantType.QInt8,
    )  # fmt: skip
    network = opbuild.compile(path.read_bytes(), cache_path=folder / "store", num_threads=threads)
    session = measure.ort_session(str(path), threads)
    data = {name: np.random.default_rng(1).standard_normal(shape).astype(np.float32)}
    equal = np.mean(np.asarray(network(data)) == session.run(None, data)[0])
    medians = measure.alternate(
        {
            "float": lambda: unquantised(data),
            "onnxruntime": lambda: session.run(None, data),
            "opbuild": lambda: network(data),
        },
        rounds,
        seconds,
    )
    return {
        "network": plain.stem,
        "form": form,
        "opbuild_ms": medians["opbuild"] * 1e3,
        "float_ms": medians["float"] * 1e3,
        "onnxruntime_ms": medians["onnxruntime"] * 1e3,
        "of_float": medians["opbuild"] / medians["float"],
        "of_onnxruntime": medians["opbuild"] / medians["onnxruntime"],
        "host_calls": len(network.report.host),
        "equal": float(equal),
    }


def shown(row: dict[str, float | str | bool]) -> tuple[str, ...]:
    """Return a row of the table."""
    return (
        str(row["network"]),
        str(row["form"]),
        f"{row['opbuild_ms']:.2f}",
        f"{row['float_ms']:.2f}",
        f"{row['of_float']:.3f}",
        measure.verdict(float(row["of_float"]), OF_FLOAT),
        f"{row['onnxruntime_ms']:.2f}",
        f"{row['of_onnxruntime']:.3f}",
        measure.verdict(float(row["of_onnxruntime"]), OF_ONNXRUNTIME),
        str(row["host_calls"]),
        f"{100 * float(row['equal']):.0f}%",
    )


def missed(row: dict[str, float | str | bool]) -> bool:
    """Return whether a target was missed, or something ran on the host."""
    slow = float(row["of_float"]) > OF_FLOAT or float(row["of_onnxruntime"]) > OF_ONNXRUNTIME
    return slow or bool(row["host_calls"])


if __name__ == "__main__":
    sys.exit(main())
