"""``set_auto_parallel_context``: how the ranks of a job share a network's work; here they share its data."""

from __future__ import annotations

from typing import Any

from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError

__all__ = ["ParallelMode", "get_auto_parallel_context", "reset_auto_parallel_context", "set_auto_parallel_context"]


class ParallelMode:
    """The ways of MindSpore; here there are the first two."""

    STAND_ALONE = "stand_alone"
    DATA_PARALLEL = "data_parallel"
    HYBRID_PARALLEL = "hybrid_parallel"
    SEMI_AUTO_PARALLEL = "semi_auto_parallel"
    AUTO_PARALLEL = "auto_parallel"
    MODE_LIST = (STAND_ALONE, DATA_PARALLEL, HYBRID_PARALLEL, SEMI_AUTO_PARALLEL, AUTO_PARALLEL)


_HERE = (ParallelMode.STAND_ALONE, ParallelMode.DATA_PARALLEL)
_DEFAULTS: dict[str, Any] = {
    "parallel_mode": ParallelMode.STAND_ALONE, "gradients_mean": False, "device_num": None, "global_rank": None,
    "parameter_broadcast": False, "all_reduce_fusion_config": None, "gradient_fp32_sync": True,
    "enable_parallel_optimizer": False, "comm_fusion": None,
}  # fmt: skip
_SET: dict[str, Any] = {}


def set_auto_parallel_context(**options: Any) -> None:
    """Say how the ranks of a job work together.

    ``parallel_mode`` is ``stand_alone`` (each for itself) or ``data_parallel``: each rank has the whole network and a
    part of the batch, and steps of training combine gradients: their sum, or with ``gradients_mean`` their mean.
    ``device_num``, if it is given, must be the number of ranks. With ``parameter_broadcast`` steps begin
    with the parameters of rank 0; else give all ranks one seed. ``all_reduce_fusion_config=[20, 35]`` combines the
    gradients of the first 20 parameters together, those up to the 35th, and the others;
    ``comm_fusion={"allreduce": {"mode": "size", "config": 32}}`` as many as have 32 MB, with ``index`` for ``mode`` and
    such a list it does what the other option does, and ``auto`` is the default. The others of MindSpore's options are
    refused.

    Raises:
        ArgumentValueError: If an option is unknown or its value is not supported.
        ArgumentTypeError: If a value has the wrong type.
    """
    for name, value in options.items():
        if name not in _DEFAULTS:
            known = "known ones are " + ", ".join(_DEFAULTS)
            raise ArgumentValueError(f"set_auto_parallel_context was given {name}", known)
        if isinstance(_DEFAULTS[name], bool) and not isinstance(value, bool):
            raise ArgumentTypeError(f"{name} of set_auto_parallel_context is {value!r}", "give True or False")
        if name == "parallel_mode" and value not in _HERE:
            raise ArgumentValueError(f"parallel_mode is {value!r}", f"it must be one of {', '.join(_HERE)}")
        if name == "enable_parallel_optimizer" and value:
            raise ArgumentValueError("enable_parallel_optimizer is not supported", "leave it out")
        if name in ("all_reduce_fusion_config", "comm_fusion"):
            _check_fusion(name, value)
    _SET.update(options)


def get_auto_parallel_context(attr_key: str) -> Any:
    """Return an option.

    Raises:
        ArgumentValueError: If there is no such option.
    """
    if attr_key not in _DEFAULTS:
        raise ArgumentValueError(f"get_auto_parallel_context was asked for {attr_key}", f"there are {list(_DEFAULTS)}")
    return _SET.get(attr_key, _DEFAULTS[attr_key])


def reset_auto_parallel_context() -> None:
    """Let every rank work for itself."""
    _SET.clear()


def _check_fusion(name: str, value: Any) -> None:
    """Refuse a text that does not say which gradients go together."""
    mode, config = ("index", value) if name == "all_reduce_fusion_config" else _asked(value)
    is_index = mode == "index" and isinstance(config, list) and all(isinstance(each, int) for each in config)
    is_size = mode == "size" and isinstance(config, int) and config > 0
    rises = not is_index or sorted(set(config)) == config
    if value is not None and not (rises and (is_index or is_size or (mode == "auto" and config is None))):
        raise ArgumentValueError(f"{name} is {value!r}", "see help(set_auto_parallel_context)")


def _asked(value: Any) -> tuple[Any, Any]:
    """Return mode and config that ``comm_fusion`` has for ``AllReduce``."""
    chosen = value.get("allreduce") if isinstance(value, dict) else None
    return (chosen.get("mode"), chosen.get("config")) if isinstance(chosen, dict) else ("auto", None)


def fusion() -> tuple[int | None, tuple[int, ...]]:
    """Return the most bytes of gradients that go together, and the parameters at which the next ones begin.

    None for the bytes is the default.
    """
    mode, config = _asked(get_auto_parallel_context("comm_fusion"))
    if mode == "size":
        return config << 20, ()
    return None, tuple(config if mode == "index" else get_auto_parallel_context("all_reduce_fusion_config") or ())


def is_data_parallel() -> bool:
    """Return whether steps of training combine gradients over ranks."""
    return bool(get_auto_parallel_context("parallel_mode") == ParallelMode.DATA_PARALLEL)
