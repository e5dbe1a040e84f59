"""The four operators of all ranks, in a network that is built and operator by operator.

opbuild launch -n 4 examples/all_reduce.py
mpiexec -n 4 opbuild run examples/all_reduce.py
"""

import numpy as np

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, ops
from opbuild.mindspore.communication import get_group_size, get_rank, init


class Collectives(nn.Cell):
    def __init__(self):
        super().__init__()
        self.sum = ops.AllReduce(ops.ReduceOp.SUM)
        self.max = ops.AllReduce(ops.ReduceOp.MAX)
        self.gather = ops.AllGather()
        self.scatter = ops.ReduceScatter(ops.ReduceOp.SUM)
        self.broadcast = ops.Broadcast(0)

    def construct(self, x):
        (first,) = self.broadcast((x,))
        return self.sum(x + 1), self.max(x), self.gather(x), self.scatter(x), first


def expected(parts, rank):
    total = sum(part.astype(np.float64) for part in parts)
    rows = len(parts[0]) // len(parts)
    return (
        total + len(parts),
        np.max(parts, axis=0),
        np.concatenate(parts),
        total[rank * rows : (rank + 1) * rows],
        parts[0],
    )


def main():
    init()
    rank, size = get_rank(), get_group_size()
    worst = 0.0
    for dtype in (np.float32, np.float16, np.int32):
        parts = [np.random.default_rng(r).integers(-9, 9, (2 * size, 3)).astype(dtype) for r in range(size)]
        for mode in (ms.GRAPH_MODE, ms.PYNATIVE_MODE):
            ms.set_context(mode=mode)
            results = Collectives()(Tensor(parts[rank]))
            for found, wanted in zip(results, expected(parts, rank), strict=True):
                if found.asnumpy().dtype != dtype or found.shape != wanted.shape:
                    raise SystemExit(f"rank {rank}: {found.dtype}{found.shape} instead of {dtype}{wanted.shape}")
                worst = max(worst, float(np.abs(found.asnumpy() - wanted).max()))
    if worst:
        raise SystemExit(f"rank {rank}: the results differ from numpy's by {worst}")
    print(f"rank {rank} of {size}: AllReduce, AllGather, ReduceScatter and Broadcast agree with numpy")


if __name__ == "__main__":
    main()
