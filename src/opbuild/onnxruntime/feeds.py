"""The feeds that a program gives a session: checked, in ONNX Runtime's words, and made a network's inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.frontend.wire import DeclaredType
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.onnxruntime.metadata import NodeArg
from opbuild.onnxruntime.status import InvalidArgument, NotImplemented, failure
from opbuild.onnxruntime.types import STRING, tensor_name
from opbuild.onnxruntime.values import OrtValue

_FIX = "Please fix either the inputs/outputs or the model."


class Feeds:
    """The inputs of a model, which say what may be given for them.

    Args:
        arguments: The inputs.
        declared: What the model declares of each.
        defaults: Names of inputs that have a default.
    """

    def __init__(
        self, arguments: list[NodeArg], declared: Mapping[str, DeclaredType], defaults: Mapping[str, object]
    ) -> None:
        self._inputs = {each.name: _Input(each, declared[each.name]) for each in arguments}
        self._needed = [name for name, each in self._inputs.items() if declared[name].kind != "optional"]
        self._defaults = defaults

    def require(self, name: str) -> None:
        """Refuse a feed that is no input.

        Raises:
            RuntimeError: If it is none.
        """
        if name not in self._inputs and name not in self._defaults:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return one value for each input.

        Raises:
            ValueError: If an input is missing.
            InvalidArgument: If there is no such input, or a value is of another type, rank or size.
            RuntimeError: If a value is no array.
        """
        missing = [name for name in self._needed if name not in given]
        if missing:
            raise ValueError(f"Required inputs ({missing}) are missing from input feed ({list(given)}).")
        values: dict[str, Any] = dict.fromkeys(self._inputs)
        for name, value in given.items():
            if name not in self._inputs:
                if name in self._defaults:
                    raise failure(NotImplemented, f"the default of {name} cannot be overridden")
                raise failure(InvalidArgument, f"Invalid input name: {name}")
            values[name] = self._inputs[name].read(value.value if isinstance(value, OrtValue) else value)
        return values


class _Input:
    """One input: its element type and the extents that are fixed."""

    def __init__(self, argument: NodeArg, declared: DeclaredType) -> None:
        self._argument = argument
        self._is_tensor = declared.kind == "tensor"
        self._is_text = declared.elem == STRING
        self._dtype = numpy_dtype(ONNX_DTYPES[declared.elem]) if declared.elem in ONNX_DTYPES else None
        self._rank = None if declared.shape is None else len(declared.shape)
        self._fixed = [(axis, each) for axis, each in enumerate(argument.shape) if isinstance(each, int)]

    def read(self, value: Any) -> Any:
        """Return a value that the network takes."""
        if not self._is_tensor:
            return value
        array = self._array(value)
        if isinstance(array, np.ndarray):
            self._check(array)
        return array

    def _array(self, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            value = np.asarray(value, None if self._is_text else self._dtype)
        if isinstance(value, np.ndarray):
            return _texts(value) if self._is_text else value
        if isinstance(value, str):
            name = self._argument.name
            raise RuntimeError(f"Input must be a list of dictionaries or a single numpy array for input '{name}'.")
        if not hasattr(value, "__dlpack__"):
            raise RuntimeError(f"Unable to handle object of type {type(value)}")
        return value

    def _check(self, array: np.ndarray[Any, Any]) -> None:
        if not self._is_text and array.dtype != self._dtype:
            actual, expected = tensor_name(array.dtype), self._argument.type
            text = f"Unexpected input data type. Actual: ({actual}) , expected: ({expected})"
            raise failure(InvalidArgument, text)
        name, shape = self._argument.name, array.shape
        if self._rank is not None and len(shape) != self._rank:
            text = f"Invalid rank for input: {name} Got: {len(shape)} Expected: {self._rank} {_FIX}"
            raise failure(InvalidArgument, text)
        wrong = [(axis, shape[axis], extent) for axis, extent in self._fixed if shape[axis] != extent]
        if wrong:
            shown = "".join(f"\n index: {axis} Got: {got} Expected: {expected}" for axis, got, expected in wrong)
            text = f"Got invalid dimensions for input: {name} for the following indices{shown}\n {_FIX}"
            raise failure(InvalidArgument, text)


def _texts(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return an array of Python's strings, whatever form texts were given in."""
    if array.dtype.kind in "SV":
        return np.array([_text(each) for each in array.ravel().tolist()], object).reshape(array.shape)
    return array.astype(object)


def _text(each: bytes) -> str:
    return bytes(each).rstrip(b"\0").decode("utf-8", "replace")
