"""Saving and loading parameters: a whole network, a part of it, and what goes with it."""

import os

import mindspore as ms
import numpy as np
from mindspore import Tensor, nn
from mindspore.train.serialization import load_checkpoint, load_param_into_net


class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(3, 4, 3, has_bias=True)
        self.bn1 = nn.BatchNorm2d(4)
        self.rnn = nn.LSTM(4, 3)
        self.fc = nn.Dense(3, 2)

    def construct(self, x):
        x = self.bn1(self.conv1(x)).mean((2, 3)).expand_dims(0)
        return self.fc(self.rnn(x)[0][0])


random = np.random.default_rng(10)
trained = Net()
with nn.no_init_parameters():
    net = Net()
for parameter in trained.get_parameters():
    parameter.set_data(Tensor(random.uniform(0.1, 1, parameter.shape).astype(np.float32)))
ms.save_checkpoint(trained, "trained.ckpt", append_dict={"epoch": 7, "note": "best"})
print(os.path.isfile("trained.ckpt"))

loaded = load_checkpoint("trained.ckpt")
print(sorted(loaded))
print(int(loaded.pop("epoch")), loaded.pop("note"))
missing, unused = load_param_into_net(net, loaded)
print(missing, unused)
x = Tensor(random.standard_normal((2, 3, 5, 5)), ms.float32)
print(np.round(net.set_train(False)(x).asnumpy(), 3))
print(bool(np.allclose(net(x).asnumpy(), trained.set_train(False)(x).asnumpy())))

ms.save_checkpoint(net.trainable_params(), "part.ckpt", choice_func=lambda name: name.startswith("fc"))
print(ms.load_checkpoint("part.ckpt"))
print(load_param_into_net(Net(), ms.load_checkpoint("part.ckpt", choice_func=lambda name: "bias" in name))[1])
