"""CUDA's driver by ``ctypes``: the functions that are called, and errors in its own words; no package is needed."""

from __future__ import annotations

import ctypes
from ctypes import c_char_p, c_int, c_size_t, c_ubyte, c_uint, c_uint64, c_void_p
from typing import Any

from opbuild.errors import RunError, TargetError
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import size

LIBRARY = "libcuda.so.1"

_HANDLE = _POINTER = c_void_p
_ADDRESS = c_uint64

SIGNATURES: dict[str, tuple[Any, ...]] = {
    "cuInit": (c_uint,),
    "cuGetErrorName": (c_int, _POINTER),
    "cuGetErrorString": (c_int, _POINTER),
    "cuDriverGetVersion": (_POINTER,),
    "cuDeviceGetCount": (_POINTER,),
    "cuDeviceGet": (_POINTER, c_int),
    "cuDeviceGetName": (_POINTER, c_int, c_int),
    "cuDeviceGetAttribute": (_POINTER, c_int, c_int),
    "cuDevicePrimaryCtxRetain": (_POINTER, c_int),
    "cuCtxSetCurrent": (_HANDLE,),
    "cuCtxSynchronize": (),
    "cuMemGetInfo_v2": (_POINTER, _POINTER),
    "cuMemAlloc_v2": (_POINTER, c_size_t),
    "cuMemFree_v2": (_ADDRESS,),
    "cuMemHostAlloc": (_POINTER, c_size_t, c_uint),
    "cuMemsetD8Async": (_ADDRESS, c_ubyte, c_size_t, _HANDLE),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, c_size_t, _HANDLE),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, c_size_t, _HANDLE),
    "cuMemcpyDtoDAsync_v2": (_ADDRESS, _ADDRESS, c_size_t, _HANDLE),
    "cuStreamCreate": (_POINTER, c_uint),
    "cuStreamSynchronize": (_HANDLE,),
    "cuStreamWaitEvent": (_HANDLE, _HANDLE, c_uint),
    "cuEventCreate": (_POINTER, c_uint),
    "cuEventRecord": (_HANDLE, _HANDLE),
    "cuEventDestroy_v2": (_HANDLE,),
    "cuModuleLoadData": (_POINTER, _POINTER),
    "cuModuleGetFunction": (_POINTER, _HANDLE, c_char_p),
    "cuModuleUnload": (_HANDLE,),
    "cuFuncSetAttribute": (_HANDLE, c_int, c_int),
    "cuLaunchKernel": (_HANDLE, *[c_uint] * 7, _HANDLE, _POINTER, _POINTER),
    "cuStreamBeginCapture_v2": (_HANDLE, c_int),
    "cuStreamEndCapture": (_HANDLE, _POINTER),
    "cuGraphInstantiateWithFlags": (_POINTER, _HANDLE, c_uint64),
    "cuGraphLaunch": (_HANDLE, _HANDLE),
    "cuGraphDestroy": (_HANDLE,),
    "cuGraphExecDestroy": (_HANDLE,),
}
"""The functions by their names in the library, with the types of their arguments, as ``cuda.h`` has them."""

OUT_OF_MEMORY, NOT_INITIALIZED, NO_DEVICE, ILLEGAL_ADDRESS = 2, 3, 100, 700
FATAL = frozenset({4, 201, 214, 220, 226, ILLEGAL_ADDRESS, 702, 709, 710, 714, 715, 716, 717, 718, 719, 721, 999})
"""Errors after which a process gets nothing but errors from its context."""

_MAJOR, _MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_
CAPABILITY = (9, 0)
"""The one compute capability that code for sm_90a runs on."""

ELSEWHERE = (
    "run it where there is an NVIDIA H100, H200 or GH200, or without target='cuda', on the CPU; "
    "'opbuild warm MODEL --target cuda' builds for a GPU where there is none"
)


class DriverError(RunError):
    """A function of the driver failed.

    Attributes:
        code: The result that it returned.
    """

    code = 0

    @property
    def is_fatal(self) -> bool:
        """Whether the process's context is lost."""
        return self.code in FATAL


