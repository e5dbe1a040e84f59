"""Operators as classes that are called as functions of ``ops`` are, but for case and underscores: ``BitwiseAnd``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from opbuild.mindspore.arguments import defaults_of
from opbuild.mindspore.ops.declaration import Primitive, primitive

__all__: list[str] = []

_PLAIN = """
    ACos Abs Acosh Add AddN Addcdiv Addcmul Angle Asin Asinh Assign AssignAdd AssignSub Atan Atan2 Atanh BesselI0
    BesselI0e BesselI1 BesselI1e BesselJ0 BesselJ1 BesselK0 BesselK0e BesselK1 BesselK1e BesselY0 BesselY1 BitwiseAnd
    BitwiseOr BitwiseXor Cast Ceil CheckValid Conj Cos Cosh DType Dense Depend Diag Digamma Div Eps Equal Erf Erfc
    Erfinv Exp Expand ExpandDims Expm1 Eye FastGeLU Fill Fills Flatten Floor FloorDiv FloorMod Fmax Fmin GatherD
    GatherNd Gcd Geqrf Ger Greater GreaterEqual Heaviside Hypot Identity Igamma Igammac Imag IndexFill IsFinite IsInf
    IsNan Lcm Lerp Less LessEqual Lgamma LinSpace Log Log1p LogMatrixDeterminant LogicalAnd LogicalNot LogicalOr
    LogicalXor LuSolve MaskedFill MaskedSelect MatrixBandPart MatrixDeterminant MatrixExp Maximum Minimum Mish Mul Neg
    NextAfter NonZero NotEqual Ones OnesLike Orgqr PReLU Polygamma PopulationCount Pow Rank ReLU ReLU6 Real Reciprocal
    Reshape Round Rsqrt ScalarToTensor ScatterNd SeLU Select Shape Sigmoid Sign Sin Sinc Sinh Size Slice Softplus
    Softsign Sqrt Square StopGradient Sub Tan Tanh TensorScatterAdd TensorScatterDiv TensorScatterMax TensorScatterMin
    TensorScatterMul TensorScatterSub TensorScatterUpdate Tile Trace Transpose Trunc TruncateDiv TruncateMod
    TupleToArray Unique UniqueWithPad UnsortedSegmentMax UnsortedSegmentMin UnsortedSegmentProd UnsortedSegmentSum Xdivy
    Xlogy Zeros ZerosLike Zeta
"""
"""Those whose constructor takes nothing."""

_WITH_ATTRIBUTES = dict(  # noqa: C408 - a row reads as the call
    AdaptiveAvgPool2D="output_size", AdaptiveAvgPool3D="output_size", AffineGrid="align_corners",
    ApproximateEqual="tolerance", BatchToSpaceND="block_shape crops", BinaryCrossEntropy="reduction",
    BoundingBoxDecode="max_shape means stds wh_ratio_clip", BoundingBoxEncode="means stds", BroadcastTo="shape",
    Cdist="p", CeLU="alpha", Cholesky="upper", CholeskyInverse="upper", CholeskySolve="upper", Concat="axis",
    Cummax="axis", Cummin="axis", Elu="alpha", GLU="axis", Gather="batch_dims", IOU="mode", InTopK="k",
    InplaceAdd="indices", InplaceIndexAdd="axis", InplaceSub="indices", InplaceUpdate="indices",
    IsClose="rtol atol equal_nan", LRN="depth_radius bias alpha beta norm_region", LogSoftmax="axis",
    LuUnpack="unpack_data unpack_pivots", MatrixPower="n", MatrixSolve="adjoint", MirrorPad="mode", Mvlgamma="p",
    NanToNum="nan posinf neginf", OneHot="axis", Ormqr="left transpose", Padding="pad_dim_size", Pdist="p",
    ReverseSequence="seq_dim batch_dim", RmsNorm="epsilon", Roll="shifts dims", SmoothL1Loss="beta reduction",
    SoftMarginLoss="reduction", SoftShrink="lambd", Sort="axis descending", Stack="axis",
    StridedSlice="begin_mask end_mask ellipsis_mask new_axis_mask shrink_axis_mask",
    TensorScatterElements="axis reduction", TopK="sorted", Tril="diagonal", TripletMarginLoss="p swap eps reduction",
    Triu="diagonal",
)  # fmt: skip
"""Of the others the arguments of the function that the constructor takes, in order, with the function's defaults."""

_ALSO = {"FastGelu": "FastGeLU", "GatherV2": "Gather", "Inv": "Reciprocal", "Pack": "Stack", "TensorAdd": "Add"}


def called_alike(functions: Mapping[str, Any]) -> dict[str, Callable[..., Primitive]]:
    """Return the classes, of functions by name."""
    known = {name.replace("_", ""): function for name, function in functions.items()}
    listed = {**dict.fromkeys(_PLAIN.split(), ""), **_WITH_ATTRIBUTES}
    found = {name: primitive(known[name.lower()], **defaults_of(known[name.lower()], attributes))
             for name, attributes in listed.items()}  # fmt: skip
    return {**found, **{also: found[name] for also, name in _ALSO.items()}}
