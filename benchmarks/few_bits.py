"""Products with weights of few bits, as MatMulNBits has them, against ONNX Runtime, in turn, and bytes of weights read.

Each network is a chain of products of one decoder's layer, so many that caches do not hold their weights.

    python benchmarks/few_bits.py [--rows 1 16] [--bits 4] [--accuracy 4 0] [--threads 2] [--target x86-64-v3]
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from typing import Any

import measure
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import opbuild

WIDTH, WIDE, LAYERS, BLOCK = 2048, 5632, 12, 32
SECONDS = 0.3
"""Length of a turn."""
TOLERANCE = 0.05
"""Of the greatest output: ONNX Runtime makes activations int8 for some rows only."""


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 2, 4, 8, 16, 128])
    parser.add_argument("--bits", type=int, nargs="*", default=[4, 8])
    parser.add_argument("--accuracy", type=int, nargs="*", default=[4, 0], help="accuracy levels")
    parser.add_argument("--threads", type=int, nargs="*", default=[2, 1])
    parser.add_argument("--target", help="what opbuild makes code for; default: this machine")
    parser.add_argument("--turns", type=int, default=5, help="turns of each; the median counts")
    given = parser.parse_args()
    results = []
    for bits, accuracy, threads in product(given.bits, given.accuracy, given.threads):
        model = network(bits, accuracy)
        session = measure.ort_session(model.SerializeToString(), threads)
        with tempfile.TemporaryDirectory() as folder:
            options = {"target": given.target} if given.target else {}
            net = opbuild.compile(model, cache_path=folder, num_threads=threads, **options)
            for rows in given.rows:
                data = {"x": np.random.default_rng(rows).standard_normal((rows, WIDTH)).astype(np.float32)}
                error = measure.relative_error(next(iter(net.run(data).values())), session.run(None, data)[0])
                times = measure.alternate(
                    {
                        "opbuild": lambda net=net, data=data: net.run(data),
                        "onnxruntime": lambda session=session, data=data: session.run(None, data),
                    },
                    given.turns,
                    SECONDS,
                )
                results.append(row(bits, accuracy, threads, rows, times) | {"error": error})
                print(*(f"{key} {value}" for key, value in results[-1].items()), flush=True)
    measure.write_results(given.json, "few_bits", results)
    return int(any(not each["error"] <= TOLERANCE for each in results))


def row(bits: int, accuracy: int, threads: int, rows: int, times: dict[str, float]) -> dict[str, Any]:
    """Return the figures of one measurement: milliseconds, their ratio, and what opbuild moves in a second."""
    weights = WIDTH * WIDE * LAYERS
    return {
        "bits": bits,
        "accuracy": accuracy,
        "threads": threads,
        "rows": rows,
        **{f"{name}_ms": round(seconds * 1e3, 2) for name, seconds in times.items()},
        "ratio": round(times["opbuild"] / times["onnxruntime"], 2),
        "gigabytes_a_second": round(weights * (bits / 8 + 4 / BLOCK) / times["opbuild"] / 1e9, 1),
        "billion_products_a_second": round(weights * rows / times["opbuild"] / 1e9),
    }


def network(bits: int, accuracy: int) -> onnx.ModelProto:
    """Return a chain of products, one wide and one narrow in turn."""
    draw, nodes, constants, x = np.random.default_rng(0), [], [], "x"
    for number in range(LAYERS):
        k, n = (WIDTH, WIDE) if number % 2 == 0 else (WIDE, WIDTH)
        known = {
            f"w{number}": draw.integers(0, 256, (n, k // BLOCK, BLOCK * bits // 8), np.uint8),
            f"s{number}": (draw.random((n, k // BLOCK)) * 0.01 / 2 ** (bits - 4)).astype(np.float32),
        }
        constants += [numpy_helper.from_array(value, name) for name, value in known.items()]
        how = {"K": k, "N": n, "bits": bits, "block_size": BLOCK, "accuracy_level": accuracy}
        nodes.append(helper.make_node("MatMulNBits", [x, *known], [f"y{number}"], domain="com.microsoft", **how))
        x = f"y{number}"
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", WIDTH])]
    outputs = [helper.make_tensor_value_info(x, TensorProto.FLOAT, ["rows", WIDTH])]
    graph = helper.make_graph(nodes, "few_bits", inputs, outputs, constants)
    sets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=sets, ir_version=10)


if __name__ == "__main__":
    sys.exit(main())
