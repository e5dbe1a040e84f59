"""Metrics: measures of a network's outputs and labels by ``Model.eval``, with numpy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array
from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, natural, one_of
from opbuild.mindspore.dataset.pipeline import to_array


class Metric(ABC):
    """A number, or several, of all batches since ``clear``; programs derive their own."""

    def __init__(self) -> None:
        self._indexes: Sequence[int] | None = None

    @property
    def indexes(self) -> Sequence[int] | None:
        """The places of the values that ``update`` takes, in its arguments; None for all."""
        return self._indexes

    def set_indexes(self, indexes: Sequence[int]) -> Metric:
        """Say which of the values ``update`` takes."""
        self._indexes = list(indexes)
        return self

    def given(self, inputs: Sequence[Any], count: int) -> list[Array]:
        """Return the values that ``update`` takes as arrays."""
        chosen = inputs if self._indexes is None else [inputs[place] for place in self._indexes]
        if len(chosen) != count:
            raise ArgumentValueError(f"{type(self).__name__} was given {len(chosen)} values", f"it takes {count}")
        return [to_array(each) for each in chosen]

    @abstractmethod
    def clear(self) -> None:
        """Begin again."""

    @abstractmethod
    def update(self, *inputs: Any) -> None:
        """Take a batch: the results of the network, and the labels."""

    @abstractmethod
    def eval(self) -> Any:
        """Return the result."""


class _Mean(Metric):
    """A sum over a number of things."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._sum, self._count = 0.0, 0

    def take(self, total: float, count: int) -> None:
        """Add a batch's share."""
        self._sum += float(total)
        self._count += count

    def eval(self) -> float:
        """Return the mean."""
        if not self._count:
            raise ArgumentValueError(f"{type(self).__name__} was asked for a result without a sample", "call update")
        return self._sum / self._count


class Loss(_Mean):
    """The mean of the batches' losses."""

    def update(self, *inputs: Any) -> None:
        """Take a loss."""
        (loss,) = self.given(inputs, 1)
        self.take(loss.mean(), 1)


class MAE(_Mean):
    """The sum of absolute errors, over the number of samples."""

    def update(self, *inputs: Any) -> None:
        """Take outputs and labels of equal sizes."""
        outputs, labels = self.given(inputs, 2)
        self.take(np.abs(labels.reshape(outputs.shape) - outputs).sum(), len(labels))


class MSE(_Mean):
    """The sum of squared errors, over the number of samples."""

    def update(self, *inputs: Any) -> None:
        """Take outputs and labels of equal sizes."""
        outputs, labels = self.given(inputs, 2)
        self.take(np.square(labels.reshape(outputs.shape) - outputs).sum(), len(labels))


class Perplexity(_Mean):
    """The exponential of the mean of negative logarithms of the labels' probabilities.

    Args:
        ignore_label: A label that does not count.
    """

    def __init__(self, ignore_label: int | None = None) -> None:
        super().__init__()
        self.ignore_label = ignore_label

    def update(self, *inputs: Any) -> None:
        """Take probabilities of shape (..., classes) and labels."""
        outputs, labels = self.given(inputs, 2)
        flat = labels.reshape(-1).astype(np.int64)
        found = outputs.reshape(len(flat), -1)[np.arange(len(flat)), flat]
        counts = np.ones(len(flat), bool) if self.ignore_label is None else flat != self.ignore_label
        self.take(-np.log(np.maximum(found[counts], 1e-10)).sum(), int(counts.sum()))

    def eval(self) -> float:
        """Return the perplexity."""
        return float(np.exp(super().eval()))


class Accuracy(_Mean):
    """The share of samples whose greatest output is the label's; with ``multilabel``, whose outputs all are labels.

    Args:
        eval_type: ``classification`` or ``multilabel``.
    """

    def __init__(self, eval_type: str = "classification") -> None:
        super().__init__()
        self._type = one_of(eval_type, ("classification", "multilabel"), "the eval_type of Accuracy")

    def update(self, *inputs: Any) -> None:
        """Take outputs of shape (batch, classes, ...) and labels: classes, or vectors with a 1."""
        outputs, labels = self.given(inputs, 2)
        if self._type == "multilabel":
            right = (outputs == labels).reshape(len(labels), -1).all(1)
        else:
            right = outputs.argmax(1).reshape(-1) == _classes(outputs, labels).reshape(-1)
        self.take(right.sum(), right.size)


