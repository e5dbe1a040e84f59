"""InferenceSession: a model that is ready to run, memory that is bound to it, and its profile."""

from __future__ import annotations

import ctypes
import os
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from opbuild.errors import OutputError
from opbuild.onnxruntime.environment import CPU, registered, target_of
from opbuild.onnxruntime.logs import warn_once
from opbuild.onnxruntime.metadata import (
    Feeds,
    ModelMetadata,
    NodeArg,
    argument_of_endpoint,
    arguments_of,
    metadata_of,
    texts_of,
)
from opbuild.onnxruntime.model import Model, read_model
from opbuild.onnxruntime.options import RunOptions, SessionOptions
from opbuild.onnxruntime.status import InvalidArgument, as_status, failure
from opbuild.onnxruntime.values import CUDA, OrtDevice, OrtValue, OrtValueVector, array_dtype, device_named
from opbuild.platform.background import begin
from opbuild.platform.calls import quiet_when_interrupted
from opbuild.platform.locks import lazy_property

if TYPE_CHECKING:
    from opbuild.api import Network
    from opbuild.onnxruntime.devices import OrtEpDevice, OrtMemoryInfo
    from opbuild.onnxruntime.profile import SessionProfile


_AS_STATUS = as_status()

_IGNORED = {
    "disabled_optimizers": "networks are always optimized wholly",
    "read_config_from_model": "options are those that the program gives",
}


