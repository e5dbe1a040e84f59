"""The operator cases of ``onnx.backend.test``, through ``opbuild.compile``: all of them when run as a program.

    python tests/kernels/onnx_backend_cases.py [part of a name ...]

prints how many passed on kernels, passed with the host backend's help, were refused with a clear error, and gave
something else than expected; the last must be none.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.case import node
from onnx.backend.test.loader import load_model_tests

import opbuild
from opbuild.errors import OpbuildError


@dataclass(frozen=True)
class Outcome:
    """What became of one case: ``kernels``, ``host``, ``refused`` or ``wrong``, and why."""

    kind: str
    reason: str = ""


def cases(*, pools: bool = True) -> dict[str, Any]:
    """Return every operator case by name: its model, and pairs of inputs and expected outputs.

    Args:
        pools: Whether those of pools must be among them; onnx computes them in Python loops, for seconds.
    """
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if not pools:
            names = {module.name for module in iter_modules(node.__path__)} - {"averagepool", "lppool", "maxpool"}
            for name in sorted(names):
                import_module(f"{node.__name__}.{name}")
            return {case.name: case for case in node._NodeTestCases}
        return {case.name: case for case in load_model_tests(kind="node")}


def run_case(case: Any, cache: Path, rtol: float = 1e-3, atol: float = 1e-6) -> Outcome:
    """Build a case's model, run it on each of its data sets, and compare.

    Shapes, axes and the like are inputs of these models. Where opbuild wants them known, all inputs but the first
    become constants of the model, as they are in networks.
    """
    if "bernoulli" in case.name:
        return Outcome("refused", "its results are random")
    outcome = _attempt(case, cache, rtol, atol, known=False)
    if outcome.kind == "refused" and "known only at run time" in outcome.reason:
        return _attempt(case, cache, rtol, atol, known=True)
    return outcome


def _attempt(case: Any, cache: Path, rtol: float, atol: float, known: bool) -> Outcome:
    net = None
    try:
        for given, expected in case.data_sets:
            arrays = [_tensor(value) for value in (*given, *expected)]
            if any(array is None for array in arrays):
                return Outcome("refused", "sequences, maps and optional values are no tensors")
            feeds = dict(zip([value.name for value in case.model.graph.input], arrays, strict=False))
            model, feeds = _with_constants(case.model, feeds) if known else (case.model, feeds)
            shapes = {name: array.shape for name, array in feeds.items()}
            net = opbuild.compile(model, input_shapes=shapes, cache_path=cache, num_threads=2)
            results = net(feeds)
            got = [results] if isinstance(results, np.ndarray) else list(results)
            for name, mine, wanted in zip(net.outputs, got, arrays[len(given) :], strict=True):
                problem = difference(mine, wanted, rtol, atol)
                if problem:
                    return Outcome("wrong", f"{name}: {problem}")
    except OpbuildError as error:
        return Outcome("refused", f"{type(error).__name__}: {error}")
    return Outcome("host" if net is not None and net.report.host else "kernels")


def _tensor(value: Any) -> np.ndarray | None:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return np.asarray(value) if isinstance(value, (np.ndarray, np.generic)) else None


def _with_constants(model: onnx.ModelProto, feeds: dict[str, Any]) -> tuple[onnx.ModelProto, dict[str, Any]]:
    """Return the model with all inputs but the first as constants, and what is still to be fed."""
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    first, *others = feeds
    changed.graph.initializer.extend(numpy_helper.from_array(feeds[name], name) for name in others)
    kept = [value for value in changed.graph.input if value.name not in others]
    del changed.graph.input[:]
    changed.graph.input.extend(kept)
    return changed, {first: feeds[first]}


def difference(got: np.ndarray, expected: np.ndarray, rtol: float, atol: float) -> str:
    """Return how two arrays differ, empty if they do not."""
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return f"{got.dtype}{got.shape} is not {expected.dtype}{expected.shape}"
    if expected.dtype.kind not in "fc":
        wrong = np.flatnonzero(got != expected)
    else:
        wrong = np.flatnonzero(~np.isclose(got, expected, rtol, atol, equal_nan=True))
    if not wrong.size:
        return ""
    place = wrong[0]
    return f"{wrong.size} of {got.size} differ, e.g. {got.reshape(-1)[place]} is not {expected.reshape(-1)[place]}"


def main(wanted: Sequence[str]) -> int:
    """Run the cases whose names contain one of ``wanted``, all if there is none; return 1 if one is wrong."""
    chosen = {name: case for name, case in cases().items() if not wanted or any(part in name for part in wanted)}
    counts: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="opbuild-cases-") as cache:
        for name, case in sorted(chosen.items()):
            outcome = run_case(case, Path(cache))
            counts[outcome.kind] += 1
            if outcome.kind != "kernels":
                print(f"{outcome.kind:8} {name} {outcome.reason[:300]}", flush=True)
    print(", ".join(f"{kind} {counts[kind]}" for kind in ("kernels", "host", "refused", "wrong")))
    return 1 if counts["wrong"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
