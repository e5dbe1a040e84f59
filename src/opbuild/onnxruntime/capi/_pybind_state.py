"""Names of ONNX Runtime's extension module, where programs import them from."""

from opbuild.onnxruntime.capi import onnxruntime_pybind11_state
from opbuild.onnxruntime.capi.onnxruntime_pybind11_state import *

__all__ = onnxruntime_pybind11_state.__all__
