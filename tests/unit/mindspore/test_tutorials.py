"""Programs as MindSpore's tutorials write them: imports, loops, optimizers and schedules, on the host backend.

``import mindspore`` finds opbuild's own, as in ``opbuild run``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import opbuild.mindspore as face
from opbuild.cli.run_script import found_here
from support.mindspore_host import graphs  # noqa: F401 - a fixture


@pytest.fixture(autouse=True)
def _mindspore(graphs: Any) -> Iterator[None]:  # noqa: F811
    """Let programs import mindspore."""
    with found_here("mindspore"):
        yield


@pytest.fixture(params=["graph", "pynative"])
def mode(request: pytest.FixtureRequest) -> None:
    """Both modes."""
    face.set_context(mode=face.GRAPH_MODE if request.param == "graph" else face.PYNATIVE_MODE)


def images(count: int = 64, seed: int = 0) -> tuple[Any, Any]:
    """Return images with a bright row, whose number is the label."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 8, count).astype(np.int32)
    pixels = (0.3 * random.standard_normal((count, 8, 8, 1)) * 255).astype(np.float32)
    pixels[np.arange(count), labels] += 300
    return pixels, labels


def dataset(batch: int = 16, **options: Any) -> Any:
    """Return the pipeline of the quick start."""
    import mindspore
    from mindspore.dataset import NumpySlicesDataset, transforms, vision

    pixels, labels = images()
    data = NumpySlicesDataset({"image": pixels, "label": labels}, **options)
    steps = [vision.Rescale(1.0 / 255.0, 0), vision.Normalize(mean=(0.1307,), std=(0.3081,)), vision.HWC2CHW()]
    data = data.map(steps, "image")
    data = data.map(transforms.TypeCast(mindspore.int32), "label")
    return data.batch(batch)


