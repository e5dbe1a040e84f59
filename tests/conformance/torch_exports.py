"""Exports kinds of torch modules by both exporters, and runs what was exported.

    python tests/conformance/torch_exports.py export FOLDER [part of a name ...]   (where torch is installed)
    python tests/conformance/torch_exports.py run FOLDER [part of a name ...]      (where opbuild is)

``run`` compares with what torch computed or, where an exporter wrote something else, with what ONNX Runtime makes of
it; it lists what is refused, wrong or has host calls, and counts. What an exporter cannot export is left out. Of some
networks, ``run`` also makes quantised forms, by ONNX Runtime's tools.
"""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

QUANTISED = ("net_resnet", "net_bert")
"""Networks of which quantised forms are made."""


def export(folder: Path, parts: Sequence[str]) -> None:
    """Export all kinds, or those whose names contain a part, that are not in the folder yet."""
    import torch

    from conformance.torch_modules import KINDS
    from conformance.torch_networks import NETWORKS

    logging.disable(logging.WARNING)
    failed: Counter[str] = Counter()
    folder.mkdir(parents=True, exist_ok=True)
    for kind in [*KINDS, *NETWORKS]:
        if (folder / f"{kind.name}.npz").exists() or (parts and not any(part in kind.name for part in parts)):
            continue
        torch.manual_seed(0)
        model, inputs = kind.make().eval(), kind.inputs()
        with torch.no_grad():
            outputs = _flat(model(*inputs))
        for exporter in ("script", "dynamo"):
            path = folder / f"{kind.name}.{exporter}.onnx"
            try:
                _export(model, inputs, path, exporter == "dynamo")
            except Exception as error:  # an exporter raises anything
                path.unlink(missing_ok=True)
                failed[exporter] += 1
                print(f"{kind.name}: {exporter} cannot export it: {str(error).strip().splitlines()[0][:150]}")
        arrays = {f"in{i}": each.numpy() for i, each in enumerate(inputs)}
        arrays |= {f"out{i}": each.numpy() for i, each in enumerate(outputs)}
        np.savez(folder / f"{kind.name}.npz", **arrays)
    print("exporters failed:", dict(failed))


def _export(model: Any, inputs: Any, path: Path, dynamo: bool) -> None:
    import torch

    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(model, inputs, path, dynamo=dynamo, external_data=False, opset_version=18 if dynamo else 17,
                          verbose=False)  # fmt: skip


def _flat(outputs: Any) -> list[Any]:
    return [outputs] if hasattr(outputs, "numpy") else [each for group in outputs for each in _flat(group)]


def run(folder: Path, parts: Sequence[str]) -> int:
    """Run what was exported; return 1 if anything is wrong."""
    counts: Counter[str] = Counter()
    for name, model, given, expected, tolerance in _exported(folder, parts):
        state, why = _outcome(model, given, expected, tolerance, folder / "cache")
        counts[state] += 1
        if state != "compiled":
            print(f"{state:8} {name} {why}", flush=True)
    print(", ".join(f"{state} {counts[state]}" for state in ("compiled", "host", "refused", "wrong")))
    return 1 if counts["wrong"] else 0


def _exported(folder: Path, parts: Sequence[str]) -> Iterator[tuple[str, Path, list[Any], list[Any], float]]:
    for data in sorted(folder.glob("*.npz")):
        if parts and not any(part in data.stem for part in parts):
            continue
        with np.load(data) as arrays:
            given = [arrays[f"in{i}"] for i in range(sum(name.startswith("in") for name in arrays))]
            expected = [arrays[f"out{i}"] for i in range(sum(name.startswith("out") for name in arrays))]
        for model in sorted(folder.glob(f"{data.stem}.*.onnx")):
            yield model.stem, model, given, expected, 2e-2 if "float16" in model.stem else 1e-3
            if data.stem in QUANTISED:
                for form, quantised in _quantised(model, given, folder):
                    expected = _by_onnxruntime(quantised, given)
                    if expected:
                        yield f"{model.stem} {form}", quantised, given, expected, 5e-2


def _quantised(model: Path, given: list[Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield int8 forms of a model: static with QDQ and QOperator nodes, and dynamic."""
    from onnxruntime import quantization as q
    from onnxruntime.quantization.shape_inference import quant_pre_process

    class Calibration(q.CalibrationDataReader):
        def __init__(self, names: list[str]) -> None:
            self.feeds = iter([dict(zip(names, given, strict=True))])

        def get_next(self) -> Any:
            return next(self.feeds, None)

    import onnx

    names = [each.name for each in onnx.load(model).graph.input]
    prepared = folder / f"{model.stem}.prepared"
    quant_pre_process(str(model), str(prepared), skip_symbolic_shape=True)
    for form in (q.QuantFormat.QDQ, q.QuantFormat.QOperator):
        path = folder / f"{model.stem}.{form}"
        q.quantize_static(prepared, path, Calibration(names), quant_format=form, per_channel=True)
        yield str(form), path
    path = folder / f"{model.stem}.dynamic"
    q.quantize_dynamic(prepared, path)
    yield "dynamic", path


def _by_onnxruntime(model: Path, given: list[Any]) -> list[Any]:
    """Return ONNX Runtime's outputs; none if it refuses the model, which its own tools may have written."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        session = onnxruntime.InferenceSession(model.read_bytes(), options)
        names = [each.name for each in session.get_inputs()]
        return list(session.run(None, dict(zip(names, given, strict=False))))
    except Exception as error:  # it raises types of its own, which it does not export
        print(f"onnxruntime refuses {model.name}: {str(error)[:150]}")
        return []


def _outcome(model: Path, given: list[Any], expected: list[Any], tolerance: float, cache: Path) -> tuple[str, str]:
    import opbuild
    from opbuild.errors import OpbuildError

    try:
        network = opbuild.compile(model.read_bytes(), cache_path=cache, num_threads=2)
        names = [each.name for each in network.inputs]
        results = network.run(None, dict(zip(names, given, strict=False)))
    except OpbuildError as error:
        return "refused", error.message[:200]
    if not _alike(results, expected, tolerance) and not _alike(results, _by_onnxruntime(model, given), tolerance):
        return "wrong", ", ".join(f"{each.dtype}{list(each.shape)}" for each in results)
    return ("host", ", ".join(network.report.host)) if network.report.host else ("compiled", "")


def _alike(results: list[Any], expected: list[Any], tolerance: float) -> bool:
    return len(results) == len(expected) and all(
        got.shape == wanted.shape and np.allclose(got, wanted, tolerance, tolerance, equal_nan=True)
        for got, wanted in zip(results, expected, strict=True)
    )


if __name__ == "__main__":
    command, folder, *parts = sys.argv[1:]
    sys.exit(export(Path(folder), parts) if command == "export" else run(Path(folder), parts))
