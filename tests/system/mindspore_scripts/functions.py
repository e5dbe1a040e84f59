"""Functions of ``ops`` and ``mint``, and methods of ``Tensor``, in both modes."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, jit, mint, nn, ops

ms.set_context(mode=ms.PYNATIVE_MODE)

x = Tensor(np.arange(12).reshape(3, 4), ms.float32)
print(x)
print(x.mean(axis=0), x.max(), x.T.shape, x[1:, ::2])
print(ops.topk(x, 2)[1], ops.clip(x, 2, 7).sum())
print(ops.where(x > 5, x, ops.zeros_like(x))[1], ops.cumsum(x, 1)[2])
print(mint.matmul(x, mint.ones((4, 2))), mint.softmax(x[0], dim=0).sum())
print(mint.cat((x, x), dim=1).shape, mint.permute(x, (1, 0)).shape, mint.nn.functional.relu(-x).max())
print([part.shape for part in ops.split(x, 2, axis=1)], ops.stack([x, x], axis=1).shape)
print(ops.one_hot(Tensor([0, 2]), 3, Tensor(1.0), Tensor(0.0)), ops.gather(x, Tensor([2, 0]), 0)[0])
print(Tensor([1, 2]).dtype, Tensor([1.5]).dtype, (x > 5).astype(ms.int32)[1], x.asnumpy().dtype)


@jit
def normalized(value, eps=1e-5):
    center = value - value.mean(-1, keep_dims=True)
    return center / ops.sqrt(ops.square(center).mean(-1, keep_dims=True) + eps)


print(np.round(normalized(x).asnumpy(), 3))


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.add = ops.Add()
        self.matmul = ops.MatMul(transpose_b=True)

    def construct(self, a, b):
        return self.add(self.matmul(a, b), ops.tanh(a.sum(1)))


ms.set_context(mode=ms.GRAPH_MODE)
print(np.round(Net()(x, x).asnumpy(), 2))
