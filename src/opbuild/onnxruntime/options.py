"""SessionOptions and RunOptions: the options of a program; ``effects`` says what comes of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from opbuild.onnxruntime import environment
from opbuild.onnxruntime.logs import FATAL, PROCESS, Log, warn_once
from opbuild.onnxruntime.status import Fail, InvalidArgument, ModelLoadCanceled, NotImplemented, failure
from opbuild.onnxruntime.values import OrtValue
from opbuild.platform.paths import Path
from opbuild.runtime.stopping import StopFlag

if TYPE_CHECKING:
    from opbuild.onnxruntime.devices import OrtEpDevice, OrtExecutionProviderDevicePolicy


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


FOLDER = "session.model_external_initializers_file_folder_path"
"""The entry of a session's configuration that says where the files of a model's weights are."""

_LONGEST_KEY, _LONGEST_VALUE = 1024, 8192
"""Letters of an entry of a configuration, as ONNX Runtime limits them."""

Delegate = Callable[["list[OrtEpDevice]", "dict[str, str]", "dict[str, str]", int], "list[OrtEpDevice]"]
"""Chooses among devices, given the model's metadata, the runtime's, and how many it may take."""


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
        if not 0 < len(key) <= _LONGEST_KEY:
            raise RuntimeError(f"Config key is empty or longer than maximum length {_LONGEST_KEY}")
        if len(value) > _LONGEST_VALUE:
            raise RuntimeError(f"Config value is longer than maximum length: {_LONGEST_VALUE}")
        self.config[key] = value

    def _get(self, key: str) -> str:
        if key not in self.config:
            raise RuntimeError(f"{type(self).__name__} does not have configuration with key: {key}")
        return self.config[key]

    def _set(self) -> dict[str, Any]:
        """Return the attributes that a program has set."""
        return {name: value for name, value in vars(self).items() if name in type(self).__annotations__}


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
    log_severity_level: int = PROCESS
    log_verbosity_level: int = 0
    logid: str = ""
    optimized_model_filepath: str = ""
    profile_file_prefix: str = "onnxruntime_profile_"
    use_deterministic_compute: bool = False
    use_per_session_threads: bool = True

    if TYPE_CHECKING:
        sizes_by_name: dict[str, int]
        sizes_by_denotation: dict[str, int]
        replaced: dict[str, OrtValue]
        external: dict[str, OrtValue]
        files: dict[str, memoryview]
        delegate: Delegate | None
        is_canceled: bool
        names_cpu: bool
        chooses: bool

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(sizes_by_name={}, sizes_by_denotation={}, replaced={}, external={}, files={})
        vars(self).update(delegate=None, is_canceled=False, names_cpu=False, chooses=False)

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Add an entry of the configuration; one of which nothing comes is named when a session is made.

        Raises:
            RuntimeError: If the key is empty, or one of them is too long.
        """
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

    # -- values of weights ---------------------------------------------------------------------------------------------

    def add_initializer(self, name: str, ort_value: OrtValue) -> None:
        """Replace a weight of the model by a value, as it is when a session is made.

        Raises:
            RuntimeError: If it is no ``OrtValue``, or the weight was replaced already.
        """
        if not isinstance(ort_value, OrtValue):
            raise RuntimeError("The provided Python object must be an OrtValue")
        _add_new(self.replaced, name, ort_value, "An OrtValue")

    def add_external_initializers(self, names: Sequence[str], ort_values: Sequence[OrtValue]) -> None:
        """Give values of weights that the model has in other files, instead of these.

        Raises:
            RuntimeError: If there are not as many names as values, or a weight has a value already.
            AttributeError: If a value is no ``OrtValue``.
        """
        if len(names) != len(ort_values):
            raise RuntimeError("Expecting names and ort_values lists to have equal length")
        for name, value in zip(names, ort_values, strict=True):
            _add_new(self.external, name, value._ortvalue, "An OrtValue")

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], buffers: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Give the contents of the files that hold the model's weights; no file is read then.

        Args:
            names: The files, as the model names them.
            buffers: Bytes, or what has them.
            lengths: How many bytes of each are the file.

        Raises:
            RuntimeError: If there are not as many of each, or a file was given already.
        """
        if not len(names) == len(buffers) == len(lengths):
            raise RuntimeError("add_external_initializers_from_files_in_memory: lists must have equal length")
        for name, buffer, length in zip(names, buffers, lengths, strict=True):
            _add_new(self.files, name, memoryview(buffer).cast("B")[:length], "An entry")

    # -- where it runs -------------------------------------------------------------------------------------------------

    def add_provider(self, name: str, options: Mapping[str, str]) -> None:
        """Take an execution provider, of which opbuild is the processor's.

        Raises:
            RuntimeError: If ONNX Runtime has no such provider.
            InvalidArgument: If it is another one.
        """
        environment.require_provider(name)
        if name != environment.CPU:
            text = (
                f"Failed to add provider of type '{name}' to SessionOptions. Provider configuration is not supported."
            )
            raise failure(InvalidArgument, text)
        environment.warn_of_provider_options(options)
        vars(self).update(names_cpu=True, chooses=True)

    def add_provider_for_devices(self, devices: Sequence[OrtEpDevice], options: Mapping[str, str]) -> None:
        """Take the execution provider of some devices.

        Raises:
            InvalidArgument: If there is no device.
            TypeError: If one is no ``OrtEpDevice``.
        """
        from opbuild.onnxruntime.devices import require_devices

        require_devices(devices)
        if not devices:
            raise failure(InvalidArgument, "Must provide one or more OrtEpDevice instances.")
        environment.warn_of_provider_options(options)
        vars(self).update(names_cpu=True, chooses=True)

    def has_providers(self) -> bool:
        """Return whether an execution provider, devices or a policy were given."""
        return self.chooses

    def set_provider_selection_policy(self, policy: OrtExecutionProviderDevicePolicy) -> None:
        """Let a policy choose the device: there is the processor to choose.

        Raises:
            TypeError: If it is no ``OrtExecutionProviderDevicePolicy``.
        """
        from opbuild.onnxruntime.devices import OrtExecutionProviderDevicePolicy

        if not isinstance(policy, OrtExecutionProviderDevicePolicy):
            raise TypeError(f"policy is of type OrtExecutionProviderDevicePolicy, not {type(policy).__name__}")
        vars(self).update(chooses=True, delegate=None)

    def set_provider_selection_policy_delegate(self, delegate: Delegate) -> None:
        """Let a function choose the device when a session is made."""
        vars(self).update(chooses=True, delegate=delegate)

    def set_ep_context_data_read_func(self, read_func: Callable[..., None], max_data_size: int) -> None:
        """Warn that nothing is read by it: opbuild has no EPContext nodes."""
        warn_once("set_ep_context_data_read_func is ignored: opbuild has no EPContext nodes", self.log)

    def clear_ep_context_data_read_func(self) -> None:
        """Take back ``set_ep_context_data_read_func``, of which nothing came."""

    def set_load_cancellation_flag(self, is_canceled: bool) -> None:
        """Let sessions that begin to be made be refused, or not."""
        vars(self)["is_canceled"] = bool(is_canceled)

    # ------------------------------------------------------------------------------------------------------------------

    @property
    def gives_values(self) -> bool:
        """Whether weights have other values than the model says, or their files another place."""
        return bool(self.replaced or self.external or self.files or FOLDER in self.config)

    @property
    def log(self) -> Log:
        """The log of a session that is made with these options."""
        return Log(self.log_severity_level, self.logid)

    @property
    def num_threads(self) -> int:
        """The threads that run the network; 0 is automatic."""
        given = self.intra_op_num_threads if self.use_per_session_threads else environment.global_threads()
        return max(given or 0, 0)

    def check(self, *, names_cpu: bool = False) -> None:
        """Refuse options that cannot be honoured, and warn of those that are ignored.

        ``names_cpu``: a session names the processor's provider, too.

        Raises:
            Fail: If the optimized model is to be written, or the processor not to be used.
            InvalidArgument: If the processor's provider was named and is not to be used.
            ModelLoadCanceled: If making sessions was cancelled.
            RuntimeError: If the level of the log is none, or the session's threads are not those that there are.
        """
        if self.is_canceled:
            raise failure(ModelLoadCanceled, "Model loading canceled due to user request.")
        if not PROCESS <= self.log_severity_level <= FATAL:
            raise RuntimeError(
                "Invalid session log severity level. Not a valid onnxruntime::logging::Severity value: "
                f"{self.log_severity_level}"
            )
        environment.require_threads(per_session=self.use_per_session_threads)
        if self.optimized_model_filepath:
            raise failure(
                Fail,
                "Unable to serialize model as it contains compiled nodes. "
                "Please disable any execution providers which generate compiled nodes.",
                "'opbuild export' writes a built network to a file",
            )
        if self.config.get("session.disable_cpu_ep_fallback") == "1":
            if names_cpu or self.names_cpu:
                text = "explicitly added the CPU EP to the session, but also disabled fallback to the CPU EP"
                raise failure(InvalidArgument, f"Conflicting session configuration: {text}")
            text = "contains graph nodes that are assigned to the default CPU EP, but fallback to CPU EP has been"
            raise failure(Fail, f"This session {text} explicitly disabled by the user.")
        if (options := self._set()) or self.config:
            from opbuild.onnxruntime.effects import ENTRIES, SESSION, warn_of_ignored

            warn_of_ignored("session option", options, SESSION, self.log)
            warn_of_ignored("session configuration entry", self.config, ENTRIES, self.log)


def _add_new(held: dict[str, Any], name: str, value: Any, what: str) -> None:
    if name in held:
        raise RuntimeError(
            f"[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : {what} for this name has already been added: {name}"
        )
    held[name] = value


class RunOptions(_Checked):
    """The options of one call. A reference page has the effect of each: docs/reference/onnxruntime.md."""

    log_severity_level: int = PROCESS
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False

    if TYPE_CHECKING:
        stop: StopFlag
        is_told: bool

    def __init__(self) -> None:
        super().__init__()
        vars(self).update(stop=StopFlag(), is_told=True)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "terminate":
            (self.stop.set if self.terminate else self.stop.clear)()
        else:
            vars(self)["is_told"] = False

    def add_active_adapter(self, adapter: Any) -> None:
        """Refuse an adapter.

        Raises:
            NotImplemented: Always.
        """
        raise failure(NotImplemented, "adapters are not read", "feed the adapter's tensors to run, by their names")

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Add an entry of the configuration; one of which nothing comes is named when a call begins.

        Raises:
            RuntimeError: If the key is empty, or one of them is too long.
        """
        self._add(key, value)
        vars(self)["is_told"] = False

    def get_run_config_entry(self, key: str) -> str:
        """Return an entry of the configuration.

        Raises:
            RuntimeError: If there is none.
        """
        return self._get(key)

    def check(self, session: Log) -> None:
        """Warn of options that are ignored, once for what was set; ``session`` is the session's log.

        Raises:
            Fail: If the level of the log is none.
        """
        if not PROCESS <= self.log_severity_level <= FATAL:
            raise failure(Fail, f"Invalid run log severity level: {self.log_severity_level}")
        from opbuild.onnxruntime.effects import RUN, RUN_ENTRIES, warn_of_ignored

        level = session.level if self.log_severity_level == PROCESS else self.log_severity_level
        log = Log(level, self.logid or session.logid)
        warn_of_ignored("run option", self._set(), RUN, log)
        warn_of_ignored("run configuration entry", self.config, RUN_ENTRIES, log)
        vars(self)["is_told"] = True
