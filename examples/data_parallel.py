"""Inference of one batch on several ranks: each takes its part, all get the whole result.

opbuild launch -n 4 examples/data_parallel.py
mpiexec -n 4 opbuild run examples/data_parallel.py
"""

import numpy as np

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, ops
from opbuild.mindspore.communication import get_group_size, get_rank, init

BATCH = 8


class Classifier(nn.Cell):
    def __init__(self):
        super().__init__()
        self.features = nn.SequentialCell(
            nn.Conv2d(3, 16, 3, has_bias=True), nn.ReLU(), nn.MaxPool2d(2, 2), nn.Flatten(), nn.Dense(16 * 8 * 8, 10)
        )

    def construct(self, images):
        return self.features(images)


class DataParallel(nn.Cell):
    """A network on this rank's part of the batch; the results of all ranks, in order."""

    def __init__(self, network):
        super().__init__()
        self.network = network
        self.gather = ops.AllGather()

    def construct(self, images):
        return self.gather(self.network(images))


def main():
    init()
    rank, size = get_rank(), get_group_size()
    if BATCH % size:
        raise SystemExit(f"{BATCH} images are not divisible among {size} ranks")
    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)  # the ranks have equal weights
    network = Classifier()
    images = np.random.default_rng(0).standard_normal((BATCH, 3, 16, 16), np.float32)
    part = images[rank * BATCH // size : (rank + 1) * BATCH // size]
    together = DataParallel(network)(Tensor(part)).asnumpy()
    if rank == 0:
        alone = network(Tensor(images)).asnumpy()
        difference = np.abs(together - alone).max()
        if together.shape != (BATCH, 10) or difference > 1e-5 * np.abs(alone).max():
            raise SystemExit(f"{size} ranks and one differ by {difference}")
        print(f"{size} ranks give for {BATCH} images what one gives; largest difference {difference}")


if __name__ == "__main__":
    main()
