"""SessionOptions and RunOptions: the options of a program, and those of them that opbuild can honour."""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Any

from opbuild.onnxruntime.environment import warn_once
from opbuild.onnxruntime.status import Fail, NotImplemented, failure
from opbuild.platform.paths import Path


class GraphOptimizationLevel(IntEnum):
    """The levels of ONNX Runtime's optimization of a graph; opbuild always optimizes it wholly."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(IntEnum):
    """Whether operators run one after the other or side by side."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(IntEnum):
    """The order in which ONNX Runtime runs operators."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


HINTS = frozenset(
    {
        "session.intra_op.allow_spinning", "session.inter_op.allow_spinning", "session.use_env_allocators",
        "session.use_device_allocator_for_initializers", "session.disable_prepacking", "session.use_mmap",
        "session.force_spinning_stop", "session.use_ort_model_bytes_directly", "session.disable_cpu_ep_fallback",
        "session.dynamic_block_base", "session.intra_op_thread_affinities", "session.inter_op_thread_affinities",
    }
)  # fmt: skip
"""Configuration of ONNX Runtime's own memory and threads, without effect on results: taken without a word."""


class _Checked:
    """Attributes that have a type each, and no others, as ONNX Runtime's classes have."""

    if TYPE_CHECKING:  # not what __setattr__ lets programs set
        config: dict[str, str]

    def __init__(self) -> None:
        vars(self)["config"] = {}

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in type(self).__annotations__:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        wanted = type(getattr(type(self), name))
        fits = isinstance(value, wanted) or (wanted in (bool, int) and hasattr(value, "__index__"))
        if not fits or (wanted is int and isinstance(value, IntEnum)):
            raise TypeError(f"{type(self).__name__}.{name} is of type {wanted.__name__}, not {type(value).__name__}")
        vars(self)[name] = wanted(value)

    def _add(self, key: str, value: str) -> None:
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"the key and the value of a configuration entry are texts, not {key!r} and {value!r}")
        self.config[key] = value

    def _get(self, key: str) -> str:
        if key not in self.config:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self.config[key]


class SessionOptions(_Checked):
    """The options of a session. A reference page has the effect of each: docs/reference/onnxruntime.md."""

    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    inter_op_num_threads: int = 0
    intra_op_num_threads: int = 0
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    if TYPE_CHECKING:
        sizes_by_name: dict[str, int]
        sizes_by_denotation: dict[str, int]

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(sizes_by_name={}, sizes_by_denotation={})

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Add an entry of the configuration; one of which nothing comes is named when a session is made."""
        self._add(key, value)

    def get_session_config_entry(self, key: str) -> str:
        """Return an entry of the configuration.

        Raises:
            RuntimeError: If there is none.
        """
        return self._get(key)

    def add_free_dimension_override_by_name(self, name: str, size: int) -> None:
        """Fix the open extents that have this name."""
        self.sizes_by_name[name] = int(size)

    def add_free_dimension_override_by_denotation(self, denotation: str, size: int) -> None:
        """Fix the open extents that have this denotation."""
        self.sizes_by_denotation[denotation] = int(size)

    def register_custom_ops_library(self, path: str) -> None:
        """Refuse a library of operators: it is written for ONNX Runtime's own kernels.

        Raises:
            Fail: Always.
        """
        why = "opbuild cannot call it" if Path(path).exists() else "cannot open shared object file"
        text = f"Failed to load library {path} with error: {path}: {why}"
        raise failure(Fail, text, "operators of your own are written with @opbuild.operator")

    def add_initializer(self, name: str, value: Any) -> None:
        """Refuse another value for a weight.

        Raises:
            NotImplemented: Always.
        """
        raise failure(NotImplemented, f"the initializer {name} cannot be replaced", "write the value into the model")

    def add_external_initializers(self, names: list[str], values: list[Any]) -> None:
        """Refuse values for weights that the model leaves out.

        Raises:
            NotImplemented: Always.
        """
        raise failure(NotImplemented, f"initializers cannot be given: {', '.join(names)}", "write them to a file")

    def check(self) -> None:
        """Refuse options that cannot be honoured, and warn of those that are in another way.

        Raises:
            Fail: If the optimized model is to be written: it is machine code.
        """
        if self.optimized_model_filepath:
            raise failure(
                Fail,
                "Unable to serialize model as it contains compiled nodes. "
                "Please disable any execution providers which generate compiled nodes.",
                "'opbuild export' writes a built network to a file",
            )
        level = self.graph_optimization_level
        if level != GraphOptimizationLevel.ORT_ENABLE_ALL:
            warn_once(f"graph_optimization_level {level.name} is ignored: networks are always optimized wholly")
        if self.execution_mode == ExecutionMode.ORT_PARALLEL:
            warn_once("execution_mode ORT_PARALLEL is ignored: operators run one after the other, each on all threads")
        for key in self.config:
            if key not in HINTS:
                warn_once(f"the session configuration entry {key!r} is ignored")


class RunOptions(_Checked):
    """The options of one call."""

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Add an entry of the configuration; none has an effect."""
        self._add(key, value)

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry of the configuration.

        Raises:
            RuntimeError: If there is none.
        """
        return self._get(key)

    def check(self) -> None:
        """Refuse to run where a program has asked runs to end.

        Raises:
            Fail: If ``terminate`` is set.
        """
        if self.terminate:
            raise failure(Fail, "Exiting due to terminate flag being set to true.")
