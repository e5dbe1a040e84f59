"""``torch.compile(model, backend="opbuild")``: torch's networks, built operator by operator.

Torch finds the back end by its entry point; nothing needs to be imported.
"""

from opbuild.torch.backend import opbuild
from opbuild.torch.report import Graph, Report, report, reset

__all__ = ["Graph", "Report", "opbuild", "report", "reset"]
