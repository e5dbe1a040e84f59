"""Names of ONNX Runtime's extension module: those of the package, and its errors."""

from opbuild import onnxruntime
from opbuild.onnxruntime import *
from opbuild.onnxruntime.status import (
    EngineError,
    EPFail,
    Fail,
    InvalidArgument,
    InvalidGraph,
    InvalidProtobuf,
    ModelLoaded,
    NoModel,
    NoSuchFile,
    NotImplemented,
    RuntimeException,
)
from opbuild.onnxruntime.values import OrtValueVector

__all__ = [
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "NoModel",
    "NoSuchFile",
    "NotImplemented",
    "OrtValueVector",
    "RuntimeException",
]
__all__ += onnxruntime.__all__
