"""``Model``: what MindSpore trains, measures and predicts with; here it predicts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from opbuild.errors import ModelError
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.nn.cell import Cell

_DATA = "give the network each batch: model.predict(x), and compare what it returns"
_TRAIN = "train with MindSpore, save_checkpoint there, and load_checkpoint and load_param_into_net here"


class Model:
    """A network to predict with.

    Args:
        network: The network.
        loss_fn: Kept for programs that give it, as all that follows: nothing is trained or measured here.
        optimizer: See ``loss_fn``.
        metrics: See ``loss_fn``.
        options: See ``loss_fn``.

    Raises:
        ArgumentTypeError: If the network is no cell.
    """

    def __init__(
        self, network: Cell, loss_fn: Any = None, optimizer: Any = None, metrics: Any = None, *options: Any,
        **more_options: Any,
    ) -> None:  # fmt: skip
        if not isinstance(network, Cell):
            raise ArgumentTypeError(f"Model was given a {type(network).__name__}", "give a Cell")
        self._network = network

    @property
    def predict_network(self) -> Cell:
        """The network that ``predict`` calls."""
        return self._network

    train_network = eval_network = predict_network

    def predict(self, *predict_data: Any, backend: str | None = None, config: Any = None) -> Any:
        """Return what the network gives, with ``training`` unset.

        Args:
            predict_data: The network's inputs.
            backend: Kept for programs that give it.
            config: Kept for programs that give it.
        """
        self._network.set_train(False)
        return self._network(*predict_data)


def _refused(name: str, what: str, hint: str) -> Callable[..., NoReturn]:
    def method(self: Model, *args: Any, **kwargs: Any) -> NoReturn:
        raise ModelError(f"Model.{name} {what}: opbuild builds and runs networks", hint)

    method.__name__ = name
    method.__doc__ = f"Refuse: {name} {what}."
    return method


for _name, _what, _hint in (
    ("train", "trains", _TRAIN),
    ("fit", "trains", _TRAIN),
    ("build", "prepares training", _TRAIN),
    ("eval", "reads a data set", _DATA),
):
    setattr(Model, _name, _refused(_name, _what, _hint))
