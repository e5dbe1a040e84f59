"""The cost of a level: networks compiled for each level that this machine has, beside code for exactly its processor.

All run in turn in one process, so the ratios are worth more than the milliseconds. A processor that gains more than 3 %
from code of its own is to get a level of its own. Levels below the machine's own are shown too; what they cost is
what a machine pays that may not compile and finds a lower level's operators.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import exact_cpu
import measure
import models
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table

from opbuild.backend.compilers import make_compiler
from opbuild.backend.evaluate import evaluate
from opbuild.config import Config
from opbuild.frontend.onnx_model import load_model
from opbuild.kernel.interfaces import Compiler
from opbuild.pipeline.setup import set_up
from opbuild.pipeline.source import GraphSource
from opbuild.session import Session
from opbuild.target.host import host_level
from opbuild.target.level import Level
from opbuild.text.plural import counted

EXACT = "exact CPU"
TOLERANCE = 1e-3
_MOBILENET = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
"""Table 2 of https://arxiv.org/abs/1801.04381: factor, channels, repeats and first stride of each row of blocks."""


def main() -> int:
    """Measure, print a table, write the results; return 1 if an output was wrong."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument("networks", nargs="*", default=[*NETWORKS], metavar="NETWORK", help=", ".join(NETWORKS))
    parser.add_argument("--rounds", type=int, default=15, help="turns of each; the median of their ratios counts")
    parser.add_argument("--seconds", type=float, default=0.3, help="length of a turn")
    parser.add_argument("--threads", type=int, default=measure.THREADS, help="that run each network")
    parser.add_argument("--levels", type=int, help="how many levels, from this machine's own down; default: all")
    arguments = parser.parse_args()
    levels = (host_level(), *host_level().lower())[: arguments.levels]
    with tempfile.TemporaryDirectory() as cache:
        rows = [one_network(name, levels, Path(cache), arguments) for name in arguments.networks]
    table = Table(
        title=f"Time, {counted(arguments.threads, 'thread')}; ratios to the exact CPU's code", title_justify="left"
    )
    for column in ("code for", *arguments.networks):
        table.add_column(column, justify="left" if column == "code for" else "right")
    table.add_row(EXACT, *(f"{row['exact_ms']:.2f} ms" for row in rows))
    for level in map(str, levels):
        table.add_row(level, *(f"{row['ratios'][level]:.3f}" for row in rows))
    Console().print(table)
    Console().print(f"{measure.processor()}: {' '.join(exact_cpu.detected_features())}", highlight=False)
    measure.write_results(arguments.json, "levels", rows)
    return int(any(not row["error"] <= TOLERANCE for row in rows))


def one_network(name: str, levels: tuple[Level, ...], cache: Path, arguments: Namespace) -> dict[str, Any]:
    """Measure one network for every level, and compare its outputs with the exact CPU's."""
    model = NETWORKS[name]()
    config = Config.from_environment(cache_path=cache, num_threads=arguments.threads)
    ways = {EXACT: built(model, config, levels[0], exact_cpu.ExactHalide())}
    ways |= {str(level): built(model, config, level, make_compiler()) for level in levels}
    expected = ways[EXACT]()
    error = max(measure.relative_error(way(), expected) for way in ways.values())
    ratios: dict[str, list[float]] = {way: [] for way in ways}
    times = []
    for _ in range(arguments.rounds):
        medians = measure.alternate(ways, 1, arguments.seconds)
        times.append(medians[EXACT])
        for way, median in medians.items():
            ratios[way].append(median / medians[EXACT])
    return {
        "network": name,
        "exact_ms": statistics.median(times) * 1e3,
        "ratios": {way: statistics.median(each) for way, each in ratios.items()},
        "error": error,
    }


def built(model: onnx.ModelProto, config: Config, level: Level, compiler: Compiler) -> Callable[[], np.ndarray]:
    """Build a network for a level; return what runs it."""
    setup = set_up(config, level, None, stores_networks=False, compiler=compiler)
    graph = load_model(model).bind({}, evaluate)
    types = [graph.types[name] for name in graph.inputs]
    run = Session(setup).bind(GraphSource(graph), [each.shape for each in types]).executor.run
    inputs = [data_for(each.shape, each.dtype) for each in types]
    return lambda: run(inputs)[0]


def data_for(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Return data for an input: small whole numbers, or normally distributed ones."""
    random = np.random.default_rng(0)
    return random.integers(0, 2, shape).astype(dtype) if "int" in dtype else random.standard_normal(shape).astype(dtype)


def mobilenet() -> onnx.ModelProto:
    """Return a network of MobileNet-v2's structure with random weights, for 224x224."""
    random = np.random.default_rng(0)
    nodes, weights = [], []

    def conv(x: str, inputs: int, outputs: int, size: int, stride: int, group: int = 1, active: bool = True) -> str:
        name = f"conv_{len(nodes)}"
        spread = np.sqrt(2 / (inputs // group * size * size))
        values = random.standard_normal((outputs, inputs // group, size, size)) * spread
        weights.append(numpy_helper.from_array(values.astype(np.float32), f"{name}_w"))
        pads = [size // 2] * 4
        nodes.append(helper.make_node("Conv", [x, f"{name}_w"], [name], pads=pads, strides=[stride] * 2, group=group))
        if active:
            nodes.append(helper.make_node("Clip", [name, "least", "most"], [f"{name}_y"]))
        return f"{name}_y" if active else name

    weights += [numpy_helper.from_array(np.float32(v), n) for n, v in (("least", 0.0), ("most", 6.0))]
    value, channels = conv("x", 3, 32, 3, 2), 32
    for factor, outputs, repeats, first in _MOBILENET:
        for stride in (first, *[1] * (repeats - 1)):
            wide = conv(value, channels, channels * factor, 1, 1) if factor > 1 else value
            deep = conv(wide, channels * factor, channels * factor, 3, stride, group=channels * factor)
            flat = conv(deep, channels * factor, outputs, 1, 1, active=False)
            if stride == 1 and channels == outputs:
                nodes.append(helper.make_node("Add", [flat, value], [f"{flat}_sum"]))
                flat += "_sum"
            value, channels = flat, outputs
    nodes.append(helper.make_node("GlobalAveragePool", [conv(value, channels, 1280, 1, 1)], ["y"]))
    graph = helper.make_graph(
        nodes,
        "mobilenet_v2",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 224, 224))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1280, 1, 1))],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NETWORKS: dict[str, Callable[[], onnx.ModelProto]] = {
    "resnet50": lambda: models.network("resnet50"),
    "mobilenet_v2": mobilenet,
    "bert": models.transformer,
}

if __name__ == "__main__":
    sys.exit(main())
