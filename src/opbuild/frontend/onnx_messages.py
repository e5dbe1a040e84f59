"""ONNX's protobuf messages without the package around them, of which a network of known operators needs nothing else.

protobuf makes one class of a message however often the module that declares it is run. So these are the very classes
that ``onnx`` has, whether it was imported before, is imported later, or never.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module
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
    """Return the classes by name: those of the module of the package that declares them, or of the whole package."""
    package = None if "onnx" in sys.modules else find_spec("onnx")  # somebody may be importing it just now
    if package is not None and package.origin is not None:
        spec = spec_from_file_location("onnx.onnx_ml_pb2", Path(package.origin).with_name("onnx_ml_pb2.py"))
        if spec is not None and spec.loader is not None and Path(str(spec.origin)).is_file():
            module = module_from_spec(spec)
            spec.loader.exec_module(module)  # not among the loaded modules: the package is to load its own
            return vars(module)
    return vars(import_module("onnx"))


if not TYPE_CHECKING:
    _declared = _messages()
    for _name in __all__:
        globals()[_name] = _declared[_name]
