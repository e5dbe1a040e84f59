"""Normalizations as cells."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, TensorShapeError, positive
from opbuild.mindspore.communication import GlobalComm, get_group_size
from opbuild.mindspore.dtype import float32
from opbuild.mindspore.initializer import initializer
from opbuild.mindspore.nn.cell import Cell
from opbuild.mindspore.ops.normalization import batch_norm, batch_norm_of_ranks, group_norm, instance_norm
from opbuild.mindspore.ops.pooling import only_nchw
from opbuild.mindspore.ops.shaping import reshaped
from opbuild.mindspore.ops.structure_primitives import LayerNorm as _LayerNorm
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor


class _ChannelNorm(Cell):
    """The base of normalizations of channels: parameters, ``repr``, and the numbers of dimensions that they take."""

    _shown = "num_features eps momentum=_said_momentum gamma beta moving_mean moving_variance"
    ranks: tuple[int, ...] = ()
    eps: float

    def _make_parameters(self, num_features: int, momentum: float, affine: bool, gamma: Any, beta: Any, mean: Any,
                         variance: Any, dtype: Any) -> None:  # fmt: skip
        name = type(self).__name__
        self.num_features = positive(num_features, f"num_features of {name}")
        if not 0 <= momentum <= 1:
            raise ArgumentValueError(f"momentum of {name} is {momentum}", "give a number from 0 to 1")
        self._said_momentum = momentum
        shape = (num_features,)
        self.moving_mean = Parameter(initializer(mean, shape, dtype), "mean", requires_grad=False)
        self.moving_variance = Parameter(initializer(variance, shape, dtype), "variance", requires_grad=False)
        self.gamma = Parameter(initializer(gamma, shape, dtype), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta, shape, dtype), "beta", requires_grad=affine)

    def _check_rank(self, x: Tensor) -> None:
        if x.ndim not in self.ranks:
            listed = " or ".join(map(str, self.ranks))
            raise TensorShapeError(f"{type(self).__name__} of shape {x.shape}", f"it needs {listed} dimensions")


class _BatchNorm(_ChannelNorm):
    """Each channel normalized by its stored mean and variance; in training by the batch's, which move the stored ones.

    Args:
        num_features: Number of channels (axis 1).
        eps: Added to the variance.
        momentum: What of the stored statistics stays in a step of training.
        affine: Whether ``gamma`` and ``beta`` have ``requires_grad``.
        gamma_init: Initial scale.
        beta_init: Initial shift.
        moving_mean_init: Initial mean.
        moving_var_init: Initial variance.
        use_batch_statistics: Whether to take the batch's statistics; None: while ``training`` is set.
        data_format: ``NCHW``.
        dtype: Element type of the parameters.
    """

    _normalized = staticmethod(batch_norm)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 data_format: str = "NCHW", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        only_nchw(data_format)
        self.eps, self.momentum = eps, 1.0 - momentum
        self.use_batch_statistics = use_batch_statistics
        self._make_parameters(num_features, momentum, affine, gamma_init, beta_init, moving_mean_init, moving_var_init,
                              dtype)  # fmt: skip

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        self._check_rank(x)
        training = self.training if self.use_batch_statistics is None else self.use_batch_statistics
        return self._normalized(x, self.moving_mean, self.moving_variance, self.gamma, self.beta, training,
                                self.momentum, self.eps)  # fmt: skip


class BatchNorm1d(_BatchNorm):
    """Batch normalization of shape (N, C) or (N, C, L)."""

    ranks = (2, 3)


class BatchNorm2d(_BatchNorm):
    """Batch normalization of shape (N, C, H, W)."""

    ranks = (4,)


class BatchNorm3d(Cell):
    """Batch normalization of shape (N, C, D, H, W), by a ``BatchNorm2d`` that has the parameters, as in MindSpore."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.bn2d = BatchNorm2d(num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init,
                                moving_var_init, use_batch_statistics, dtype=dtype)  # fmt: skip

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        if x.ndim != 5:
            raise TensorShapeError(f"BatchNorm3d of shape {x.shape}", "it needs 5 dimensions")
        batch, channels, depth, height, width = x.shape
        return reshaped(self.bn2d(reshaped(x, (batch, channels, depth * height, width))), x.shape)


