"""Indices in MindSpore's style: out of range they are errors, as on MindSpore's CPU, and a step changes nothing."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from opbuild.errors import OutOfRangeError
from opbuild.mindspore import Tensor, nn, ops

TABLE = Tensor(np.arange(12, dtype=np.float32).reshape(3, 4))
SCORES = Tensor(np.array([[1, 2, 0.5], [0, -1, 3]], np.float32))
ROW = Tensor(np.ones((1, 4), np.float32))


def ints(*values: object) -> Tensor:
    """Integers, as labels and indices are."""
    return Tensor(np.array(values, np.int32))


CALLS: dict[str, Callable[[], object]] = {
    "gather": lambda: ops.gather(TABLE, ints(1, 3), 0),
    "gather_nd": lambda: ops.gather_nd(TABLE, ints([1, 4])),
    "gather_elements": lambda: ops.gather_elements(TABLE, 0, ints([0, -4])),
    "tensor_scatter_add": lambda: ops.tensor_scatter_add(TABLE, ints([3]), ROW),
    "tensor_scatter_update": lambda: ops.TensorScatterUpdate()(TABLE, ints([-4]), ROW),
    "cross_entropy": lambda: ops.cross_entropy(SCORES, ints(0, 3)),
    "cross_entropy of no class": lambda: ops.cross_entropy(SCORES, ints(0, -1)),
    "softmax_cross_entropy": lambda: nn.SoftmaxCrossEntropyWithLogits(sparse=True)(SCORES, ints(0, 3)),
    "multi_margin_loss": lambda: ops.multi_margin_loss(SCORES, ints(0, 3)),
    "embedding": lambda: nn.Embedding(5, 4)(ints(1, 5)),
    "unsorted_segment_sum": lambda: ops.unsorted_segment_sum(TABLE, ints(0, 2, 1), 2),
}


@pytest.mark.parametrize("name", CALLS)
def test_an_index_out_of_range_is_an_index_error(name: str) -> None:
    """It says which one, and the range."""
    with pytest.raises(IndexError, match="is out of range: it must be from") as caught:
        CALLS[name]()
    assert isinstance(caught.value, OutOfRangeError)


def test_what_is_negative_belongs_to_no_segment() -> None:
    """Nor does it get a gradient."""
    found = ops.unsorted_segment_sum(TABLE, ints(1, -1, 1), 2)
    np.testing.assert_array_equal(found.asnumpy(), np.stack([np.zeros(4), TABLE.asnumpy()[[0, 2]].sum(0)]))


@pytest.mark.slow
def test_a_step_that_is_refused_changes_no_parameter() -> None:
    """Words and classes that there are not; the next step learns."""

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.layer = nn.Embedding(5, 4), nn.Dense(4, 3)

        def construct(self, ids: Tensor) -> Tensor:
            return self.layer(self.words(ids))

    network = Network()
    parameters = network.trainable_params()
    step = nn.TrainOneStepCell(nn.WithLossCell(network, nn.CrossEntropyLoss()), nn.SGD(parameters, 0.1))
    before = [each.asnumpy().copy() for each in parameters]
    for ids, classes in (((1, 7), (0, 1)), ((1, 2), (0, 3))):
        with pytest.raises(IndexError):
            step(ints(*ids), ints(*classes))
        assert all(np.array_equal(one, each.asnumpy()) for one, each in zip(before, parameters, strict=True))
    step(ints(1, 2), ints(0, 1))
    assert not any(np.array_equal(one, each.asnumpy()) for one, each in zip(before, parameters, strict=True))
