"""``context``: the settings of MindSpore programs, and how the ranks of a job share a network's work.

Opbuild obeys the mode and the target and keeps the others as given. Ranks share data.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from opbuild.config import Config, options_in
from opbuild.errors import OptionError
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError
from opbuild.platform.records import NamedTuple
from opbuild.target.devices import device_problem

__all__ = [
    "COMPATIBLE", "GRAPH_MODE", "LAX", "PYNATIVE_MODE", "STRICT", "ParallelMode", "get_auto_parallel_context",
    "get_context", "get_current_device", "reset_auto_parallel_context", "set_auto_parallel_context", "set_context",
    "set_device",
]  # fmt: skip


def warn(text: str) -> None:
    """Write a warning to the standard error stream, where there is one."""
    if sys.stderr is not None:
        sys.stderr.write(f"opbuild: warning: {text}\n")


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
    """Return an option."""
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


GRAPH_MODE = 0
PYNATIVE_MODE = 1
STRICT, COMPATIBLE, LAX = 0, 1, 2
_FOR = "For 'context.set_context', the"
_TARGETS = ("CPU", "GPU", "Ascend", "Davinci")

# Names, types and defaults as MindSpore 2 documents them; None: no default of its own.
_OPTIONS: dict[str, tuple[tuple[type, ...], Any]] = {
    "mode": ((int,), PYNATIVE_MODE), "device_target": ((str,), "CPU"), "device_id": ((int,), 0),
    "save_graphs": ((bool, int), 0), "save_graphs_path": ((str,), "."), "aoe_tune_mode": ((str,), ""),
    "aoe_config": ((dict,), None), "enable_reduce_precision": ((bool,), True),
    "variable_memory_max_size": ((str,), "0GB"), "enable_auto_mixed_precision": ((bool,), False),
    "inter_op_parallel_num": ((int,), 0), "enable_graph_kernel": ((bool,), False),
    "reserve_class_name_in_scope": ((bool,), True), "check_bprop": ((bool,), False),
    "max_device_memory": ((str,), "1024GB"), "print_file_path": ((str,), ""), "max_call_depth": ((int,), 1000),
    "env_config_path": ((str,), ""), "graph_kernel_flags": ((str,), ""), "save_compile_cache": ((bool,), False),
    "load_compile_cache": ((bool,), False), "enable_compile_cache": ((bool,), None), "compile_cache_path": ((str,), ""),
    "runtime_num_threads": ((int,), None), "pynative_synchronize": ((bool,), False),
    "mempool_block_size": ((str,), "1GB"), "disable_format_transform": ((bool,), False), "op_timeout": ((int,), 900),
    "deterministic": ((str,), "OFF"), "ascend_config": ((dict,), None), "gpu_config": ((dict,), None),
    "jit_config": ((dict,), None), "jit_syntax_level": ((int,), LAX), "jit_enable_inplace_ops": ((bool,), True),
    "debug_level": ((int,), 0), "memory_optimize_level": ((str,), "O0"), "memory_offload": ((str,), "OFF"),
    "exec_order": ((str,), ""), "op_compiler_cache_mode": ((str,), None), "op_compiler_cache_dir": ((str,), None),
    "op_debug_level": ((int,), None), "op_debug_config": ((str,), None), "debug_dir": ((str,), None),
    "op_select_implmode": ((str,), None), "optypelist_for_implmode": ((str, list, tuple), None),
    "precision_mode": ((str,), None),
}  # fmt: skip
_BUILD_OPTIONS = tuple(options_in(_OPTIONS))
"""Options of the offline compiler that ``opbuild.compile`` takes too; None: the environment or the default decides."""


class _Context:
    """The settings of this process."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: default for name, (_, default) in _OPTIONS.items()}
        self.warned = False

    def set(self, name: str, value: Any) -> None:
        if name not in _OPTIONS:
            known = "known ones are " + ", ".join(sorted(_OPTIONS))
            raise ArgumentValueError(f"{_FOR} keyword argument {name} is not recognized!", known)
        types = _OPTIONS[name][0]
        if not isinstance(value, types) or (isinstance(value, bool) and bool not in types):
            allowed = " or ".join(type_.__name__ for type_ in types)
            raise ArgumentTypeError(f"{_FOR} argument {name!r} is {value!r}", f"its type must be {allowed}")
        _check(name, value)
        self.values[name] = value
        if name == "device_target" and value != "CPU" and build_target() is None:
            self.warn(str(value))

    def warn(self, target: str) -> None:
        if not self.warned:
            self.warned = True
            warn(f"no {target} device here; operators are built for the host CPU")


