"""Exports of a candidate: by both of torch's exporters, and quantized by ONNX Runtime's tools."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import torch
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

from benchmarks.structures.candidate import Candidate, Traced

FORMS = ("torchscript/float32", "dynamo/float32", "torchscript/int8-dynamic", "torchscript/int8-qdq")
OPSETS = {"torchscript": 18, "dynamo": 20}


def export(candidate: Candidate, form: str, folder: Path) -> None:
    """Write a candidate in one form: ``.onnx``, its inputs in ``.npz``, and its family in ``.json``."""
    exporter, kind = form.split("/")
    path = folder / candidate.name / exporter / f"{kind}.onnx"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    if kind == "float32":
        torch.manual_seed(0)
        traced = candidate.make()
        _trace(traced, exporter, unfinished)
        names = [each.name for each in onnx.load(unfinished, load_external_data=False).graph.input]
        feeds = {name: value.numpy() for name, value in traced.inputs.items() if name in names}
    else:
        whole = path.with_name("float32.onnx")
        if not whole.exists():
            export(candidate, f"{exporter}/float32", folder)
        feeds = dict(np.load(whole.with_suffix(".npz")))
        _quantize(whole, kind, feeds, unfinished)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    onnxruntime.InferenceSession(unfinished, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.savez(path.with_suffix(".npz"), **feeds)
    path.with_suffix(".json").write_text(json.dumps({"family": candidate.family}))
    unfinished.rename(path)


def _trace(traced: Traced, exporter: str, path: Path) -> None:
    arguments = tuple(traced.inputs.values())
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced.module.eval()(*arguments)
        more = {"external_data": False} if exporter == "dynamo" else {"dynamic_axes": traced.open_axes}
        torch.onnx.export(
            traced.module, arguments, str(path), input_names=list(traced.inputs), opset_version=OPSETS[exporter],
            dynamo=exporter == "dynamo", verbose=False, **more,
        )  # fmt: skip


def _quantize(whole: Path, kind: str, feeds: dict[str, np.ndarray], path: Path) -> None:
    if kind == "int8-dynamic":
        quantize_dynamic(whole, path, weight_type=QuantType.QInt8)
        return
    prepared = path.with_suffix(".prepared")
    quant_pre_process(whole, prepared, skip_symbolic_shape=True)
    quantize_static(prepared, path, _Feeds(feeds), quant_format=QuantFormat.QDQ, per_channel=True)
    prepared.unlink()


class _Feeds(CalibrationDataReader):  # type: ignore[misc]
    """Calibrates with the inputs of the export."""

    def __init__(self, feeds: dict[str, np.ndarray]) -> None:
        self._feeds = iter([feeds])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)
