"""``torch.compile(model, backend="opbuild")``: torch's networks, built operator by operator.

Torch finds the back end by its entry point; nothing needs to be imported. What is offered here is loaded when it is
first asked for, because what compiles imports Dynamo, which takes longer than a stored module needs to start.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from opbuild.torch import artifacts as _artifacts  # noqa: F401  torch knows them by name from now on
from opbuild.torch.report import Graph, Report, report, reset

if TYPE_CHECKING:
    from opbuild.torch.backend import opbuild
    from opbuild.torch.loading import Loaded, load
    from opbuild.torch.saving import save

__all__ = ["Graph", "Loaded", "Report", "load", "opbuild", "report", "reset", "save"]

_MODULES = {"opbuild": "backend", "Loaded": "loading", "load": "loading", "save": "saving"}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
