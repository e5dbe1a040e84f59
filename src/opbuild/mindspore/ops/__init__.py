"""``ops``: operators as functions (``ops.matmul``) and as classes, the primitives (``ops.MatMul()``)."""

from opbuild.mindspore.ops.activation import (
    celu, elu, fast_gelu, gelu, glu, hardshrink, hardsigmoid, hardswish, hardtanh, leaky_relu, log_softmax, logsigmoid, mish,
    prelu, relu, relu6, selu, sigmoid, silu, softmax, softmin, softplus, softshrink, softsign, swiglu, tanhshrink, threshold,
)  # fmt: skip
from opbuild.mindspore.ops.arithmetic import (
    abs, absolute, acos, acosh, add, addcdiv, addcmul, addn, arccos, arccosh, arcsin, arcsinh, arctan, arctan2, arctanh, asin,
    asinh, atan, atan2, atanh, ceil, clamp, clip, clip_by_value, cos, cosh, div, divide, erf, erfc, exp, exp2, expm1, floor,
    floor_div, floor_divide, floor_mod, fmod, hypot, lerp, log, log1p, log2, log10, logaddexp, maximum, minimum, mul, multiply,
    neg, negative, pow, reciprocal, remainder, round, rsqrt, sign, sin, sinh, sqrt, square, sub, subtract, tan, tanh,
    true_divide, trunc,
)  # fmt: skip
from opbuild.mindspore.ops.comparison import (
    bitwise_and, bitwise_left_shift, bitwise_not, bitwise_or, bitwise_right_shift, bitwise_xor, eq, equal, ge, greater,
    greater_equal, gt, isclose, isfinite, isinf, isnan, le, less, less_equal, logical_and, logical_not, logical_or,
    logical_xor, lt, masked_fill, ne, not_equal, select, where,
)  # fmt: skip
from opbuild.mindspore.ops.convolution import conv1d, conv2d, conv3d, conv_transpose2d
from opbuild.mindspore.ops.creation import (
    arange, eye, fill, full, full_like, linspace, ones, ones_like, scalar_to_tensor, tuple_to_array, zeros, zeros_like,
)  # fmt: skip
from opbuild.mindspore.ops.gathering import (
    embedding, gather, gather_d, gather_elements, gather_nd, index_select, one_hot, scatter_nd, take, tensor_scatter_update,
)  # fmt: skip
from opbuild.mindspore.ops.linear import (
    addmm, baddbmm, bias_add, bmm, dense, dot, ger, inner, matmul, mm, mv, outer, tensor_dot,
)  # fmt: skip
from opbuild.mindspore.ops.normalization import batch_norm, dropout, group_norm, layer_norm, lrn
from opbuild.mindspore.ops.pooling import (
    adaptive_avg_pool2d, adaptive_max_pool2d, avg_pool1d, avg_pool2d, interpolate, max_pool2d,
)  # fmt: skip
from opbuild.mindspore.ops.primitive import Primitive
from opbuild.mindspore.ops.primitives import *  # noqa: F403 - the classes, listed there
from opbuild.mindspore.ops.primitives import PRIMITIVES
from opbuild.mindspore.ops.reduction import (
    all, amax, amin, any, argmax, argmin, argsort, count_nonzero, cumsum, logsumexp, max, mean, min, norm, prod, sort, std, sum,
    topk, var,
)  # fmt: skip
from opbuild.mindspore.ops.shaping import (
    broadcast_to, cast, cat, chunk, concat, expand, expand_dims, flatten, flip, hstack, identity, meshgrid, moveaxis, movedim,
    narrow, pad, permute, rank, ravel, repeat_interleave, reshape, roll, shape, size, slice, split, squeeze, stack, swapaxes,
    tile, transpose, tril, triu, unbind, unsqueeze, unstack, vstack,
)  # fmt: skip
from opbuild.mindspore.tensor import is_tensor
