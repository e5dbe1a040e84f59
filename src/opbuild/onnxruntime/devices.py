"""Devices and memory by ONNX Runtime's names: there is one device, the processor, and ordinary memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import Any

from opbuild.onnxruntime.environment import CPU
from opbuild.onnxruntime.logs import warn_once
from opbuild.onnxruntime.status import Fail, failure
from opbuild.onnxruntime.values import OrtValue
from opbuild.platform.processor import processor_name
from opbuild.platform.records import dataclass
from opbuild.version import __version__ as opbuild_version


class OrtAllocatorType(IntEnum):
    """The kinds of allocators."""

    INVALID = -1
    ORT_DEVICE_ALLOCATOR = 0
    ORT_ARENA_ALLOCATOR = 1


class OrtDeviceMemoryType(IntEnum):
    """The kinds of a device's memory."""

    DEFAULT = 0
    HOST_ACCESSIBLE = 5


class OrtDeviceVendorId(IntEnum):
    """The makers of devices, by their numbers on the bus."""

    NONE = 0
    AMD = 0x1002
    NVIDIA = 0x10DE
    ARM = 0x13B5
    MICROSOFT = 0x1414
    HUAWEI = 0x19E5
    QUALCOMM = 0x5143
    INTEL = 0x8086


class OrtExecutionProviderDevicePolicy(IntEnum):
    """The policies by which devices are chosen; each of them finds the processor."""

    DEFAULT = 0
    PREFER_CPU = 1
    PREFER_NPU = 2
    PREFER_GPU = 3
    MAX_PERFORMANCE = 4
    MAX_EFFICIENCY = 5
    MIN_OVERALL_POWER = 6


class OrtHardwareDeviceType(IntEnum):
    """The kinds of devices."""

    CPU = 0
    GPU = 1
    NPU = 2


class OrtMemType(IntEnum):
    """The uses of memory."""

    CPU_INPUT = -2
    CPU_OUTPUT = -1
    CPU = -1
    DEFAULT = 0


class OrtMemoryInfoDeviceType(IntEnum):
    """The kinds of devices that memory belongs to."""

    CPU = 0
    GPU = 1
    FPGA = 2
    NPU = 3


class OrtSparseFormat(IntEnum):
    """The formats of sparse tensors, of which opbuild has none."""

    ORT_SPARSE_UNDEFINED = 0
    ORT_SPARSE_COO = 1
    ORT_SPARSE_CSRC = 2
    ORT_SPARSE_BLOCK_SPARSE = 4


@dataclass(frozen=True)
class OrtHardwareDevice:
    """A device.

    Attributes:
        type: Its kind.
        vendor: Its maker.
        vendor_id: The maker's number on the bus; 0 if there is none.
        device_id: Its number there; 0 if it has none.
        metadata: What else is known of it.
    """

    type: OrtHardwareDeviceType
    vendor: str
    vendor_id: int
    device_id: int
    metadata: Mapping[str, str]


@dataclass(frozen=True)
class OrtEpDevice:
    """A device and the execution provider that serves it.

    Attributes:
        ep_name: The provider's name.
        ep_vendor: Who made it.
        ep_metadata: Its version.
        ep_options: Its options: none.
        device: The device.
    """

    ep_name: str
    ep_vendor: str
    ep_metadata: Mapping[str, str]
    ep_options: Mapping[str, str]
    device: OrtHardwareDevice

    def memory_info(self, memory_type: OrtDeviceMemoryType) -> OrtMemoryInfo | None:
        """Return None: the processor has no memory of its own beside the ordinary one."""
        return None

    def create_sync_stream(self) -> Any:
        """Refuse a stream.

        Raises:
            RuntimeError: Always: what the processor does is done when a call ends.
        """
        raise RuntimeError("ep_device does not use DEFAULT memory of a non-CPU device.")


_AMD_PROCESSORS = 0x1022


def get_ep_devices() -> list[OrtEpDevice]:
    """Return the devices: the processor."""
    name = processor_name().lower()
    makers = {"amd": ("AMD", _AMD_PROCESSORS), "intel": ("Intel", OrtDeviceVendorId.INTEL.value)}
    vendor, number = next((maker for word, maker in makers.items() if word in name), ("", 0))
    processor = OrtHardwareDevice(OrtHardwareDeviceType.CPU, vendor, number, 0, {})
    return [OrtEpDevice(CPU, "opbuild", {"version": opbuild_version}, {}, processor)]


def require_devices(devices: Sequence[Any]) -> None:
    """Refuse what is no device."""
    for each in devices:
        if not isinstance(each, OrtEpDevice):
            raise TypeError(f"devices are of type OrtEpDevice, not {type(each).__name__}")


_MOST_DEVICES = 8