class SyncBatchNorm(_BatchNorm):
    """Batch normalization; in training on several ranks all of them are one batch.

    Arguments are those of ``BatchNorm2d``.

    Args:
        process_groups: A list with the list of all ranks, or None for it.
    """

    ranks = (2, 4)
    _normalized = staticmethod(batch_norm_of_ranks)

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.9, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", moving_mean_init: Any = "zeros",
                 moving_var_init: Any = "ones", use_batch_statistics: bool | None = None,
                 process_groups: Any = None, dtype: Any = float32) -> None:  # fmt: skip
        super().__init__(num_features, eps, momentum, affine, gamma_init, beta_init, moving_mean_init,
                         moving_var_init, use_batch_statistics, dtype=dtype)  # fmt: skip
        self.process_groups = process_groups
        if process_groups is not None and GlobalComm.INITED:
            groups, all_ranks = [sorted(group) for group in process_groups], list(range(get_group_size()))
            if groups != [all_ranks]:
                raise ArgumentValueError(
                    f"process_groups of SyncBatchNorm is {process_groups}", f"there is one group: {[all_ranks]}"
                )


class _InstanceNorm(_ChannelNorm):
    """Each channel of each sample normalized by its own mean and variance.

    Args:
        num_features: Number of channels (axis 1).
        eps: Added to the variance.
        momentum: Kept for programs that ask; the stored statistics do not change.
        affine: Whether ``gamma`` and ``beta`` have ``requires_grad``.
        gamma_init: Initial scale.
        beta_init: Initial shift.
        dtype: Element type of the parameters.
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self._make_parameters(num_features, momentum, affine, gamma_init, beta_init, "zeros", "ones", dtype)

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        self._check_rank(x)
        return instance_norm(x, self.gamma, self.beta, self.eps)


class InstanceNorm1d(_InstanceNorm):
    """Instance normalization of shape (N, C, L)."""

    ranks = (3,)


class InstanceNorm2d(_InstanceNorm):
    """Instance normalization of shape (N, C, H, W)."""

    ranks = (4,)


class InstanceNorm3d(_InstanceNorm):
    """Instance normalization of shape (N, C, D, H, W)."""

    ranks = (5,)


class LayerNorm(Cell):
    """Normalization over the axes from ``begin_norm_axis`` on.

    Args:
        normalized_shape: Shape of ``gamma`` and ``beta``.
        begin_norm_axis: The first axis that is normalized.
        begin_params_axis: The first axis that ``gamma`` and ``beta`` cover.
        gamma_init: Initial scale.
        beta_init: Initial shift.
        epsilon: Added to the variance.
        dtype: Element type of the parameters.
    """

    _shown = "normalized_shape begin_norm_axis begin_params_axis gamma beta"

    def __init__(self, normalized_shape: Any, begin_norm_axis: int = -1, begin_params_axis: int = -1,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", epsilon: float = 1e-7,
                 dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        if not isinstance(normalized_shape, (tuple, list)):
            raise ArgumentTypeError(
                f"normalized_shape of LayerNorm is {normalized_shape!r}", "give a tuple of integers"
            )
        self.normalized_shape = tuple(normalized_shape)
        self.begin_norm_axis = begin_norm_axis
        self.begin_params_axis = begin_params_axis
        self.epsilon = epsilon
        self.gamma = Parameter(initializer(gamma_init, self.normalized_shape, dtype), "gamma")
        self.beta = Parameter(initializer(beta_init, self.normalized_shape, dtype), "beta")
        self.layer_norm = _LayerNorm(begin_norm_axis, begin_params_axis, epsilon)

    def construct(self, input_x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        result: Tensor = self.layer_norm(input_x, self.gamma, self.beta)[0]
        return result


class GroupNorm(Cell):
    """Normalization over each group of channels (axis 1) of a tensor of shape (N, C, H, W)."""

    _shown = "num_groups num_channels"

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True,
                 gamma_init: Any = "ones", beta_init: Any = "zeros", dtype: Any = float32) -> None:  # fmt: skip
        super().__init__()
        self.num_groups = positive(num_groups, "num_groups of GroupNorm")
        self.num_channels = positive(num_channels, "num_channels of GroupNorm")
        if num_channels % num_groups:
            raise ArgumentValueError(
                f"GroupNorm of {num_channels} channels in {num_groups} groups", "groups must be equal"
            )
        self.eps = eps
        self.gamma = Parameter(initializer(gamma_init, (num_channels,), dtype), "gamma", requires_grad=affine)
        self.beta = Parameter(initializer(beta_init, (num_channels,), dtype), "beta", requires_grad=affine)

    def construct(self, x: Tensor) -> Tensor:
        """Return the normalized tensor."""
        return group_norm(x, self.num_groups, self.gamma, self.beta, self.eps)


__all__ = names.public(vars(), Cell)
