"""Reading an ONNX model: bytes to a checked ``ModelProto``, and tensors (external data too) to numpy arrays."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from math import prod

import numpy as np
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]

from opbuild.dtypes import ADDED, numpy_dtype, stored_bits
from opbuild.errors import DTypeError, InvalidModelError, UnsupportedOperatorError
from opbuild.frontend.onnx_messages import AttributeProto, GraphProto, ModelProto, TensorProto
from opbuild.frontend.onnx_schemas import newest_opset
from opbuild.frontend.wire import PLACE, without_large_tensors
from opbuild.graph.shape_rules import ONNX_DTYPES
from opbuild.graph.types import Array
from opbuild.platform.files.kinds import ONNX, require_kind
from opbuild.platform.files.writing import inside
from opbuild.platform.paths import Path
from opbuild.platform.records import NamedTuple


class ModelFile(NamedTuple):
    """A model's file that somebody has read already.

    Attributes:
        path: Where it was read from; None if it is no file.
        contents: Its bytes.
        name: What messages call it.
        message: What ``without_large_tensors`` makes of the bytes, if that was done already.
        read: As ``DataFiles`` has it.
    """

    path: Path | None
    contents: memoryview
    name: str
    message: bytes | None = None
    read: Callable[[Path], Array] | None = None


Source = str | os.PathLike[str] | bytes | ModelFile | ModelProto


class DataFiles(NamedTuple):
    """The bytes of a model's tensors, beside its protobuf messages.

    Attributes:
        model: The model's path, beside which its external data is; None if the model did not come from a file.
        contents: The model's own file; None if the model was not given as one.
        read: Returns the bytes, ``uint8``, of a file of external data; default: it is mapped.
    """

    model: Path | None = None
    contents: memoryview | None = None
    read: Callable[[Path], Array] | None = None


def read_model(source: Source) -> tuple[ModelProto, DataFiles, str]:
    """Read a model and check that it is one.

    Returns:
        The model without its large tensors, where they are, and its name.

    Raises:
        InvalidModelError: If it cannot be read or is not an ONNX model.
        UnsupportedOperatorError: If its operator set is newer than the onnx package knows.
    """
    if isinstance(source, ModelProto):
        _check(source, "the ModelProto given")
        return source, DataFiles(), source.graph.name or "network"
    if isinstance(source, (bytes, bytearray, memoryview)):
        source = ModelFile(None, memoryview(source).cast("B"), f"the model given as {len(source)} bytes")
    file = source if isinstance(source, ModelFile) else _read_file(Path(source))
    files = DataFiles(file.path, file.contents, file.read)
    model = _parse(files, file.name, file.message)
    _check(model, file.name)
    return model, files, (file.path and file.path.stem) or model.graph.name or "network"


def _read_file(path: Path) -> ModelFile:
    try:
        require_kind(path, ONNX)
        return ModelFile(path, memoryview(path.read_bytes()), repr(str(path)))
    except OSError as error:
        raise InvalidModelError(f"{str(path)!r} cannot be read: {error.strerror or error}", "check the path") from error


def _parse(files: DataFiles, shown: str, message: bytes | None) -> ModelProto:
    if not files.contents:
        raise InvalidModelError(f"{shown} is empty", "export or copy the model again")
    try:
        message = without_large_tensors(files.contents)[0] if message is None else message
        model: ModelProto = ModelProto.FromString(message)
    except DecodeError as error:
        problem = f"{shown} is not an ONNX model: it is truncated, damaged or of another format"
        raise InvalidModelError(problem, "export or copy the model again") from error
    return model


def opsets(model: ModelProto) -> dict[str, int]:
    """Return the versions of the operator sets that a model imports; ONNX's own is ``""``."""
    return {("" if each.domain == "ai.onnx" else each.domain): each.version for each in model.opset_import}


def _check(model: ModelProto, shown: str) -> None:
    if not model.HasField("graph") or not model.opset_import:
        raise InvalidModelError(f"{shown} is not an ONNX model: it has no graph or no operator set", "check the file")
    if not model.graph.output:
        raise InvalidModelError(f"{shown} has a graph without outputs", "declare at least one output and export again")
    opset, newest = opsets(model).get("", 0), newest_opset()
    if opset > newest:
        import onnx

        problem = f"{shown} uses operator set {opset}; onnx {onnx.__version__} knows {newest} at most"
        raise UnsupportedOperatorError(problem, "install a newer onnx package, or export the model with an older opset")
    if model.graph.sparse_initializer:
        name = model.graph.sparse_initializer[0].values.name
        raise UnsupportedOperatorError(
            f"{shown} has the sparse initializer {name!r}", "export the model with dense ones"
        )


def external_tensors(graph: GraphProto) -> Iterator[TensorProto]:
    """Yield the tensors whose data is in another file: initializers, then attributes, in the model's order."""
    tensors = list(graph.initializer)
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.type == AttributeProto.TENSOR:
                tensors.append(attribute.t)
            elif attribute.type == AttributeProto.GRAPH:
                yield from external_tensors(attribute.g)
    yield from (tensor for tensor in tensors if tensor.data_location == TensorProto.EXTERNAL)


_DAMAGED = "the file is damaged or was written wrongly; export the model again"


def dtype_name(number: int, what: str) -> str:
    """Return the numpy name of one of ONNX's element types.

    Raises:
        DTypeError: If opbuild does not support it.
    """
    name = ONNX_DTYPES.get(number)
    if name is None:
        known = TensorProto.DataType.Name(number) if number in TensorProto.DataType.values() else str(number)
        problem = f"{what} has the element type {known}, which opbuild does not support"
        raise DTypeError(problem, f"convert the model to one of {', '.join(sorted(ONNX_DTYPES.values()))}")
    return name


