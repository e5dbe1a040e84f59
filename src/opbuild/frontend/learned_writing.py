"""What rewrites of operators of ``ai.onnx.ml`` have in common: attributes as arrays, rows, labels, transforms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.frontend import post_transforms
from opbuild.frontend.post_transforms import LOGISTIC, NAMES, NONE, PROBIT
from opbuild.frontend.rewriting import Rewriting, Scope
from opbuild.graph.indices import DOMAIN
from opbuild.graph.label_tables import as_texts
from opbuild.graph.passes.infer import is_text
from opbuild.graph.types import Array, Node

FLOAT = "float32"


class Learned(Rewriting):
    """The nodes that are written in place of an operator of ``ai.onnx.ml``."""

    def __init__(self, node: Node, scope: Scope) -> None:
        super().__init__(node, scope)
        self._kinds: dict[str, str] = {}

    def __call__(self, op_type: str, *inputs: str, **attrs: Any) -> str:
        """Write an operator with one output of its first input's type, and return that output's name."""
        name = super().__call__(op_type, *inputs, **attrs)
        if inputs[0] in self._kinds:
            self._kinds[name] = self._kinds[inputs[0]]
        return name

    def choice(self, name: str, default: str, known: Sequence[str]) -> str:
        """Return an attribute that is one of some words.

        Raises:
            UnsupportedOperatorError: If it is another one.
        """
        found = self.node.text(name, default)
        if found not in known:
            self.refuse(f"its {name} is {found!r}, which is none of {', '.join(known)}")
        return found

    @property
    def transform(self) -> str:
        """What becomes of scores."""
        return self.choice("post_transform", NONE, NAMES)

    def cast(self, value: str, dtype: str, given: str = "") -> str:
        """Return a value in another element type."""
        return self._of_kind(super().cast(value, dtype, given), dtype)

    def as_float(self, value: str, dtype: str = "") -> str:
        """Return a value as float32."""
        kind = dtype or self._kinds.get(value) or self.dtype()
        if kind == FLOAT:
            return value
        return self.cast(value, FLOAT)

    def wide(self, index: int) -> str:
        """Return an input as floats: integers as float32."""
        value, kind = self.input(index), self.dtype(index)
        return self._of_kind(value, kind) if kind == "float64" else self.as_float(value, kind)

    def wide_of(self, value: str) -> str:
        """Return a value that ``wide`` or ``as_float`` returned as float64."""
        kind = self._kinds.get(value, self.dtype())
        return value if kind == "float64" else self.cast(value, "float64")

    def rows(self, value: str) -> str:
        """Return a value made of the first input as rows; a vector is one."""
        shape = self.shape(0, 1, 2)
        if len(shape) == 2:
            return value
        return self._of_kind(self.reshape(value, (1, -1)), self._kinds.get(value, self.dtype()))

    def is_vector(self, index: int) -> bool:
        """Return whether an input has one dimension."""
        return len(self.shape(index)) == 1

    def like(self, value: str, numbers: Any) -> str:
        """Return constants of float32 in the element type of a value that ``wide`` or ``as_float`` returned."""
        kind = self._kinds.get(value, FLOAT)
        return self.constant(np.asarray(numbers, FLOAT).astype(kind))

    def matrix(self, name: str, rows: int) -> Array:
        """Return an attribute of floats as a matrix.

        Raises:
            UnsupportedOperatorError: If it does not have whole rows.
        """
        values = np.array(self.attr(name, ()), FLOAT)
        if rows < 1 or not values.size or values.size % rows:
            self.refuse(f"its {name} are {values.size} numbers, which are not {rows} rows")
        return values.reshape(rows, -1)

    def labels(self) -> Array:
        """Return the labels of the classes, texts or integers; none, if there are none."""
        texts = self.attr("classlabels_strings", ())
        if texts:
            return as_texts(texts)
        return np.array(self.attr("classlabels_ints", ()), np.int64)

    def _of_kind(self, value: str, kind: str) -> str:
        self._kinds[value] = kind
        return value


def classified(of: Learned, place: str, labels: Array, scores: str) -> Sequence[Node]:
    """Give the scores of classes, and the labels that lie at places."""
    if len(labels) == 0:
        of.refuse("it has no labels")
    outputs = (*of.node.outputs, "", "")
    if outputs[1]:
        of.write("Identity", (scores,), (outputs[1],), {})
    if outputs[0]:
        if labels.dtype == np.int64 and np.array_equal(labels, np.arange(len(labels))):
            of.write("Identity", (place,), (outputs[0],), {})
        elif is_text(labels):
            of.write("ClassNames", (place,), (outputs[0],), {"names": tuple(labels.tolist())}, DOMAIN)
        else:
            of.write("Gather", (of.constant(labels), place), (outputs[0],), {"axis": 0})
    return of.nodes


def transformed(of: Learned, scores: str, count: int) -> str:
    """Return scores in ``count`` columns after the node's post_transform; of one alone only PROBIT changes it."""
    is_changed = count > 1 or of.transform == PROBIT
    return post_transforms.transformed(of, of.transform, scores) if is_changed else scores


def of_two(of: Learned, score: str) -> str:
    """Return the scores of two classes after the node's post_transform, given the second one's."""
    if of.transform == LOGISTIC:
        return of("Sigmoid", of("Concat", of("Neg", score), score, axis=1))
    score = transformed(of, score, 1)
    return of("Concat", of("Sub", of.like(score, 1), score), score, axis=1)
