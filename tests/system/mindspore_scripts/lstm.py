"""Sentiment of a sentence: an embedding, a bidirectional LSTM of two layers, a dense layer."""

import math

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn, ops
from mindspore.common.initializer import HeUniform, Uniform

ms.set_context(mode=ms.GRAPH_MODE)


class RNN(nn.Cell):
    def __init__(self, embeddings, hidden_dim, output_dim, n_layers, bidirectional, pad_idx):
        super().__init__()
        vocab_size, embedding_dim = embeddings.shape
        self.embedding = nn.Embedding(
            vocab_size, embedding_dim, embedding_table=ms.Tensor(embeddings), padding_idx=pad_idx
        )
        self.rnn = nn.LSTM(
            embedding_dim, hidden_dim, num_layers=n_layers, bidirectional=bidirectional, batch_first=True
        )
        self.fc = nn.Dense(
            hidden_dim * 2,
            output_dim,
            weight_init=HeUniform(math.sqrt(5)),
            bias_init=Uniform(1 / math.sqrt(hidden_dim * 2)),
        )

    def construct(self, inputs):
        embedded = self.embedding(inputs)
        _, (hidden, _) = self.rnn(embedded)
        hidden = ops.concat((hidden[-2, :, :], hidden[-1, :, :]), axis=1)
        return self.fc(hidden)


def fill(cell, random):
    for parameter in cell.get_parameters():
        parameter.set_data(Tensor(random.uniform(-0.4, 0.4, parameter.shape).astype(np.float32)))


random = np.random.default_rng(4)
net = RNN(random.standard_normal((20, 8)).astype(np.float32), 6, 1, 2, True, 0)
fill(net, random)
print(list(net.parameters_dict()))
tokens = Tensor(random.integers(0, 20, (3, 9)), ms.int32)
print(np.round(ops.sigmoid(net(tokens)).asnumpy(), 3))

gru = nn.GRU(4, 5)
fill(gru, random)
steps = Tensor(random.standard_normal((7, 2, 4)), ms.float32)
output, state = gru(steps, Tensor(np.zeros((1, 2, 5)), ms.float32), Tensor([7, 4], ms.int32))
print(output.shape, state.shape, np.round(output.asnumpy()[-1], 3))

cell = nn.LSTMCell(4, 3)
fill(cell, random)
hx = (ops.zeros((2, 3), ms.float32), ops.zeros((2, 3), ms.float32))
for step in steps:
    hx = cell(step, hx)
print(np.round(hx[0].asnumpy(), 3), np.round(hx[1].asnumpy(), 3))