def to_array(tensor: TensorProto, files: DataFiles) -> Array:
    """Return a tensor's values; external data is mapped, and data in the model's own file are not copied.

    Raises:
        DTypeError: If its element type is not supported.
        InvalidModelError: If its data is missing, too short or outside the model's folder.
    """
    if tensor.data_type == TensorProto.STRING:
        return _text(tensor)
    dtype = numpy_dtype(dtype_name(tensor.data_type, f"tensor {tensor.name!r}"))
    shape = tuple(tensor.dims)
    try:
        if tensor.data_location == TensorProto.EXTERNAL:
            return _external(tensor, dtype, shape, files)
        if tensor.HasField("raw_data"):
            return _from_bytes(tensor.raw_data, dtype, shape)
        return _from_numbers(tensor, dtype, shape)
    except (ValueError, TypeError, OSError) as error:
        problem = f"tensor {tensor.name!r} has data that does not fit its shape {list(shape)}: {error}"
        raise InvalidModelError(problem, _DAMAGED) from error


def _text(tensor: TensorProto) -> Array:
    """Return a tensor of text, an array of Python's strings."""
    found = np.empty(len(tensor.string_data), object)
    try:
        found[:] = [each.decode() for each in tensor.string_data]
        return found.reshape(tuple(tensor.dims))
    except ValueError as error:
        problem = f"tensor {tensor.name!r} has no text of the shape {list(tensor.dims)} in UTF-8: {error}"
        raise InvalidModelError(problem, _DAMAGED) from error


def _external(tensor: TensorProto, dtype: np.dtype[np.generic], shape: tuple[int, ...], files: DataFiles) -> Array:
    entries = {entry.key: entry.value for entry in tensor.external_data}
    if PLACE in entries and files.contents is not None:
        begin, size = map(int, entries[PLACE].split())
        return _from_bytes(files.contents[begin : begin + size], dtype, shape)
    location = entries.get("location", "")
    if files.model is None:
        problem = f"tensor {tensor.name!r} is in the external file {location!r}, and the model was not given as a path"
        raise InvalidModelError(problem, "give the model's path, or load its external data first (onnx.load does)")
    try:
        path = inside(files.model.parent, location, files.model)
    except (OSError, ValueError) as error:
        raise InvalidModelError(
            f"tensor {tensor.name!r} names the external file {location!r}: {getattr(error, 'strerror', error)}",
            "keep external data in files beside the model, and name them relative to it",
        ) from error
    if files.read is None and not path.is_file():
        problem = f"tensor {tensor.name!r} needs the external file {str(path)!r}, which is missing"
        raise InvalidModelError(problem, "copy the model's data files beside the model")
    nbytes = -(-prod(shape) * stored_bits(dtype.name) // 8)
    offset, length = (_entry(tensor, entries, key) for key in ("offset", "length"))
    if length not in (0, nbytes):  # 0 is none, as ONNX Runtime has it
        raise InvalidModelError(
            f"tensor {tensor.name!r} has {length} bytes of external data, and its shape {list(shape)} of {dtype.name} "
            f"needs {nbytes}",
            "the model was written wrongly; export it again",
        )
    if files.read is not None:
        data = files.read(path)
    else:
        data = np.memmap(path, np.uint8, "r") if path.stat().st_size else np.zeros(0, np.uint8)
    if data.nbytes < offset + nbytes:
        raise InvalidModelError(
            f"tensor {tensor.name!r} needs {nbytes} bytes at {offset} of {str(path)!r}: it is shorter, "
            f"{data.nbytes} bytes",
            "the data file is truncated; copy or export it again",
        )
    return np.zeros(shape, dtype) if nbytes == 0 else _from_bytes(data[offset : offset + nbytes], dtype, shape)


def _entry(tensor: TensorProto, entries: dict[str, str], key: str) -> int:
    """Return a number of where external data lies, 0 if it is not told."""
    text = entries.get(key, "0")
    if not (text.isascii() and text.isdigit()):
        problem = f"tensor {tensor.name!r} has external data with the {key} {text!r}, which is no number of bytes"
        raise InvalidModelError(problem, "the model was written wrongly; export it again")
    return int(text)


_NUMBERS = {"float32": "float_data", "float64": "double_data", "int64": "int64_data", "uint32": "uint64_data",
            "uint64": "uint64_data"}  # fmt: skip
"""The fields of a ``TensorProto`` that hold numbers of each type; all others are in ``int32_data``."""


def _from_numbers(tensor: TensorProto, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    """Return a tensor that is stored number by number; floats of 16 bits and less are there by their bits."""
    if tensor.HasField("segment"):
        raise ValueError("it is a segment of a tensor")
    if dtype.name in ADDED or dtype == np.float16:
        bits = np.asarray(tensor.int32_data, np.int32).astype(f"<u{dtype.itemsize}")
        return _from_bytes(bits.tobytes(), dtype, shape)
    field = _NUMBERS.get(dtype.name, "int32_data")
    return np.asarray(getattr(tensor, field), field.removesuffix("_data")).astype(dtype).reshape(shape)


def _from_bytes(data: bytes | memoryview | Array, dtype: np.dtype[np.generic], shape: tuple[int, ...]) -> Array:
    """Return the values that ONNX's raw data are, in place where it can; elements of fewer than 8 bits are packed."""
    bits = stored_bits(dtype.name)
    if bits >= 8:
        return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype, copy=False).reshape(shape)
    packed, count = np.frombuffer(data, np.uint8), prod(shape)
    if packed.size != -(-count * bits // 8):
        raise ValueError(f"{packed.size} bytes for {count} elements of {bits} bits")
    codes = packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)
    return np.asarray(codes.reshape(-1)[:count].view(dtype).reshape(shape))
