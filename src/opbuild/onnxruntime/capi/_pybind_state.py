"""Names of ONNX Runtime's extension module, where programs import them from."""

from opbuild.onnxruntime.capi.onnxruntime_pybind11_state import *
