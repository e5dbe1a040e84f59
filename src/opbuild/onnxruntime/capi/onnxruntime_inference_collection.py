"""Names of ONNX Runtime's module of sessions."""

from opbuild.onnxruntime.environment import check_and_normalize_provider_args
from opbuild.onnxruntime.session import InferenceSession, IOBinding
from opbuild.onnxruntime.session import InferenceSession as Session
from opbuild.onnxruntime.values import OrtDevice, OrtValue

__all__ = ["IOBinding", "InferenceSession", "OrtDevice", "OrtValue", "Session", "check_and_normalize_provider_args"]
