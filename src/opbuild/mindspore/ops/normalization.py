"""Normalizations."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError, one_of, positive
from opbuild.mindspore.communication import GlobalComm, get_group_size
from opbuild.mindspore.execution import cast, emit, emit_many
from opbuild.mindspore.ops.arithmetic import add, div, maximum, mul, square, sub
from opbuild.mindspore.ops.control import AllReduce, assign, stop_gradient
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.reduction import reduce
from opbuild.mindspore.ops.shaping import concat, reshaped, split
from opbuild.mindspore.parameter import Parameter
from opbuild.mindspore.tensor import Tensor

_Statistics = tuple[Tensor, Tensor, Tensor, Any]
"""Each channel's mean, the tensor less it, the variance, and by what that is multiplied to have no bias."""


def batch_norm(input_x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any, training: bool = False,
               momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    """Return the tensor normalized by the mean and variance of each channel (axis 1).

    In training these are the batch's own, and they move the running ones, if those are parameters, by ``momentum``: the
    variance without bias, as in torch.
    """
    operands = [need_tensor(item, "batch_norm") for item in (input_x, weight, bias, running_mean, running_var)]
    if not training:
        return emit("BatchNormalization", *operands, epsilon=float(eps))
    if len({each.type.dtype for each in operands}) > 1:
        return _by_batch(operands[:3], (running_mean, running_var), momentum, eps, _statistics)
    # Running statistics that leave those of the batch as they are.
    none = Tensor(np.zeros(operands[3].shape, operands[0].type.dtype))
    attrs = {"epsilon": float(eps), "momentum": 0.0, "training_mode": 1}
    result, mean, variance = emit_many("BatchNormalization", [*operands[:3], none, none], attrs, outputs=3)
    count = result.size // max(result.shape[1], 1)
    _move((running_mean, running_var), (mean, variance), (1.0, count / max(count - 1, 1)), momentum)
    return result


def batch_norm_of_ranks(input_x: Any, running_mean: Any, running_var: Any, weight: Any, bias: Any,
                        training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:  # fmt: skip
    """Return ``batch_norm``; in training on several ranks by the statistics of all ranks' tensors, in float32."""
    if not training or not GlobalComm.INITED or get_group_size() == 1:
        return batch_norm(input_x, running_mean, running_var, weight, bias, training, momentum, eps)
    operands = [cast(need_tensor(each, "batch_norm"), "float32") for each in (input_x, weight, bias)]
    normalized = _by_batch(operands, (running_mean, running_var), momentum, eps, _statistics_of_all)
    return cast(normalized, input_x.type.dtype)


def _by_batch(operands: Sequence[Tensor], running: Sequence[Any], momentum: float, eps: float,
              statistics: Callable[[Tensor], _Statistics]) -> Tensor:  # fmt: skip
    """Return a tensor normalized by statistics of its own, which move the running ones."""
    x, scale, shift = operands
    shape = (x.shape[1],) + (1,) * (x.ndim - 2)
    mean, centred, variance, factor = statistics(x)
    _move(running, (mean, variance), (1.0, factor), momentum)
    root = emit("Rsqrt", add(variance, float(eps)), domain="opbuild")
    return add(mul(mul(centred, root), reshaped(scale, shape)), reshaped(shift, shape))


def _move(running: Sequence[Any], own: Sequence[Tensor], factors: Sequence[Any], momentum: float) -> None:
    """Move running statistics towards those of a batch, with factors that leave them no bias."""
    for state, found, unbiased in zip(running, own, factors, strict=True):
        if isinstance(state, Parameter):
            part = mul(stop_gradient(reshaped(found, state.shape)), unbiased * momentum)
            assign(state, add(mul(state, 1.0 - momentum), part))


def _statistics(x: Tensor) -> _Statistics:
    axes = _axes(x)
    mean = reduce("ReduceMean", x, axes, True)
    centred = sub(x, mean)
    count = x.size // max(x.shape[1], 1)
    return mean, centred, reduce("ReduceMean", square(centred), axes, True), count / max(count - 1, 1)


def _statistics_of_all(x: Tensor) -> _Statistics:
    together = AllReduce()
    axes, channels = _axes(x), x.shape[1]
    shape = tuple(1 if axis in axes else extent for axis, extent in enumerate(x.shape))
    own = reshaped(reduce("ReduceSum", x, axes, False), (channels,))
    elements = Tensor(np.full(1, x.size // max(channels, 1), np.float32))
    sums, count = split(together(concat([own, elements])), [channels, 1])
    mean = reshaped(div(sums, count), shape)
    centred = sub(x, mean)
    squares = together(reshaped(reduce("ReduceSum", square(centred), axes, False), (channels,)))
    return mean, centred, reshaped(div(squares, count), shape), div(count, maximum(sub(count, 1.0), 1.0))


def _axes(x: Tensor) -> tuple[int, ...]:
    return tuple(axis for axis in range(x.ndim) if axis != 1)


def layer_norm(input: Any, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Return the tensor normalized over its last axes, whose extents are ``normalized_shape``."""
    tensor = need_tensor(input, "layer_norm")
    extents = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    if tensor.shape[tensor.ndim - len(extents) :] != extents:
        raise ArgumentValueError(
            f"layer_norm of shape {tensor.shape} over {extents}",
            "normalized_shape must be the last dimensions of the tensor",
        )
    return normalized(tensor, weight, bias, tensor.ndim - len(extents), eps)


def normalized(tensor: Tensor, weight: Any, bias: Any, axis: int, eps: float) -> Tensor:
    """Apply ONNX's LayerNormalization from ``axis`` on; without a weight it is 1."""
    shape = tensor.shape[axis:]
    scale = np.ones(shape, tensor.type.dtype) if weight is None else need_tensor(weight, "layer_norm")
    operands = (tensor, scale) if bias is None else (tensor, scale, need_tensor(bias, "layer_norm"))
    return emit("LayerNormalization", *operands, axis=axis, epsilon=float(eps))


def group_norm(input: Any, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5) -> Tensor:
    """Return the tensor normalized over each group of channels (axis 1)."""
    tensor = need_tensor(input, "group_norm")
    channels = positive(tensor.shape[1], "the number of channels of group_norm", num_groups)
    rows = reshaped(tensor, (tensor.shape[0], num_groups, tensor.size // max(tensor.shape[0] * num_groups, 1)))
    result = reshaped(normalized(rows, None, None, 2, eps), tensor.shape)
    per_channel = (channels,) + (1,) * (tensor.ndim - 2)
    if weight is not None:
        result = mul(result, reshaped(need_tensor(weight, "group_norm"), per_channel))
    return result if bias is None else add(result, reshaped(need_tensor(bias, "group_norm"), per_channel))


def instance_norm(input: Any, weight: Any, bias: Any, eps: float = 1e-5) -> Tensor:
    """Return the tensor normalized over each channel of each sample."""
    operands = [need_tensor(item, "instance_norm") for item in (input, weight, bias)]
    return emit("InstanceNormalization", *operands, epsilon=float(eps))


def rms_norm(x: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return ``x / sqrt(mean(x**2) + epsilon) * gamma`` over the last axes, and the reciprocal root."""
    tensor, scale = need_tensor(x, "rms_norm"), need_tensor(gamma, "rms_norm")
    axes = tuple(range(tensor.ndim - scale.ndim, tensor.ndim))
    root = emit("Rsqrt", add(reduce("ReduceMean", square(tensor), axes, True), epsilon), domain="opbuild")
    return mul(mul(tensor, root), scale), root


def add_rms_norm(x1: Any, x2: Any, gamma: Any, epsilon: float = 1e-6) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``rms_norm`` of ``x1 + x2``, its reciprocal root, and the sum."""
    total = add(x1, x2)
    return (*rms_norm(total, gamma, epsilon), total)


def lrn(x: Any, depth_radius: int = 5, bias: float = 1.0, alpha: float = 1.0, beta: float = 0.5,
        norm_region: str = "ACROSS_CHANNELS") -> Tensor:  # fmt: skip
    """Return ``x / (bias + alpha * sum(x**2)) ** beta``, summed over ``2 * depth_radius + 1`` neighbouring channels."""
    one_of(norm_region, ("ACROSS_CHANNELS",), "the norm_region of lrn")
    size = 2 * depth_radius + 1
    # ONNX divides alpha by the size of the window, MindSpore does not.
    return emit("LRN", need_tensor(x, "lrn"), size=size, alpha=float(alpha) * size, beta=float(beta), bias=float(bias))


names.export(vars(), but="batch_norm_of_ranks instance_norm normalized")
