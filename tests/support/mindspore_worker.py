"""Evaluates the cases of ``mindspore_cases`` with whatever ``import mindspore`` finds, and writes what came out.

``python mindspore_worker.py RESULTS.npz [graph] [layers]``; with ``graph`` each case is the construct of a cell in
GRAPH_MODE, with ``layers`` only layers are evaluated: so ``tests/data/mindspore_layers.npz`` is made with MindSpore.
"""

import json
import sys
import zlib
from pathlib import Path
from typing import Any

import numpy as np

sys.path.append(str(Path(__file__).resolve().parents[1]))

from support.mindspore_calls import flat, values
from support.mindspore_cases import LAYERS, all_cases
from support.mindspore_layers import LAYER_CALLS


def all_layers() -> dict[str, tuple[str, ...]]:
    """Return every layer with its inputs."""
    return {**{case: (given,) for case, given in LAYERS.items()}, **LAYER_CALLS}


def layer(case: str, given: tuple[str, ...], names: dict[str, object]) -> list:
    """Return the results of a layer, and the names of its parameters."""
    seed = zlib.crc32(case.encode())
    made, _, call = case.partition("  # ")
    cell, tensor = eval(made, names), names["Tensor"]
    described = []
    for path, parameter in cell.parameters_and_names():
        described.append([path, parameter.name, tuple(parameter.shape), parameter.requires_grad])
        low = 0.5 if "var" in path else -0.5
        start = np.random.default_rng(seed).uniform(low, low + 1, parameter.shape).astype("float32")
        parameter.set_data(tensor(start))
    cell.set_train(False)
    inputs = {name: tensor(values(spec, seed + i)) for i, (name, spec) in enumerate(zip("xyzw", given, strict=False))}
    call = call.partition(" #")[0] or f"net({', '.join(inputs)})"
    return [eval(call, {**names, **inputs, "net": cell}), repr(described)]


class Results:
    """What one run of the worker wrote."""

    def __init__(self, path: Path) -> None:
        with np.load(path) as file:
            self.arrays = {name: file[name] for name in file.files}
        self.said: dict[str, Any] = json.loads(bytes(self.arrays.pop("said")))

    def leaves(self, case: str) -> list[Any]:
        """Return the leaves of a case's result: arrays, and the texts of what is no tensor."""
        return [self.arrays[f"{case}|{i}"] if text is None else text for i, text in enumerate(self.said[case])]


def main() -> None:
    """Evaluate every case and write the results."""
    graph = "graph" in sys.argv[2:]
    import mindspore as ms
    from mindspore import Tensor, mint, nn, ops

    ms.set_context(mode=ms.GRAPH_MODE if graph else ms.PYNATIVE_MODE)
    names = {"ms": ms, "mint": mint, "nn": nn, "ops": ops, "np": np, "Tensor": Tensor}
    arrays: dict[str, np.ndarray] = {}
    said: dict[str, object] = {}

    def record(case: str, function) -> None:
        try:
            try:
                leaves = flat(function(), ms.Tensor)
            except SystemError:  # once a process, where numpy is newer than MindSpore
                leaves = flat(function(), ms.Tensor)
        except Exception as error:
            said[case] = {"error": f"{type(error).__name__}: {error}"[:300]}
            return
        said[case] = [None if isinstance(leaf, np.ndarray) else leaf for leaf in leaves]
        arrays.update({f"{case}|{i}": leaf for i, leaf in enumerate(leaves) if isinstance(leaf, np.ndarray)})

    for case, given in ({} if "layers" in sys.argv[2:] else all_cases()).items():
        seed = zlib.crc32(case.encode())
        function = eval(f"lambda {', '.join('xyz'[: len(given)])}: ({case.partition('  #')[0]})", names)
        if graph:
            function = type("Case", (nn.Cell,), {"construct": lambda self, *args, f=function: f(*args)})()
        record(case, lambda f=function, g=given, s=seed: f(*(Tensor(values(spec, s + i)) for i, spec in enumerate(g))))
    for case, given in all_layers().items():
        record(case, lambda case=case, given=given: layer(case, given, names))
    arrays["said"] = np.frombuffer(json.dumps(said).encode(), np.uint8)
    np.savez_compressed(sys.argv[1], **arrays)


if __name__ == "__main__":
    main()
