"""The smallest network: one operator that squares its input.

``opbuild run examples/test_square.py`` builds it and leaves its three files in ``rank_0/kernel_meta``; a second run
builds
nothing. With MindSpore installed, ``python examples/test_square.py`` runs it there.
"""

import mindspore as ms
import numpy as np
from mindspore import nn, ops

ms.set_context(mode=ms.GRAPH_MODE, device_target="Ascend")


class Squares(nn.Cell):
    """Squares every element."""

    def __init__(self):
        super().__init__()
        self.square = ops.Square()

    def construct(self, numbers):
        return self.square(numbers)


def test_square():
    numbers = np.array([1, 4, 9], dtype=np.float32)
    output = Squares()(ms.Tensor(numbers))
    print("input: ", numbers)
    print("output:", output)
    assert np.array_equal(output.asnumpy(), numbers**2)


if __name__ == "__main__":
    test_square()