_CONTEXT = _Context()


def _check(name: str, value: Any) -> None:
    must = ""
    if name == "mode" and value not in (GRAPH_MODE, PYNATIVE_MODE):
        must = "should be context.GRAPH_MODE (0) or context.PYNATIVE_MODE (1)"
    if name == "device_target" and value not in _TARGETS:
        must = f"must be one of {list(_TARGETS)}"
    if name == "device_id" and not 0 <= value <= 4095:
        must = "must be in range [0, 4095]"
    if name == "max_call_depth" and value <= 0:
        must = "must be greater than 0"
    if must:
        raise ArgumentValueError(f"{_FOR} argument {name!r} {must}, but got {value}.")
    if name in _BUILD_OPTIONS:
        try:
            Config.from_environment(**{name: value}, environ={})
        except OptionError as error:
            raise ArgumentValueError(f"{_FOR} argument {error.message}", error.hint) from None


class DeviceInfo(NamedTuple):
    """The result of ``get_current_device``."""

    device_target: str
    device_id: int


def get_current_device() -> DeviceInfo:
    """Return the kind and the number of the device that programs run on."""
    return DeviceInfo(get_context("device_target"), get_context("device_id"))


def set_context(**options: Any) -> None:
    """Change settings.

    ``mode`` is ``GRAPH_MODE`` (a cell is built as one network) or ``PYNATIVE_MODE`` (each operator is built and run at
    once). ``device_target`` is ``CPU`` or, where there is one, ``GPU``: what that has no kernels for is the CPU's. It
    may name a device that is not here: operators are then built for the host CPU, and one line on the standard error
    says so. ``op_compiler_cache_mode`` and the other options of builds are those of
    ``opbuild.compile``. ``runtime_num_threads`` is the number of threads that run a network. The other options of
    MindSpore are checked and kept, and change nothing.

    Raises:
        ArgumentValueError: If an option is unknown or its value is not allowed (a ``ValueError`` too).
        ArgumentTypeError: If a value has the wrong type (a ``TypeError`` too).
    """
    for name, value in options.items():
        _CONTEXT.set(name, value)


def get_context(attr_key: str) -> Any:
    """Return a setting."""
    if attr_key not in _OPTIONS:
        raise ArgumentValueError(f"For 'context.get_context', the argument {attr_key} is not recognized!")
    value = _CONTEXT.values[attr_key]
    if attr_key == "runtime_num_threads" and value is None:
        return os.cpu_count()
    return value


def set_device(device_target: str, device_id: int | None = None) -> None:
    """Choose the device, as ``set_context(device_target=..., device_id=...)`` does."""
    set_context(device_target=device_target)
    if device_id is not None:
        set_context(device_id=device_id)


def num_threads() -> int | None:
    """Return ``runtime_num_threads`` if the program set it."""
    value = _CONTEXT.values["runtime_num_threads"]
    return value if isinstance(value, int) and value > 0 else None


_CLASSES = {"GPU": "cuda"}
"""The classes of devices that targets of MindSpore name."""


def build_target() -> str | None:
    """Return the class of devices that networks are built for; None: the CPU."""
    name = _CLASSES.get(_CONTEXT.values["device_target"])
    return name if name is not None and device_problem(name) is None else None


def build_config() -> Config:
    """Return the settings for a build: those that the program set, then the environment, then defaults.

    Programs wait for their operators: what they look for in ``kernel_meta`` is there when they end.
    """
    options = {name: _CONTEXT.values[name] for name in _BUILD_OPTIONS if _CONTEXT.values[name] is not None}
    return Config.from_environment(num_threads=num_threads(), mindspore=True, **options).waiting()


def is_graph_mode() -> bool:
    """Return whether cells are built as one network."""
    return bool(_CONTEXT.values["mode"] == GRAPH_MODE)