def network() -> Any:
    """Return the network of the quick start, smaller."""
    from mindspore import nn

    class Network(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.flatten = nn.Flatten()
            self.dense_relu_sequential = nn.SequentialCell(
                nn.Dense(8 * 8, 32), nn.ReLU(), nn.Dense(32, 16), nn.ReLU(), nn.Dense(16, 10)
            )

        def construct(self, x: Any) -> Any:
            return self.dense_relu_sequential(self.flatten(x))

    return Network()


def test_the_quick_start_trains_measures_and_goes_on_from_its_file(mode: None, tmp_path: Any) -> None:
    """Train loop with ``value_and_grad``, test loop, save, load, predict."""
    import mindspore
    from mindspore import nn

    mindspore.set_seed(3)
    model = network()
    loss_fn = nn.CrossEntropyLoss()
    optimizer = nn.SGD(model.trainable_params(), 5e-2)

    def forward_fn(data: Any, label: Any) -> Any:
        logits = model(data)
        loss = loss_fn(logits, label)
        return loss, logits

    grad_fn = mindspore.value_and_grad(forward_fn, None, optimizer.parameters, has_aux=True)

    def train_step(data: Any, label: Any) -> Any:
        (loss, _), grads = grad_fn(data, label)
        optimizer(grads)
        return loss

    def train(model: Any, data: Any) -> list[float]:
        assert data.get_dataset_size() == 4
        model.set_train()
        return [train_step(each, label).asnumpy().item() for each, label in data.create_tuple_iterator()]

    def test(model: Any, data: Any, loss_fn: Any) -> tuple[float, float]:
        num_batches = data.get_dataset_size()
        model.set_train(False)
        total, test_loss, correct = 0, 0.0, 0.0
        for each, label in data.create_tuple_iterator():
            pred = model(each)
            total += len(each)
            test_loss += loss_fn(pred, label).asnumpy()
            correct += (pred.argmax(1) == label).asnumpy().sum()
        return correct / total, test_loss / num_batches

    losses = [loss for _ in range(8) for loss in train(model, dataset())]
    accuracy, loss = test(model, dataset(), loss_fn)
    assert losses[-1] < 0.5 * losses[0]
    assert accuracy > 0.7
    mindspore.save_checkpoint(model, str(tmp_path / "model.ckpt"))
    again = network()
    param_not_load, _ = mindspore.load_param_into_net(again, mindspore.load_checkpoint(str(tmp_path / "model.ckpt")))
    assert not param_not_load
    assert test(again, dataset(), loss_fn) == (accuracy, loss)


def test_linear_fitting_with_model_and_a_callback_of_ones_own(mode: None) -> None:
    """A generator as data set, ``Model.train`` with callbacks, the fitted line."""
    import mindspore as ms
    from mindspore import Tensor, dataset, nn, train
    from mindspore.common.initializer import Normal

    ms.set_seed(1)

    def get_data(num: int, w: float = 2.0, b: float = 3.0) -> Any:
        random = np.random.default_rng(0)
        for _ in range(num):
            x = random.uniform(-1.0, 1.0)
            yield np.array([x]).astype(np.float32), np.array([x * w + b]).astype(np.float32)

    def create_dataset(num_data: int, batch_size: int = 16) -> Any:
        input_data = dataset.GeneratorDataset(list(get_data(num_data)), column_names=["data", "label"])
        return input_data.batch(batch_size)

    class LinearNet(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Dense(1, 1, Normal(0.02), Normal(0.02))

        def construct(self, x: Any) -> Any:
            return self.fc(x)

    seen = []

    class Watch(train.Callback):
        def on_train_epoch_end(self, run_context: Any) -> None:
            cb_params = run_context.original_args()
            seen.append((cb_params.cur_epoch_num, float(cb_params.net_outputs)))
            if float(cb_params.net_outputs) < 1e-3:
                run_context.request_stop()

    net = LinearNet()
    model = ms.Model(net, nn.MSELoss(), nn.Momentum(net.trainable_params(), 0.1, 0.9), metrics={"loss": train.Loss()})
    model.train(20, create_dataset(160), callbacks=[Watch()], dataset_sink_mode=False)
    assert seen[-1][1] < 1e-3
    assert len(seen) < 20
    assert model.eval(create_dataset(32), dataset_sink_mode=False)["loss"] < 1e-3
    assert abs(float(model.predict(Tensor([[0.5]], ms.float32))) - 4.0) < 0.1


def test_automatic_differentiation_follows_every_result(mode: None) -> None:
    """The tutorial of functional autograd: with an auxiliary result, without, and with its gradient stopped."""
    import mindspore
    from mindspore import Parameter, Tensor, ops

    x = ops.ones(5, mindspore.float32)
    y = ops.zeros(3, mindspore.float32)
    random = np.random.default_rng(0)
    w = Parameter(Tensor(random.standard_normal((5, 3)), mindspore.float32), name="w")
    b = Parameter(Tensor(random.standard_normal(3), mindspore.float32), name="b")

    def function(x: Any, y: Any, w: Any, b: Any) -> Any:
        z = ops.matmul(x, w) + b
        return ops.binary_cross_entropy_with_logits(z, y, ops.ones_like(z), ops.ones_like(z))

    def function_with_logits(x: Any, y: Any, w: Any, b: Any) -> Any:
        z = ops.matmul(x, w) + b
        loss = ops.binary_cross_entropy_with_logits(z, y, ops.ones_like(z), ops.ones_like(z))
        return loss, z

    def function_stop_gradient(x: Any, y: Any, w: Any, b: Any) -> Any:
        z = ops.matmul(x, w) + b
        loss = ops.binary_cross_entropy_with_logits(z, y, ops.ones_like(z), ops.ones_like(z))
        return loss, ops.stop_gradient(z)

    plain = mindspore.grad(function, (2, 3))(x, y, w, b)
    both = mindspore.grad(function_with_logits, (2, 3))(x, y, w, b)
    stopped = mindspore.grad(function_stop_gradient, (2, 3))(x, y, w, b)
    aux, (z,) = mindspore.grad(function_with_logits, (2, 3), has_aux=True)(x, y, w, b)
    for one, other, third, fourth in zip(plain, both, stopped, aux, strict=True):
        np.testing.assert_allclose(other.asnumpy(), one.asnumpy() + 1, rtol=1e-5)
        np.testing.assert_array_equal(third.asnumpy(), one.asnumpy())
        np.testing.assert_array_equal(fourth.asnumpy(), one.asnumpy())
    assert z.shape == (3,)
    named = mindspore.grad(function, (2, 3), return_ids=True)(x, y, w, b)
    np.testing.assert_array_equal(mindspore.get_grad(named, 3).asnumpy(), plain[1].asnumpy())
    by_weight = mindspore.grad(lambda x, y: function(x, y, w, b), 0, (w, b), return_ids=True)(x, y)
    np.testing.assert_array_equal(mindspore.get_grad(by_weight, b).asnumpy(), plain[1].asnumpy())
    with pytest.raises(ValueError, match="get_grad"):
        mindspore.get_grad(named, 0)


def test_grad_operation_differentiates_by_inputs_and_by_parameters(mode: None) -> None:
    """All forms of the older interface; a cell that has it as an attribute builds it once."""
    from mindspore import ParameterTuple, Tensor, nn, ops

    net = nn.Dense(3, 2)
    x = Tensor(np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32))
    weight = net.weight.asnumpy()
    first = ops.GradOperation()(net)(x)
    np.testing.assert_allclose(first.asnumpy(), np.ones((4, 2)) @ weight, rtol=1e-5)
    (only,) = ops.GradOperation(get_all=True)(net)(x)
    np.testing.assert_array_equal(only.asnumpy(), first.asnumpy())
    by_list = ops.GradOperation(get_by_list=True)(net, ParameterTuple(net.trainable_params()))(x)
    np.testing.assert_allclose(by_list[1].asnumpy(), [4, 4], rtol=1e-6)
    sens = Tensor(np.full((4, 2), 0.5, np.float32))
    inputs, weights = ops.GradOperation(get_all=True, get_by_list=True, sens_param=True)(net)(x, sens)
    np.testing.assert_allclose(inputs[0].asnumpy(), 0.5 * first.asnumpy(), rtol=1e-5)
    np.testing.assert_allclose(weights[1].asnumpy(), [2, 2], rtol=1e-6)

    class GradNetWrtX(nn.Cell):
        def __init__(self, net: Any) -> None:
            super().__init__()
            self.net = net
            self.grad_op = ops.GradOperation()

        def construct(self, x: Any) -> Any:
            gradient_function = self.grad_op(self.net)
            return gradient_function(x)

    found = GradNetWrtX(net)
    for _ in range(2):
        np.testing.assert_array_equal(found(x).asnumpy(), first.asnumpy())
    assert len(found.grad_op._made) == 1


def test_a_step_of_ones_own_with_an_explicit_reducer(mode: None) -> None:
    """The example of ``DistributedGradReducer``, its older imports included, on a job of one rank."""
    import mindspore as ms
    from mindspore import Parameter, Tensor, nn, ops
    from mindspore.communication import get_group_size, init, release
    from mindspore.parallel._utils import _get_device_num, _get_gradients_mean, _get_parallel_mode

    class TrainingWrapper(nn.Cell):
        def __init__(self, network: Any, optimizer: Any, sens: float = 1.0) -> None:
            super().__init__(auto_prefix=False)
            self.network = network
            self.network.add_flags(defer_inline=True)
            self.weights = optimizer.parameters
            self.optimizer = optimizer
            self.grad = ops.GradOperation(get_by_list=True, sens_param=True)
            self.sens = sens
            self.reducer_flag = False
            self.grad_reducer = None
            self.parallel_mode = ms.get_auto_parallel_context("parallel_mode")
            self.depend = ops.Depend()
            if self.parallel_mode in [ms.ParallelMode.DATA_PARALLEL, ms.ParallelMode.HYBRID_PARALLEL]:
                self.reducer_flag = True
            if self.reducer_flag:
                mean = ms.get_auto_parallel_context("gradients_mean")
                degree = ms.get_auto_parallel_context("device_num")
                self.grad_reducer = nn.DistributedGradReducer(optimizer.parameters, mean, degree)

        def construct(self, *args: Any) -> Any:
            weights = self.weights
            loss = self.network(*args)
            sens = ops.Fill()(ops.DType()(loss), ops.Shape()(loss), self.sens)
            grads = self.grad(self.network, weights)(*args, sens)
            if self.reducer_flag:
                grads = self.grad_reducer(grads)
            return self.depend(loss, self.optimizer(grads))

    class Net(nn.Cell):
        def __init__(self, in_features: int, out_features: int) -> None:
            super().__init__()
            self.weight = Parameter(Tensor(np.ones([in_features, out_features]).astype(np.float32)), name="weight")
            self.matmul = ops.MatMul()

        def construct(self, x: Any) -> Any:
            return self.matmul(x, self.weight)

    init()
    try:
        ms.reset_auto_parallel_context()
        ms.set_auto_parallel_context(parallel_mode="data_parallel", gradients_mean=True)
        assert (_get_parallel_mode(), _get_gradients_mean(), _get_device_num()) == ("data_parallel", True, 1)
        assert get_group_size() == 1
        net_with_loss = nn.WithLossCell(Net(16, 10), nn.MSELoss())
        optimizer = nn.Momentum(net_with_loss.trainable_params(), learning_rate=0.1, momentum=0.9)
        train_cell = TrainingWrapper(net_with_loss, optimizer)
        inputs = Tensor(np.ones([16, 16]).astype(np.float32))
        label = Tensor(np.zeros([16, 10]).astype(np.float32))
        losses = [float(train_cell(inputs, label)) for _ in range(3)]
    finally:
        ms.reset_auto_parallel_context()
        release()
    assert losses[0] == 256
    assert losses[1] < losses[0]


@pytest.mark.parametrize("jits", [False, True])
def test_gradients_are_accumulated_over_several_batches(mode: None, jits: bool) -> None:
    """The tutorial's accumulator: clones of the parameters, ``HyperMap`` and ``partial``."""
    import mindspore as ms
    from mindspore import Parameter, Tensor, nn, ops

    @ms.jit_class
    class Accumulator:
        def __init__(self, optimizer: Any, accumulate_step: int) -> None:
            self.optimizer = optimizer
            self.inner_grads = optimizer.parameters.clone(prefix="accumulate_", init="zeros")
            self.zeros = optimizer.parameters.clone(prefix="zeros_", init="zeros")
            self.counter = Parameter(Tensor(1, ms.int32), "counter_")
            self.accumulate_step = accumulate_step
            self.map = ops.HyperMap()

        def __call__(self, grads: Any, steps: bool) -> bool:
            self.map(ops.partial(ops.assign_add), self.inner_grads, grads)
            if steps if jits else self.counter % self.accumulate_step == 0:
                self.optimizer(self.inner_grads)
                self.map(ops.partial(ops.assign), self.inner_grads, self.zeros)
            ops.assign_add(self.counter, Tensor(1, ms.int32))
            return True

    ms.set_seed(2)
    net = nn.Dense(3, 2)
    first = [each.asnumpy().copy() for each in net.trainable_params()]
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    accumulator = Accumulator(optimizer, 2)
    grad_fn = ms.value_and_grad(lambda x: net(x).sum() / 2, None, net.trainable_params())

    def train_step(x: Any, steps: bool) -> Any:
        loss, grads = grad_fn(x)
        accumulator(grads, steps)
        return loss

    step: Callable[..., Any] = ms.jit(train_step) if jits else train_step
    x = np.random.default_rng(0).standard_normal((4, 3)).astype(np.float32)
    step(Tensor(x[:2]), False)
    np.testing.assert_array_equal(net.weight.asnumpy(), first[0])
    step(Tensor(x[2:]), True)
    np.testing.assert_allclose(net.weight.asnumpy(), first[0] - 0.05 * x.sum(0), rtol=1e-4, atol=1e-6)
    assert not accumulator.inner_grads[0].asnumpy().any()
    assert accumulator.inner_grads[0].name == f"accumulate_.{net.weight.name}"
    assert int(accumulator.counter.asnumpy()) == 3


def test_gradients_are_clipped_by_a_function_for_each_kind_of_argument(mode: None) -> None:
    """``MultitypeFuncGraph`` with ``HyperMap``, as model zoos clip."""
    from mindspore import Tensor, nn, ops

    clip_grad = ops.MultitypeFuncGraph("clip_grad")

    @clip_grad.register("Number", "Number", "Tensor")
    def _clip_grad(clip_type: int, clip_value: float, grad: Any) -> Any:
        if clip_type == 0:
            return ops.clip_by_value(grad, -clip_value, clip_value)
        return nn.ClipByNorm()(grad, clip_value)

    hyper_map = ops.HyperMap()
    grads = (Tensor([3.0, -4.0]), Tensor([0.5]))
    clipped = hyper_map(ops.partial(clip_grad, 0, 1.0), grads)
    assert [each.asnumpy().tolist() for each in clipped] == [[1, -1], [0.5]]
    normed = hyper_map(ops.Partial()(clip_grad, 1, 1.0), grads)
    np.testing.assert_allclose(normed[0].asnumpy(), [0.6, -0.8], rtol=1e-6)
    assert ops.Map(lambda a, b: a + b)((1, 2), (3, 4)) == (4, 6)
    assert ops.HyperMap(lambda a: a + 1)(((1, 2), (3,))) == ((2, 3), (4,))
    with pytest.raises(TypeError, match="clip_grad has no function for"):
        clip_grad(1, 2)
    with pytest.raises(ValueError, match="wrong"):
        clip_grad.register("wrong")
    with pytest.raises(ValueError, match="equally long"):
        hyper_map(ops.mul, grads, grads[:1])
    scaled = ops.clip_by_global_norm(grads, 1.0)
    assert np.sqrt(sum((each.asnumpy() ** 2).sum() for each in scaled)) == pytest.approx(1, rel=1e-5)


def test_forward_value_and_grad_gives_both(mode: None) -> None:
    """A network's loss beside the gradients of its parameters, and of its inputs."""
    from mindspore import ParameterTuple, Tensor, nn

    net, x, y = nn.Dense(3, 2), Tensor(np.ones((4, 3), np.float32)), Tensor(np.zeros((4, 2), np.float32))
    loss_net = nn.WithLossCell(net, nn.MSELoss())
    weights = ParameterTuple(net.trainable_params())
    loss, grads = nn.ForwardValueAndGrad(loss_net, weights=weights, get_by_list=True)(x, y)
    out = x.asnumpy() @ net.weight.asnumpy().T + net.bias.asnumpy()
    np.testing.assert_allclose(float(loss), np.square(out).mean(), rtol=1e-5)
    np.testing.assert_allclose(grads[1].asnumpy(), (2 * out / out.size).sum(0), rtol=1e-4)
    _, inputs = nn.ForwardValueAndGrad(loss_net, get_all=True, sens_param=True)(x, y, Tensor(2.0))
    np.testing.assert_allclose(inputs[0].asnumpy(), 4 * out / out.size @ net.weight.asnumpy(), rtol=1e-4)


def test_mixed_precision_with_a_scaler_in_a_loop(mode: None) -> None:
    """``auto_mixed_precision``, ``DynamicLossScaler``, ``all_finite``, as the tutorial's ``train_step``."""
    import mindspore as ms
    from mindspore import nn, ops
    from mindspore.amp import DynamicLossScaler, all_finite, auto_mixed_precision

    ms.set_seed(1)
    model = auto_mixed_precision(network(), "O2")
    loss_fn = nn.CrossEntropyLoss()
    optimizer = nn.Adam(model.trainable_params(), 1e-2)
    loss_scaler = DynamicLossScaler(scale_value=2**10, scale_factor=2, scale_window=50)

    def forward_fn(data: Any, label: Any) -> Any:
        logits = model(data)
        loss = loss_fn(logits, label)
        return loss_scaler.scale(loss), logits

    grad_fn = ms.value_and_grad(forward_fn, None, model.trainable_params(), has_aux=True)

    @ms.jit
    def train_step(data: Any, label: Any) -> Any:
        (loss, _), grads = grad_fn(data, label)
        loss = loss_scaler.unscale(loss)
        is_finite = all_finite(grads)
        grads = loss_scaler.unscale(grads)
        loss = ops.depend(loss, optimizer(grads))
        loss_scaler.adjust(is_finite)
        return loss

    losses = [float(train_step(*each)) for _ in range(4) for each in dataset().create_tuple_iterator()]
    assert losses[-1] < 0.6 * losses[0]


def test_a_frozen_backbone_stays_and_a_new_head_learns(mode: None, tmp_path: Any) -> None:
    """Transfer learning: a file loaded without its head, parameters frozen in each way that tutorials have."""
    import mindspore as ms
    from mindspore import nn
    from mindspore.train import LossMonitor, Model

    ms.set_seed(1)
    trained = network()
    ms.save_checkpoint(trained, str(tmp_path / "pretrained.ckpt"))
    param_dict = ms.load_checkpoint(str(tmp_path / "pretrained.ckpt"))

    def filter_ckpt_parameter(origin_dict: Any, param_filter: Any) -> None:
        for key in list(origin_dict.keys()):
            for name in param_filter:
                if name in key:
                    del origin_dict[key]
                    break

    net = network()
    net.dense_relu_sequential[4] = nn.Dense(16, 8)
    filter_ckpt_parameter(param_dict, [x.name for x in net.dense_relu_sequential[4].get_parameters()])
    ms.load_param_into_net(net, param_dict)
    for param in net.get_parameters():
        if param.name not in ("dense_relu_sequential.4.weight", "dense_relu_sequential.4.bias"):
            param.requires_grad = False
    assert len(net.trainable_params()) == 2
    opt = nn.Momentum(params=filter(lambda x: x.requires_grad, net.get_parameters()), learning_rate=0.05, momentum=0.9)
    model = Model(net, nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean"), opt, metrics={"acc"})
    model.train(2, dataset(), callbacks=[LossMonitor(4)])
    again = ms.load_checkpoint(str(tmp_path / "pretrained.ckpt"))
    found = {each.name: each.asnumpy() for each in net.get_parameters()}
    np.testing.assert_array_equal(found["dense_relu_sequential.0.weight"],
                                  again["dense_relu_sequential.0.weight"].asnumpy())  # fmt: skip
    assert 0 <= model.eval(dataset())["acc"] <= 1


def test_groups_of_parameters_have_rates_and_decays_of_their_own(mode: None) -> None:
    """``group_params`` with ``order_params`` and ``grad_centralization``, rates by schedule."""
    import mindspore as ms
    from mindspore import Tensor, nn

    ms.set_seed(1)
    net = network()
    decay_params = [x for x in net.trainable_params() if "bias" not in x.name]
    others = [x for x in net.trainable_params() if "bias" in x.name]
    group_params = [
        {
            "params": decay_params,
            "weight_decay": 0.1,
            "lr": nn.ExponentialDecayLR(0.1, 0.5, 1),
            "grad_centralization": True,
        },
        {"params": others, "lr": 0.0},
        {"order_params": net.trainable_params()},
    ]
    optim = nn.Momentum(group_params, learning_rate=0.1, momentum=0.9, weight_decay=0.0)
    assert [each.name for each in optim.parameters] == [each.name for each in net.trainable_params()]
    before = [each.asnumpy().copy() for each in net.trainable_params()]
    zero = tuple(Tensor(np.zeros(each.shape, np.float32)) for each in net.trainable_params())
    optim(zero)
    after = [each.asnumpy().copy() for each in net.trainable_params()]
    for old, new in zip(before, after, strict=True):
        assert (old != new).any() == (old.ndim > 1)
        decayed = 0.1 * (old - old.mean(1, keepdims=True)) if old.ndim > 1 else 0
        np.testing.assert_allclose(new, old - 0.1 * decayed, rtol=1e-5, atol=1e-7)
    with pytest.raises(ValueError, match="order_params"):
        nn.SGD([*group_params[:2], {"order_params": net.trainable_params()[1:]}])
    with pytest.raises(ValueError, match="betas"):
        nn.SGD([{"params": net.trainable_params(), "betas": 1}])


RATES = [0.1, 0.1, 0.05, 0.05]


def test_schedules_have_the_numbers_of_their_formulas(mode: None) -> None:
    """Lists for each step and cells of the step's number, also from the modules that older programs name."""
    from mindspore import Tensor, nn
    from mindspore.nn.dynamic_lr import piecewise_constant_lr
    from mindspore.nn.learning_rate_schedule import LearningRateSchedule

    assert piecewise_constant_lr([2, 4], [0.1, 0.05]) == RATES
    assert nn.exponential_decay_lr(0.1, 0.9, 4, 2, 1) == pytest.approx([0.1, 0.1, 0.09, 0.09])
    assert nn.natural_exp_decay_lr(0.1, 0.9, 4, 2, 2, True) == pytest.approx([0.1] * 4)
    assert nn.natural_exp_decay_lr(0.1, 0.9, 4, 2, 2) == pytest.approx([0.1, 0.1, *[0.1 * math.exp(-0.9)] * 2])
    assert nn.inverse_decay_lr(0.1, 0.5, 6, 1, 1, True) == pytest.approx([0.1 / (1 + 0.5 * i) for i in range(6)])
    assert nn.cosine_decay_lr(0.01, 0.1, 6, 2, 2) == pytest.approx([0.1, 0.1, 0.055, 0.055, 0.01, 0.01])
    assert nn.polynomial_decay_lr(0.1, 0.01, 6, 2, 2, 0.5) == pytest.approx(
        [0.1, 0.1, 0.07363961, 0.07363961, 0.01, 0.01]
    )
    assert nn.warmup_lr(0.1, 6, 2, 2) == pytest.approx([0, 0, 0.05, 0.05, 0.1, 0.1])
    step = Tensor(3)
    assert float(nn.PolynomialDecayLR(0.1, 0.01, 4, 0.5)(step)) == pytest.approx(0.09 * 0.25**0.5 + 0.01)
    assert float(nn.PolynomialDecayLR(0.1, 0.01, 2, 1.0, True)(step)) == pytest.approx(0.09 * 0.25 + 0.01)
    assert float(nn.WarmUpLR(0.2, 4)(step)) == pytest.approx(0.15)

    class Mixed(LearningRateSchedule):
        def __init__(self) -> None:
            super().__init__()
            self.warmup, self.decay = nn.WarmUpLR(0.1, 2), nn.CosineDecayLR(0.0, 0.1, 4)

        def construct(self, global_step: Any) -> Any:
            return self.warmup(global_step) * self.decay(global_step)

    assert float(Mixed()(step)) == pytest.approx(0.1 * 0.05 * (1 + math.cos(0.75 * math.pi)))


def test_a_moving_average_of_the_weights_follows_them(mode: None) -> None:
    """An average that a cell keeps in parameters of its own, by ``assign`` in the step."""
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    class EMAStep(nn.Cell):
        def __init__(self, step: Any, decay: float) -> None:
            super().__init__(auto_prefix=False)
            self.step, self.decay = step, decay
            self.weights = step.weights
            self.ema = step.weights.clone("ema", init="same")
            self.map = ops.HyperMap()

        def construct(self, *inputs: Any) -> Any:
            loss = self.step(*inputs)

            def follow(average: Any, weight: Any) -> Any:
                return ops.assign(average, average * self.decay + weight * (1 - self.decay))

            return ops.depend(loss, self.map(follow, self.ema, self.weights))

    ms.set_context(mode=ms.GRAPH_MODE)
    ms.set_seed(1)
    net = nn.Dense(3, 2)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.SGD(net.trainable_params(), 0.5))
    average = EMAStep(step, 0.9)
    wanted = net.weight.asnumpy().copy()
    for _ in range(3):
        average(Tensor(np.ones((2, 3), np.float32)), Tensor(np.ones((2, 2), np.float32)))
        wanted = 0.9 * wanted + 0.1 * net.weight.asnumpy()
    np.testing.assert_allclose(average.ema[0].asnumpy(), wanted, rtol=1e-5)
    assert not np.allclose(wanted, net.weight.asnumpy())


def test_a_parameter_without_gradient_is_state_that_a_network_changes(mode: None) -> None:
    """A counter beside a weight: only the weight is trained."""
    import mindspore as ms
    from mindspore import Parameter, Tensor, nn, ops

    class Counted(nn.Cell):
        def __init__(self) -> None:
            super().__init__()
            self.weight = Parameter(Tensor([2.0]), name="weight")
            self.calls = Parameter(Tensor([0.0]), name="calls", requires_grad=False)

        def construct(self, x: Any) -> Any:
            ops.assign_add(self.calls, Tensor([1.0]))
            return (x * self.weight).sum()

    net = Counted()
    assert [each.name for each in net.trainable_params()] == ["weight"]
    optimizer = nn.SGD(net.trainable_params(), 0.1)
    grad_fn = ms.value_and_grad(net, None, optimizer.parameters)
    for _ in range(2):
        _, grads = grad_fn(Tensor([1.0, 2.0]))
        optimizer(grads)
    assert net.calls.asnumpy().tolist() == [2]
    np.testing.assert_allclose(net.weight.asnumpy(), [2 - 0.6], rtol=1e-6)


def test_every_optimizer_and_loss_of_the_tutorials_takes_a_step(mode: None) -> None:
    """By ``TrainOneStepCell``, with a list of rates and by ``clip_by_global_norm`` in a loop of one's own."""
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    x, y = Tensor(np.ones((4, 3), np.float32)), Tensor(np.full((4, 2), 0.5, np.float32))
    rates = nn.cosine_decay_lr(0.001, 0.01, 10, 5, 2)
    makers = (
        lambda p: nn.SGD(p, rates, momentum=0.9), lambda p: nn.Momentum(p, rates, 0.9), lambda p: nn.Adam(p, rates),
        lambda p: nn.AdamWeightDecay(p, rates, weight_decay=0.01), lambda p: nn.RMSProp(p, rates),
        lambda p: nn.Lamb(p, rates, weight_decay=0.01),
    )  # fmt: skip
    losses = (
        nn.MSELoss(),
        nn.L1Loss(),
        nn.SmoothL1Loss(reduction="mean"),
        nn.HuberLoss(),
        nn.BCEWithLogitsLoss(),
        nn.MSELoss("sum"),
    )
    for make, loss_fn in zip(makers, losses, strict=True):
        net = nn.Dense(3, 2)
        step = nn.TrainOneStepCell(nn.WithLossCell(net, loss_fn), make(net.trainable_params()))
        found = [float(step(x, y)) for _ in range(3)]
        assert found[-1] < found[0], (type(step.optimizer).__name__, found)
    net = nn.Dense(3, 2)
    optimizer = nn.AdamWeightDecay(net.trainable_params(), 0.01)
    grad_fn = ms.value_and_grad(lambda: ops.mse_loss(net(x), y), None, net.trainable_params())
    loss, grads = grad_fn()
    optimizer(ops.clip_by_global_norm(grads, 0.1))
    assert float(grad_fn()[0]) < float(loss)


def test_a_cell_may_say_itself_what_flows_back(mode: None) -> None:
    """``bprop`` with one result and with two, in the middle of a network whose weights are trained."""
    import mindspore as ms
    from mindspore import Tensor, nn, ops

    class Double(nn.Cell):
        def construct(self, x: Any) -> Any:
            return x * 2

        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return (dout * 5 + out * 0,)

    class Two(nn.Cell):
        def construct(self, x: Any, y: Any) -> Any:
            return x * y, ops.sin(x)

        def bprop(self, x: Any, y: Any, out: Any, dout: Any) -> Any:
            return dout[0] * y + 10 * dout[1], dout[0] * x

    class Wrong(Double):
        def bprop(self, x: Any, out: Any, dout: Any) -> Any:
            return dout, dout

    x, y = Tensor([1.0, 2.0]), Tensor([3.0, 4.0])
    np.testing.assert_array_equal(Double()(x).asnumpy(), [2, 4])
    np.testing.assert_array_equal(ms.grad(Double())(x).asnumpy(), [5, 5])
    one, other = ms.grad(lambda x, y: sum(Two()(x, y)), (0, 1))(x, y)
    np.testing.assert_array_equal(one.asnumpy(), [13, 14])
    np.testing.assert_array_equal(other.asnumpy(), [1, 2])
    net = nn.SequentialCell(nn.Dense(2, 3), Double(), nn.Dense(3, 1))
    _, grads = ms.value_and_grad(net, None, net.trainable_params())(Tensor(np.ones((1, 2), np.float32)))
    np.testing.assert_allclose(grads[0].asnumpy()[:, 0], 5 * net[2].weight.asnumpy()[0], rtol=1e-5)
    with pytest.raises(TypeError, match="bprop of Wrong gives 2 gradients"):
        ms.grad(Wrong())(x)


def test_a_data_set_is_split_into_parts_that_share_no_row() -> None:
    """By numbers of rows or by shares, in every epoch, although the source itself shuffles; mapped behind."""
    import mindspore.dataset as ds

    ds.config.set_seed(5)
    whole = ds.NumpySlicesDataset(np.arange(10), ["a"])
    train, valid = whole.split([0.8, 0.2])
    assert (train.get_dataset_size(), valid.get_dataset_size()) == (8, 2)
    reader = train.map(lambda a: a + 0, "a").batch(4).create_dict_iterator(num_epochs=2, output_numpy=True)
    first, second = (np.concatenate([row["a"] for row in reader]).tolist() for _ in range(2))
    other = [row[0] for row in valid.create_tuple_iterator(num_epochs=1, output_numpy=True)]
    assert sorted(first) == sorted(second) != first != second
    assert sorted([*first, *map(int, other)]) == list(range(10))
    plain = ds.NumpySlicesDataset(np.arange(10), ["a"], shuffle=False).split([7, 3], randomize=False)
    assert [int(row[0]) for row in plain[1].create_tuple_iterator(num_epochs=1, output_numpy=True)] == [7, 8, 9]
    for sizes in ([5, 4], [0.5, 0.4], [11, -1], []):
        with pytest.raises(ValueError, match="split of 10 rows"):
            whole.split(sizes)
