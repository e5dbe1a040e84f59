"""opbuild: builds neural networks operator by operator, once.

Names are loaded when they are used: importing this package loads no compiler and no model reader.
"""

from __future__ import annotations

import os


def _before_fork() -> None:
    from opbuild.platform.forks import await_imports

    await_imports()


def _after_fork_in_child() -> None:
    from opbuild.platform.forks import forget_imports

    forget_imports()


# Before all else here: another thread may fork while this one loads it.
os.register_at_fork(before=_before_fork, after_in_child=_after_fork_in_child)

from opbuild import errors as errors  # noqa: E402  after the hooks of forks
from opbuild.version import __version__  # noqa: E402  the same

TYPE_CHECKING = False  # typing takes longer to load than all else here
if TYPE_CHECKING:
    from typing import Any

    from opbuild.api import compile, compile_graph  # noqa: A004  as in torch.compile
    from opbuild.frontend.user_operators import operator
    from opbuild.monitoring.metrics import PrometheusCollector, metrics
    from opbuild.monitoring.spans import instrument
    from opbuild.offline.build import build_offline as build_offline
    from opbuild.offline.build import export
    from opbuild.offline.load import load
    from opbuild.offline.operator_support import OperatorSupport, operators
    from opbuild.offline.warming import warm
    from opbuild.report import Report
    from opbuild.runtime.network import Network
    from opbuild.runtime.profile import Profile

__all__ = [
    "Network",
    "OperatorSupport",
    "Profile",
    "PrometheusCollector",
    "Report",
    "__version__",
    "compile",
    "compile_graph",
    "export",
    "instrument",
    "load",
    "metrics",
    "operator",
    "operators",
    "warm",
]

_WHERE = {
    "build_offline": "opbuild.offline.build",
    "export": "opbuild.offline.build",
    "load": "opbuild.offline.load",
    "compile": "opbuild.api",
    "compile_graph": "opbuild.api",
    "operator": "opbuild.frontend.user_operators",
    "operators": "opbuild.offline.operator_support",
    "warm": "opbuild.offline.warming",
    "instrument": "opbuild.monitoring.spans",
    "metrics": "opbuild.monitoring.metrics",
    "PrometheusCollector": "opbuild.monitoring.metrics",
    "OperatorSupport": "opbuild.offline.operator_support",
    "Network": "opbuild.runtime.network",
    "Profile": "opbuild.runtime.profile",
    "Report": "opbuild.report",
}


def __getattr__(name: str) -> Any:
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opbuild.platform.calls import rare_collection

    with rare_collection():  # from the first module on: numpy's objects would be looked through
        from importlib import import_module

        from opbuild.errors import BuildError
        from opbuild.platform.limits import named

        try:
            with named(BuildError, "opbuild cannot be loaded"):
                return getattr(import_module(_WHERE[name]), name)
        except KeyboardInterrupt as interrupt:
            raise interrupt.with_traceback(None) from None


def __dir__() -> list[str]:
    return sorted([*__all__, "errors"])
