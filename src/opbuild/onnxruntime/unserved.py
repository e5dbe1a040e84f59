"""Names of ONNX Runtime that opbuild has not: they can be imported, and whoever uses one is told why."""

from __future__ import annotations

from typing import Any

from opbuild.onnxruntime.status import NotImplemented, StatusError, failure

_PACKAGES = "model packages choose among files for several devices: give the model's file"
_CONTEXTS = "opbuild writes and reads no EPContext nodes: kernels lie in its store"
_ADAPTERS = "adapters are not read: feed their tensors to run, by the names of the weights"

UNSERVED = {
    "AdapterFormat": _ADAPTERS,
    "LoraAdapter": _ADAPTERS,
    "ModelPackage": _PACKAGES,
    "ModelPackageComponentContext": _PACKAGES,
    "ModelPackageContext": _PACKAGES,
    "ModelPackageOptions": _PACKAGES,
    "ModelPackageWriteMode": _PACKAGES,
    "OrtEpAssignedNode": "all nodes are the processor's",
    "OrtEpAssignedSubgraph": "all nodes are the processor's",
    "OrtEpContextData": _CONTEXTS,
    "OrtEpContextDataBuffer": _CONTEXTS,
    "OrtSyncStream": "what the processor does is done when a call ends",
    "SparseTensor": "no operator of opbuild takes sparse tensors: use dense ones",
}
"""The names, and why each is not served."""


class _Unserved(type):
    """The class of classes that refuse to be used."""

    def __call__(cls, *_: Any, **__: Any) -> Any:
        raise refusal(cls.__name__)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(f"type object {cls.__name__!r} has no attribute {name!r}")
        raise refusal(cls.__name__)


def refusal(name: str) -> StatusError:
    """Return the error for a name that is not served."""
    return failure(NotImplemented, f"onnxruntime.{name} is not served: {UNSERVED[name]}")


_MADE = dict[str, type]()


def unserved(name: str) -> type:
    """Return the class that stands for a name; values of other classes are none of it."""
    if name not in _MADE:
        _MADE[name] = _Unserved(name, (), {"__doc__": f"Not served: {UNSERVED[name]}.", "__module__": __name__})
    return _MADE[name]
