"""SVMClassifier and SVMRegressor, as products of the rows and the support vectors."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np

from opbuild.frontend.learned_writing import FLOAT, Learned, classified, of_two, transformed
from opbuild.graph.types import Array, Node

KERNELS = ("LINEAR", "POLY", "RBF", "SIGMOID")

WIDE = "float64"
"""What distances are computed in: as differences of squares they would lose digits in float32."""

Column = tuple[Array, Array]

NEARLY = 1e-7
"""How near to 0 and 1 the probability comes that one of two classes is right."""


def support_regressor(of: Learned) -> Sequence[Node]:
    """Write a sum over support vectors; of one class, whether a row belongs to it.

    A post_transform has no effect, as with ONNX Runtime: one sum alone is no score among others.
    """
    x, count = of.rows(of.wide(0)), int(of.attr("n_supports", 0))
    if count:
        kernels = _kernels(of, x, of.matrix("support_vectors", count))
        weights = of.matrix("coefficients", 1)
    else:
        kernels, weights = of.wide_of(x), of.matrix("coefficients", 1)
    value = of("MatMul", kernels, of.constant(weights.T.astype(WIDE)))
    value = of.cast(of("Add", value, of.constant(np.array(of.attr("rho", (0.0,))[:1], WIDE))), FLOAT)
    if of.attr("one_class", 0):
        sign = [of.constant(np.array(each, FLOAT)) for each in (1.0, -1.0)]
        value = of("Where", of("Greater", value, of.like(value, 0)), *sign)
    return of.finish(value)


def support_classifier(of: Learned) -> Sequence[Node]:
    """Write the votes of all pairs of classes, and scores: of pairs, or probabilities of classes.

    Without support vectors it is a linear classifier with one offset.
    """
    x, labels = of.rows(of.as_float(of.input(0))), of.labels()
    counts = [int(each) for each in of.attr("vectors_per_class", ())]
    if not sum(counts):
        return _linear(of, x, labels)
    if len(counts) != len(labels) or len(labels) < 2:
        of.refuse(f"it has {len(labels)} labels, and support vectors of {len(counts)} classes")
    pairs = list(combinations(range(len(labels)), 2))
    kernels = _kernels(of, x, of.matrix("support_vectors", sum(counts)))
    offsets = np.array(of.attr("rho", ()), WIDE)
    if len(offsets) < len(pairs):
        of.refuse(f"it has {len(offsets)} numbers in rho, not {len(pairs)}")
    columns = _pair_weights(of.matrix("coefficients", len(labels) - 1), counts, pairs)
    wide = of("Add", _weighted(of, kernels, columns, sum(counts)), of.constant(offsets[: len(pairs)]))
    scores = of.cast(wide, FLOAT)
    place = _most_votes(of, wide, len(labels), pairs)
    if of.attr("prob_a", ()):
        results = transformed(of, _probabilities(of, scores, len(labels), pairs), len(labels))
    elif len(labels) > 2:
        results = transformed(of, scores, len(pairs))
    else:
        results = _two(of, scores)
    return classified(of, place, labels, results)


def _linear(of: Learned, x: str, labels: Array) -> Sequence[Node]:
    weights = of.matrix("coefficients", len(labels))
    scores = of("MatMul", x, of.constant(weights.T.astype(FLOAT)))
    scores = of("Add", scores, of.constant(np.array(of.attr("rho", (0.0,))[:1], FLOAT)))
    place = of("ArgMax", scores, axis=1, keepdims=0)
    if len(labels) == 2:  # the second class wins if any score is great enough
        least = 0.5 if (weights >= 0).all() else np.nextafter(np.float32(0), np.float32(1))
        most = of("ReduceMax", scores, of.ints(1), keepdims=0)
        one = of.constant(np.array(1, np.int64))
        place = of("Where", of("GreaterOrEqual", most, of.like(scores, least)), one, place)
    return classified(of, place, labels, transformed(of, scores, len(labels)))


def _two(of: Learned, scores: str) -> str:
    """Return the scores of two classes, given the one that tells them apart."""
    return of("Concat", of("Neg", scores), scores, axis=1) if of.transform == "NONE" else of_two(of, scores)


def _kernels(of: Learned, x: str, vectors: Array) -> str:
    """Return how near each row is to each support vector, by the node's kernel, in float64."""
    kind = of.choice("kernel_type", "LINEAR", KERNELS)
    gamma, offset = (*map(float, of.attr("kernel_params", ())), 0.0, 0.0)[:2]
    wide, turned = of.wide_of(x), vectors.T.astype(WIDE)
    if kind == "LINEAR":
        return of("MatMul", wide, of.constant(turned))
    if kind == "RBF":
        return _radial(of, wide, turned, gamma)
    value = of("Add", of("MatMul", wide, of.constant(gamma * turned)), of.constant(np.array(offset, WIDE)))
    if kind == "SIGMOID":
        return of.cast(of("Tanh", of.cast(value, FLOAT)), WIDE)
    return of("Pow", value, of.constant(np.array(_degree(of), WIDE)))


