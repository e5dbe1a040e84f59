"""The process: providers, versions, warnings, and letting ``import onnxruntime`` find this package."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from opbuild.errors import OpbuildError
from opbuild.onnxruntime.logs import warn_once
from opbuild.onnxruntime.status import Fail, failure
from opbuild.platform.aliases import AliasFinder
from opbuild.target.devices import device_problem, is_known
from opbuild.version import __version__ as opbuild_version

__version__ = "1.32.0"


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


CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"
DEVICES = {CUDA: "cuda"}
"""The classes of devices that providers stand for, beside the processor's."""

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
    """Return the providers that a session has, with their options: of those that are named, and the processor's.

    Raises:
        ValueError: If they are not given as they must be.
        RuntimeError: If a name is none of ONNX Runtime's.
    """
    available = get_available_providers()
    names, options = check_and_normalize_provider_args(providers, provider_options, available)
    for name, given in zip(names, options, strict=True):
        require_provider(name)
        if name in available:
            warn_of_provider_options(given, name)
    return {name: {} for name in (*names, CPU) if name in available}


def target_of(providers: Iterable[str]) -> str | None:
    """Return the class of devices of the first provider, by which a session's network runs; None: the processor."""
    return DEVICES.get(next(iter(providers)))


def require_provider(name: str) -> None:
    """Refuse a name that is none of ONNX Runtime's providers."""
    if name != CPU and name.removesuffix("ExecutionProvider") not in _KNOWN:
        raise RuntimeError(f"Unknown Provider Type: {name}")


def warn_of_provider_options(options: Mapping[str, str], provider: str = CPU) -> None:
    """Warn once that a provider has no options here; the processor's has none in ONNX Runtime either."""
    for name in options:
        warn_once(f"the option {name} of {provider} is ignored: it has none")


def get_available_providers() -> list[str]:
    """Return the execution providers that there are: a device's where networks can run on it."""
    return [*(name for name, device in DEVICES.items() if device_problem(device) is None), CPU]


def get_all_providers() -> list[str]:
    """Return the execution providers that there can be."""
    return [*(name for name, device in DEVICES.items() if is_known(device)), CPU]


def get_device() -> str:
    """Return ``GPU`` where networks can run on one, else ``CPU``."""
    return "GPU" if CUDA in get_available_providers() else "CPU"


def get_version_string() -> str:
    """Return the version of ONNX Runtime whose interface this is."""
    return __version__


def get_build_info() -> str:
    """Return the name and version of this package."""
    return f"ORT Build Info: opbuild={opbuild_version}"


def has_collective_ops() -> bool:
    """Return whether operators between processes are there: they are not."""
    return False


def set_seed(seed: int) -> None:
    """Warn that operators with random values are seeded by their attributes alone."""
    warn_once("set_seed is ignored: a seed is an attribute of the operator that draws")


_GLOBAL_THREADS = list[int]()
"""The number of threads of sessions that have none of their own; none before it is told."""


def set_global_thread_pool_sizes(intra_op_num_threads: int = 0, inter_op_num_threads: int = 0) -> None:
    """Take the number of threads of all sessions, whose ``use_per_session_threads`` must be False from then on.

    Raises:
        Fail: If it was told already.
    """
    if _GLOBAL_THREADS:
        raise failure(Fail, "Global thread pools have already been created, cannot replace them")
    if inter_op_num_threads > 1:
        warn_once("inter_op_num_threads is ignored: operators run one after the other, each on all threads")
    _GLOBAL_THREADS.append(int(intra_op_num_threads))


def global_threads() -> int:
    """Return the number of threads of sessions that have none of their own; 0 is automatic."""
    return next(iter(_GLOBAL_THREADS), 0)


def require_threads(*, per_session: bool) -> None:
    """Refuse sessions whose threads are not those that there are, as ONNX Runtime does.

    Raises:
        RuntimeError: If a session wants the process's threads before their number is told, or its own ones afterwards.
    """
    if per_session and _GLOBAL_THREADS:
        raise RuntimeError("use_per_session_threads must be false when using a global thread pool")
    if not per_session and not _GLOBAL_THREADS:
        raise RuntimeError(
            "When the session is not configured to use per session threadpools, set_global_thread_pool_sizes must be "
            "called first."
        )


def disable_telemetry_events() -> None:
    """Send nothing: opbuild never does."""


def enable_telemetry_events() -> None:
    """Send nothing: opbuild never does."""


def print_debug_info() -> None:
    """Print the versions that a report of a problem needs."""
    import platform  # a start prints nothing

    print(f"onnxruntime version: {__version__}, served by opbuild {opbuild_version}\nplatform: {platform.platform()}")


def preload_dlls(**_: Any) -> None:
    """Load nothing: there are no libraries of a graphics processor."""
