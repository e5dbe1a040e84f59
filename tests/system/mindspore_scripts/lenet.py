"""LeNet-5 on one image, as in MindSpore's first tutorials."""

import mindspore as ms
import numpy as np
from mindspore import Tensor, context, nn
from mindspore.common.initializer import Normal

context.set_context(mode=context.GRAPH_MODE, device_target="CPU")


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1):
        super().__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, 84, weight_init=Normal(0.02))
        self.fc3 = nn.Dense(84, num_class, weight_init=Normal(0.02))
        self.relu = nn.ReLU()
        self.max_pool2d = nn.MaxPool2d(kernel_size=2, stride=2)
        self.flatten = nn.Flatten()

    def construct(self, x):
        x = self.max_pool2d(self.relu(self.conv1(x)))
        x = self.max_pool2d(self.relu(self.conv2(x)))
        x = self.flatten(x)
        x = self.relu(self.fc1(x))
        x = self.relu(self.fc2(x))
        return self.fc3(x)


def main():
    random = np.random.default_rng(1)
    net = LeNet5()
    net.set_train(False)
    for name, parameter in net.parameters_and_names():
        parameter.set_data(Tensor(random.normal(0, 0.1, parameter.shape).astype(np.float32)))
        print(name, parameter.shape, parameter.dtype)
    image = Tensor(random.uniform(0, 1, (1, 1, 32, 32)), ms.float32)
    logits = net(image)
    print("logits:", logits.shape, logits.dtype)
    print(logits.asnumpy().round(3))
    print("class:", int(logits.argmax(axis=1).asnumpy()[0]))
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")(logits, Tensor([3], ms.int32))
    print("loss:", f"{float(loss.asnumpy()):.3f}")


if __name__ == "__main__":
    main()
