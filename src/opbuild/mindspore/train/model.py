"""``Model``: trains a network over a data set, measures it, and predicts with it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import chain, islice, repeat
from types import SimpleNamespace
from typing import Any

from opbuild.mindspore.amp import build_train_network
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, natural
from opbuild.mindspore.context import get_auto_parallel_context
from opbuild.mindspore.dataset.pipeline import Dataset, Rows
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.training import WithEvalCell
from opbuild.mindspore.train.callback import Callbacks, RunContext
from opbuild.mindspore.train.metrics import Loss, get_metrics


class Model:
    """A network with its loss, its optimizer and its metrics.

    Args:
        network: The network; without ``loss_fn`` and ``optimizer`` a step of training, such as ``TrainOneStepCell``.
        loss_fn: The loss, of what the network gives and the label.
        optimizer: What changes the network's parameters.
        metrics: Names of metrics, or a dictionary of them.
        eval_network: What is measured instead of the network with its loss: it gives what metrics take.
        eval_indexes: The places of loss, output and label in what it gives.
        amp_level: The level of mixed precision, as of ``amp.build_train_network``.
        boost_level: Kept for programs that give it.
        options: ``loss_scale_manager`` and others of ``amp.build_train_network``.
    """

    def __init__(self, network: Cell, loss_fn: Any = None, optimizer: Any = None, metrics: Any = None,
                 eval_network: Cell | None = None, eval_indexes: Any = None, amp_level: str = "O0",
                 boost_level: str = "O0", **options: Any) -> None:  # fmt: skip
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"Model was given a {type(network).__name__}", "give a Cell")
        if loss_fn is not None and optimizer is None and not metrics and eval_network is None:
            raise ArgumentValueError("Model was given a loss_fn alone", "give an optimizer to train, or metrics")
        self._network, self._loss_fn, self._optimizer = network, loss_fn, optimizer
        self._metrics = get_metrics(metrics)
        self._indexes = (0, 1, 2) if eval_indexes is None and eval_network is None else eval_indexes
        if self._indexes is not None and len(self._indexes) != 3:
            raise ArgumentValueError(f"eval_indexes is {eval_indexes}", "give the places of loss, output and label")
        self._eval_network = eval_network
        if eval_network is None and self._metrics and loss_fn is not None:
            self._eval_network = WithEvalCell(network, loss_fn)
        self._train_network = network
        if optimizer is not None:
            self._train_network = build_train_network(network, optimizer, loss_fn, amp_level, boost_level, **options)

    @property
    def predict_network(self) -> Cell:
        """The network that ``predict`` calls."""
        return self._network

    @property
    def train_network(self) -> Cell:
        """The step that ``train`` calls."""
        return self._train_network

    @property
    def eval_network(self) -> Cell | None:
        """The network that ``eval`` calls; None if nothing is measured."""
        return self._eval_network

    def train(self, epoch: int, train_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False,
              sink_size: int = -1, initial_epoch: int = 0) -> None:  # fmt: skip
        """Train for epochs: each calls the step with every batch of the data set.

        Args:
            epoch: The number of the last epoch.
            train_dataset: The data set, whose columns are the step's inputs.
            callbacks: A callback or several.
            dataset_sink_mode: Kept for programs that give it: batches are always given one by one.
            sink_size: With ``dataset_sink_mode``, the number of batches in an epoch; -1: all of the data set.
            initial_epoch: How many epochs there were before.
        """
        self.fit(epoch, train_dataset, None, 1, callbacks, dataset_sink_mode, sink_size=sink_size,
                 initial_epoch=initial_epoch)  # fmt: skip

    def fit(self, epoch: int, train_dataset: Any, valid_dataset: Any = None, valid_frequency: Any = 1,
            callbacks: Any = None, dataset_sink_mode: bool = False, valid_dataset_sink_mode: bool = False,
            sink_size: int = -1, initial_epoch: int = 0) -> None:  # fmt: skip
        """Train as ``train`` does, and measure after epochs; callbacks find the results in ``eval_results``.

        It measures with ``valid_dataset``, after so many epochs as ``valid_frequency`` says or after those that it
        lists; ``valid_dataset_sink_mode`` is kept for programs that give it.
        """
        natural(epoch, "epoch", 1)
        natural(initial_epoch, "initial_epoch", 0)
        size = _size(train_dataset)
        size = sink_size if dataset_sink_mode and sink_size > 0 else size
        state = self._state("train", train_dataset, size, epoch)
        state.cur_step_num = initial_epoch * size
        self._train_network.set_train(True)
        with _running(callbacks, state) as (called, context):
            rows: Any = Rows(train_dataset, list, -1, False, initial_epoch)
            endless = chain.from_iterable(repeat(rows)) if dataset_sink_mode and sink_size > 0 else None
            called("begin")
            for number in range(initial_epoch, epoch):
                state.cur_epoch_num = number + 1
                self._epoch(state, rows if endless is None else islice(endless, size), called, context)
                if valid_dataset is not None and _is_due(number + 1, valid_frequency):
                    state.eval_results = self.eval(valid_dataset)
                    self._train_network.set_train(True)
                called("epoch_end")
                state.eval_results = {}
                if context.get_stop_requested():
                    break
            called("end")

    def eval(self, valid_dataset: Any, callbacks: Any = None, dataset_sink_mode: bool = False) -> dict[str, Any]:
        """Return the metrics over a data set, by name, with ``training`` unset.

        Args:
            valid_dataset: The data set, whose columns are the network's inputs and the label.
            callbacks: A callback or several.
            dataset_sink_mode: Kept for programs that give it.
        """
        if not self._metrics or self._eval_network is None:
            raise ArgumentValueError("Model.eval has nothing to measure", "give Model a loss_fn and metrics")
        for metric in self._metrics.values():
            metric.clear()
        state = self._state("eval", valid_dataset, _size(valid_dataset), 1)
        self._eval_network.set_train(False)
        with _running(callbacks, state) as (called, context):
            called("begin")
            called("epoch_begin")
            for batch in valid_dataset.create_tuple_iterator(num_epochs=1):
                state.cur_step_num += 1
                called("step_begin")
                state.net_outputs = self._eval_network(*batch)
                called("step_end")
                self._measure(state.net_outputs)
                if context.get_stop_requested():
                    break
            state.metrics = state.eval_results = {name: each.eval() for name, each in self._metrics.items()}
            called("epoch_end")
            called("end")
        found: dict[str, Any] = state.metrics
        return found

    def predict(self, *predict_data: Any, backend: str | None = None, config: Any = None) -> Any:
        """Return the results of the network, with ``training`` unset.

        Args:
            predict_data: The network's inputs.
            backend: Kept for programs that give it.
            config: Kept for programs that give it.
        """
        self._network.set_train(False)
        return self._network(*predict_data)

    def build(self, train_dataset: Any = None, valid_dataset: Any = None, sink_size: int = -1, epoch: int = 1) -> None:
        """Do nothing: a network is built by its first call, or was by an earlier process."""

    def _epoch(self, state: SimpleNamespace, batches: Any, called: Any, context: RunContext) -> None:
        called("epoch_begin")
        for batch in batches:
            state.cur_step_num += 1
            called("step_begin")
            state.net_outputs = self._train_network(*batch)
            called("step_end")
            if context.get_stop_requested():
                break

    def _measure(self, outputs: Any) -> None:
        given = outputs if isinstance(outputs, (tuple, list)) else (outputs,)
        for metric in self._metrics.values():
            if self._indexes is None or metric.indexes is not None:
                metric.update(*given)
            elif isinstance(metric, Loss):
                metric.update(given[self._indexes[0]])
            else:
                metric.update(given[self._indexes[1]], given[self._indexes[2]])

    def _state(self, mode: str, dataset: Any, size: int, epochs: int) -> SimpleNamespace:
        return SimpleNamespace(
            mode=mode, train_network=self._train_network, eval_network=self._eval_network, network=self._network,
            loss_fn=self._loss_fn, optimizer=getattr(self._train_network, "optimizer", self._optimizer),
            metrics=self._metrics, batch_num=size, epoch_num=epochs, train_dataset=dataset, valid_dataset=dataset,
            train_dataset_element=None, parallel_mode=get_auto_parallel_context("parallel_mode"), device_number=1,
            cur_step_num=0, cur_epoch_num=1, net_outputs=None, eval_results={}, dataset_sink_mode=False,
        )  # fmt: skip


@contextmanager
def _running(given: Any, state: SimpleNamespace) -> Iterator[tuple[Callable[[str], None], RunContext]]:
    """Enter the callbacks; give a function that calls them at a moment, and the context."""
    callbacks, context = Callbacks(given), RunContext(state)
    state.list_callback = callbacks
    with ExitStack() as entered:
        for each in callbacks.all:
            entered.enter_context(each)
        yield lambda time: callbacks.call(state.mode, time, context), context


def _size(dataset: Any) -> int:
    if not isinstance(dataset, Dataset):
        raise ArgumentTypeError(f"Model was given a {type(dataset).__name__}", "give a data set of mindspore.dataset")
    size = dataset.get_dataset_size()
    if size < 1:
        raise ArgumentValueError("Model was given a data set without rows", "has a batch more rows than there are?")
    return size


def _is_due(epoch: int, frequency: Any) -> bool:
    return epoch % frequency == 0 if isinstance(frequency, int) else epoch in frequency
