"""A residual block with batch normalization and a head, as in MindSpore's model zoo."""

import mindspore
import numpy as np
from mindspore import Tensor, nn, ops, set_context
from mindspore import dtype as mstype

set_context(mode=mindspore.GRAPH_MODE)


def conv3x3(in_channels, out_channels, stride=1):
    return nn.Conv2d(in_channels, out_channels, kernel_size=3, stride=stride, padding=1, pad_mode="pad", has_bias=False)


class ResidualBlock(nn.Cell):
    expansion = 2

    def __init__(self, in_channel, out_channel, stride=1, down_sample=None):
        super().__init__()
        channel = out_channel // self.expansion
        self.conv1 = nn.Conv2d(in_channel, channel, 1)
        self.norm1 = nn.BatchNorm2d(channel)
        self.conv2 = conv3x3(channel, channel, stride)
        self.norm2 = nn.BatchNorm2d(channel)
        self.conv3 = nn.Conv2d(channel, out_channel, 1)
        self.norm3 = nn.BatchNorm2d(out_channel)
        self.relu = nn.ReLU()
        self.down_sample = down_sample

    def construct(self, x):
        identity = x
        out = self.relu(self.norm1(self.conv1(x)))
        out = self.relu(self.norm2(self.conv2(out)))
        out = self.norm3(self.conv3(out))
        if self.down_sample is not None:
            identity = self.down_sample(x)
        out += identity
        return self.relu(out)


class Net(nn.Cell):
    def __init__(self, num_classes=5):
        super().__init__()
        self.stem = nn.SequentialCell(
            [
                nn.Conv2d(3, 8, 7, 2),
                nn.BatchNorm2d(8),
                nn.ReLU(),
                nn.MaxPool2d(kernel_size=3, stride=2, pad_mode="same"),
            ]
        )
        down = nn.SequentialCell([nn.Conv2d(8, 16, 1, 2), nn.BatchNorm2d(16)])
        self.layers = nn.SequentialCell(ResidualBlock(8, 16, 2, down), ResidualBlock(16, 16))
        self.avg_pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Dense(16, num_classes)
        self.flatten = ops.Flatten()

    def construct(self, x):
        return self.head(self.flatten(self.avg_pool(self.layers(self.stem(x)))))


random = np.random.default_rng(2)
net = Net()
net.set_train(False)
for parameter in net.get_parameters():
    low, high = (0.5, 1.5) if "variance" in parameter.name else (-0.3, 0.3)
    parameter.set_data(Tensor(random.uniform(low, high, parameter.shape), mstype.float32))
print(len(net.trainable_params()), "trainable of", len(list(net.get_parameters())))
print([p.name for p in net.untrainable_params()][:3])
x = Tensor(random.standard_normal((2, 3, 32, 32)).astype(np.float32))
logits = net(x)
print(logits.shape)
print(np.around(ops.softmax(logits, axis=-1).asnumpy(), 3))
print(net.layers[1].norm1)
