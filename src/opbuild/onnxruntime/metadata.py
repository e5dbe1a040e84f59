"""NodeArg and ModelMetadata: a session's description of its model; and the feeds that its inputs take."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.frontend.wire import DeclaredExtent, DeclaredModel, DeclaredType
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.kernel.opdesc import FREE
from opbuild.onnxruntime.options import SessionOptions
from opbuild.onnxruntime.status import InvalidArgument, failure
from opbuild.onnxruntime.values import STRING, OrtValue, element_name, tensor_name, type_name
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import dataclass
from opbuild.runtime.endpoint import Endpoint

_NO_VERSION = 2**63 - 1
"""What ONNX Runtime answers where a model has no version."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output.

    Attributes:
        name: Its name.
        type: Its type, such as ``tensor(float)``.
        shape: Its extents: a number, the name of an open extent, or None for one without a name. Empty where the rank
            is open too.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model.

    Attributes:
        producer_name: What exported it.
        graph_name: The name of its graph.
        domain: Its domain.
        description: Its description.
        graph_description: Its graph's description.
        version: Its version; the greatest number of 64 bits if it has none.
        custom_metadata_map: The exporter's notes.
    """

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata_of(model: DeclaredModel) -> ModelMetadata:
    """Return the metadata of a model."""
    names = ("producer_name", "graph_name", "domain", "description", "graph_description")
    return ModelMetadata(
        **{name: model.texts.get(name, "") for name in names},
        version=_NO_VERSION if model.version is None else model.version,
        custom_metadata_map=dict(model.metadata),
    )


def texts_of(model: ModelMetadata) -> dict[str, str]:
    """Return the metadata as a program gets it that chooses devices."""
    return {
        "doc_string": model.description,
        "domain": model.domain,
        "graph_description": model.graph_description,
        "graph_name": model.graph_name,
        "model_version": str(model.version),
        "producer_name": model.producer_name,
        "producer_version": "",
    }


def arguments_of(declared: Mapping[str, DeclaredType], options: SessionOptions) -> list[NodeArg]:
    """Return inputs or outputs as declared, with the sizes that the options give to open extents."""
    return [
        NodeArg(name, type_name(each), [_extent(extent, options) for extent in each.shape or ()])
        for name, each in declared.items()
    ]


def argument_of_endpoint(endpoint: Endpoint) -> NodeArg:
    """Return an output that the model does not declare in full, as the network infers it."""
    shape: list[int | str | None] = [None if extent == FREE else extent for extent in endpoint.shape or ()]
    return NodeArg(endpoint.name, f"tensor({element_name(endpoint.type.dtype)})", shape)


def _extent(extent: DeclaredExtent, options: SessionOptions) -> int | str | None:
    if extent.value is not None:
        return extent.value
    sizes = (options.sizes_by_name.get(extent.name), options.sizes_by_denotation.get(extent.denotation))
    return next((size for size in sizes if size is not None), extent.name or None)


_NONE = frozenset[str]()

_FIX = "Please fix either the inputs/outputs or the model."


class Feeds:
    """The inputs of a model, which check the values that are given for them."""

    def __init__(
        self,
        arguments: list[NodeArg],
        declared: Mapping[str, DeclaredType],
        defaults: Mapping[str, DeclaredType],
        options: SessionOptions,
    ) -> None:
        self._inputs = {each.name: _Input(each, declared[each.name]) for each in arguments}
        self._needed = [name for name, each in self._inputs.items() if declared[name].kind != "optional"]
        self._defaults, self._options = defaults, options

    def require(self, name: str) -> None:
        """Refuse a feed that is bound and is no input; one with a default is none to bind."""
        if name not in self._inputs:
            raise RuntimeError(f"Failed to find NodeArg with name: {name} in the def list")

    def read(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Return one value for each input, and for each of those with a default that is given.

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
            found = self._inputs.get(name) or self._overridable.get(name)
            if found is None:
                raise failure(InvalidArgument, f"Invalid input name: {name}")
            values[name] = found.read(value.value if isinstance(value, OrtValue) else value)
        return values

    def overridden(self, values: Mapping[str, Any]) -> frozenset[str]:
        """Return the names of the inputs with a default for which there are values."""
        return frozenset(values).difference(self._inputs) if len(values) > len(self._inputs) else _NONE

    @lazy_property
    def _overridable(self) -> dict[str, _Input]:
        """The inputs with a default; few calls give one."""
        arguments = arguments_of(self._defaults, self._options)
        return {each.name: _Input(each, self._defaults[each.name]) for each in arguments}


class _Input:
    """One input: its element type and the extents that are fixed."""

    def __init__(self, argument: NodeArg, declared: DeclaredType) -> None:
        self._argument = argument
        self._is_tensor = declared.kind == "tensor"
        self._is_text = declared.elem == STRING
        self._dtype = numpy_dtype(ONNX_DTYPES[declared.elem]) if declared.elem in ONNX_DTYPES else None
        self._rank = None if declared.shape is None else len(declared.shape)
        self._fixed = [(axis, each) for axis, each in enumerate(argument.shape) if isinstance(each, int)]
        self._shape = tuple(each for _, each in self._fixed) if len(self._fixed) == self._rank else None

    def read(self, value: Any) -> Any:
        """Return a value that the network takes."""
        if type(value) is np.ndarray and value.dtype is self._dtype and value.shape == self._shape:
            return value  # as most are
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
