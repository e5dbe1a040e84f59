"""Models of one operator that normalises or adds up rows of large and nearly equal values, and what is right of them.

What is right is computed in 80 bits. What a result may be off by is what an algorithm makes of it that rounds each step
once: for a sum of n terms n units of rounding of their magnitudes, for a difference those of what it is made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

Array = npt.NDArray[Any]
Wide = np.longdouble


@dataclass(frozen=True)
class Case:
    """A model, its input, what is right, and how much it may be off by, element by element."""

    model: onnx.ModelProto
    x: Array
    wanted: Array
    bound: Array

    def fault(self, got: Array) -> str:
        """Return how a result is wrong, or nothing."""
        off = np.abs(got.astype(Wide) - self.wanted)
        with np.errstate(invalid="ignore"):
            bad = ~(off <= self.bound)
        if not bad.any():
            return ""
        at = tuple(int(i) for i in np.argwhere(bad)[0])
        said = f"{got[at]!r} instead of {float(self.wanted[at])!r}, may be off by {float(self.bound[at]):.2e}"
        return f"{self.model.graph.node[0].op_type}: {int(bad.sum())} of {bad.size} wrong, at {at}: {said}"


@dataclass(frozen=True)
class Rows:
    """A drawn input: what it is, the axes that are reduced, the unit of rounding, and the numbers of a row."""

    rng: np.random.Generator
    x: Array
    axes: tuple[int, ...]

    @property
    def wide(self) -> Array:
        return self.x.astype(Wide)

    @property
    def unit(self) -> float:
        return float(np.finfo(self.x.dtype).eps)

    @property
    def count(self) -> int:
        return int(np.prod([self.x.shape[axis] for axis in self.axes]))

    @property
    def greatest(self) -> Array:
        return np.abs(self.wide).max(self.axes, keepdims=True)


Answer = tuple[dict[str, Any], dict[str, Array], Array, Array]
"""Attributes, further inputs, what is right and its bound."""


def draw(seed: int) -> Case:
    """Return the case of a seed."""
    rng = np.random.default_rng(seed)
    name = EACH[seed % len(EACH)]
    dtype = "float64" if name not in ONLY_FLOAT32 and rng.random() < 0.25 else "float32"
    rank = int(rng.integers(3, 5)) if name in IMAGES else int(rng.integers(2, 5))
    shape = [int(rng.choice([1, 2, 3, 5, 17, 40])) for _ in range(rank)]
    axis = int(rng.integers(rank))
    axes = (axis,) if name in ONE_AXIS else tuple(range(2, rank)) if name in IMAGES else tuple(range(axis, rank))
    shape[axes[-1]] = int(rng.choice([2, 15, 16, 64, 100, 333, 1000]))
    rows = Rows(rng, _values(rng, shape).astype(dtype), axes)
    attrs, inputs, wanted, bound = OPERATORS[name](rows)
    node = helper.make_node(name, ["x", *inputs], ["y"], **attrs)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [node],
        f"large{seed}",
        [helper.make_tensor_value_info("x", kind, rows.x.shape)],
        [helper.make_tensor_value_info("y", kind, wanted.shape)],
        [numpy_helper.from_array(value, key) for key, value in inputs.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    return Case(model, rows.x, wanted, np.broadcast_to(np.asarray(bound, Wide), wanted.shape))


def _values(rng: np.random.Generator, shape: list[int]) -> Array:
    """Return numbers about a large one: all equal, a few units apart, or further; or of two sizes."""
    large = 10 ** rng.uniform(0, 8) * rng.choice([-1, 1])
    spread = float(rng.choice([0, 1e-7, 1e-6, 1e-4, 1e-2, 1]))
    found = large * (1 + spread * rng.uniform(-1, 1, shape))
    return np.where(rng.random(shape) < 0.5, found, rng.standard_normal(shape)) if rng.random() < 0.2 else found


def _shifted(rows: Rows) -> tuple[Array, Array]:
    """Return each number less the greatest of its row, and the sum of its powers."""
    shifted = rows.wide - rows.wide.max(rows.axes, keepdims=True)
    return shifted, np.exp(shifted).sum(rows.axes, keepdims=True)


def _off(rows: Rows, shifted: Array) -> Array:
    """Return how far a logarithm of powers, or a power relative to itself, is off."""
    steps: Array = np.minimum(np.abs(shifted), 800) + 16 + rows.count / 8
    return rows.unit * steps


def _softmax(rows: Rows) -> Answer:
    shifted, total = _shifted(rows)
    wanted = np.exp(shifted) / total
    least = float(np.finfo(rows.x.dtype).tiny)
    return {"axis": rows.axes[0]}, {}, wanted, wanted * _off(rows, shifted) + 2 * least


def _log_softmax(rows: Rows) -> Answer:
    shifted, total = _shifted(rows)
    wanted = shifted - np.log(total)
    return {"axis": rows.axes[0]}, {}, wanted, rows.unit * (2 * np.abs(wanted) + 16 + rows.count / 8)


def _axes(rows: Rows) -> dict[str, Array]:
    return {"axes": np.array(rows.axes, np.int64)}


def _log_sum_exp(rows: Rows) -> Answer:
    _, total = _shifted(rows)
    wanted = rows.wide.max(rows.axes, keepdims=True) + np.log(total)
    return {}, _axes(rows), wanted, rows.unit * (2 * np.abs(wanted) + 16 + rows.count / 8)


def _sum(power: int, mean: bool = False, root: bool = False) -> Callable[[Rows], Answer]:
    def answer(rows: Rows) -> Answer:
        terms = rows.wide if power == 1 else rows.wide**2
        wanted, whole = (each.sum(rows.axes, keepdims=True) for each in (terms, np.abs(terms)))
        bound = rows.unit * (rows.count + 8) * whole
        if mean:
            wanted, bound = wanted / rows.count, bound / rows.count
        if root:
            wanted = np.sqrt(wanted)
            bound = bound / np.maximum(wanted, np.finfo(np.float64).tiny)
        return {}, _axes(rows), wanted, bound

    return answer


def _normalised(rows: Rows, epsilon: float) -> tuple[Array, Array]:
    """Return rows of mean 0 and variance 1, and how much they may be off by.

    What the mean is off by, all are, in units of the deviation, and the deviation by its square.
    """
    mean = rows.wide.mean(rows.axes, keepdims=True)
    deviation = np.sqrt(((rows.wide - mean) ** 2).mean(rows.axes, keepdims=True) + Wide(epsilon))
    wanted = (rows.wide - mean) / deviation
    shift = rows.unit * (2 + rows.count / 16) * rows.greatest / deviation
    return wanted, 4 * shift + (np.abs(wanted) + 1) * (shift + shift**2 + rows.unit * (16 + rows.count / 8))


def _epsilon(rows: Rows) -> float:
    return float(np.float32(rows.rng.choice([1e-5, 1e-3, 1e-12])))


def _layer(rows: Rows) -> Answer:
    epsilon = _epsilon(rows)
    wanted, bound = _normalised(rows, epsilon)
    scale = rows.rng.uniform(0.5, 2, rows.x.shape[rows.axes[0] :]).astype(rows.x.dtype)
    return {"axis": rows.axes[0], "epsilon": epsilon}, {"scale": scale}, wanted * scale, bound * scale


def _root_mean_square(rows: Rows) -> Answer:
    epsilon = _epsilon(rows)
    wanted = rows.wide / np.sqrt((rows.wide**2).mean(rows.axes, keepdims=True) + Wide(epsilon))
    scale = np.ones(rows.x.shape[rows.axes[0] :], rows.x.dtype)
    bound = rows.unit * (rows.count + 8) * np.abs(wanted)
    return {"axis": rows.axes[0], "epsilon": epsilon}, {"scale": scale}, wanted, bound


def _instance(rows: Rows) -> Answer:
    epsilon = _epsilon(rows)
    wanted, bound = _normalised(rows, epsilon)
    scale, bias = (make(rows.x.shape[1], rows.x.dtype) for make in (np.ones, np.zeros))
    return {"epsilon": epsilon}, {"scale": scale, "bias": bias}, wanted, bound


def _group(rows: Rows) -> Answer:
    _, inputs, _, _ = _instance(rows)
    groups = int(rows.rng.choice([g for g in range(1, rows.x.shape[1] + 1) if rows.x.shape[1] % g == 0]))
    flat = Rows(rows.rng, rows.x.reshape(rows.x.shape[0], groups, -1), (2,))
    wanted, bound = _normalised(flat, 1e-5)
    shape = rows.x.shape
    attrs = {"num_groups": groups, "epsilon": 1e-5}
    return attrs, inputs, wanted.reshape(shape), np.broadcast_to(bound, flat.x.shape).reshape(shape)


def _mean_variance(rows: Rows) -> Answer:
    deviation = rows.wide.std(rows.axes, keepdims=True)
    wanted, bound = (each * deviation / (deviation + Wide(1e-9)) for each in _normalised(rows, 0.0))
    is_any = deviation > 8 * rows.unit * (2 + rows.count) * rows.greatest  # else of rounding what it likes
    return {"axes": rows.axes}, {}, np.where(is_any, wanted, 0), np.where(is_any, bound + rows.unit * rows.count, 1e6)


def _pool(rows: Rows) -> Answer:
    wanted = rows.wide.mean(rows.axes, keepdims=True)
    return {}, {}, wanted, rows.unit * (rows.count + 8) * np.abs(rows.wide).mean(rows.axes, keepdims=True)


def _running(rows: Rows) -> Answer:
    wanted = np.cumsum(rows.wide, rows.axes[0])
    bound = rows.unit * (rows.count + 8) * np.cumsum(np.abs(rows.wide), rows.axes[0])
    return {}, {"axis": np.array(rows.axes[0], np.int64)}, wanted, bound


OPERATORS: dict[str, Callable[[Rows], Answer]] = {
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
    "ReduceLogSumExp": _log_sum_exp,
    "ReduceSum": _sum(1),
    "ReduceMean": _sum(1, mean=True),
    "ReduceSumSquare": _sum(2),
    "ReduceL2": _sum(2, root=True),
    "LayerNormalization": _layer,
    "RMSNormalization": _root_mean_square,
    "InstanceNormalization": _instance,
    "GroupNormalization": _group,
    "MeanVarianceNormalization": _mean_variance,
    "GlobalAveragePool": _pool,
    "CumSum": _running,
}

LOGARITHMS = ("LogSoftmax", "ReduceLogSumExp")
"""Operators whose results may be small differences of large values: drawn more often."""

ONE_AXIS = ("Softmax", "LogSoftmax", "CumSum")
IMAGES = ("InstanceNormalization", "GroupNormalization", "GlobalAveragePool")
ONLY_FLOAT32 = ("GroupNormalization",)

EACH = (*OPERATORS, *LOGARITHMS, *LOGARITHMS)
"""One after the other: so many seeds draw every operator."""
