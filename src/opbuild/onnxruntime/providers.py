"""Execution providers: opbuild is the processor's, and programs name others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

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
