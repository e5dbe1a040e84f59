"""ModelCompiler: builds a model's operators into the store before its first session, and writes the model as it is.

ONNX Runtime writes a model in which nodes of an execution provider have become EPContext nodes; the processor's
provider makes none, there as here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from enum import IntFlag
from typing import Any

from opbuild.onnxruntime.logs import warn_once
from opbuild.onnxruntime.model import read_model
from opbuild.onnxruntime.options import GraphOptimizationLevel, SessionOptions
from opbuild.onnxruntime.status import Fail, InvalidArgument, failure
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple


class OrtCompileApiFlags(IntFlag):
    """The cases in which compiling is an error."""

    NONE = 0
    ERROR_IF_NO_NODES_COMPILED = 1
    ERROR_IF_OUTPUT_FILE_EXISTS = 2


class OrtExternalInitializerInfo(NamedTuple):
    """The place of a weight in another file."""

    filepath: str
    file_offset: int
    byte_size: int


class ModelCompiler:
    """See the module.

    Args:
        sess_options: How the network is built.
        input_model_path_or_bytes: The model.
        embed_compiled_data_into_model: Ignored with a warning: nothing compiled becomes part of a model.
        external_initializers_file_path: Ignored with a warning: the model is written as it is.
        external_initializers_size_threshold: Ignored with it.
        flags: The cases in which compiling is an error.
        graph_optimization_level: The level; the model that is written is not optimized.
        get_initializer_location_func: Ignored with a warning: the model is written as it is.

    Raises:
        ValueError: If the model is empty.
        TypeError: If it is neither a path nor bytes.
    """

    def __init__(
        self,
        sess_options: SessionOptions,
        input_model_path_or_bytes: str | os.PathLike[str] | bytes,
        embed_compiled_data_into_model: bool = False,
        external_initializers_file_path: str | os.PathLike[str] | None = None,
        external_initializers_size_threshold: int = 1024,
        flags: int = OrtCompileApiFlags.NONE,
        graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_DISABLE_ALL,
        get_initializer_location_func: Callable[..., Any] | None = None,
    ) -> None:
        if not isinstance(input_model_path_or_bytes, (str, os.PathLike, bytes)):
            raise TypeError(f"Unable to load from type '{type(input_model_path_or_bytes)}'")
        if not input_model_path_or_bytes:
            kind = "bytes array" if isinstance(input_model_path_or_bytes, bytes) else "path"
            raise ValueError(f"Input model {kind} is empty")
        self._options, self._model, self._flags = sess_options, input_model_path_or_bytes, OrtCompileApiFlags(flags)
        ignored = {
            "embed_compiled_data_into_model": embed_compiled_data_into_model,
            "external_initializers_file_path": external_initializers_file_path,
            "get_initializer_location_func": get_initializer_location_func,
        }
        for name, value in ignored.items():
            if value:
                warn_once(f"ModelCompiler's {name} is ignored: the model is written as it is", sess_options.log)

    def compile_to_file(self, output_model_path: str | os.PathLike[str]) -> None:
        """Build the operators, and write the model.

        Raises:
            Fail: If an error was asked for where nothing becomes an EPContext node, or the file exists.
            StatusError: If the model cannot be read or built.
        """
        path = Path(output_model_path)
        if self._flags & OrtCompileApiFlags.ERROR_IF_OUTPUT_FILE_EXISTS and path.exists():
            raise failure(Fail, f"Output model already exists: {path}")
        path.write_bytes(self.compile_to_bytes())

    def compile_to_bytes(self) -> bytes:
        """Build the operators, and return the model; errors are those of ``compile_to_file``."""
        if self._flags & OrtCompileApiFlags.ERROR_IF_NO_NODES_COMPILED:
            raise failure(Fail, "Unable to compile any nodes: opbuild's kernels lie in its store, not in a model.")
        if not isinstance(self._model, bytes) and not Path(self._model).exists():
            raise failure(InvalidArgument, f"Input model path does not exist: {str(self._model)!r}")
        self._options.check()
        read_model(self._model, self._options).network.wait_until_stored()
        return self._model if isinstance(self._model, bytes) else Path(self._model).read_bytes()

    def compile_to_stream(self, write_function: Callable[[bytes], Any]) -> None:
        """Build the operators, and give the model to a function; errors are those of ``compile_to_file``."""
        write_function(self.compile_to_bytes())

    def set_ep_context_data_write_func(self, write_func: Callable[..., Any]) -> None:
        """Warn that nothing is written by it: opbuild has no EPContext nodes."""
        warn_once("set_ep_context_data_write_func is ignored: opbuild has no EPContext nodes", self._options.log)

    def clear_ep_context_data_write_func(self) -> None:
        """Take back ``set_ep_context_data_write_func``, of which nothing came."""

    def set_ep_context_binary_information(self, output_directory: str | os.PathLike[str], model_name: str) -> None:
        """Warn that nothing is written there: opbuild has no EPContext nodes."""
        warn_once("set_ep_context_binary_information is ignored: opbuild has no EPContext nodes", self._options.log)
