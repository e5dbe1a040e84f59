"""Calls of MindSpore's names, listed in ``data/mindspore_*.txt``, and what the real package gave for them.

``PYTHON_WITH_MINDSPORE tests/support/mindspore_calls.py`` writes ``data/mindspore_results.npz`` by the real package;
tests evaluate the same calls here and compare. Imports nothing of opbuild: it runs where opbuild is not installed.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

DATA = Path(__file__).resolve().parents[1] / "data"
RESULTS = DATA / "mindspore_results.npz"
NAMES = {"f": "float", "i": "int", "u": "uint"}


class Call(NamedTuple):
    """One line: an expression of ``x``, ``y``, ``z``, ``w``, their specifications, and how MindSpore computes it."""

    text: str
    inputs: tuple[str, ...]
    oracle: str
    traced: bool

    @property
    def key(self) -> str:
        """What tells this call from the others."""
        return f"{self.text} ; {' '.join(self.inputs)}"


def calls() -> Iterator[Call]:
    """Return every call of every list."""
    for path in sorted(DATA.glob("mindspore_*.txt")):
        traced = False
        for line in path.read_text().splitlines():
            if line in ("[traced]", "[data]"):
                traced = line == "[traced]"
            elif line and not line.startswith("#"):
                text, inputs, oracle = (*(part.strip() for part in line.split(";")), "")[:3]
                yield Call(text, tuple(inputs.split()), oracle, traced)
    for text, given in _parity_cases().items():
        yield Call(text, given, "", True)


def _parity_cases() -> dict[str, tuple[str, ...]]:
    """Return the cases of the comparison that ``system/test_mindspore_parity.py`` makes by building networks."""
    spec = spec_from_file_location("mindspore_cases", Path(__file__).parent / "mindspore_cases.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return dict(module.all_cases())


def values(spec: str, seed: int) -> np.ndarray:
    """Return the input that a specification stands for: the same in every process.

    ``dtype:shape``; a trailing letter chooses: ``p`` positive, ``u`` within (-1, 1), ``n`` a number below 4,
    ``s`` small integers, ``q`` special values among them.
    """
    dtype, _, shape = spec.partition(":")
    kind = shape[-1] if shape[-1:].isalpha() else ""
    extents = tuple(map(int, shape.rstrip("abcdefghijklmnopqrstuvwxyz").split(",")))
    random = np.random.default_rng(seed)
    if dtype == "b":
        return np.ones(extents, bool) if kind == "p" else random.integers(0, 2, extents).astype(bool)
    name = NAMES[dtype[0]] + dtype[1:]
    if kind == "n":
        return random.integers(0, 4, extents).astype(name)
    if kind == "u":
        return random.uniform(-0.95, 0.95, extents).astype(name)
    low = 1 if kind == "p" else -4 if dtype[0] != "u" else 0
    if dtype[0] != "f" or kind == "s":
        return random.integers(low, 5, extents).astype(name)
    data = (
        np.abs(random.standard_normal(extents)) + 1.05 if kind == "p" else random.standard_normal(extents) * 2
    ).astype(name)
    if kind == "q":
        data.flat[:4] = (np.nan, np.inf, -np.inf, -0.0)
    return data


@cache
def arrays(call: Call) -> list[np.ndarray]:
    """Return a call's inputs, which are not changed: tensors copy them."""
    seed = zlib.crc32(call.text.encode())
    return [values(spec, seed + index) for index, spec in enumerate(call.inputs)]


def flat(result: Any, tensor_type: type) -> list[Any]:
    """Return tensors as arrays and other leaves as texts, in order."""
    if isinstance(result, tensor_type):
        return [np.asarray(result.asnumpy())]
    if isinstance(result, dict):
        return [leaf for key in result for leaf in flat(result[key], tensor_type)]
    if isinstance(result, (tuple, list)):
        return [leaf for item in result for leaf in flat(item, tensor_type)]
    return [repr(result)]


