"""Operators as classes: arithmetic, comparison, activations, reductions, matrix products, losses.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import int32, to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops import activation, arithmetic, comparison, loss, reduction
from opbuild.mindspore.ops.convolution import only_nchw
from opbuild.mindspore.ops.declaration import need_tensor
from opbuild.mindspore.ops.gathering import gather
from opbuild.mindspore.ops.linear import bias_add, dense, product
from opbuild.mindspore.ops.primitive import Primitive, primitive, primitives
from opbuild.mindspore.ops.reduction import sum
from opbuild.mindspore.tensor import Tensor

# Arithmetic
Add = TensorAdd = primitive("Add", arithmetic.add)
Reciprocal = Inv = primitive("Reciprocal", arithmetic.reciprocal)

# Comparison, logic, bits
IsClose = primitive("IsClose", comparison.isclose, rtol=1e-05, atol=1e-08, equal_nan=False)

# Activations
CeLU = primitive("CeLU", activation.celu, alpha=1.0)
Elu = primitive("Elu", activation.elu, alpha=1.0)
FastGeLU = FastGelu = primitive("FastGeLU", activation.fast_gelu)
GLU = primitive("GLU", activation.glu, axis=-1)
HShrink = primitive("HShrink", activation.hardshrink, lambd=0.5)
LogSoftmax = primitive("LogSoftmax", activation.log_softmax, axis=-1)
SoftShrink = primitive("SoftShrink", activation.softshrink, lambd=0.5)


def _gelu(x: Any) -> Tensor:
    """Return the GELU with tanh, which is MindSpore's primitive."""
    return activation.gelu(x, "tanh")


def _softmax(logits: Any, axis: int | tuple[int, ...]) -> Tensor:
    """Return the softmax along one axis."""
    if isinstance(axis, tuple):
        if len(axis) != 1:
            raise ArgumentValueError(f"Softmax along the axes {axis}", "give one axis; flatten the others first")
        axis = axis[0]
    return activation.softmax(logits, axis)


GeLU = Gelu = primitive("GeLU", _gelu)
Softmax = primitive("Softmax", _softmax, axis=-1)


# Reductions
def _reduction(op_type: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: Any = (), *, keep_dims: bool) -> Tensor:
        return reduction.reduce(op_type, need_tensor(x, op_type), axis, keep_dims)

    function.__doc__ = f"Apply {op_type} over ``axis``, over all if it is empty."
    return function


def _reduce_sum(x: Any, axis: Any = (), *, keep_dims: bool, skip_mode: bool) -> Tensor:
    """Return the sum over ``axis``; an empty axis means all, or with ``skip_mode`` none."""
    tensor = need_tensor(x, "ReduceSum")
    if skip_mode and (axis is None or axis == ()):
        return tensor
    if tensor.type.dtype == "bool":
        tensor = cast(tensor, "int64")
    return reduction.reduce("ReduceSum", tensor, axis, keep_dims)


def _index_of(op_type: str, which: str) -> Callable[..., Tensor]:
    def function(x: Any, axis: int, output_type: Any) -> Tensor:
        tensor = need_tensor(x, op_type)
        return reduction.index_of(op_type, tensor, axis, False, to_type(output_type).name)

    function.__doc__ = f"Return the index of the {which} element along ``axis``."
    return function


