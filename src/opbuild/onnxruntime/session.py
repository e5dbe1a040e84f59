"""InferenceSession: a model that is ready to run, memory that is bound to it, and its profile."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod
from typing import Any

import numpy as np

from opbuild.errors import OutputError
from opbuild.onnxruntime.environment import registered
from opbuild.onnxruntime.metadata import Feeds, ModelMetadata, NodeArg, argument_of_endpoint, arguments_of, metadata_of
from opbuild.onnxruntime.model import Model, read_model
from opbuild.onnxruntime.options import RunOptions, SessionOptions
from opbuild.onnxruntime.status import InvalidArgument, as_status, failure
from opbuild.onnxruntime.values import OrtValue, OrtValueVector, array_dtype, require_cpu
from opbuild.platform.background import begin
from opbuild.platform.calls import quiet_when_interrupted
from opbuild.platform.locks import lazy_property
from opbuild.platform.paths import Path


class Profile:
    """The profile of a session.

    Attributes:
        start: Nanoseconds of ``time.monotonic_ns`` when it began.
    """

    def __init__(self, prefix: str) -> None:
        self.start = time.monotonic_ns()
        self._path = Path(f"{prefix}_{time.strftime('%Y-%m-%d_%H-%M-%S')}.json")
        self._events: list[str] = []

    @contextmanager
    def event(self, name: str) -> Iterator[None]:
        """Write down how long the block takes."""
        began = time.monotonic_ns()
        try:
            yield
        finally:
            now = time.monotonic_ns()
            fields = {
                "cat": "Session",
                "pid": os.getpid(),
                "tid": threading.get_native_id(),
                "dur": (now - began) // 1000,
                "ts": (began - self.start) // 1000,
                "ph": "X",
                "name": name,
                "args": {},
            }
            self._events.append(json.dumps(fields))

    def write(self) -> str:
        """Write the file and return its name."""
        self._path.write_text("[\n" + ",\n".join(self._events) + "\n]\n", encoding="utf-8")
        return str(self._path)


class IOBinding:
    """The inputs and outputs of a session, bound to memory."""

    def __init__(self, session: InferenceSession) -> None:
        self.session = session
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, OrtValue | None] = {}
        self.results: dict[str, OrtValue] = {}

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
            RuntimeError: If there is no such input, or the device is not the processor.
            ValueError: If opbuild has no such element type.
        """
        require_cpu(device_type)
        self.session.feeds.require(name)
        self.inputs[name] = OrtValue(_array_at(buffer_ptr, shape, element_type))

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
            RuntimeError: If the device is not the processor.
            ValueError: If there is an address without an element type and a shape.
        """
        require_cpu(device_type)
        if buffer_ptr is None:
            self.outputs[name] = None
            return
        if element_type is None or shape is None:
            raise ValueError("`element_type` and `shape` are to be provided if pre-allocated memory is provided")
        self.outputs[name] = OrtValue(_array_at(buffer_ptr, shape, element_type))

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Write an output to a value."""
        self.outputs[name] = ortvalue

    @property
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]:
        """The memory that outputs are bound to, by their names."""
        bound = {name: each.value for name, each in self.outputs.items() if each is not None}
        return {name: value for name, value in bound.items() if type(value) is np.ndarray and value.flags.writeable}

    def store(self, results: Sequence[Any]) -> None:
        """Put the results of a call where they belong.

        Raises:
            RuntimeError: If memory that is bound has another shape or element type.
        """
        self.results = {}
        for (name, bound), result in zip(self.outputs.items(), results, strict=True):
            if bound is not None and isinstance(result, np.ndarray) and bound.value is not result:
                bound.update_inplace(result)
            self.results[name] = OrtValue(result) if bound is None else bound

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
        """Wait until inputs are there: on the processor they are."""

    def synchronize_outputs(self) -> None:
        """Wait until outputs are there: on the processor they are."""

    def clear_binding_inputs(self) -> None:
        """Forget the inputs."""
        self.inputs.clear()

    def clear_binding_outputs(self) -> None:
        """Forget the outputs."""
        self.outputs.clear()
        self.results.clear()


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
        providers: Execution providers, of which opbuild is the processor's.
        provider_options: Options of each.
        enable_fallback: Whether a provider that there is not is passed over with a warning.

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
        **_: Any,
    ) -> None:
        if sess_options is not None and not isinstance(sess_options, SessionOptions):
            raise TypeError(f"sess_options is of type SessionOptions, not {type(sess_options).__name__}")
        self._options = sess_options or SessionOptions()
        self._options.check()
        self._providers = _providers(providers, provider_options, bool(int(enable_fallback)))
        self._profile = Profile(self._options.profile_file_prefix) if self._options.enable_profiling else None
        with self._timed("session_initialization"):
            self._model: Model = read_model(path_or_bytes, self._options)
        is_path = isinstance(path_or_bytes, (str, os.PathLike))
        self._model_path = os.fspath(path_or_bytes) if is_path else None
        self._model_bytes = None if is_path else path_or_bytes
        declared = self._model.declared
        self._inputs = arguments_of(declared.inputs, self._options)
        self.feeds = Feeds(self._inputs, declared.inputs, declared.defaults)

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

    def set_providers(self, providers: Any = None, provider_options: Any = None) -> None:
        """Take other execution providers, of which opbuild is the processor's.

        Raises:
            ValueError: If they are not given as they must be.
            RuntimeError: If ONNX Runtime has no such provider.
        """
        self._providers = registered(providers, provider_options)

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
        return self._run(output_names, self._read(input_feed, run_options))

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
                results, problem = self._run(output_names, feeds), ""
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
            results = self._run(list(iobinding.outputs), feeds, iobinding.arrays)
        except InvalidArgument as error:
            if isinstance(error.__cause__, OutputError):
                raise RuntimeError(error.message) from error
            raise
        iobinding.store(results)

    # -- profiles ------------------------------------------------------------------------------------------------------

    def get_profiling_start_time_ns(self) -> int:
        """Return the start of profiling, in nanoseconds of ``time.monotonic_ns``; 0 if it has not begun."""
        return self._profile.start if self._profile else 0

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
            run_options.check()
        return self.feeds.read(input_feed)

    def _run(
        self, output_names: Sequence[str] | None, feeds: Mapping[str, Any], out: Mapping[str, Any] | None = None
    ) -> list[Any]:
        for name in output_names or ():
            if name not in self._model.declared.outputs:
                raise failure(InvalidArgument, f"Invalid output name:{name}")
        with self._timed("model_run"), as_status():
            names = list(output_names or ()) or None
            return self._model.network.run(names, feeds, out=out) if out else self._model.network.run(names, feeds)

    def _timed(self, name: str) -> AbstractContextManager[None]:
        return self._profile.event(name) if self._profile else nullcontext()


def _providers(providers: Any, options: Any, has_fallback: bool) -> dict[str, dict[str, str]]:
    try:
        return registered(providers, options)
    except (ValueError, RuntimeError) as error:
        if not has_fallback:
            raise
        warnings.warn(f"EP Error {error} when using {providers}; falling back to the processor's", stacklevel=3)
        return registered(None, None)
