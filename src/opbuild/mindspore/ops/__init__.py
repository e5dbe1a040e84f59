# ruff: noqa: I001 - sorted; several names a line keep this page short
"""``ops``: operators as functions (``ops.matmul``) and as classes, the primitives (``ops.MatMul()``)."""

# fmt: off
import sys

from opbuild.mindspore import names
from opbuild.mindspore.ops.activation import (
    celu, elu, fast_gelu, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, log_softmax,
    logsigmoid, mish, prelu, relu, relu6, selu, sigmoid, silu, softmax, softmin, softplus, softshrink, softsign,
    swiglu, tanhshrink, threshold,
)
from opbuild.mindspore.ops.arithmetic import (
    abs, absolute, acos, acosh, add, addcdiv, addcmul, addn, arccos, arccosh, arcsin, arcsinh, arctan, arctan2,
    arctanh, asin, asinh, atan, atan2, atanh, ceil, clamp, clip, clip_by_value, cos, cosh, div, divide, erf, erfc,
    exp, exp2, expm1, floor, floor_div, floor_divide, floor_mod, fmod, hypot, lerp, log, log10, log1p, log2,
    logaddexp, maximum, minimum, mul, multiply, neg, negative, pow, reciprocal, remainder, round, rsqrt, sign,
    sin, sinh, sqrt, square, sub, subtract, tan, tanh, true_divide, trunc,
)
from opbuild.mindspore.ops.communication import (
    AllGather, AllReduce, Broadcast, ReduceOp, ReduceScatter,
)
from opbuild.mindspore.ops.comparison import (
    bitwise_and, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor, eq, equal, ge,
    greater, greater_equal, gt, isclose, isfinite, isinf, isnan, le, less, less_equal, logical_and, logical_not,
    logical_or, logical_xor, lt, masked_fill, ne, not_equal, select, where,
)
from opbuild.mindspore.ops.colors import (
    HSVToRGB, RGBToHSV,
)
from opbuild.mindspore.ops.convolution import (
    conv1d, conv2d, conv3d, conv_transpose2d,
)
from opbuild.mindspore.ops.creation import (
    arange, eye, fill, full, full_like, linspace, ones, ones_like, scalar_to_tensor, tuple_to_array, zeros,
    zeros_like,
)
from opbuild.mindspore.ops.elementwise_primitives import (
    ACos, Abs, Acosh, Add, AddN, Addcdiv, Addcmul, ArgMaxWithValue, ArgMinWithValue, Argmax, Argmin, Asin, Asinh,
    Atan, Atan2, Atanh, BatchMatMul, BiasAdd, BitwiseAnd, BitwiseOr, BitwiseXor, CeLU, Ceil, Cos, Cosh, CumSum,
    Dense, Div, Elu, Equal, Erf, Erfc, Exp, Expm1, FastGeLU, FastGelu, Floor, FloorDiv, FloorMod, GLU, GeLU, Gelu,
    Greater, GreaterEqual, HShrink, HSigmoid, HSwish, Hypot, Inv, Invert, IsClose, IsFinite, IsInf, IsNan,
    L2Normalize, LeftShift, Lerp, Less, LessEqual, Log, Log1p, LogSoftmax, LogicalAnd, LogicalNot, LogicalOr,
    LogicalXor, MaskedFill, MatMul, Maximum, Minimum, Mish, Mod, Mul, Neg, NotEqual, PReLU, Pow, ReLU, ReLU6,
    RealDiv, Reciprocal, ReduceAll, ReduceAny, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum,
    RightShift, Rint, Round, Rsqrt, SeLU, Select, Sigmoid, Sign, Sin, Sinh, SoftShrink, Softmax, Softplus,
    Softsign, Sort, Sqrt, Square, SquaredDifference, Sub, Tan, Tanh, TensorAdd, TopK, Trunc,
)
from opbuild.mindspore.ops.gathering import (
    embedding, gather, gather_d, gather_elements, gather_nd, index_select, one_hot, scatter_nd, take,
    tensor_scatter_update,
)
from opbuild.mindspore.ops.linear import (
    addmm, baddbmm, bias_add, bmm, dense, dot, ger, inner, matmul, mm, mv, outer, tensor_dot,
)
from opbuild.mindspore.ops.loss import (
    binary_cross_entropy, binary_cross_entropy_with_logits, cross_entropy, gaussian_nll_loss, huber_loss, kl_div,
    l1_loss, mse_loss, nll_loss, smooth_l1_loss,
)
from opbuild.mindspore.ops.loss_primitives import (
    BCEWithLogitsLoss, BinaryCrossEntropy, KLDivLoss, L2Loss, MultiMarginLoss, MultilabelMarginLoss, NLLLoss,
    SigmoidCrossEntropyWithLogits, SmoothL1Loss, SoftMarginLoss, SoftmaxCrossEntropyWithLogits,
    SparseSoftmaxCrossEntropyWithLogits, TripletMarginLoss,
)
from opbuild.mindspore.ops.margin_loss import (
    cosine_embedding_loss, cosine_similarity, hinge_embedding_loss, margin_ranking_loss, multi_margin_loss,
    multilabel_margin_loss, multilabel_soft_margin_loss, soft_margin_loss, triplet_margin_loss,
)
from opbuild.mindspore.ops.normalization import (
    add_rms_norm, batch_norm, dropout, group_norm, layer_norm, lrn, rms_norm,
)
from opbuild.mindspore.ops.pooling import (
    adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool1d, avg_pool2d, interpolate, max_pool2d,
)
from opbuild.mindspore.ops.primitive import (
    Primitive,
)
from opbuild.mindspore.ops.printing import (
    Print, print_,
)
from opbuild.mindspore.ops.reduction import (
    all, amax, amin, any, argmax, argmin, argsort, count_nonzero, cumsum, logsumexp, max, mean, min, norm, prod,
    sort, std, sum, topk, var,
)
from opbuild.mindspore.ops.shaping import (
    broadcast_to, cast, cat, chunk, concat, dtype, expand, expand_dims, flatten, flip, hstack, identity, meshgrid,
    moveaxis, movedim, narrow, pad, permute, rank, ravel, repeat_interleave, reshape, roll, shape, size, slice,
    split, squeeze, stack, swapaxes, tile, transpose, tril, triu, unbind, unsqueeze, unstack, vstack,
)
from opbuild.mindspore.ops.structure_primitives import (
    AdaptiveAvgPool2D, AvgPool, BatchNorm, BroadcastTo, Cast, Concat, Conv2D, Conv2DTranspose, DType, Dropout,
    ExpandDims, Eye, Fill, Flatten, Gather, GatherD, GatherNd, GatherV2, Identity, LRN, LayerNorm, LinSpace,
    MaxPool, Meshgrid, OneHot, Ones, OnesLike, Pack, Pad, Range, Rank, Reshape, ResizeNearestNeighbor, ReverseV2,
    RmsNorm, Roll, ScalarToTensor, ScatterNd, Shape, Size, Slice, Split, Squeeze, Stack, StridedSlice,
    TensorScatterUpdate, TensorShape, Tile, Transpose, Tril, Triu, Unpack, Unstack, Zeros, ZerosLike,
)
from opbuild.mindspore.tensor import (
    is_tensor,
)

