"""ONNX Runtime's interface on opbuild: ``InferenceSession`` and its companions.

``opbuild run --serve onnxruntime SCRIPT.py``, or ``opbuild.onnxruntime.install()`` inside a program, lets
``import onnxruntime`` find this package.
"""

from typing import TYPE_CHECKING, Any

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
    print_debug_info,
    set_global_thread_pool_sizes,
    set_seed,
)
from opbuild.onnxruntime.logs import (
    set_default_logger_callback,
    set_default_logger_severity,
    set_default_logger_verbosity,
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

if TYPE_CHECKING:
    from opbuild.onnxruntime.compiler import (
        ModelCompiler,
        OrtCompileApiFlags,
        OrtExternalInitializerInfo,
    )
    from opbuild.onnxruntime.devices import (
        OrtAllocatorType,
        OrtArenaCfg,
        OrtDeviceMemoryType,
        OrtDeviceVendorId,
        OrtEpDevice,
        OrtExecutionProviderDevicePolicy,
        OrtHardwareDevice,
        OrtHardwareDeviceType,
        OrtMemoryInfo,
        OrtMemoryInfoDeviceType,
        OrtMemType,
        OrtSparseFormat,
        copy_tensors,
        create_and_register_allocator,
        create_and_register_allocator_v2,
        get_ep_devices,
        register_execution_provider_library,
        unregister_execution_provider_library,
    )

__all__ = [
    "AdapterFormat",
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "IOBinding",
    "InferenceSession",
    "LoraAdapter",
    "ModelCompiler",
    "ModelMetadata",
    "ModelPackage",
    "ModelPackageComponentContext",
    "ModelPackageContext",
    "ModelPackageOptions",
    "ModelPackageWriteMode",
    "NodeArg",
    "OrtAllocatorType",
    "OrtArenaCfg",
    "OrtCompileApiFlags",
    "OrtDevice",
    "OrtDeviceMemoryType",
    "OrtDeviceVendorId",
    "OrtEpAssignedNode",
    "OrtEpAssignedSubgraph",
    "OrtEpContextData",
    "OrtEpContextDataBuffer",
    "OrtEpDevice",
    "OrtExecutionProviderDevicePolicy",
    "OrtExternalInitializerInfo",
    "OrtHardwareDevice",
    "OrtHardwareDeviceType",
    "OrtMemType",
    "OrtMemoryInfo",
    "OrtMemoryInfoDeviceType",
    "OrtSparseFormat",
    "OrtSyncStream",
    "OrtValue",
    "RunOptions",
    "SessionIOBinding",
    "SessionOptions",
    "SparseTensor",
    "__version__",
    "capi",
    "copy_tensors",
    "create_and_register_allocator",
    "create_and_register_allocator_v2",
    "disable_telemetry_events",
    "enable_telemetry_events",
    "get_all_providers",
    "get_available_providers",
    "get_build_info",
    "get_device",
    "get_ep_devices",
    "get_version_string",
    "has_collective_ops",
    "install",
    "preload_dlls",
    "print_debug_info",
    "register_execution_provider_library",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_global_thread_pool_sizes",
    "set_seed",
    "unregister_execution_provider_library",
]

_COMPILER = frozenset({"ModelCompiler", "OrtCompileApiFlags", "OrtExternalInitializerInfo"})


def __getattr__(name: str) -> Any:
    """Return a name that few programs use; its module is imported when one does."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opbuild.onnxruntime.unserved import UNSERVED, unserved

    if name in UNSERVED:
        return unserved(name)
    from opbuild.onnxruntime import compiler, devices

    return getattr(compiler if name in _COMPILER else devices, name)