def function(call: Call, names: dict[str, Any], oracle: bool = False) -> Any:
    """Return the computation of a call as a function of its inputs."""
    text = call.oracle if oracle and call.oracle else call.text
    text = text.partition("  #")[0]
    return eval(f"lambda {', '.join('xyzw'[: len(call.inputs)])}: ({text})", names)


def read() -> dict[str, list[Any]]:
    """Return the leaves that the real package gave, by call."""
    with np.load(RESULTS) as file:
        said, data = json.loads(bytes(file["said"])), bytes(file["data"])
    found: dict[str, list[Any]] = {}
    for text, leaves in said.items():
        found[text] = [
            leaf
            if isinstance(leaf, str)
            else np.frombuffer(data, leaf[0], int(np.prod(leaf[1], dtype=int)), leaf[2]).reshape(leaf[1])
            for leaf in leaves
        ]
    return found


def difference(expected: Any, found: Any) -> str:
    """Return in which way two leaves differ, or an empty text."""
    if isinstance(expected, str) or isinstance(found, str):
        return "" if expected == found else f"{found} is not {expected}"
    if (expected.dtype, expected.shape) != (found.dtype, found.shape):
        return f"{found.dtype}{found.shape} is not {expected.dtype}{expected.shape}"
    if expected.tobytes() == found.tobytes():
        return ""
    tolerance = 1e-2 if expected.dtype == np.float16 else 1e-4
    first, second = (np.asarray(array, np.float64) for array in (expected, found))
    close = np.isclose(first, second, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    return "" if close.all() else f"{second[~close][:3]} is not {first[~close][:3]}"


def differences(expected: list[Any], found: list[Any]) -> str:
    """Return in which way the leaves of two results differ, or an empty text."""
    if len(expected) != len(found):
        return f"{len(found)} results, not {len(expected)}"
    pairs = zip(expected, found, strict=True)
    return "; ".join(f"result {i}: {text}" for i, pair in enumerate(pairs) if (text := difference(*pair)))


def real_names() -> dict[str, Any]:
    """Return the names that the expressions use."""
    import mindspore as ms
    import mindspore.numpy as mnp
    from mindspore import Parameter, Tensor, mint, nn, ops
    from mindspore.common import initializer

    return {"ms": ms, "nn": nn, "ops": ops, "mint": mint, "mnp": mnp, "np": np, "Tensor": Tensor,
            "Parameter": Parameter, "initializer": initializer}  # fmt: skip


def asked(call: Call, names: dict[str, Any]) -> list[Any] | None:
    """Return the results of the real package; None after a line on stderr if it refuses twice.

    It computes later than it is called, so that a call may fail by the one before.
    """
    for attempt in range(3):
        try:
            return flat(function(call, names, True)(*map(names["Tensor"], arrays(call))), names["Tensor"])
        except Exception as error:
            if attempt == 2:
                print(f"{call.text}: {type(error).__name__}: {' '.join(str(error).split())[:200]}", file=sys.stderr)
    return None


def main() -> None:
    """Write what the real package gives; calls that it refuses are printed and left out."""
    names = real_names()
    said: dict[str, list[Any]] = {}
    data = bytearray()
    os.chdir(tempfile.mkdtemp())  # some calls write files
    for call in calls():
        leaves = asked(call, names)
        if leaves is None:
            continue
        said[call.key] = []
        for leaf in leaves:
            if isinstance(leaf, np.ndarray):
                said[call.key].append([leaf.dtype.name, leaf.shape, len(data)])
                data += np.ascontiguousarray(leaf).tobytes()
            else:
                said[call.key].append(leaf)
    texts = np.frombuffer(json.dumps(said).encode(), np.uint8)
    np.savez_compressed(RESULTS, said=texts, data=np.frombuffer(bytes(data), np.uint8))


if __name__ == "__main__":
    main()
