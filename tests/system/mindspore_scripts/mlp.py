"""A multi-layer perceptron with dropout; evaluation turns the dropout off."""

import mindspore as ms
import numpy as np
from mindspore import nn

ms.set_seed(3)


class Network(nn.Cell):
    def __init__(self):
        super().__init__()
        self.flatten = nn.Flatten()
        self.dense_relu_sequential = nn.SequentialCell(
            nn.Dense(28 * 28, 64),
            nn.ReLU(),
            nn.Dropout(p=0.2),
            nn.Dense(64, 32, activation="gelu"),
            nn.Dropout(keep_prob=0.9),
            nn.Dense(32, 10),
        )

    def construct(self, x):
        x = self.flatten(x)
        logits = self.dense_relu_sequential(x)
        return logits


model = Network()
model.set_train(False)
print(model)
random = np.random.default_rng(3)
for name, param in model.parameters_and_names():
    param.set_data(ms.Tensor(random.normal(0, 0.05, param.shape).astype("float32")))
    print(f"Layer: {name}, Size: {param.shape}")

ms.set_context(mode=ms.GRAPH_MODE)
X = ms.Tensor(random.random((3, 28, 28)), dtype=ms.float32)
logits = model(X)
pred_probab = nn.Softmax(axis=1)(logits)
y_pred = pred_probab.argmax(1)
print(f"Predicted class: {y_pred}")
print(pred_probab.asnumpy().sum(axis=1).round(4), np.round(logits.asnumpy()[0, :4], 3))

loss_fn = nn.CrossEntropyLoss()
labels = ms.Tensor([1, 2, 3], ms.int32)
print(f"loss: {float(loss_fn(logits, labels)):.3f}")
accuracy = (y_pred.asnumpy() == labels.asnumpy()).mean()
print("accuracy:", round(float(accuracy), 2))
