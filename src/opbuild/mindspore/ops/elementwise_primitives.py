"""Operators as classes: arithmetic, comparison, activations, reductions, matrix products.

Each line names MindSpore's class, what computes it, and the attributes of its constructor with MindSpore's defaults.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from opbuild.mindspore.arguments import ArgumentValueError
from opbuild.mindspore.dtype import int32, to_type
from opbuild.mindspore.execution import cast, emit
from opbuild.mindspore.ops import activation, arithmetic, comparison, reduction
from opbuild.mindspore.ops.convolution import only_nchw
from opbuild.mindspore.ops.linear import bias_add, dense, product
from opbuild.mindspore.ops.primitive import primitive
from opbuild.mindspore.tensor import Tensor

# Arithmetic
Abs = primitive("Abs", arithmetic.abs)
Add = primitive("Add", arithmetic.add)
AddN = primitive("AddN", arithmetic.addn)
Addcdiv = primitive("Addcdiv", arithmetic.addcdiv)
Addcmul = primitive("Addcmul", arithmetic.addcmul)
ACos = primitive("ACos", arithmetic.acos)
Acosh = primitive("Acosh", arithmetic.acosh)
Asin = primitive("Asin", arithmetic.asin)
Asinh = primitive("Asinh", arithmetic.asinh)
Atan = primitive("Atan", arithmetic.atan)
Atan2 = primitive("Atan2", arithmetic.atan2)
Atanh = primitive("Atanh", arithmetic.atanh)
Ceil = primitive("Ceil", arithmetic.ceil)
Cos = primitive("Cos", arithmetic.cos)
Cosh = primitive("Cosh", arithmetic.cosh)
Div = primitive("Div", arithmetic.div)
Erf = primitive("Erf", arithmetic.erf)
Erfc = primitive("Erfc", arithmetic.erfc)
Exp = primitive("Exp", arithmetic.exp)
Expm1 = primitive("Expm1", arithmetic.expm1)
Floor = primitive("Floor", arithmetic.floor)
FloorDiv = primitive("FloorDiv", arithmetic.floor_div)
FloorMod = primitive("FloorMod", arithmetic.floor_mod)
Hypot = primitive("Hypot", arithmetic.hypot)
Lerp = primitive("Lerp", arithmetic.lerp)
Log = primitive("Log", arithmetic.log)
Log1p = primitive("Log1p", arithmetic.log1p)
Maximum = primitive("Maximum", arithmetic.maximum)
Minimum = primitive("Minimum", arithmetic.minimum)
Mod = primitive("Mod", arithmetic.fmod)
Mul = primitive("Mul", arithmetic.mul)
Neg = primitive("Neg", arithmetic.neg)
Pow = primitive("Pow", arithmetic.pow)
RealDiv = primitive("RealDiv", arithmetic.div)
Reciprocal = Inv = primitive("Reciprocal", arithmetic.reciprocal)
Rint = primitive("Rint", arithmetic.round)
Round = primitive("Round", arithmetic.round)
Rsqrt = primitive("Rsqrt", arithmetic.rsqrt)
Sign = primitive("Sign", arithmetic.sign)
Sin = primitive("Sin", arithmetic.sin)
Sinh = primitive("Sinh", arithmetic.sinh)
Sqrt = primitive("Sqrt", arithmetic.sqrt)
Square = primitive("Square", arithmetic.square)
SquaredDifference = primitive("SquaredDifference", arithmetic.squared_difference)
Sub = primitive("Sub", arithmetic.sub)
Tan = primitive("Tan", arithmetic.tan)
Trunc = primitive("Trunc", arithmetic.trunc)

# Comparison, logic, bits
BitwiseAnd = primitive("BitwiseAnd", comparison.bitwise_and)
BitwiseOr = primitive("BitwiseOr", comparison.bitwise_or)
BitwiseXor = primitive("BitwiseXor", comparison.bitwise_xor)
Equal = primitive("Equal", comparison.equal)
Greater = primitive("Greater", comparison.greater)
GreaterEqual = primitive("GreaterEqual", comparison.greater_equal)
Invert = primitive("Invert", comparison.bitwise_not)
IsClose = primitive("IsClose", comparison.isclose, rtol=1e-05, atol=1e-08, equal_nan=False)
IsFinite = primitive("IsFinite", comparison.isfinite)
IsInf = primitive("IsInf", comparison.isinf)
IsNan = primitive("IsNan", comparison.isnan)
LeftShift = primitive("LeftShift", comparison.bitwise_left_shift)
Less = primitive("Less", comparison.less)
LessEqual = primitive("LessEqual", comparison.less_equal)
LogicalAnd = primitive("LogicalAnd", comparison.logical_and)
LogicalNot = primitive("LogicalNot", comparison.logical_not)
LogicalOr = primitive("LogicalOr", comparison.logical_or)
LogicalXor = primitive("LogicalXor", comparison.logical_xor)
MaskedFill = primitive("MaskedFill", comparison.masked_fill)
NotEqual = primitive("NotEqual", comparison.not_equal)
RightShift = primitive("RightShift", comparison.bitwise_right_shift)
Select = primitive("Select", comparison.select)

# Activations
CeLU = primitive("CeLU", activation.celu, alpha=1.0)
Elu = primitive("Elu", activation.elu, alpha=1.0)
FastGeLU = FastGelu = primitive("FastGeLU", activation.fast_gelu)
GLU = primitive("GLU", activation.glu, axis=-1)
HShrink = primitive("HShrink", activation.hardshrink, lambd=0.5)
HSigmoid = primitive("HSigmoid", activation.hardsigmoid)
HSwish = primitive("HSwish", activation.hardswish)
LogSoftmax = primitive("LogSoftmax", activation.log_softmax, axis=-1)
Mish = primitive("Mish", activation.mish)
PReLU = primitive("PReLU", activation.prelu)
ReLU = primitive("ReLU", activation.relu)
ReLU6 = primitive("ReLU6", activation.relu6)
SeLU = primitive("SeLU", activation.selu)
Sigmoid = primitive("Sigmoid", activation.sigmoid)
SoftShrink = primitive("SoftShrink", activation.softshrink, lambd=0.5)
Softplus = primitive("Softplus", activation.softplus)
Softsign = primitive("Softsign", activation.softsign)
Tanh = primitive("Tanh", arithmetic.tanh)


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
        return reduction.reduce(op_type, arithmetic.need_tensor(x, op_type), axis, keep_dims)

    function.__doc__ = f"Apply {op_type} over ``axis``, over all if it is empty."
    return function


def _reduce_sum(x: Any, axis: Any = (), *, keep_dims: bool, skip_mode: bool) -> Tensor:
    """Return the sum over ``axis``; an empty axis means all, or with ``skip_mode`` none."""
    tensor = arithmetic.need_tensor(x, "ReduceSum")
    if skip_mode and (axis is None or axis == ()):
        return tensor
    if tensor.type.dtype == "bool":
        tensor = cast(tensor, "int64")
    return reduction.reduce("ReduceSum", tensor, axis, keep_dims)


def _argmax(x: Any, axis: int, output_type: Any) -> Tensor:
    """Return the index of the greatest element along ``axis``."""
    return reduction.index_of("ArgMax", arithmetic.need_tensor(x, "Argmax"), axis, False, to_type(output_type).name)


def _argmin(x: Any, axis: int, output_type: Any) -> Tensor:
    """Return the index of the smallest element along ``axis``."""
    return reduction.index_of("ArgMin", arithmetic.need_tensor(x, "Argmin"), axis, False, to_type(output_type).name)


def _with_value(op_type: str, extreme: str) -> Callable[..., tuple[Tensor, Tensor]]:
    def function(x: Any, axis: int, keep_dims: bool) -> tuple[Tensor, Tensor]:
        tensor = arithmetic.need_tensor(x, op_type)
        index = reduction.index_of(op_type, tensor, axis, keep_dims, "int64")
        return index, reduction.reduce(extreme, tensor, axis, keep_dims)

    function.__doc__ = f"Return the index ({op_type}) and the value along ``axis``."
    return function


def _cum_sum(x: Any, axis: Any, exclusive: bool, reverse: bool) -> Tensor:
    """Return the running sums along ``axis``."""
    tensor = arithmetic.need_tensor(x, "CumSum")
    return emit("CumSum", tensor, np.asarray(int(axis), np.int64), exclusive=int(exclusive), reverse=int(reverse))


def _top_k(x: Any, k: int, sorted: bool) -> tuple[Tensor, Tensor]:
    """Return the ``k`` greatest elements along the last axis and their indices."""
    return reduction.topk(x, k, sorted=sorted)


ReduceAll = primitive("ReduceAll", lambda x, axis=(), *, keep_dims: reduction.all(x, axis, keep_dims), keep_dims=False)
ReduceAny = primitive("ReduceAny", lambda x, axis=(), *, keep_dims: reduction.any(x, axis, keep_dims), keep_dims=False)
ReduceMax = primitive("ReduceMax", _reduction("ReduceMax"), keep_dims=False)
ReduceMean = primitive("ReduceMean", _reduction("ReduceMean"), keep_dims=False)
ReduceMin = primitive("ReduceMin", _reduction("ReduceMin"), keep_dims=False)
ReduceProd = primitive("ReduceProd", _reduction("ReduceProd"), keep_dims=False)
ReduceSum = primitive("ReduceSum", _reduce_sum, keep_dims=False, skip_mode=False)
Argmax = primitive("Argmax", _argmax, axis=-1, output_type=int32)
Argmin = primitive("Argmin", _argmin, axis=-1, output_type=int32)
ArgMaxWithValue = primitive("ArgMaxWithValue", _with_value("ArgMax", "ReduceMax"), axis=0, keep_dims=False)
ArgMinWithValue = primitive("ArgMinWithValue", _with_value("ArgMin", "ReduceMin"), axis=0, keep_dims=False)
CumSum = primitive("CumSum", _cum_sum, exclusive=False, reverse=False)
L2Normalize = primitive("L2Normalize", reduction.l2_normalize, axis=0, epsilon=1e-4)
TopK = primitive("TopK", _top_k, sorted=True)
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
Dense = primitive("Dense", dense)
TensorAdd = Add