class IOBinding:
    """The inputs and outputs of a session, bound to memory."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, OrtValue | None] = {}
        self.results: dict[str, OrtValue] = {}
        self._places: dict[str, str] = {}

    def bind_cpu_input(self, name: str, arr_on_cpu: Any) -> None:
        """Read an input from an array.

        Raises:
            RuntimeError: If there is no such input.
        """
        self.session.feeds.require(name)
        self.inputs[name] = OrtValue(np.asarray(arr_on_cpu))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Read an input from memory at an address, which must stay there.

        Raises:
            RuntimeError: If there is no such input, or no such device, or the session runs on another one.
            ValueError: If opbuild has no such element type.
        """
        self.session.feeds.require(name)
        self.inputs[name] = OrtValue(self._array_at(device_type, device_id, buffer_ptr, shape, element_type))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Read an input from a value.

        Raises:
            RuntimeError: If there is no such input.
        """
        self.session.feeds.require(name)
        self.inputs[name] = ortvalue

    def bind_output(
        self,
        name: str,
        device_type: str = "cpu",
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output: in memory at an address, or, without one, in memory of its own in each call.

        Raises:
            RuntimeError: If there is no such device, or the session runs on another one.
            ValueError: If there is an address without an element type and a shape.
        """
        self._places[name] = self.session.device_named(device_type, device_id)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self.outputs[name] = OrtValue(self._array_at(device_type, device_id, buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to a value."""
        self.outputs[name] = ortvalue

    def _array_at(self, device_type: str, device_id: int, address: int, shape: Sequence[int], element_type: Any) -> Any:
        if self.session.device_named(device_type, device_id) != CUDA:
            return _array_at(address, shape, element_type)
        from opbuild.onnxruntime import gpu

        return gpu.array_at(address, shape, array_dtype(element_type))

    @property
    def is_on_gpu(self) -> bool:
        """Whether an output is asked for on the GPU."""
        return CUDA in self._places.values() or any(
            each is not None and each.is_on_gpu for each in self.outputs.values()
        )

    @property
    def arrays(self) -> dict[str, Any]:
        """The memory that outputs are bound to, by their names."""
        bound = {name: each for name, each in self.outputs.items() if each is not None}
        return {
            name: each.value
            for name, each in bound.items()
            if (type(each.value) is np.ndarray and each.value.flags.writeable) or each.is_on_gpu
        }

    def store(self, results: Sequence[Any]) -> None:
        """Put the results of a call where they belong.

        Raises:
            RuntimeError: If memory that is bound has another shape or element type.
        """
        self.results = {}
        for (name, bound), result in zip(self.outputs.items(), results, strict=True):
            found = OrtValue(result)
            if bound is not None and found.is_tensor() and bound.value is not result:
                bound.update_inplace(found)
            self.results[name] = self._placed(name, found) if bound is None else bound
        if self.is_on_gpu:
            self.synchronize_outputs()

    def _placed(self, name: str, result: OrtValue) -> OrtValue:
        """Return a result on the device where it is asked for."""
        place = self._places.get(name, "cpu")
        if not result.is_tensor() or result.device_name() == place:
            return result
        return OrtValue.ortvalue_from_numpy(result.numpy(), place)

    def get_outputs(self) -> OrtValueVector:
        """Return the outputs of the last call."""
        return OrtValueVector(self.results.values())

    def get_outputs_as_ortvaluevector(self) -> OrtValueVector:
        """Return the outputs of the last call."""
        return self.get_outputs()

    def copy_outputs_to_cpu(self) -> list[Any]:
        """Return the outputs of the last call as arrays of their own."""
        return [np.array(each.value) if each.is_tensor() else each.value for each in self.results.values()]

    def synchronize_inputs(self) -> None:
        """Wait until inputs are there: calls wait for the default stream, and what values hold is there."""

    def synchronize_outputs(self) -> None:
        """Wait until outputs are there: on the processor they are, on the GPU when a run returns."""
        if self.is_on_gpu:
            from opbuild.onnxruntime import gpu

            gpu.synchronize()

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.outputs.clear()
        self.results.clear()
        self._places.clear()


def _array_at(address: int, shape: Sequence[int], element_type: Any) -> np.ndarray[Any, Any]:
    """Return an array that reads and writes memory at an address."""
    dtype = array_dtype(element_type)
    nbytes = prod(shape) * dtype.itemsize
    if not nbytes:
        return np.empty(shape, dtype)
    memory = (ctypes.c_uint8 * nbytes).from_address(address)
    return np.ctypeslib.as_array(memory).view(dtype).reshape(shape)


class InferenceSession:
    """A model that is ready to run; any number of threads may run it. Sessions of the same model share one network.

    Args:
        path_or_bytes: A model's file or its bytes.
        sess_options: How it is made.
        providers: Execution providers, of which opbuild is the processor's and, where there is a GPU, CUDA's. The
            network runs by the first of them; what that has no kernels for is the processor's.
        provider_options: Options of each.
        enable_fallback: Whether a provider that there is not is passed over with a warning.
        ignored: Other arguments of ONNX Runtime's, each of which warns once.

    Raises:
        TypeError: If the model or the options are of another type.
        ValueError, RuntimeError: If ``enable_fallback`` is 0 and the providers are not given as they must be.
        NoSuchFile: If there is no such file.
        InvalidProtobuf, InvalidGraph, InvalidArgument: If it is no ONNX model.
        NotImplemented: If it has an operator or a type that opbuild has not.
        Fail: If an option cannot be honoured.
        RuntimeException: If it cannot be built.
    """

    @quiet_when_interrupted
    def __init__(
        self,
        path_or_bytes: str | bytes | os.PathLike[str],
        sess_options: SessionOptions | None = None,
        providers: Any = None,
        provider_options: Any = None,
        *,
        enable_fallback: int = 1,
        **ignored: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options is of type SessionOptions, not {type(sess_options).__name__}")
        self._options = sess_options or SessionOptions()
        for name in ignored:
            warn_once(f"InferenceSession's {name} is ignored: {_IGNORED.get(name, 'there is no such argument')}")
        if providers and self._options.has_providers():
            warnings.warn(_TWICE, stacklevel=3)
        self._providers = _providers(providers, provider_options, bool(int(enable_fallback)))
        self._options.check(names_cpu=_names_cpu(providers))
        self._profile = _profile(self._options)
        with self._profile.event("session_initialization") if self._profile else nullcontext():
            self._model: Model = read_model(path_or_bytes, self._options, target=self._target)
        self._options.log.describe(self._model.network)
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        self._model_bytes = None if is_path else path_or_bytes
        declared = self._model.declared
        self._inputs = arguments_of(declared.inputs, self._options)
        self.feeds = Feeds(self._inputs, declared.inputs, declared.defaults, self._options)
        self._overriding: dict[frozenset[str], Network] = {}
        if self._options.delegate is not None:
            from opbuild.onnxruntime.devices import require_cpu_chosen

            require_cpu_chosen(self._options.delegate, texts_of(self.get_modelmeta()))

    # -- what it is ----------------------------------------------------------------------------------------------------

    def get_inputs(self) -> list[NodeArg]:
        """Return the inputs."""
        return self._inputs

    def get_outputs(self) -> list[NodeArg]:
        """Return the outputs."""
        return self._outputs

    def get_overridable_initializers(self) -> list[NodeArg]:
        """Return the inputs that have a default."""
        return arguments_of(self._model.declared.defaults, self._options)

    def get_modelmeta(self) -> ModelMetadata:
        """Return the metadata of the model."""
        return metadata_of(self._model.declared)

    def get_session_options(self) -> SessionOptions:
        """Return the options that the session was made with."""
        return self._options

    def get_providers(self) -> list[str]:
        """Return the names of the execution providers."""
        return list(self._providers)

    def get_provider_options(self) -> dict[str, dict[str, str]]:
        """Return the options of each execution provider."""
        return self._providers

    @property
    def _source(self) -> str | bytes | os.PathLike[str]:
        return self._model_path or self._model_bytes or b""

    @property
    def _target(self) -> str | None:
        return target_of(self._providers)

    def device_named(self, device_type: str, device_id: int) -> str:
        """Return the device that a binding names; a session of the processor binds nothing on a GPU.

        Raises:
            RuntimeError: If there is no such device, or the session is the processor's.
        """
        found = device_named(device_type, device_id)
        if found == CUDA and self._target != CUDA:
            raise RuntimeError("the session runs on the processor: memory on a GPU is for CUDAExecutionProvider")
        return found

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Take other execution providers, as a session that is made of them does.

        Raises:
            ValueError: If they are not given as they must be.
            RuntimeError: If ONNX Runtime has no such provider.
        """
        before, self._providers = self._target, registered(providers, provider_options)
        if self._target != before:
            self._model = read_model(self._source, self._options, version=self._model.digest, target=self._target)
            self._overriding.clear()

    def disable_fallback(self) -> None:
        """Do nothing: there is no other provider to fall back to when a call fails."""

    def enable_fallback(self) -> None:
        """Do nothing: there is no other provider to fall back to when a call fails."""

    def get_input_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return the memory of each input."""
        from opbuild.onnxruntime.devices import ordinary_memory

        return [ordinary_memory() for _ in self._inputs]

    def get_output_memory_infos(self) -> list[OrtMemoryInfo]:
        """Return the memory of each output."""
        from opbuild.onnxruntime.devices import ordinary_memory

        return [ordinary_memory() for _ in self._outputs]

    def get_input_epdevices(self) -> list[OrtEpDevice]:
        """Return the device of each input."""
        from opbuild.onnxruntime.devices import get_ep_devices

        return get_ep_devices() * len(self._inputs)

    def get_provider_graph_assignment_info(self) -> list[Any]:
        """Refuse to say which nodes are which provider's.

        Raises:
            NotImplemented: Always: all are the processor's.
        """
        from opbuild.onnxruntime.unserved import refusal

        raise refusal("OrtEpAssignedSubgraph")

    def get_tuning_results(self) -> list[Any]:
        """Return none: what opbuild tunes it keeps in its store."""
        return []

    def set_tuning_results(self, results: Sequence[Any], *, error_on_invalid: bool = False) -> None:
        """Take results of tuning, which have no meaning here.

        Raises:
            RuntimeError: If there are any, and it is to be an error.
        """
        if results and error_on_invalid:
            raise RuntimeError("results of tuning are those of other kernels")
        if results:
            warn_once("set_tuning_results is ignored: they are those of other kernels", self._options.log)

    def set_ep_dynamic_options(self, options: Mapping[str, str]) -> None:
        """Warn that the processor's provider has no such options.

        Raises:
            RuntimeError: If there are none.
        """
        if not options:
            raise RuntimeError("No options were provided")
        warn_once(f"set_ep_dynamic_options is ignored: {CPU} has none", self._options.log)

    def release_captured_graph(self, graph_annotation_id: int = 0) -> None:
        """Release nothing: graphs are captured on other devices only."""

    def create_ortvalue_from_shape_and_type(
        self, shape: Sequence[int], element_type: Any, device_type: str, device_id: int = 0, vendor_id: int = -1
    ) -> OrtValue:
        """Return a tensor whose contents are not set; errors are those of ``OrtValue``."""
        return OrtValue.ortvalue_from_shape_and_type(shape, element_type, device_type, device_id, vendor_id)

    # -- running -------------------------------------------------------------------------------------------------------

    @quiet_when_interrupted
    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: RunOptions | None = None
    ) -> list[Any]:
        """Run the model.

        Args:
            output_names: The outputs wanted; none or None: all.
            input_feed: Arrays, lists or ``OrtValue`` by the input's name.
            run_options: How this call runs.

        Returns:
            The outputs in the order asked for: arrays, or lists of arrays.

        Raises:
            ValueError: If an input is missing.
            InvalidArgument: If a name, a type, a rank or an extent is wrong.
            Fail: If ``run_options.terminate`` is set.
            NotImplemented, RuntimeException: If the model cannot be built for these shapes, or fails.
        """
        return _on_host(self._run(output_names, self._read(input_feed, run_options), run_options))

    def run_with_ort_values(
        self,
        output_names: Sequence[str] | None,
        input_dict_ort_values: Mapping[str, OrtValue],
        run_options: RunOptions | None = None,
    ) -> OrtValueVector:
        """Run the model on values and return values; errors are those of ``run``."""
        results = self.run(output_names, input_dict_ort_values, run_options)
        return OrtValueVector(OrtValue(result) for result in results)

    def run_async(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        callback: Any,
        user_data: Any,
        run_options: RunOptions | None = None,
    ) -> None:
        """Run the model in a thread, which calls ``callback(outputs, user_data, error)``; the error is a text.

        Raises:
            ValueError, InvalidArgument: As ``run``, if an input is at fault.
        """
        feeds = self._read(input_feed, run_options)

        def work() -> None:
            try:
                results, problem = _on_host(self._run(output_names, feeds, run_options)), ""
            except Exception as error:  # whatever it is, the callback is told
                results, problem = [], str(error)
            callback(results, user_data, problem)

        if not begin(work, "onnxruntime-run", is_needed=True):
            work()

    def io_binding(self) -> IOBinding:
        """Return bindings of inputs and outputs, none yet."""
        return IOBinding(self)

    def run_with_iobinding(self, iobinding: IOBinding, run_options: RunOptions | None = None) -> None:
        """Run the model on the bound values.

        Raises:
            RuntimeError: If no output is bound, or the memory of one has another shape.
            ValueError: If the bindings are those of another session, or an input is missing.
            InvalidArgument, Fail, NotImplemented, RuntimeException: As ``run``.
        """
        if iobinding.session is not self:
            raise ValueError("IOBinding must be used with the session that created it.")
        if not iobinding.outputs:
            raise RuntimeError("Error in execution: At least one output should be requested.")
        feeds = self._read(iobinding.inputs, run_options)
        try:
            results = self._run(list(iobinding.outputs), feeds, run_options, iobinding.arrays)
        except InvalidArgument as error:
            if isinstance(error.__cause__, OutputError):
                raise RuntimeError(error.message) from error
            raise
        iobinding.store(results)

    def run_with_ortvaluevector(
        self,
        run_options: RunOptions | None,
        feed_names: Sequence[str],
        feeds: Sequence[OrtValue],
        fetch_names: Sequence[str],
        fetches: OrtValueVector,
        fetch_devices: Sequence[OrtDevice],
    ) -> None:
        """Run the model on values, and put those of the outputs into a vector; errors are those of ``run``."""
        results = self.run_with_ort_values(fetch_names, dict(zip(feed_names, feeds, strict=True)), run_options)
        fetches[:] = results

    # -- profiles ------------------------------------------------------------------------------------------------------

    def get_profiling_start_time_ns(self) -> int:
        """Return the start of profiling, in nanoseconds of ``time.monotonic_ns``; 0 if it has not begun."""
        profile = self._profile
        return profile.start if profile else 0

    def end_profiling(self) -> str:
        """End profiling and return the file's name; empty if there is none."""
        profile, self._profile = self._profile, None
        return profile.write() if profile else ""

    # ------------------------------------------------------------------------------------------------------------------

    @lazy_property
    def _outputs(self) -> list[NodeArg]:
        """The outputs; those whose rank the model does not declare are asked of the network."""
        declared = self._model.declared.outputs
        outputs = arguments_of(declared, self._options)
        is_known = all(each.shape is not None or each.kind not in ("", "tensor") for each in declared.values())
        if is_known:
            return outputs
        with as_status():
            told = {each.name: argument_of_endpoint(each) for each in self._model.network.outputs}
        return [
            told[each.name] if declared[each.name].shape is None and each.name in told else each for each in outputs
        ]

    def _read(self, input_feed: Mapping[str, Any], run_options: RunOptions | None) -> dict[str, Any]:
        if run_options is not None:
            if not isinstance(run_options, RunOptions):
                raise TypeError(f"run_options is of type RunOptions, not {type(run_options).__name__}")
            if not run_options.is_told:
                run_options.check(self._options.log)
        return self.feeds.read(input_feed)

    def _run(
        self,
        output_names: Sequence[str] | None,
        feeds: Mapping[str, Any],
        run_options: RunOptions | None = None,
        out: Mapping[str, Any] | None = None,
    ) -> list[Any]:
        for name in output_names or ():
            if name not in self._model.declared.outputs:
                raise failure(InvalidArgument, f"Invalid output name:{name}")
        names = list(output_names or ()) or None
        overridden = self.feeds.overridden(feeds)
        network = self._model.network if not overridden else self._overridden(overridden)
        if (profile := self._profile) is not None:  # another thread may end it meanwhile
            with profile.event("model_run"):
                return _call(network, names, feeds, run_options, out)
        return _call(network, names, feeds, run_options, out)

    def _overridden(self, names: frozenset[str]) -> Network:
        """Return the network in which inputs with a default are inputs as all others."""
        network = self._overriding.get(names)
        if network is None:
            network = read_model(self._source, self._options, names, self._model.digest, self._target).network
            self._overriding[names] = network
        return network


def _on_host(results: Sequence[Any]) -> list[Any]:
    """Return results as arrays of the host's: a call without bindings gives no others."""
    return [np.asarray(each) if hasattr(each, "__cuda_array_interface__") else each for each in results]


def _call(
    network: Network,
    names: list[str] | None,
    feeds: Mapping[str, Any],
    run_options: RunOptions | None,
    out: Mapping[str, Any] | None,
) -> list[Any]:
    """Run a network; with options they may end it."""
    with _AS_STATUS:
        if run_options is not None:
            return run_options.stop.run(network.run, names, feeds, **({"out": out} if out else {}))
        return network.run(names, feeds, out=out) if out else network.run(names, feeds)


_TWICE = (
    "Specified 'providers'/'provider_options' when creating InferenceSession but SessionOptions has already been "
    "configured with providers. InferenceSession will only use the providers passed to InferenceSession()."
)


def _profile(options: SessionOptions) -> SessionProfile | None:
    if not options.enable_profiling:
        return None
    from opbuild.onnxruntime.profile import SessionProfile  # most sessions have none

    return SessionProfile(options.profile_file_prefix)


def _providers(providers: Any, options: Any, has_fallback: bool) -> dict[str, dict[str, str]]:
    try:
        return registered(providers, options)
    except (ValueError, RuntimeError) as error:
        if not has_fallback:
            raise
        warnings.warn(f"EP Error {error} when using {providers}; falling back to the processor's", stacklevel=3)
        return registered(None, None)


def _names_cpu(providers: Any) -> bool:
    named = providers if isinstance(providers, (list, tuple)) else ()
    return any(each == CPU or (isinstance(each, tuple) and CPU in each[:1]) for each in named)
