"""A double of ``triton_python_backend_utils``: what its documentation says of the classes that a model meets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

TRITON_STRING_TO_NUMPY = {
    "TYPE_BOOL": bool, "TYPE_UINT8": np.uint8, "TYPE_UINT16": np.uint16, "TYPE_UINT32": np.uint32,
    "TYPE_UINT64": np.uint64, "TYPE_INT8": np.int8, "TYPE_INT16": np.int16, "TYPE_INT32": np.int32,
    "TYPE_INT64": np.int64, "TYPE_FP16": np.float16, "TYPE_FP32": np.float32, "TYPE_FP64": np.float64,
    "TYPE_STRING": np.object_,
}  # fmt: skip


class TritonError:
    """An error of one response."""

    def __init__(self, message: str) -> None:
        self._message = message

    def message(self) -> str:
        """Return its text."""
        return self._message


class Tensor:
    """A named array."""

    def __init__(self, name: str, array: Any) -> None:
        assert isinstance(array, np.ndarray), "Triton takes numpy's arrays alone"
        self._name, self._array = name, np.ascontiguousarray(array)

    def name(self) -> str:
        """Return its name."""
        return self._name

    def as_numpy(self) -> Any:
        """Return its array."""
        return self._array


class InferenceRequest:
    """A request: tensors with a batch in front."""

    def __init__(self, inputs: Sequence[Tensor]) -> None:
        self._inputs = inputs

    def inputs(self) -> Sequence[Tensor]:
        """Return its tensors."""
        return self._inputs


class InferenceResponse:
    """A response: tensors, or an error."""

    def __init__(self, output_tensors: Sequence[Tensor] = (), error: TritonError | None = None) -> None:
        self._tensors, self._error = output_tensors, error

    def output_tensors(self) -> Sequence[Tensor]:
        """Return its tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Return whether it is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """Return its error."""
        return self._error


class ModelConfig:
    """A configuration to which a model adds its inputs and outputs."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._config: dict[str, Any] = {"input": [], "output": [], **config}

    def as_dict(self) -> dict[str, Any]:
        """Return all that it says."""
        return self._config

    def add_input(self, described: dict[str, Any]) -> None:
        """Add an input."""
        self._add("input", described, {"name", "data_type", "dims", "optional"})

    def add_output(self, described: dict[str, Any]) -> None:
        """Add an output."""
        self._add("output", described, {"name", "data_type", "dims"})

    def _add(self, kind: str, described: dict[str, Any], known: set[str]) -> None:
        if not {"name", "data_type", "dims"} <= set(described) <= known:
            raise ValueError(f"{kind} {described} has other properties than Triton knows")
        self._config[kind].append(described)


def get_input_tensor_by_name(request: InferenceRequest, name: str) -> Tensor | None:
    """Return a request's tensor of a name; None if there is none."""
    return next((tensor for tensor in request.inputs() if tensor.name() == name), None)


def get_output_tensor_by_name(response: InferenceResponse, name: str) -> Tensor | None:
    """Return a response's tensor of a name; None if there is none."""
    return next((tensor for tensor in response.output_tensors() if tensor.name() == name), None)
