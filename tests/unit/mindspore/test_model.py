"""``Model`` over data sets: steps, callbacks, metrics, checkpoints, and how a run ends."""

from __future__ import annotations

import re

import numpy as np
import pytest

import opbuild.mindspore as ms
from opbuild.mindspore import Tensor, nn, train
from opbuild.mindspore import dataset as ds
from support.lenet import batch, losses, pair
from support.mindspore_host import graphs  # noqa: F401 - a fixture

STEPS = 4


def _data(steps: int = STEPS, start: int = 0) -> ds.Dataset:
    images, labels = zip(*(batch(number) for number in range(start, start + steps)), strict=True)
    whole = {"image": np.concatenate(images), "label": np.concatenate(labels)}
    return ds.NumpySlicesDataset(whole, shuffle=False).batch(16)


def _model(metrics=None, rate: float = 0.05, **options) -> ms.Model:
    net, _ = pair()
    return ms.Model(net, nn.CrossEntropyLoss(), nn.Momentum(net.trainable_params(), rate, 0.9), metrics, **options)


class Seen(train.Callback):
    """Notes the losses, and when it was called."""

    def __init__(self):
        self.losses, self.times = [], []

    def step_end(self, run_context):
        self.losses.append(float(run_context.original_args().net_outputs))

    def on_train_epoch_begin(self, run_context):
        self.times.append(run_context.original_args().cur_epoch_num)


@pytest.mark.parametrize("mode", [ms.GRAPH_MODE, ms.PYNATIVE_MODE])
def test_training_is_the_steps_of_a_loop(graphs, mode, capsys):  # noqa: F811
    """The losses of ``TrainOneStepCell``, in both modes; LossMonitor and TimeMonitor print MindSpore's lines."""
    ms.set_context(mode=mode)
    seen = Seen()
    _model().train(2, _data(), [train.LossMonitor(3), train.TimeMonitor(), seen])
    net, _ = pair()
    optimizer = nn.Momentum(net.trainable_params(), 0.05, 0.9)
    step = nn.TrainOneStepCell(nn.WithLossCell(net, nn.CrossEntropyLoss()), optimizer)
    assert seen.losses == losses(step, STEPS) + losses(step, STEPS)
    assert seen.times == [1, 2]
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line.startswith("epoch")] == [
        f"epoch: 1 step: 3, loss is {seen.losses[2]}", f"epoch: 2 step: 2, loss is {seen.losses[5]}",
    ]  # fmt: skip
    timed = [line for line in lines if re.fullmatch(r"Train epoch time: [\d.]+ ms, per step time: [\d.]+ ms", line)]
    assert len(timed) == 2


def test_epochs_have_orders_of_their_own_which_a_run_that_goes_on_has_too(graphs):  # noqa: F811
    """The batches of the second epoch are those that follow the first."""
    images, labels = batch(0)
    data = ds.NumpySlicesDataset({"image": images, "label": labels}).batch(4)

    def read(first):
        ms.set_seed(4)
        ms.set_context(mode=ms.PYNATIVE_MODE)
        found = []

        class Step(nn.Cell):
            def construct(self, image, label):
                found.append(image.asnumpy().tolist())
                return label

        ms.Model(Step()).train(2, data, initial_epoch=first)
        return found

    whole = read(0)
    assert whole[:4] != whole[4:]
    assert read(1) == whole[4:]


def test_eval_measures_without_training(graphs):  # noqa: F811
    """The loss and the accuracy are those of what ``predict`` gives; running statistics stay."""
    model = _model({"accuracy", "loss"})
    model.train(3, _data())
    found = model.eval(_data(2, 50))
    images, labels = (np.concatenate(each) for each in zip(batch(50), batch(51), strict=True))
    logits = model.predict(Tensor(images)).asnumpy()
    assert found["Accuracy" if "Accuracy" in found else "accuracy"] == (logits.argmax(1) == labels).mean()
    shares = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    np.testing.assert_allclose(found["loss"], -np.log(shares[np.arange(32), labels]).mean(), rtol=1e-4)
    assert model.eval(_data(2, 50)) == found


def test_fit_measures_after_epochs_and_early_stopping_ends_it(graphs, capsys):  # noqa: F811
    """The best weights come back; History keeps what was measured."""
    model = _model({"loss"}, rate=3.0)
    history, stop = (
        train.History(),
        train.EarlyStopping("eval_loss", patience=2, restore_best_weights=True, verbose=True),
    )
    model.fit(30, _data(), _data(2, 50), callbacks=[train.LossMonitor(100), history, stop])
    measured = history.history["loss"]
    assert 2 < len(measured) < 30
    assert min(measured) == measured[-3]
    assert "Eval result: epoch 1, metrics: {'loss'" in capsys.readouterr().out
    np.testing.assert_allclose(model.eval(_data(2, 50))["loss"], min(measured), rtol=1e-6)


def test_checkpoints_are_named_and_thinned_and_go_on(graphs, tmp_path):  # noqa: F811
    """The newest stay; a second run takes another prefix; training goes on from a file as if it had not ended."""
    whole = Seen()
    _model().train(4, _data(), whole)
    config = train.CheckpointConfig(2, keep_checkpoint_max=3, append_info=["epoch_num", {"note": "first"}])
    saved = train.ModelCheckpoint("lenet", str(tmp_path), config)
    _model().train(2, _data(), saved)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lenet-1_4.ckpt", "lenet-2_2.ckpt", "lenet-2_4.ckpt"]
    assert saved.latest_ckpt_file_name == str(tmp_path / "lenet-2_4.ckpt")
    content = ms.load_checkpoint(saved.latest_ckpt_file_name)
    assert int(content["epoch_num"]) == 2
    assert content["note"] == "first"
    again, rest = _model(), Seen()
    assert not ms.load_param_into_net(again.train_network, content)[0]
    again.train(4, _data(), [rest, train.ModelCheckpoint("lenet", str(tmp_path), config)], initial_epoch=2)
    np.testing.assert_allclose(rest.losses, whole.losses[2 * STEPS :], rtol=1e-6)
    assert (tmp_path / "lenet_1-4_4.ckpt").exists()


