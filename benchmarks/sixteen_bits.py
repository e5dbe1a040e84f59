"""ResNet-50 and BERT-base in float32, float16 and bfloat16: milliseconds a call, and memory, beside ONNX Runtime.

All of a network's forms take turns in one process. ONNX Runtime has no bfloat16 on CPUs.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
from measure import THREADS, alternate, ort_session, parser, relative_error
from models import network
from rich.console import Console
from rich.table import Table

import opbuild
from support.narrow_models import in_sixteen_bits
from support.networks import bert, random_input

TYPES = ("float32", "float16", "bfloat16")
NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: network("resnet50"),
    "bert_base": lambda: bert(layers=12, hidden=768, heads=12, seq=128, decomposed=False),
}


def measured(name: str, folder: Path, rounds: int, seconds: float) -> dict[str, dict[str, float]]:
    """Return of each form of a network its milliseconds, its error and the megabytes of its weights."""
    model = NETWORKS[name]()
    feeds = random_input(model) | ({"attention_mask": np.ones((1, 128), np.int64)} if name == "bert_base" else {})
    calls: dict[str, Callable[[], object]] = {}
    found: dict[str, dict[str, float]] = {}
    reference: np.ndarray | None = None
    for dtype in TYPES:
        form = model if dtype == "float32" else in_sixteen_bits(model, dtype)
        path = folder / f"{name}_{dtype}.onnx"
        onnx.save(form, path)
        net = opbuild.compile(path, cache_path=folder / dtype, num_threads=THREADS)
        if net.report.host:
            raise SystemExit(f"{path.name} has calls of the host: {net.report.host}")
        given = {each.name: feeds[each.name].astype(each.dtype, copy=False) for each in net.inputs}
        output = next(iter(net.run(given).values())).astype(np.float64)
        reference = output if reference is None else reference
        weights = sum(file.stat().st_size for file in (folder / dtype).rglob("weights/*.bin")) / 1e6
        found[f"opbuild {dtype}"] = {"error": relative_error(output, reference), "weights": weights}
        calls[f"opbuild {dtype}"] = lambda net=net, given=given: net.run(given)
        if dtype == "bfloat16":
            continue
        session = ort_session(str(path))
        output = session.run(None, given)[0].astype(np.float64)
        found[f"onnxruntime {dtype}"] = {"error": relative_error(output, reference)}
        calls[f"onnxruntime {dtype}"] = lambda session=session, given=given: session.run(None, given)
    for form_name, value in alternate(calls, rounds, seconds).items():
        found[form_name]["milliseconds"] = 1e3 * value
    return found


def main() -> None:
    """Measure, and print a table a network."""
    arguments = parser(__doc__ or "")
    arguments.add_argument("networks", nargs="*", default=list(NETWORKS))
    arguments.add_argument("--rounds", type=int, default=15)
    arguments.add_argument("--seconds", type=float, default=0.3)
    options = arguments.parse_args()
    results = {}
    for name in options.networks:
        with tempfile.TemporaryDirectory() as folder:
            results[name] = measured(name, Path(folder), options.rounds, options.seconds)
        own = results[name]["opbuild float32"]["milliseconds"]
        table = Table("form", "ms a call", "beside float32", "greatest error", "MB of weights", title=name)
        for form, each in results[name].items():
            time, weights = each["milliseconds"], each.get("weights")
            shown = "" if weights is None else f"{weights:.0f}"
            table.add_row(form, f"{time:.2f}", f"{time / own:.2f}", f"{each['error']:.1e}", shown)
        Console().print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