def require_cpu_chosen(delegate: Callable[..., Any], metadata: dict[str, str]) -> None:
    """Ask a program's function which devices to take, given a model's metadata, and refuse if it takes none.

    Raises:
        Fail: If it takes none, or fails.
    """
    try:
        chosen = delegate(get_ep_devices(), metadata, {}, _MOST_DEVICES)
        require_devices(chosen)
    except Exception as error:
        raise failure(Fail, f"EP selection delegate failed: {type(error).__name__}: {error}") from error
    if not chosen:
        raise failure(Fail, "EP selection delegate did not select anything.")


class OrtMemoryInfo:
    """A description of memory.

    Args:
        name: The device's name: ``Cpu``.
        allocator_type: The kind of its allocator.
        device_id: Its number among those of its kind.
        mem_type: Its use.

    Raises:
        RuntimeError: If the name is another one.
    """

    device_mem_type = OrtDeviceMemoryType.DEFAULT
    device_vendor_id = OrtDeviceVendorId.NONE.value

    def __init__(self, name: str, allocator_type: OrtAllocatorType, device_id: int, mem_type: OrtMemType) -> None:
        if name != "Cpu":
            raise RuntimeError("Specified device is not supported. Try CreateMemoryInfo_V2.")
        self.name = name
        self.allocator_type = OrtAllocatorType(allocator_type)
        self.device_id = int(device_id)
        self.mem_type = OrtMemType(mem_type)

    @staticmethod
    def create_v2(
        name: str,
        device_type: OrtMemoryInfoDeviceType,
        vendor_id: int,
        device_id: int,
        device_mem_type: OrtDeviceMemoryType,
        alignment: int,
        allocator_type: OrtAllocatorType,
    ) -> OrtMemoryInfo:
        """Return a description of memory under a name of the program's.

        Raises:
            RuntimeError: If it is another device's than the processor's.
        """
        if device_type != OrtMemoryInfoDeviceType.CPU:
            raise RuntimeError("Specified device is not supported: there is the processor only.")
        made = OrtMemoryInfo("Cpu", allocator_type, device_id, OrtMemType.DEFAULT)
        made.name, made.device_mem_type = name, OrtDeviceMemoryType(device_mem_type)
        return made


def ordinary_memory() -> OrtMemoryInfo:
    """Return the description of the memory in which inputs and outputs are."""
    return OrtMemoryInfo("Cpu", OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, OrtMemType.DEFAULT)


_ARENA = (
    "max_mem", "arena_extend_strategy", "initial_chunk_size_bytes", "max_dead_bytes_per_chunk",
    "initial_growth_chunk_size_bytes", "max_power_of_two_extend_bytes",
)  # fmt: skip


class OrtArenaCfg:
    """The configuration of an allocator: four numbers, or a dictionary of any; -1 is the default.

    Raises:
        RuntimeError: If there is no such number.
    """

    def __init__(self, *given: Any) -> None:
        values = given[0] if len(given) == 1 and isinstance(given[0], dict) else dict(zip(_ARENA, given, strict=False))
        for name in values:
            if name not in _ARENA:
                raise RuntimeError(f"Invalid OrtArenaCfg option: {name}")
        vars(self).update({name: int(values.get(name, -1)) for name in _ARENA})


def create_and_register_allocator(mem_info: OrtMemoryInfo, arena_cfg: OrtArenaCfg | None) -> None:
    """Warn that networks plan their memory themselves."""
    warn_once("allocators are ignored: memory is planned when a network is built, and kept between calls")


def create_and_register_allocator_v2(
    provider_type: str, mem_info: OrtMemoryInfo, options: Mapping[str, str], arena_cfg: OrtArenaCfg | None
) -> None:
    """Warn that networks plan their memory themselves.

    Raises:
        RuntimeError: If it is for another provider than the processor's.
    """
    if provider_type != CPU:
        raise RuntimeError(f"{provider_type} is not implemented in CreateAndRegisterAllocatorV2()")
    create_and_register_allocator(mem_info, arena_cfg)


def register_execution_provider_library(registration_name: str, library_path: str) -> None:
    """Refuse a library of an execution provider.

    Raises:
        Fail: Always.
    """
    text = f"Failed to load library {library_path} with error: opbuild has no execution providers but its own"
    raise failure(Fail, text, "run what needs it with ONNX Runtime")


def unregister_execution_provider_library(registration_name: str) -> None:
    """Refuse to forget a library, which none is.

    Raises:
        Fail: Always.
    """
    raise failure(Fail, f"Execution provider library: {registration_name} was not registered.")


def copy_tensors(src: Sequence[OrtValue], dst: Sequence[OrtValue], stream: Any = None) -> None:
    """Copy tensors over others.

    Raises:
        RuntimeError: If there are not as many of both, or two have another shape or element type.
    """
    if len(src) != len(dst):
        raise RuntimeError(f"{len(src)} tensors cannot be copied to {len(dst)}")
    for source, target in zip(src, dst, strict=True):
        target.update_inplace(source)
