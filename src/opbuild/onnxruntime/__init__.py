"""ONNX Runtime's interface on opbuild: ``InferenceSession`` and its companions.

``opbuild run --serve onnxruntime SCRIPT.py``, or ``opbuild.onnxruntime.install()`` inside a program, lets
``import onnxruntime`` find this package.
"""

from opbuild.onnxruntime import capi as capi
from opbuild.onnxruntime.environment import (
    __version__,
    disable_telemetry_events,
    enable_telemetry_events,
    get_all_providers,
    get_available_providers,
    get_build_info,
    get_device,
    get_version_string,
    has_collective_ops,
    install,
    preload_dlls,
    set_default_logger_severity,
    set_default_logger_verbosity,
    set_global_thread_pool_sizes,
    set_seed,
)
from opbuild.onnxruntime.metadata import ModelMetadata, NodeArg
from opbuild.onnxruntime.options import (
    ExecutionMode,
    ExecutionOrder,
    GraphOptimizationLevel,
    RunOptions,
    SessionOptions,
)
from opbuild.onnxruntime.session import InferenceSession, IOBinding
from opbuild.onnxruntime.values import OrtDevice, OrtValue

SessionIOBinding = IOBinding

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "ModelMetadata",
    "NodeArg",
    "OrtDevice",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "__version__",
    "capi",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
]