def test_a_run_ends_when_a_callback_asks_or_the_loss_is_no_number(graphs, tmp_path):  # noqa: F811
    """With ``exception_save`` what there was is in a file."""

    class Stops(Seen):
        def step_end(self, run_context):
            super().step_end(run_context)
            if len(self.losses) == 3:
                run_context.request_stop()

    stops = Stops()
    _model().train(5, _data(), stops)
    assert len(stops.losses) == 3
    saved = train.ModelCheckpoint("bad", str(tmp_path), train.CheckpointConfig(100, exception_save=True))
    with pytest.raises(ValueError, match=r"loss of epoch 1, step \d is"):
        _model(rate=1e30).train(1, _data(), [train.LossMonitor(), saved])
    assert [path.name.endswith("_breakpoint.ckpt") for path in tmp_path.iterdir()] == [True]


def test_callbacks_of_functions_and_rates(graphs):  # noqa: F811
    """LambdaCallback calls what it was given; LearningRateScheduler sets the optimizer's rate."""
    model, called = _model(), []
    each = train.LambdaCallback(on_train_epoch_end=lambda context: called.append(context.original_args().cur_step_num))
    model.train(2, _data(), [each, train.LearningRateScheduler(lambda rate, step: rate / 2)])
    assert called == [STEPS, 2 * STEPS]
    np.testing.assert_allclose(model.train_network.optimizer.learning_rate.asnumpy(), 0.05 / 2 ** (2 * STEPS))
    model.train(2, _data(), each, dataset_sink_mode=True, sink_size=3)
    assert called[2:] == [3, 6]


OUTPUTS = np.array([[0.1, 0.7, 0.2], [0.6, 0.3, 0.1], [0.2, 0.3, 0.5], [0.4, 0.5, 0.1]], np.float32)
LABELS = np.array([1, 0, 1, 1])


@pytest.mark.parametrize(
    ("metric", "wanted"),
    [
        (train.Accuracy(), 0.75),
        (train.Top1CategoricalAccuracy(), 0.75),
        (train.TopKCategoricalAccuracy(2), 1.0),
        (train.Top5CategoricalAccuracy(), 1.0),
        (train.Precision(), [1, 1, 0]),
        (train.Recall(), [1, 2 / 3, 0]),
        (train.F1(), [1, 0.8, 0]),
        (train.Perplexity(), np.exp(-np.log([0.7, 0.6, 0.3, 0.5]).mean())),
    ],
)
def test_metrics_are_those_of_all_batches(metric, wanted):
    """In two batches; labels as classes and as vectors."""
    for rows in (slice(0, 1), slice(1, 4)):
        metric.update(Tensor(OUTPUTS[rows]), Tensor(LABELS[rows].astype(np.int32)))
    np.testing.assert_allclose(metric.eval(), wanted, rtol=1e-6)
    metric.clear()
    if not isinstance(metric, train.Perplexity):
        metric.update(OUTPUTS, np.eye(3)[LABELS])
        np.testing.assert_allclose(metric.eval(), wanted, rtol=1e-6)


def test_errors_are_summed_over_elements_and_averaged_over_samples():
    """As in MindSpore; and what is asked for without a sample, or of no name, is an error."""
    outputs, labels = np.array([[1.0, 2.0], [3.0, 4.0]]), np.array([[1.0, 0.0], [0.0, 4.0]])
    absolute, squared = train.get_metric_fn("mae"), train.get_metric_fn("mse")
    for metric in (absolute, squared):
        metric.update(Tensor(outputs), Tensor(labels))
    assert (absolute.eval(), squared.eval()) == (2.5, 6.5)
    chosen = train.MAE().set_indexes([1, 0])
    chosen.update(labels, outputs)
    assert chosen.eval() == 2.5
    multi = train.Accuracy("multilabel")
    multi.update(np.array([[1, 0], [1, 1]]), np.array([[1, 0], [0, 1]]))
    assert multi.eval() == 0.5
    with pytest.raises(ValueError, match="without a sample"):
        train.Loss().eval()
    with pytest.raises(ValueError, match="no metric 'none'"):
        train.get_metric_fn("none")


def test_wrong_arguments_of_model_are_named(graphs):  # noqa: F811
    """No data set, no metrics, a loss alone, callbacks that are none."""
    model = _model()
    with pytest.raises(TypeError, match="data set"):
        model.train(1, [1, 2])
    with pytest.raises(ValueError, match="nothing to measure"):
        model.eval(_data())
    with pytest.raises(ValueError, match="loss_fn alone"):
        ms.Model(pair()[0], nn.CrossEntropyLoss())
    with pytest.raises(TypeError, match="among the callbacks"):
        model.train(1, _data(), [print])
    with pytest.raises(ValueError, match="epoch is 0"):
        model.train(0, _data())
    with pytest.raises(ValueError, match="without rows"):
        model.train(1, _data().batch(100, drop_remainder=True))