class TopKCategoricalAccuracy(_Mean):
    """The share of samples whose label is among the ``k`` greatest outputs."""

    def __init__(self, k: int) -> None:
        super().__init__()
        self.k = natural(k, f"k of {type(self).__name__}", 1)

    def update(self, *inputs: Any) -> None:
        """Take outputs of shape (batch, classes) and labels."""
        outputs, labels = self.given(inputs, 2)
        best = np.argsort(-outputs, 1, kind="stable")[:, : self.k]
        right = (best == _classes(outputs, labels).reshape(-1, 1)).any(1)
        self.take(right.sum(), right.size)


class Top1CategoricalAccuracy(TopKCategoricalAccuracy):
    """``TopKCategoricalAccuracy`` of 1."""

    def __init__(self) -> None:
        super().__init__(1)


class Top5CategoricalAccuracy(TopKCategoricalAccuracy):
    """``TopKCategoricalAccuracy`` of 5."""

    def __init__(self) -> None:
        super().__init__(5)


class _Counted(Metric):
    """Counts, for each class, of labels, of predictions, and of hits."""

    def __init__(self) -> None:
        super().__init__()
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self._right: Any = 0
        self._said: Any = 0
        self._true: Any = 0

    def update(self, *inputs: Any) -> None:
        """Take outputs of shape (batch, classes) and labels."""
        outputs, labels = self.given(inputs, 2)
        count = outputs.shape[1]
        said = np.eye(count)[outputs.argmax(1).reshape(-1)]
        true = np.eye(count)[_classes(outputs, labels).reshape(-1)]
        self._right, self._said, self._true = (
            self._right + (said * true).sum(0), self._said + said.sum(0), self._true + true.sum(0),
        )  # fmt: skip

    def _share(self, of: Any) -> Array:
        if isinstance(of, int):
            raise ArgumentValueError(f"{type(self).__name__} was asked for a result without a sample", "call update")
        return np.asarray(self._right / (of + 1e-20))


class Precision(_Counted):
    """For each class, the share of samples said to be of it that are."""

    def __init__(self, eval_type: str = "classification") -> None:
        super().__init__()
        one_of(eval_type, ("classification",), f"the eval_type of {type(self).__name__}")

    def eval(self, average: bool = False) -> Any:
        """Return the share of each class; with ``average`` their mean."""
        found = self._share(self._said)
        return float(found.mean()) if average else found


class Recall(Precision):
    """For each class, the share of its samples that are said to be."""

    def eval(self, average: bool = False) -> Any:
        """Return the share of each class; with ``average`` their mean."""
        found = self._share(self._true)
        return float(found.mean()) if average else found


class F1(_Counted):
    """For each class, the harmonic mean of precision and recall."""

    def eval(self, average: bool = False) -> Any:
        """Return the mean of each class; with ``average`` their mean."""
        one, two = self._share(self._said), self._share(self._true)
        found = 2 * one * two / (one + two + 1e-20)
        return float(found.mean()) if average else found


_BY_NAME: dict[str, Callable[..., Metric]] = {
    "F1": F1, "accuracy": Accuracy, "acc": Accuracy, "loss": Loss, "mae": MAE, "mse": MSE, "precision": Precision,
    "recall": Recall, "top_1_accuracy": Top1CategoricalAccuracy, "top_5_accuracy": Top5CategoricalAccuracy,
    "perplexity": Perplexity,
}  # fmt: skip


def get_metric_fn(name: str, *args: Any, **kwargs: Any) -> Metric:
    """Return the metric of a name."""
    if name not in _BY_NAME:
        raise ArgumentValueError(f"there is no metric {name!r}", f"there are {', '.join(_BY_NAME)}")
    return _BY_NAME[name](*args, **kwargs)


def get_metrics(metrics: Any) -> dict[str, Metric]:
    """Return metrics by name, of a set of names or a dictionary."""
    if metrics is None:
        return {}
    if isinstance(metrics, Mapping):
        for name, metric in metrics.items():
            if not isinstance(metric, Metric):
                raise ArgumentTypeError(f"the metric {name!r} is a {type(metric).__name__}", "give a Metric")
        return dict(metrics)
    if isinstance(metrics, str) or not isinstance(metrics, Iterable):
        raise ArgumentTypeError(f"metrics is {metrics!r}", "give a set of names, or a dictionary")
    return {name: get_metric_fn(name) for name in metrics}


def _classes(outputs: Array, labels: Array) -> Array:
    """Return labels as classes, also where they are vectors with a 1."""
    return labels.argmax(1) if labels.ndim == outputs.ndim else labels.astype(np.int64)


names.export(vars())
