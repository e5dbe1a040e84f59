"""Latency of attention as one kernel beside its operators one by one, and beside ONNX Runtime's MultiHeadAttention.

The operators one by one are opbuild's too, of a model that gives out the weights, so that they have to be stored. What
counts is the ratio: all are measured in turn, so a machine that is busy or hot slows all of them.
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product

import measure
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

import opbuild

TARGET = 1.0
TOLERANCE = 1e-4
LENGTHS = ("1x128", "1x1024", "128x128", "512x512", "2048x2048")
MASKS = ("none", "causal")


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--lengths", nargs="*", default=LENGTHS, help="queries and keys, as 128x128")
    parser.add_argument("--masks", nargs="*", default=MASKS, choices=MASKS)
    parser.add_argument("--heads", type=int, default=12)
    parser.add_argument("--size", type=int, default=64, help="elements of a head")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=7, help="turns of each; the median counts")
    parser.add_argument("--seconds", type=float, default=0.2, help="length of a turn")
    arguments = parser.parse_args()
    columns = ("queries x keys", "mask", "threads", "opbuild ms", "one by one", "", "ONNX Runtime", "error")
    console, table = Console(width=110), Table(title="Attention", title_justify="left")
    for column in columns:
        table.add_column(column, justify="right")
    rows = []
    with tempfile.TemporaryDirectory() as cache, console.status(""):
        for lengths, mask, threads in product(arguments.lengths, arguments.masks, arguments.threads):
            row = one_attention(lengths, mask, threads, cache, arguments)
            rows.append(row)
            ratio = row["opbuild_ms"] / row["apart_ms"]
            figures = (f"{row['opbuild_ms']:.3f}", f"{ratio:.2f}", measure.verdict(ratio, TARGET))
            other = f"{row['opbuild_ms'] / row['onnxruntime_ms']:.2f}"
            table.add_row(lengths, mask, str(threads), *figures, other, f"{row['error']:.1e}")
    console.print(table)
    measure.write_results(arguments.json, "attention", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def one_attention(lengths: str, mask: str, threads: int, cache: str, arguments: object) -> dict[str, float]:
    """Measure one attention three ways and compare its outputs."""
    heads, size = (int(getattr(arguments, name)) for name in ("heads", "size"))
    queries, keys = map(int, lengths.split("x"))
    rng, shapes = np.random.default_rng(0), {"q": queries, "k": keys, "v": keys}
    data = {name: rng.standard_normal((1, n, heads * size)).astype(np.float32) for name, n in shapes.items()}
    models = [written_out(heads, size, queries, keys, mask, apart) for apart in (False, True)]
    whole, apart = (opbuild.compile(model, cache_path=cache, num_threads=threads) for model in models)
    session = measure.ort_session(operator(heads, size, queries, keys, mask), threads)
    expected = session.run(None, data)[0]
    error = measure.relative_error(np.asarray(whole(data)), expected)
    functions = {
        "onnxruntime": lambda: session.run(None, data),
        "apart": lambda: apart(data),
        "opbuild": lambda: whole(data),
    }
    rounds, seconds = (getattr(arguments, name) for name in ("rounds", "seconds"))
    medians = measure.alternate(functions, rounds, seconds)
    return {**{f"{name}_ms": seconds * 1e3 for name, seconds in medians.items()}, "error": error}


def written_out(heads: int, size: int, queries: int, keys: int, mask: str, apart: bool) -> bytes:
    """Return a model of attention as exporters write it; ``apart``: its weights are an output, too."""
    constants = {
        "shape": np.array([0, 0, heads, size], np.int64),
        "joined": np.array([0, 0, heads * size], np.int64),
        "scale": np.array(size**-0.5, np.float32),
        "mask": np.triu(np.full((queries, keys), -1e9, np.float32), keys - queries + 1),
    }
    nodes = []
    for name, order in (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3])):
        nodes.append(helper.make_node("Reshape", [name, "shape"], [f"{name}_apart"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=order))
    nodes.append(helper.make_node("MatMul", ["q_heads", "k_heads"], ["product"]))
    nodes.append(helper.make_node("Mul", ["product", "scale"], ["scores"]))
    if mask == "causal":
        nodes.append(helper.make_node("Add", ["scores", "mask"], ["masked"]))
    nodes.append(helper.make_node("Softmax", ["masked" if mask == "causal" else "scores"], ["weights"], axis=-1))
    nodes.append(helper.make_node("MatMul", ["weights", "v_heads"], ["result"]))
    nodes.append(helper.make_node("Transpose", ["result"], ["turned"], perm=[0, 2, 1, 3]))
    nodes.append(helper.make_node("Reshape", ["turned", "joined"], ["y"]))
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    return _model(nodes, heads * size, queries, keys, ["y", *(["weights"] if apart else [])], initializers)


def operator(heads: int, size: int, queries: int, keys: int, mask: str) -> bytes:
    """Return a model of ONNX Runtime's own operator."""
    attrs = {"num_heads": heads, "unidirectional": int(mask == "causal")}
    node = helper.make_node("MultiHeadAttention", ["q", "k", "v"], ["y"], domain="com.microsoft", **attrs)
    return _model([node], heads * size, queries, keys, ["y"], [])


def _model(
    nodes: list[onnx.NodeProto],
    width: int,
    queries: int,
    keys: int,
    outputs: list[str],
    initializers: list[onnx.TensorProto],
) -> bytes:
    lengths = {"q": queries, "k": keys, "v": keys}
    inputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, n, width]) for name, n in lengths.items()]
    results = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs]
    graph = helper.make_graph(nodes, "attention", inputs, results, initializers)
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    model: bytes = helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString()
    return model


if __name__ == "__main__":
    sys.exit(main())
