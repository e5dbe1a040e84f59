"""Functions of ONNX Runtime that are about the whole process."""

from __future__ import annotations

from typing import Any

from opbuild.onnxruntime.notices import warn_once
from opbuild.onnxruntime.providers import AVAILABLE
from opbuild.onnxruntime.version import __version__ as interface_version
from opbuild.version import __version__ as opbuild_version


def get_available_providers() -> list[str]:
    """Return the execution providers that there are."""
    return list(AVAILABLE)


def get_all_providers() -> list[str]:
    """Return the execution providers that there can be."""
    return list(AVAILABLE)


def get_device() -> str:
    """Return ``CPU``."""
    return "CPU"


def get_version_string() -> str:
    """Return the version of ONNX Runtime whose interface this is."""
    return interface_version


def get_build_info() -> str:
    """Return the name and version of this package."""
    return f"ORT Build Info: opbuild={opbuild_version}"


def has_collective_ops() -> bool:
    """Return whether operators between processes are there: they are not."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Take how grave a message must be to be shown; opbuild writes none.

    Raises:
        RuntimeError: If it is not from 0 to 4.
    """
    if not 0 <= severity <= 4:
        raise RuntimeError("Invalid logging severity. 0:Verbose, 1:Info, 2:Warning, 3:Error, 4:Fatal")


def set_default_logger_verbosity(verbosity: int) -> None:
    """Take how much is shown of the least grave messages; opbuild writes none."""


def set_seed(seed: int) -> None:
    """Warn that operators with random values are seeded by their attributes alone."""
    warn_once("set_seed is ignored: a seed is an attribute of the operator that draws")


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Warn that the number of threads is a session's, or the environment's."""
    warn_once("set_global_thread_pool_sizes is ignored: set SessionOptions.intra_op_num_threads or OPBUILD_NUM_THREADS")


def disable_telemetry_events() -> None:
    """Send nothing: opbuild never does."""


def enable_telemetry_events() -> None:
    """Send nothing: opbuild never does."""


def preload_dlls(**_: Any) -> None:
    """Load nothing: there are no libraries of a graphics processor."""