def _with_value(op_type: str, extreme: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(x: Any, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        tensor = need_tensor(x, op_type)
        index = reduction.index_of(op_type, tensor, axis, keep_dims, "int64")
        return index, reduction.reduce(extreme, tensor, axis, keep_dims)

    function.__doc__ = f"Return the index ({op_type}) and the value along ``axis``."
    return function


def _cum_sum(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Tensor:
    """Return the running sums along ``axis``."""
    tensor = need_tensor(x, "CumSum")
    return emit("CumSum", tensor, np.asarray(int(axis), np.int64), exclusive=int(exclusive), reverse=int(reverse))


ReduceAll = primitive("ReduceAll", lambda x, axis=(), *, keep_dims: reduction.all(x, axis, keep_dims), keep_dims=False)
ReduceAny = primitive("ReduceAny", lambda x, axis=(), *, keep_dims: reduction.any(x, axis, keep_dims), keep_dims=False)
ReduceMax = primitive("ReduceMax", _reduction("ReduceMax"), keep_dims=False)
ReduceMean = primitive("ReduceMean", _reduction("ReduceMean"), keep_dims=False)
ReduceMin = primitive("ReduceMin", _reduction("ReduceMin"), keep_dims=False)
ReduceProd = primitive("ReduceProd", _reduction("ReduceProd"), keep_dims=False)
ReduceSum = primitive("ReduceSum", _reduce_sum, keep_dims=False, skip_mode=False)
Argmax = primitive("Argmax", _index_of("ArgMax", "greatest"), axis=-1, output_type=int32)
Argmin = primitive("Argmin", _index_of("ArgMin", "smallest"), axis=-1, output_type=int32)
ArgMaxWithValue = primitive("ArgMaxWithValue", _with_value("ArgMax", "ReduceMax"), axis=0, keep_dims=False)
ArgMinWithValue = primitive("ArgMinWithValue", _with_value("ArgMin", "ReduceMin"), axis=0, keep_dims=False)
CumSum = primitive("CumSum", _cum_sum, exclusive=False, reverse=False)
L2Normalize = primitive("L2Normalize", reduction.l2_normalize, axis=0, epsilon=1e-4)
TopK = primitive("TopK", reduction.topk, sorted=True)
Sort = primitive("Sort", reduction.sort, axis=-1, descending=False)


# Products
def _mat_mul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the product of two matrices, each transposed first if asked."""
    return product(a, b, transpose_a, transpose_b, "MatMul", 2)


def _batch_mat_mul(a: Any, b: Any, transpose_a: bool, transpose_b: bool) -> Tensor:
    """Return the products of two stacks of matrices, each matrix transposed first if asked."""
    return product(a, b, transpose_a, transpose_b, "BatchMatMul", None)


def _bias_add(x: Any, bias: Any, data_format: str) -> Tensor:
    """Return the tensor plus one number for each channel."""
    only_nchw(data_format)
    return bias_add(x, bias)


MatMul = primitive("MatMul", _mat_mul, transpose_a=False, transpose_b=False)
BatchMatMul = primitive("BatchMatMul", _batch_mat_mul, transpose_a=False, transpose_b=False)
BiasAdd = primitive("BiasAdd", _bias_add, data_format="NCHW")

# Without attributes
globals().update(primitives(
    ACos=arithmetic.acos, Abs=arithmetic.abs, Acosh=arithmetic.acosh, AddN=arithmetic.addn,
    Addcdiv=arithmetic.addcdiv, Addcmul=arithmetic.addcmul, Asin=arithmetic.asin, Asinh=arithmetic.asinh,
    Atan=arithmetic.atan, Atan2=arithmetic.atan2, Atanh=arithmetic.atanh, BitwiseAnd=comparison.bitwise_and,
    BitwiseOr=comparison.bitwise_or, BitwiseXor=comparison.bitwise_xor, Ceil=arithmetic.ceil, Cos=arithmetic.cos,
    Cosh=arithmetic.cosh, Dense=dense, Div=arithmetic.div, Equal=comparison.equal, Erf=arithmetic.erf,
    Erfc=arithmetic.erfc, Exp=arithmetic.exp, Expm1=arithmetic.expm1, Floor=arithmetic.floor,
    FloorDiv=arithmetic.floor_div, FloorMod=arithmetic.floor_mod, Greater=comparison.greater,
    GreaterEqual=comparison.greater_equal, HSigmoid=activation.hardsigmoid, HSwish=activation.hardswish,
    Hypot=arithmetic.hypot, Invert=comparison.bitwise_not, IsFinite=comparison.isfinite, IsInf=comparison.isinf,
    IsNan=comparison.isnan, LeftShift=comparison.bitwise_left_shift, Lerp=arithmetic.lerp, Less=comparison.less,
    LessEqual=comparison.less_equal, Log=arithmetic.log, Log1p=arithmetic.log1p, LogicalAnd=comparison.logical_and,
    LogicalNot=comparison.logical_not, LogicalOr=comparison.logical_or, LogicalXor=comparison.logical_xor,
    MaskedFill=comparison.masked_fill, Maximum=arithmetic.maximum, Minimum=arithmetic.minimum, Mish=activation.mish,
    Mod=arithmetic.fmod, Mul=arithmetic.mul, Neg=arithmetic.neg, NotEqual=comparison.not_equal, PReLU=activation.prelu,
    Pow=arithmetic.pow, ReLU=activation.relu, ReLU6=activation.relu6, RealDiv=arithmetic.div,
    RightShift=comparison.bitwise_right_shift, Rint=arithmetic.round, Round=arithmetic.round, Rsqrt=arithmetic.rsqrt,
    SeLU=activation.selu, Select=comparison.select, Sigmoid=activation.sigmoid, Sign=arithmetic.sign,
    Sin=arithmetic.sin, Sinh=arithmetic.sinh, Softplus=activation.softplus, Softsign=activation.softsign,
    Sqrt=arithmetic.sqrt, Square=arithmetic.square, SquaredDifference=arithmetic.squared_difference, Sub=arithmetic.sub,
    Tan=arithmetic.tan, Tanh=arithmetic.tanh, Trunc=arithmetic.trunc,
))  # fmt: skip


def _with_logits(x: Any, y: Any, weight: Any = None, pos_weight: Any = None, *, reduction: str) -> Tensor:
    """Return the cross entropy of ``sigmoid(x)`` and labels, reduced."""
    return loss.binary_cross_entropy_with_logits(x, y, weight, pos_weight, reduction)


def _nll(x: Any, y: Any, weight: Any, *, reduction: str, ignore_index: int) -> tuple[Tensor, Tensor]:
    """Return the loss and the weights that count."""
    used = gather(weight, y, 0)
    return loss.nll_loss(x, y, weight, ignore_index, reduction), sum(used)


BCEWithLogitsLoss = primitive("BCEWithLogitsLoss", _with_logits, reduction="mean")
BinaryCrossEntropy = primitive("BinaryCrossEntropy", loss.binary_cross_entropy, reduction="mean")
KLDivLoss = primitive("KLDivLoss", loss.kl_div, reduction="mean")
NLLLoss = primitive("NLLLoss", _nll, reduction="mean", ignore_index=-100)
MultiMarginLoss = primitive(
    "MultiMarginLoss", lambda x, target, weight=None, *, p, margin, reduction: loss.multi_margin_loss(
        x, target, p, margin, weight, reduction),
    p=1, margin=1.0, reduction="mean",
)  # fmt: skip
MultilabelMarginLoss = primitive("MultilabelMarginLoss", loss.multilabel_margin, reduction="mean")
SigmoidCrossEntropyWithLogits = primitive(
    "SigmoidCrossEntropyWithLogits", lambda x, y: loss.binary_cross_entropy_with_logits(x, y, reduction="none")
)
SmoothL1Loss = primitive("SmoothL1Loss", loss.smooth_l1_loss, beta=1.0, reduction="none")
SoftMarginLoss = primitive("SoftMarginLoss", loss.soft_margin_loss, reduction="mean")
SoftmaxCrossEntropyWithLogits = primitive("SoftmaxCrossEntropyWithLogits", loss.softmax_cross_entropy)
SparseSoftmaxCrossEntropyWithLogits = primitive(
    "SparseSoftmaxCrossEntropyWithLogits", loss.sparse_softmax_cross_entropy, "", "", is_grad=False
)
TripletMarginLoss = primitive(
    "TripletMarginLoss", loss.triplet_margin_loss, p=2, swap=False, eps=1e-6, reduction="mean"
)

__all__ = names.public(vars(), Primitive)
