"""IOBinding: inputs and outputs that stay where they are from call to call."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from opbuild.onnxruntime.feeds import Feeds
from opbuild.onnxruntime.types import array_dtype
from opbuild.onnxruntime.values import OrtValue, OrtValueVector, require_cpu


class HasFeeds(Protocol):
    """A session."""

    @property
    def feeds(self) -> Feeds:
        """The feeds that its inputs take."""


class IOBinding:
    """The inputs and outputs of a session, bound to memory.

    Args:
        session: The session.
    """

    def __init__(self, session: HasFeeds) -> None:
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

    def store(self, results: Sequence[Any]) -> None:
        """Put the results of a call where they belong.

        Raises:
            RuntimeError: If memory that is bound has another shape or element type.
        """
        self.results = {}
        for (name, bound), result in zip(self.outputs.items(), results, strict=True):
            if bound is not None and isinstance(result, np.ndarray):
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