class Driver:
    """The driver's functions.

    Args:
        library: The library as ``ctypes`` loads it; default: the system's.

    Raises:
        TargetError: If there is no driver, or it lacks a function.
    """

    def __init__(self, library: Any = None) -> None:
        library = _load() if library is None else library
        self.functions: dict[str, Any] = {}
        for name, arguments in SIGNATURES.items():
            try:
                function = getattr(library, name)
            except AttributeError as error:
                message = f"the NVIDIA driver here is too old: {LIBRARY} has no {name}"
                raise TargetError(message, "update it: version 525 is the oldest that serves") from error
            function.argtypes = arguments
            self.functions[name] = function

    def call(self, name: str, *arguments: Any, doing: str = "") -> None:
        """Call a function.

        Args:
            name: Its name.
            arguments: Its arguments.
            doing: What fails with it, for the message.

        Raises:
            DriverError: If it fails.
        """
        code = self.functions[name](*arguments)
        if code:
            raise self.error(name, code, doing)

    def number(self, name: str, *arguments: Any) -> int:
        """Return the number that a function writes to where its first argument points."""
        made = c_int()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value

    def error(self, name: str, code: int, doing: str = "") -> DriverError:
        """Return the error of a function that returned a code, with the driver's name of it and its text."""
        said = f"{name}: {self._text('cuGetErrorName', code)} ({code}), {self._text('cuGetErrorString', code)}"
        error = DriverError(f"{doing}: {said}" if doing else said, _hint(code))
        error.code = code
        return error

    def _text(self, name: str, code: int) -> str:
        text = c_char_p()
        self.functions[name](code, ctypes.byref(text))
        return (text.value or b"unknown error").decode(errors="replace")


def _load() -> Any:
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise TargetError(f"there is no NVIDIA driver here ({LIBRARY})", ELSEWHERE) from error


def _hint(code: int) -> str:
    if code in FATAL:
        return (
            "the GPU gives this process nothing but errors from now on: start it anew, with CUDA_LAUNCH_BLOCKING=1 in "
            "its environment to have the kernel named; without target='cuda' the CPU computes the same"
        )
    if code == OUT_OF_MEMORY:
        return "give smaller batches, or end what else uses the GPU's memory; without target='cuda' the CPU is used"
    if code == NOT_INITIALIZED:
        return FORKED_HINT
    return "nvidia-smi shows whether the GPU works; without target='cuda' the CPU computes the same"


FORKED_HINT = "start processes that use the GPU by spawn (multiprocessing.get_context('spawn')), or before it is used"


class Card(NamedTuple):
    """A GPU.

    Attributes:
        number: Its number among those that the driver shows.
        name: Its name.
        capability: Its compute capability.
        version: The version of CUDA that the driver is for.
    """

    number: int
    name: str
    capability: tuple[int, int]
    version: str

    def __str__(self) -> str:
        return f"{self.name}, compute capability {_dotted(self.capability)}, driver for CUDA {self.version}"


def _dotted(capability: tuple[int, int]) -> str:
    return ".".join(map(str, capability))


def find_card(driver: Driver) -> Card:
    """Return the first GPU that the driver shows; ``CUDA_VISIBLE_DEVICES`` says which.

    Raises:
        TargetError: If there is none, or the driver cannot be used.
    """
    try:
        driver.call("cuInit", 0)
        if not driver.number("cuDeviceGetCount"):
            raise driver.error("cuDeviceGetCount", NO_DEVICE)
        device = driver.number("cuDeviceGet", 0)
        major, minor = (driver.number("cuDeviceGetAttribute", each, device) for each in (_MAJOR, _MINOR))
        name = ctypes.create_string_buffer(256)
        driver.call("cuDeviceGetName", name, len(name), device)
        version = driver.number("cuDriverGetVersion")
    except DriverError as error:
        what = "there is no NVIDIA GPU here" if error.code == NO_DEVICE else "the NVIDIA driver cannot be used"
        hint = FORKED_HINT if error.code == NOT_INITIALIZED else ELSEWHERE
        raise TargetError(f"{what}: {error.message}", hint) from error
    found = f"{version // 1000}.{version % 1000 // 10}"
    return Card(device, name.value.decode(errors="replace"), (major, minor), found)


def describe_card() -> str:
    """Return the GPU of this machine in words.

    Raises:
        TargetError: If there is none that is served.
    """
    card = find_card(Driver())
    check_card(card)
    return str(card)


def check_card(card: Card) -> None:
    """Refuse a GPU that code for sm_90a does not run on.

    Raises:
        TargetError: If it is one.
    """
    if card.capability != CAPABILITY:
        has = f"{card.name}, has compute capability {_dotted(card.capability)}"
        message = f"the GPU here, {has}, and code for sm_90a runs on {_dotted(CAPABILITY)} alone"
        raise TargetError(message, f"CUDA_VISIBLE_DEVICES chooses another GPU; else {ELSEWHERE}")


def no_memory(driver: Driver, nbytes: int, error: DriverError) -> RunError:
    """Return the error of an allocation, with how much was asked for and how much there is."""
    free, total = c_size_t(), c_size_t()
    driver.functions["cuMemGetInfo_v2"](ctypes.byref(free), ctypes.byref(total))
    asked, there = size(nbytes), f"{size(free.value)} of {size(total.value)} are free"
    return RunError(f"the GPU has no memory for {asked}, {there}: {error.message}", error.hint)
