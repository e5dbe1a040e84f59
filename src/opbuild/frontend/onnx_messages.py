"""ONNX's protobuf messages without the package around them, of which a network of known operators needs nothing else.

protobuf makes one class of a message however often the module that declares it is run. So these are the very classes
that ``onnx`` has, whether it was imported before, is imported later, or never.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING, Any

from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from onnx import (
        AttributeProto,
        FunctionProto,
        GraphProto,
        ModelProto,
        NodeProto,
        TensorProto,
        TensorShapeProto,
        TypeProto,
        ValueInfoProto,
    )

__all__ = [
    "AttributeProto", "FunctionProto", "GraphProto", "ModelProto", "NodeProto", "TensorProto", "TensorShapeProto",
    "TypeProto", "ValueInfoProto",
]  # fmt: skip


def _messages() -> Mapping[str, Any]:
    """Return the classes by name: those of the module of the package that declares them, or of the whole package.

    Raises:
        ImportError: If onnx is not installed.
    """
    package = None if "onnx" in sys.modules else find_spec("onnx")  # somebody may be importing it just now
    if package is not None and package.origin is not None:
        spec = spec_from_file_location("onnx.onnx_ml_pb2", Path(package.origin).with_name("onnx_ml_pb2.py"))
        if spec is not None and isinstance(spec.loader, SourceFileLoader) and Path(str(spec.origin)).is_file():
            with suppress(Exception):  # another release of protobuf, or of what it generates
                return _of_declaration(spec.loader)
            module = module_from_spec(spec)
            spec.loader.exec_module(module)  # not among the loaded modules: the package is to load its own
            return vars(module)
    return vars(import_module("onnx"))


def _of_declaration(generated: SourceFileLoader) -> Mapping[str, Any]:
    """Return the classes that a generated module declares, without running it.

    It would load twenty modules of protobuf, most of which only serve machines without its compiled part.
    """
    if import_module("google.protobuf.internal.api_implementation").Type() != "upb":
        raise ImportError("another implementation of protobuf was asked for")
    compiled, base = import_module("google._upb._message"), import_module("google.protobuf.message").Message

    def made(message: Any, around: str = "") -> Any:
        within = {name: made(each, f"{around}{message.name}.") for name, each in message.nested_types_by_name.items()}
        names = {"DESCRIPTOR": message, "__module__": generated.name, "__qualname__": around + message.name}
        return compiled.MessageMeta(message.name, (base,), within | names)

    code = generated.get_code(generated.name)
    (declared,) = (each for each in code.co_consts if isinstance(each, bytes) and b"ModelProto" in each)  # type: ignore[union-attr]
    file = compiled.default_pool.AddSerializedFile(declared)
    return {name: made(message) for name, message in file.message_types_by_name.items()}


if not TYPE_CHECKING:
    _declared = _messages()
    for _name in __all__:
        globals()[_name] = _declared[_name]
