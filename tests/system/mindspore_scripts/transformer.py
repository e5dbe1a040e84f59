"""A transformer encoder by ``nn``, and an encoder layer by hand."""

import math

import mindspore as ms
import numpy as np
from mindspore import Parameter, Tensor, nn, ops

ms.context.set_context(mode=ms.GRAPH_MODE)


class MultiHeadAttention(nn.Cell):
    def __init__(self, channels, heads):
        super().__init__()
        self.heads = heads
        self.depth = channels // heads
        self.query = nn.Dense(channels, channels)
        self.key = nn.Dense(channels, channels)
        self.value = nn.Dense(channels, channels)
        self.out = nn.Dense(channels, channels)
        self.softmax = nn.Softmax(axis=-1)
        self.matmul = ops.BatchMatMul()

    def split(self, x):
        batch, steps, channels = x.shape
        return x.reshape(batch, steps, self.heads, self.depth).transpose(0, 2, 1, 3)

    def construct(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        scores = self.matmul(q, k.transpose(0, 1, 3, 2)) / math.sqrt(self.depth)
        scores = ops.masked_fill(scores, mask, -1e9)
        mixed = self.matmul(self.softmax(scores), v).transpose(0, 2, 1, 3)
        return self.out(mixed.reshape(x.shape))


class EncoderLayer(nn.Cell):
    def __init__(self, channels, heads, hidden):
        super().__init__()
        self.attention = MultiHeadAttention(channels, heads)
        self.norm1 = nn.LayerNorm((channels,), epsilon=1e-5)
        self.norm2 = nn.LayerNorm((channels,), epsilon=1e-5)
        self.dense1 = nn.Dense(channels, hidden)
        self.dense2 = nn.Dense(hidden, channels)
        self.position = Parameter(Tensor(np.zeros((1, 5, channels)), ms.float32), name="position")

    def construct(self, x, mask):
        x = x + self.position
        x = self.norm1(x + self.attention(x, mask))
        return self.norm2(x + self.dense2(ops.relu(self.dense1(x))))


def fill(cell, seed):
    random = np.random.default_rng(seed)
    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(random.uniform(-0.5, 0.5, parameter.shape).astype(np.float32)))
    return cell.set_train(False)


x = Tensor(np.random.default_rng(5).standard_normal((2, 5, 8)), ms.float32)
causal = Tensor(np.triu(np.ones((5, 5)), 1).astype(bool))

by_hand = fill(EncoderLayer(8, 2, 16), 6)
result = by_hand(x, causal)
print("by hand:", result.shape)
print(np.round(result.asnumpy()[0, :2], 3))

layer = nn.TransformerEncoderLayer(d_model=8, nhead=2, dim_feedforward=16, batch_first=True)
encoder = fill(nn.TransformerEncoder(layer, num_layers=2), 7)
print(list(encoder.parameters_dict())[:4])
print("by nn:", np.round(encoder(x, src_mask=causal).asnumpy()[1, -1], 3))
