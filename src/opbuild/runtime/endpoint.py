"""Endpoint: an input or an output of a network, as its user sees it and gives it; refusals speak the user's library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from opbuild.dtypes import ADDED, numpy_dtype
from opbuild.errors import InputError
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.free import FREE
from opbuild.platform.records import NamedTuple


class Endpoint(NamedTuple):
    """An input or output of a network.

    The shape is None where its number of dimensions may differ from call to call, or, of an output, the model does not
    say it and nobody can infer it; then its element type may be ``object``.

    Attributes:
        name: Its name in the model.
        type: Element type and row-major shape together, as graphs have them.
    """

    name: str
    type: TensorType

    @property
    def shape(self) -> tuple[int, ...]:
        """The row-major shape; an extent that may differ from call to call is -1."""
        return self.type.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """The element type."""
        return numpy_dtype(self.type.dtype or "object")

    def __repr__(self) -> str:
        return f"Endpoint(name={self.name!r}, shape={self.shape}, dtype={self.dtype.name!r})"

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype.name}{shape_text(self.shape)}"


def shape_text(shape: Sequence[int] | None) -> str:
    """Return a shape as messages show it: ``any`` is an extent that is open, ``...`` an open number of them."""
    if shape is None:
        return "[...]"
    return "[" + ", ".join("any" if extent == FREE else str(extent) for extent in shape) + "]"


def common(types: Sequence[TensorType]) -> TensorType:
    """Return the common type of several types of one value: -1 is an extent in which they differ.

    If they differ in their numbers of dimensions, as what Squeeze returns may, the shape is None: see ``Endpoint``.
    """
    first = types[0]
    if any(len(each.shape) != len(first.shape) for each in types):
        return TensorType(first.dtype, cast("tuple[int, ...]", None))
    columns = zip(*(each.shape for each in types), strict=True)
    return TensorType(first.dtype, tuple(column[0] if len({*column}) == 1 else FREE for column in columns))


_NUMERIC = "biufcV"
"""Kinds of numpy's element types that are numbers; V is what other libraries add, such as bfloat16."""


def as_input(value: Any, dtype: np.dtype[Any], name: str) -> Array:
    """Return an input as an array; numpy's are returned as they are.

    Args:
        value: A numpy array, what speaks DLPack, or Python's numbers and lists.
        dtype: The element type that the network needs; ``object`` for what is no tensor, which is left as it is: a list
            of arrays, None, or an array of Python's strings, to which other text is converted.
        name: The input's name.

    Raises:
        InputError: If it is no array, or of another element type.
    """
    if dtype.hasobject:
        return cast("Array", _as_host_value(value))
    array = value if type(value) is np.ndarray else _to_numpy(value, dtype, name)
    if array.dtype.kind not in _NUMERIC:
        what = "of objects" if array.dtype == object else "of text or times"
        is_array = isinstance(value, np.ndarray)
        raise InputError(
            f"input {name!r} is an array {what}"
            if is_array
            else f"input {name!r} is {_shown_type(value)}, not an array",
            f"give an array of {dtype.name}: a numpy array, or a tensor that speaks DLPack",
        )
    if array.dtype != dtype:
        raise wrong_type(name, value, str(array.dtype), dtype)
    return array


def is_dense(value: Any) -> bool:
    """Return whether an input lies as kernels read it; one that is no tensor does."""
    return not isinstance(value, np.ndarray) or bool(value.flags.c_contiguous and value.flags.aligned)


def dense(value: Any) -> Any:
    """Return a value as kernels read it: an array dense, and no scalar of numpy's; anything else is left as it is."""
    if isinstance(value, np.generic):
        return np.asarray(value)
    return value if is_dense(value) else value.copy(order="C")


def _as_host_value(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_as_host_value(each) for each in value]
    if isinstance(value, str) or (isinstance(value, np.ndarray) and value.dtype.kind in "US"):
        return np.array(value, object)
    if value is None or isinstance(value, dict):
        return value
    array = np.asarray(value)
    return array if array.flags.c_contiguous and array.flags.aligned else array.copy(order="C")


def _shown_type(value: Any) -> str:
    return "None" if value is None else f"a {type(value).__name__}"


def _numbers(value: Any, dtype: np.dtype[Any], name: str) -> Array:
    """Return Python's numbers, which have no element type of their own, as an array of the network's."""
    found = np.asarray(value)
    if found.dtype.kind in "fc" and dtype.kind not in "fc":
        message = f"input {name!r} has numbers with a fraction, the network needs {dtype}"
        raise InputError(message, "give whole numbers")
    return np.asarray(value, dtype)


def _to_numpy(value: Any, dtype: np.dtype[Any], name: str) -> Array:
    """Return the user's value as a numpy array, sharing memory where it can."""
    if _is_torch(value):
        _check_torch(value, dtype, name)
    try:
        if _is_torch(value) and dtype.name in ADDED:  # numpy's DLPack has no such types: the same bytes as integers
            kind = getattr(sys.modules["torch"], "int16" if dtype.itemsize == 2 else "uint8")
            return np.asarray(np.from_dlpack(value.view(kind)).view(dtype))
        if isinstance(value, np.ndarray):
            return np.asarray(value)
        if isinstance(value, (bool, int, float, list, tuple)):
            return _numbers(value, dtype, name)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.asarray(np.from_dlpack(value))
        array = np.asarray(value)
    except InputError:
        raise
    except Exception as error:  # whatever the other library raises
        raise InputError(
            f"input {name!r} cannot be read as an array: {error}",
            "give a numpy array, or a tensor in the CPU's memory that needs no gradient",
        ) from error
    return array


def wrong_type(name: str, value: Any, given: str, dtype: np.dtype[Any]) -> InputError:
    """Return the error of an input of another element type than the network needs."""
    shown = name if name.isidentifier() else "array"
    how = f"{shown}.astype({dtype.name!r})"
    if _is_torch(value):
        shown = name if name.isidentifier() else "tensor"
        how = shown + _TORCH_CASTS.get(dtype.name, f".to(torch.{dtype.name})")
    return InputError(f"input {name!r} has element type {given}, the network needs {dtype}", f"convert it: {how}")


# -- torch, without importing it ---------------------------------------------------------------------------------------

_TORCH_CASTS = {"float16": ".half()", "float32": ".float()", "float64": ".double()", "bool": ".bool()"}


def _is_torch(value: Any) -> bool:
    return any(
        kind.__name__ == "Tensor" and kind.__module__.partition(".")[0] == "torch" for kind in type(value).__mro__
    )


def _check_torch(tensor: Any, dtype: np.dtype[Any], name: str) -> None:
    """Refuse tensors that cannot be read, in torch's words; numpy's would not help its users."""
    shown = name if name.isidentifier() else "tensor"
    device = getattr(getattr(tensor, "device", None), "type", "cpu")
    if device != "cpu":
        raise InputError(f"input {name!r} is a torch tensor on {device}", f"move it to the CPU: {shown}.cpu()")
    if getattr(tensor, "requires_grad", False):
        raise InputError(f"input {name!r} is a torch tensor that requires grad", f"give it without: {shown}.detach()")
    if str(getattr(tensor, "layout", "torch.strided")) != "torch.strided":
        raise InputError(f"input {name!r} is a sparse torch tensor", f"make it dense: {shown}.to_dense()")
    given = str(getattr(tensor, "dtype", "")).removeprefix("torch.")
    if given and given != dtype.name:
        raise wrong_type(name, tensor, f"torch.{given}", dtype)
