"""``amp``: mixed precision: networks that compute in 16 bits, and losses scaled so that small gradients survive."""

from __future__ import annotations

from typing import Any

import numpy as np

from opbuild.mindspore import names, nn, ops
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.dtype import float16, float32, int32, to_type
from opbuild.mindspore.execution import nested
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.nn.optimizer import Optimizer
from opbuild.mindspore.nn.training import all_finite, change_scale
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor

__getattr__ = names.getter(__name__)

__all__ = [
    "DynamicLossScaleManager", "DynamicLossScaler", "FixedLossScaleManager", "LossScaleManager", "LossScaler",
    "StaticLossScaler", "all_finite", "auto_mixed_precision", "build_train_network", "custom_mixed_precision",
    "get_black_list", "get_white_list",
]  # fmt: skip

_WHITE: list[type[Cell]] = [
    nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.Conv1dTranspose, nn.Conv2dTranspose, nn.Conv3dTranspose, nn.Dense
]  # fmt: skip
_BLACK: list[type[Cell]] = [nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.LayerNorm]
_LEVELS = ("O0", "O1", "O2", "O3")


def get_white_list() -> list[type[Cell]]:
    """Return the cells that compute in 16 bits at level ``O1``."""
    return list(_WHITE)


def get_black_list() -> list[type[Cell]]:
    """Return the cells that compute in float32 at level ``O2``."""
    return list(_BLACK)


def auto_mixed_precision(network: Cell, amp_level: str = "O0", dtype: Any = float16) -> Cell:
    """Let a network compute in 16 bits; it is changed and returned. Parameters and results stay float32.

    Args:
        network: The network.
        amp_level: ``O0``: nothing; ``O1``: the cells of the white list; ``O2``: everything but those of the black list;
            ``O3``: everything.
        dtype: float16 or bfloat16.
    """
    if not isinstance(network, Cell):
        raise ArgumentTypeError(f"auto_mixed_precision was given a {type(network).__name__}", "give a Cell")
    one_of(amp_level, _LEVELS, "amp_level")
    narrow = one_of(to_type(dtype).name, ("float16", "bfloat16"), "the dtype of auto_mixed_precision")
    if amp_level == "O1":
        return custom_mixed_precision(network, white_list=_WHITE, dtype=dtype)
    if amp_level == "O2":
        return custom_mixed_precision(network, black_list=_BLACK, dtype=dtype)
    return network.to_float(to_type(dtype), gives="float32") if amp_level == "O3" and narrow else network


def custom_mixed_precision(network: Cell, *, white_list: Any = None, black_list: Any = None,
                           dtype: Any = float16) -> Cell:  # fmt: skip
    """Let cells of some classes compute in 16 bits, or all but those of some; the network is changed and returned.

    Args:
        network: The network.
        white_list: Classes of cells that do.
        black_list: Classes of cells that do not.
        dtype: float16 or bfloat16.
    """
    if (white_list is None) == (black_list is None):
        raise ArgumentValueError("custom_mixed_precision takes a white_list or a black_list", "give one of them")
    narrow = to_type(dtype)
    if black_list is not None:
        network.to_float(narrow, gives="float32")
    for _, cell in network.cells_and_names():
        if isinstance(cell, tuple(white_list or ())):
            cell.to_float(narrow, gives="float32")
        elif isinstance(cell, tuple(black_list or ())):
            cell.to_float(float32, gives=narrow.name)
    return network


class LossScaler:
    """Scales losses, and the gradients back; programs derive their own."""

    def scale(self, inputs: Any) -> Any:
        """Return the inputs multiplied."""
        raise NotImplementedError

    def unscale(self, inputs: Any) -> Any:
        """Return the inputs divided."""
        raise NotImplementedError

    def adjust(self, grads_finite: Any) -> Any:
        """Change the scale, by whether all gradients were finite."""
        raise NotImplementedError


class StaticLossScaler(LossScaler):
    """Scales by a number that stays."""

    def __init__(self, scale_value: float) -> None:
        if scale_value < 1:
            raise ArgumentValueError(f"scale_value of StaticLossScaler is {scale_value}", "give at least 1")
        self.scale_value = Parameter(Tensor(float(scale_value), float32), name="scale_value", requires_grad=False)

    def scale(self, inputs: Any) -> Any:
        """Return a tensor or several, multiplied by the scale."""
        return nested(inputs, lambda value: ops.mul(value, self.scale_value))

    def unscale(self, inputs: Any) -> Any:
        """Return a tensor or several, divided by the scale."""
        return nested(inputs, lambda value: ops.div(value, self.scale_value))

    def adjust(self, grads_finite: Any) -> bool:
        """Return False: the scale stays."""
        return False


