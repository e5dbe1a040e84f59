"""The modules of ``onnxruntime.capi`` that programs import."""

from opbuild.onnxruntime.capi import _pybind_state as _pybind_state
from opbuild.onnxruntime.capi import onnxruntime_inference_collection as onnxruntime_inference_collection
from opbuild.onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_pybind11_state