from opbuild.mindspore.ops.arranging import *
from opbuild.mindspore.ops.assignment import *
from opbuild.mindspore.ops.blocks import *
from opbuild.mindspore.ops.boxes import *
from opbuild.mindspore.ops.decompositions import *
from opbuild.mindspore.ops.diagonals import *
from opbuild.mindspore.ops.elementwise import *
from opbuild.mindspore.ops.matrices import *
from opbuild.mindspore.ops.patches import *
from opbuild.mindspore.ops.random import *
from opbuild.mindspore.ops.scattering import *
from opbuild.mindspore.ops.segments import *
from opbuild.mindspore.ops.selection import *
from opbuild.mindspore.ops.special import *
from opbuild.mindspore.ops.statistics import *
from opbuild.mindspore.ops.volumes import *
from opbuild.mindspore.ops.windows import *
from opbuild.mindspore.ops.primitives import *
from opbuild.mindspore.ops.movement_primitives import *

__getattr__ = names.getter(__name__)

composite = function = functional = operations = sys.modules[__name__]
"""MindSpore has functions and primitives in modules of their own too: ``from mindspore.ops import operations as P``."""

__all__ = [  # noqa: RUF022 - in order of the alphabet
    "ACos", "Abs", "Acosh", "AdaptiveAvgPool2D", "Add", "AddN", "Addcdiv", "Addcmul", "AllGather", "AllReduce",
    "ArgMaxWithValue", "ArgMinWithValue", "Argmax", "Argmin", "Asin", "Asinh", "Atan", "Atan2", "Atanh", "AvgPool",
    "BatchMatMul", "BatchNorm", "BiasAdd", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Broadcast", "BroadcastTo",
    "Cast", "CeLU", "Ceil", "Concat", "Conv2D", "Conv2DTranspose", "Cos", "Cosh", "CumSum", "DType", "Dense", "Div",
    "Dropout", "Elu", "Equal", "Erf", "Erfc", "Exp", "ExpandDims", "Expm1", "Eye", "FastGeLU", "FastGelu", "Fill",
    "Flatten", "Floor", "FloorDiv", "FloorMod", "GLU", "Gather", "GatherD", "GatherNd", "GatherV2", "GeLU", "Gelu",
    "Greater", "GreaterEqual", "HShrink", "HSigmoid", "HSwish", "Hypot", "Identity", "Inv", "Invert", "IsClose",
    "IsFinite", "IsInf", "IsNan", "L2Normalize", "LRN", "LayerNorm", "LeftShift", "Lerp", "Less", "LessEqual",
    "LinSpace", "Log", "Log1p", "LogSoftmax", "LogicalAnd", "LogicalNot", "LogicalOr", "LogicalXor", "MaskedFill",
    "MatMul", "MaxPool", "Maximum", "Meshgrid", "Minimum", "Mish", "Mod", "Mul", "Neg", "NotEqual", "OneHot",
    "Ones", "OnesLike", "PReLU", "Pack", "Pad", "Pow", "Primitive", "Range", "Rank", "ReLU", "ReLU6", "RealDiv",
    "Reciprocal", "ReduceAll", "ReduceAny", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceOp", "ReduceProd",
    "ReduceScatter", "ReduceSum", "Reshape", "ResizeNearestNeighbor", "ReverseV2", "RightShift", "Rint", "RmsNorm",
    "Roll", "Round", "Rsqrt", "ScalarToTensor", "ScatterNd", "SeLU", "Select", "Shape", "Sigmoid", "Sign", "Sin",
    "Sinh", "Size", "Slice", "SoftShrink", "Softmax", "Softplus", "Softsign", "Sort", "Split", "Sqrt", "Square",
    "SquaredDifference", "Squeeze", "Stack", "StridedSlice", "Sub", "Tan", "Tanh", "TensorAdd",
    "TensorScatterUpdate", "TensorShape", "Tile", "TopK", "Transpose", "Tril", "Triu", "Trunc", "Unpack", "Unstack",
    "Zeros", "ZerosLike", "abs", "absolute", "acos", "acosh", "adaptive_avg_pool2d", "adaptive_max_pool2d", "add",
    "addcdiv", "addcmul", "addmm", "addn", "all", "amax", "amin", "any", "arange", "arccos", "arccosh", "arcsin",
    "arcsinh", "arctan", "arctan2", "arctanh", "argmax", "argmin", "argsort", "asin", "asinh", "atan", "atan2",
    "atanh", "avg_pool1d", "avg_pool2d", "baddbmm", "batch_norm", "bias_add", "bitwise_and", "bitwise_left_shift",
    "bitwise_not", "bitwise_or", "bitwise_right_shift", "bitwise_xor", "bmm", "broadcast_to", "cast", "cat", "ceil",
    "celu", "chunk", "clamp", "clip", "clip_by_value", "concat", "conv1d", "conv2d", "conv3d", "conv_transpose2d",
    "cos", "cosh", "count_nonzero", "cumsum", "dense", "div", "divide", "dot", "dropout", "elu", "embedding", "eq",
    "equal", "erf", "erfc", "exp", "exp2", "expand", "expand_dims", "expm1", "eye", "fast_gelu", "fill", "flatten",
    "flip", "floor", "floor_div", "floor_divide", "floor_mod", "fmod", "full", "full_like", "gather", "gather_d",
    "gather_elements", "gather_nd", "ge", "gelu", "ger", "glu", "greater", "greater_equal", "group_norm", "gt",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hstack", "hypot", "identity", "index_select", "inner",
    "interpolate", "is_tensor", "isclose", "isfinite", "isinf", "isnan", "layer_norm", "le", "leaky_relu", "lerp",
    "less", "less_equal", "linspace", "log", "log10", "log1p", "log2", "log_softmax", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "logsigmoid", "logsumexp", "lrn", "lt", "masked_fill", "matmul",
    "max", "max_pool2d", "maximum", "mean", "meshgrid", "min", "minimum", "mish", "mm", "moveaxis", "movedim",
    "mul", "multiply", "mv", "narrow", "ne", "neg", "negative", "norm", "not_equal", "one_hot", "ones", "ones_like",
    "outer", "pad", "permute", "pow", "prelu", "prod", "rank", "ravel", "reciprocal", "relu", "relu6", "remainder",
    "repeat_interleave", "reshape", "roll", "round", "rsqrt", "scalar_to_tensor", "scatter_nd", "select", "selu",
    "shape", "sigmoid", "sign", "silu", "sin", "sinh", "size", "slice", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "sub", "subtract",
    "sum", "swapaxes", "swiglu", "take", "tan", "tanh", "tanhshrink", "tensor_dot", "tensor_scatter_update",
    "threshold", "tile", "topk", "transpose", "tril", "triu", "true_divide", "trunc", "tuple_to_array", "unbind",
    "unsqueeze", "unstack", "var", "vstack", "where", "zeros", "zeros_like",
]
__all__ += [
    "BCEWithLogitsLoss", "BinaryCrossEntropy", "HSVToRGB", "KLDivLoss", "L2Loss", "MultiMarginLoss",
    "MultilabelMarginLoss", "NLLLoss", "Print", "RGBToHSV", "SigmoidCrossEntropyWithLogits", "SmoothL1Loss",
    "SoftMarginLoss", "SoftmaxCrossEntropyWithLogits", "SparseSoftmaxCrossEntropyWithLogits", "TripletMarginLoss",
    "add_rms_norm", "binary_cross_entropy",
    "binary_cross_entropy_with_logits", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "dtype",
    "gaussian_nll_loss", "hinge_embedding_loss", "huber_loss", "kl_div", "l1_loss", "margin_ranking_loss", "mse_loss",
    "multi_margin_loss", "multilabel_margin_loss", "multilabel_soft_margin_loss", "nll_loss", "print_", "rms_norm",
    "smooth_l1_loss", "soft_margin_loss",
    "triplet_margin_loss",
]