class DynamicLossScaler(StaticLossScaler):
    """Scales by a number that is divided when gradients overflow, and grows when they have not for a while.

    Args:
        scale_factor: What it is divided and multiplied by.
        scale_window: After how many steps without overflow it grows.
    """

    def __init__(self, scale_value: float, scale_factor: float, scale_window: int) -> None:
        super().__init__(scale_value)
        if scale_factor <= 1 or scale_window < 1:
            raise ArgumentValueError(f"DynamicLossScaler with factor {scale_factor}, window {scale_window}",
                                     "give a factor above 1 and a window of at least 1")  # fmt: skip
        self.scale_factor, self.scale_window = float(scale_factor), int(scale_window)
        self.counter = Parameter(Tensor(np.zeros((), np.int32), int32), name="counter", requires_grad=False)

    def adjust(self, grads_finite: Any) -> Any:
        """Change the scale; ``grads_finite`` is the result of ``all_finite``."""
        change_scale(self.scale_value, self.counter, grads_finite, self.scale_factor, self.scale_window)
        return True


class LossScaleManager:
    """Says how ``build_train_network`` and ``Model`` scale losses; programs derive their own."""

    def get_loss_scale(self) -> float | None:
        """Return the first scale."""
        raise NotImplementedError

    def update_loss_scale(self, overflow: bool) -> None:
        """Take note of a step; the cells of ``get_update_cell`` do that themselves."""

    def get_update_cell(self) -> Cell | None:
        """Return the cell that changes the scale; None: losses are scaled and steps are never left out."""
        raise NotImplementedError


class FixedLossScaleManager(LossScaleManager):
    """A scale that stays.

    Args:
        drop_overflow_update: Whether steps whose gradients overflow are left out. If not, give the optimizer the
            ``loss_scale`` too, as in MindSpore.
    """

    def __init__(self, loss_scale: float = 128.0, drop_overflow_update: bool = True) -> None:
        if loss_scale < 1:
            raise ArgumentValueError(f"loss_scale of FixedLossScaleManager is {loss_scale}", "give at least 1")
        self._scale, self._drops = float(loss_scale), drop_overflow_update

    def get_loss_scale(self) -> float:
        """Return the scale."""
        return self._scale

    def get_drop_overflow_update(self) -> bool:
        """Return whether steps whose gradients overflow are left out."""
        return self._drops

    def get_update_cell(self) -> Cell | None:
        """Return the cell that keeps the scale; None if no step is left out."""
        return nn.FixedLossScaleUpdateCell(self._scale) if self._drops else None


class DynamicLossScaleManager(LossScaleManager):
    """A scale that is divided when gradients overflow, and grows when they have not for a while.

    Arguments are those of ``DynamicLossScaler``.
    """

    def __init__(self, init_loss_scale: float = 2**24, scale_factor: int = 2, scale_window: int = 2000) -> None:
        self._given = init_loss_scale, scale_factor, scale_window
        self.get_update_cell()

    def get_loss_scale(self) -> float:
        """Return the first scale."""
        return float(self._given[0])

    def get_update_cell(self) -> Cell:
        """Return the cell that changes the scale."""
        return nn.DynamicLossScaleUpdateCell(*self._given)


def build_train_network(network: Cell, optimizer: Optimizer, loss_fn: Any = None, level: str = "O0",
                        boost_level: str = "O0", **options: Any) -> Cell:  # fmt: skip
    """Return a step of training in mixed precision.

    Args:
        network: The network; it gives the loss itself if there is no ``loss_fn``.
        optimizer: What changes its parameters.
        loss_fn: The loss, of what the network gives and the label.
        level: As ``amp_level`` of ``auto_mixed_precision``; at ``O2`` a ``DynamicLossScaleManager`` scales the loss.
        boost_level: Kept for programs that give it.
        options: ``loss_scale_manager``, ``cast_model_type`` and ``keep_batchnorm_fp32`` instead of the level's.
    """
    one_of(level, _LEVELS, "level")
    unknown = set(options) - {"loss_scale_manager", "cast_model_type", "keep_batchnorm_fp32"}
    if unknown:
        raise ArgumentValueError(f"build_train_network was given {', '.join(sorted(unknown))}", "leave it out")
    dtype = options.get("cast_model_type", float16)
    chosen = level
    if options.get("keep_batchnorm_fp32") is not None and level in ("O2", "O3"):
        chosen = "O2" if options["keep_batchnorm_fp32"] else "O3"
    if to_type(dtype) is not float32:
        network = auto_mixed_precision(network, chosen, dtype)
    if loss_fn is not None:
        network = nn.WithLossCell(network, loss_fn)
    manager = options.get("loss_scale_manager", DynamicLossScaleManager() if level == "O2" else None)
    if manager is None:
        return nn.TrainOneStepCell(network, optimizer).set_train()
    update = manager.get_update_cell()
    if update is None:
        return nn.TrainOneStepCell(network, optimizer, manager.get_loss_scale()).set_train()
    return nn.TrainOneStepWithLossScaleCell(network, optimizer, update).set_train()
