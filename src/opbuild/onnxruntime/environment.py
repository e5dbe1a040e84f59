"""The process: providers, versions, warnings, and letting ``import onnxruntime`` find this package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from typing import Any

from opbuild.errors import OpbuildError
from opbuild.platform.aliases import AliasFinder
from opbuild.text.visible import visible
from opbuild.version import __version__ as opbuild_version

__version__ = "1.32.0"


_SAID = set[str]()


def warn_once(text: str) -> None:
    """Warn, unless the same was said already."""
    if text not in _SAID:
        _SAID.add(text)
        warnings.warn(f"opbuild: {visible(text)}", UserWarning, stacklevel=4)


NAME = "onnxruntime"
_FACE = "opbuild.onnxruntime"


class AlreadyImportedError(OpbuildError, ImportError):
    """ONNX Runtime itself is imported, and parts of the program have its names."""


class MissingModuleError(OpbuildError, ModuleNotFoundError):
    """A module of ONNX Runtime that opbuild does not have."""


def missing_module(name: str) -> ImportError:
    """Return the error for a module of ONNX Runtime that opbuild does not have."""
    return MissingModuleError(
        f"No module named {name!r}: opbuild serves ONNX Runtime's sessions, and not this part of it",
        "run what needs it with ONNX Runtime",
    )


def install() -> None:
    """Let every later ``import onnxruntime`` of this process find ``opbuild.onnxruntime``.

    Raises:
        AlreadyImportedError: If ONNX Runtime itself was imported before.
    """
    found = sys.modules.get(NAME)
    if found is not None and found.__name__ != _FACE:
        raise AlreadyImportedError(
            f"onnxruntime {getattr(found, '__version__', '')} is imported already, from {found.__file__}",
            "call opbuild.onnxruntime.install() before anything imports onnxruntime",
        )
    if not any(isinstance(each, AliasFinder) and each.name == NAME for each in sys.meta_path):
        sys.meta_path.insert(0, AliasFinder(NAME, _FACE, missing_module))


CPU = "CPUExecutionProvider"
AVAILABLE = (CPU,)

_KNOWN = (
    "Tensorrt", "CUDA", "MIGraphX", "ROCM", "OpenVINO", "Dnnl", "Tvm", "VitisAI", "QNN", "Nnapi", "VSINPU", "Js",
    "CoreML", "Dml", "Rknpu", "WebNN", "WebGpu", "ArmNN", "ACL", "Xnnpack", "CANN", "Azure",
)  # fmt: skip
"""ONNX Runtime's other providers, which an installation need not have: they are passed over."""

Options = list[dict[str, str]]


def check_and_normalize_provider_args(
    providers: Any, provider_options: Any, available_provider_names: Sequence[str]
) -> tuple[list[str], Options]:
    """Return providers and the options of each, as texts, as programs give them in one of two ways.

    Args:
        providers: Names, or pairs of a name and options; None for none.
        provider_options: Options of each, where ``providers`` are names; or None.
        available_provider_names: Of any other name a warning tells.

    Raises:
        ValueError: If they are not given so.
    """
    if providers is None:
        return [], []
    chosen = dict[str, dict[str, str]]()
    for name, options in _pairs(providers, provider_options):
        if name not in available_provider_names:
            known = ", ".join(available_provider_names)
            warnings.warn(
                f"Specified provider '{name}' is not in available provider names.Available providers: '{known}'",
                stacklevel=2,
            )
        if name in chosen:
            warnings.warn(f"Duplicate provider '{name}' encountered, ignoring.", stacklevel=2)
        else:
            chosen[name] = {str(key): str(value) for key, value in options.items()}
    return list(chosen), list(chosen.values())


def _pairs(providers: Any, provider_options: Any) -> list[tuple[str, dict[Any, Any]]]:
    if not isinstance(providers, Sequence):
        raise ValueError("'providers' should be a sequence.")
    if provider_options is None:
        pairs = [(each, {}) if isinstance(each, str) else each for each in providers]
        if not all(_is_pair(pair) for pair in pairs):
            raise ValueError("'providers' values must be either strings or (string, dict) tuples.")
        return pairs
    if not isinstance(provider_options, Sequence):
        raise ValueError("'provider_options' should be a sequence.")
    if len(providers) != len(provider_options):
        raise ValueError("'providers' and 'provider_options' should be the same length if both are given.")
    if not all(isinstance(name, str) for name in providers):
        raise ValueError("Only string values for 'providers' are supported if 'provider_options' is given.")
    if not all(isinstance(options, dict) for options in provider_options):
        raise ValueError("'provider_options' values must be dicts.")
    return list(zip(providers, provider_options, strict=True))


def _is_pair(pair: Any) -> bool:
    return isinstance(pair, tuple) and len(pair) == 2 and isinstance(pair[0], str) and isinstance(pair[1], dict)


def registered(providers: Any, provider_options: Any) -> dict[str, dict[str, str]]:
    """Return the providers that a session has, with their options: the processor's, whatever else is named.

    Raises:
        ValueError: If they are not given as they must be.
        RuntimeError: If a name is none of ONNX Runtime's.
    """
    names, options = check_and_normalize_provider_args(providers, provider_options, AVAILABLE)
    unknown = [name for name in names if name != CPU and name.removesuffix("ExecutionProvider") not in _KNOWN]
    if unknown:
        raise RuntimeError(f"Unknown Provider Type: {unknown[0]}")
    return {CPU: dict(zip(names, options, strict=True)).get(CPU, {})}


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
    return __version__


def get_build_info() -> str:
    """Return the name and version of this package."""
    return f"ORT Build Info: opbuild={opbuild_version}"


def has_collective_ops() -> bool:
    """Return whether operators between processes are there: they are not."""
    return False


def set_default_logger_severity(severity: int) -> None:
    """Take how grave a message must be to be shown, from 0 to 4; opbuild writes none.

    Raises:
        RuntimeError: If it is another number.
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
