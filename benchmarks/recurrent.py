"""Latency of taggers with LSTM, GRU and RNN layers beside ONNX Runtime, for several sequences, lengths and threads.

A tagger is an embedding, recurrent layers of both directions and a linear layer, as torch exports it. The figure that
counts is the ratio: the two are measured in turn, so a machine that is busy or hot slows both. Layers of int8 are what
ONNX Runtime's tool makes of LSTMs, whose states become bytes at each step.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from itertools import product

import measure
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import quantize_dynamic
from rich.console import Console
from rich.table import Table

import opbuild

TARGET = 0.9
TOLERANCE, TOLERANCE_INT8 = 1e-4, 2e-2
"""Of the greatest output; ONNX Runtime quantises several sequences together."""
GATES = {"RNN": 1, "GRU": 3, "linear GRU": 3, "LSTM": 4, "int8 LSTM": 4}
WORDS, TAGS = 1000, 20


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--kinds", nargs="*", default=list(GATES), choices=GATES, help="which layers; default: all")
    parser.add_argument("--layers", type=int, nargs="*", default=[1, 2], help="layers, one over the other")
    parser.add_argument("--batch", type=int, nargs="*", default=[1, 8], help="sequences")
    parser.add_argument("--steps", type=int, nargs="*", default=[20, 100], help="lengths")
    parser.add_argument("--hidden", type=int, nargs="*", default=[256], help="hidden units")
    parser.add_argument("--inputs", type=int, help="extent of an input; default: half as many as hidden units")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each runtime; the median counts")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    arguments = parser.parse_args()
    console, table = Console(width=130), Table(title="Taggers", title_justify="left")
    columns = ("layers", "batch", "steps", "hidden", "threads", "opbuild ms", "ONNX Runtime ms", "ratio", "", "error")
    for column in columns:
        table.add_column(column, justify="left" if column == "layers" else "right")
    rows, wrong = [], False
    forms = (arguments.kinds, arguments.layers, arguments.batch, arguments.steps, arguments.hidden, arguments.threads)
    with tempfile.TemporaryDirectory() as cache, console.status(""):
        for form in product(*forms):
            kind, layers, *others = form
            model = tagger(kind, *form[1:-1], arguments.inputs or form[-2] // 2)
            row = one_tagger(model, form[-1], cache, arguments.rounds, arguments.seconds)
            rows.append(row)
            right = row["error"] <= (TOLERANCE_INT8 if "int8" in kind else TOLERANCE)
            wrong |= not right
            error = f"{row['error']:.1e}" if right else f"[red]{row['error']:.1e}[/]"
            times = (f"{row['opbuild_ms']:.3f}", f"{row['onnxruntime_ms']:.3f}", f"{row['ratio']:.3f}")
            table.add_row(f"{layers} {kind}", *map(str, others), *times, measure.verdict(row["ratio"], TARGET), error)
    console.print(table)
    measure.write_results(arguments.json, "recurrent", rows)
    return int(wrong)


def one_tagger(model: onnx.ModelProto, threads: int, cache: str, rounds: int, seconds: float) -> dict[str, float]:
    """Measure one tagger in both runtimes and compare their outputs."""
    source = model.SerializeToString()
    network = opbuild.compile(source, cache_path=cache, num_threads=threads)
    session = measure.ort_session(source, threads)
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    data = {"words": np.random.default_rng(0).integers(0, WORDS, shape)}
    error = measure.relative_error(np.asarray(network(data)), session.run(None, data)[0])
    medians = measure.alternate(
        {"onnxruntime": lambda: session.run(None, data), "opbuild": lambda: network(data)}, rounds, seconds
    )
    return {
        "opbuild_ms": medians["opbuild"] * 1e3,
        "onnxruntime_ms": medians["onnxruntime"] * 1e3,
        "ratio": medians["opbuild"] / medians["onnxruntime"],
        "error": error,
    }


def tagger(kind: str, layers: int, batch: int, steps: int, hidden: int, size: int) -> onnx.ModelProto:
    """Return a model of ``layers`` recurrent layers of both directions between an embedding and a linear layer."""
    rng, initializers = np.random.default_rng(1), []

    def weights(name: str, *shape: int) -> str:
        values = rng.standard_normal(shape) / shape[-1] ** 0.5
        initializers.append(numpy_helper.from_array(values.astype(np.float32), name))
        return name

    def integers(name: str, *values: int) -> str:
        initializers.append(numpy_helper.from_array(np.array(values, np.int64), name))
        return name

    def nodes() -> Iterator[onnx.NodeProto]:
        yield helper.make_node("Gather", [weights("embedding", WORDS, size), "words"], ["embedded"])
        yield helper.make_node("Transpose", ["embedded"], ["x0"], perm=[1, 0, 2])
        shape, attrs = integers("shape", 0, 0, -1), {"linear_before_reset": 1} if kind == "linear GRU" else {}
        for layer in range(layers):
            rows, width = GATES[kind] * hidden, size if layer == 0 else 2 * hidden
            shapes = {"W": (2, rows, width), "R": (2, rows, hidden), "B": (2, 2 * rows)}
            names = [weights(f"{name}{layer}", *each) for name, each in shapes.items()]
            every = f"y{layer}"
            yield helper.make_node(
                kind.rsplit(maxsplit=1)[-1],
                [f"x{layer}", *names],
                [every],
                f"layer{layer}",
                hidden_size=hidden,
                direction="bidirectional",
                **attrs,
            )
            yield helper.make_node("Transpose", [every], [f"{every}_turned"], perm=[0, 2, 1, 3])
            yield helper.make_node("Reshape", [f"{every}_turned", shape], [f"x{layer + 1}"])
        yield helper.make_node("Transpose", [f"x{layers}"], ["states"], perm=[1, 0, 2])
        yield helper.make_node("MatMul", ["states", weights("linear", 2 * hidden, TAGS)], ["tags"])

    words = helper.make_tensor_value_info("words", TensorProto.INT64, [batch, steps])
    tags = helper.make_tensor_value_info("tags", TensorProto.FLOAT, [batch, steps, TAGS])
    graph = helper.make_graph(list(nodes()), "tagger", [words], [tags], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    return quantized(model) if "int8" in kind else model


def quantized(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model whose recurrent layers ONNX Runtime's tool has quantised dynamically."""
    with tempfile.TemporaryDirectory() as folder:
        onnx.save(model, f"{folder}/float.onnx")
        quantize_dynamic(f"{folder}/float.onnx", f"{folder}/int8.onnx", op_types_to_quantize=["LSTM"])
        return onnx.load(f"{folder}/int8.onnx")


if __name__ == "__main__":
    sys.exit(main())