def _degree(of: Learned) -> float:
    return float((*of.attr("kernel_params", ()), 0.0, 0.0, 0.0)[2])


def _radial(of: Learned, x: str, turned: Array, gamma: float) -> str:
    """Return ``exp(-gamma * distance ** 2)``."""
    twice = of("MatMul", x, of.constant(2 * gamma * turned))
    both = of("Sub", twice, of.constant(gamma * np.square(turned).sum(0)))
    squares = of("Mul", of("ReduceSumSquare", x, of.ints(1), keepdims=1), of.constant(np.array(gamma, WIDE)))
    return of.cast(of("Exp", of.cast(of("Sub", both, squares), FLOAT)), WIDE)


def _pair_weights(coefficients: Array, counts: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[Column]:
    """Return the places of the support vectors that count for each pair's score, and their weights."""
    ends = np.cumsum(counts)
    of_class = [np.arange(end - count, end) for end, count in zip(ends, counts, strict=True)]
    columns = []
    for first, second in pairs:
        weights = [coefficients[second - 1, of_class[first]], coefficients[first, of_class[second]]]
        columns.append((np.concatenate([of_class[first], of_class[second]]), np.concatenate(weights).astype(WIDE)))
    return columns


def _weighted(of: Learned, kernels: str, columns: Sequence[Column], count: int) -> str:
    """Return the score of each pair; a kernel that is not a number spoils only those that it counts for."""
    if of.choice("kernel_type", "LINEAR", KERNELS) != "POLY" or _degree(of).is_integer():
        weights = np.zeros((count, len(columns)), WIDE)
        for place, (own, values) in enumerate(columns):
            weights[own, place] = values
        return of("MatMul", kernels, of.constant(weights))
    scores = []
    for own, values in columns:
        part = of("Gather", kernels, of.constant(own), axis=1)
        scores.append(of("MatMul", part, of.constant(values[:, None])))
    return of("Concat", *scores, axis=1)


def _most_votes(of: Learned, scores: str, classes: int, pairs: Sequence[tuple[int, int]]) -> str:
    """Return the class that most pairs vote for, the first of several."""
    wins = of("Greater", scores, of.constant(np.array(0, WIDE)))
    if len(pairs) == 1:  # the first class wins with a positive score
        return of.cast(of.reshape(of("Not", wins), (-1,)), "int64")
    change, all_lost = np.zeros((len(pairs), classes), FLOAT), np.zeros(classes, FLOAT)
    for row, (first, second) in enumerate(pairs):
        change[row, first], change[row, second] = 1, -1
        all_lost[second] += 1
    votes = of("Add", of("MatMul", of.cast(wins, FLOAT), of.constant(change)), of.constant(all_lost))
    return of("ArgMax", votes, axis=1, keepdims=0)


def _probabilities(of: Learned, scores: str, classes: int, pairs: Sequence[tuple[int, int]]) -> str:
    """Return the probabilities of classes that agree best with those of pairs."""
    slopes, offsets = (np.array(of.attr(name, ()), FLOAT)[: len(pairs)] for name in ("prob_a", "prob_b"))
    if not len(slopes) == len(offsets) == len(pairs):
        of.refuse(f"it has {len(slopes)} numbers in prob_a and {len(offsets)} in prob_b, not {len(pairs)}")
    logits = of("Add", of("Mul", scores, of.constant(-slopes)), of.constant(-offsets))
    bounds = (of.constant(np.array(each, FLOAT)) for each in (NEARLY, 1 - NEARLY))
    first = of("Clip", of("Sigmoid", logits), *bounds)
    return of.own("PairwiseCoupling", first, classes=classes)
