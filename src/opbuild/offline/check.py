"""Check: every operator of a model that has no kernel, or that an offline model cannot have; nothing is compiled."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.config import Config
from opbuild.errors import UnsupportedOperatorError
from opbuild.events import Observer
from opbuild.frontend.onnx_inspect import NodeCheck, check_nodes
from opbuild.offline.plan import RangeMap, ShapeMap, plan_file, set_up_file
from opbuild.pipeline.stages import HostNode
from opbuild.platform.paths import Path
from opbuild.platform.records import dataclass
from opbuild.session import Session

UNSUPPORTED = 1
"""ATC's code for an operator of a type that it does not know."""


@dataclass(frozen=True)
class CheckedModel:
    """The result of a check.

    Attributes:
        name: The model's name.
        nodes: Its nodes in order.
    """

    name: str
    nodes: tuple[NodeCheck, ...]

    @property
    def without_kernel(self) -> tuple[NodeCheck, ...]:
        """The nodes that no kernel serves."""
        return tuple(node for node in self.nodes if node.remark)

    @property
    def failed(self) -> tuple[NodeCheck, ...]:
        """The nodes that an offline model cannot have."""
        return tuple(node for node in self.nodes if not node.fits)

    def to_json(self) -> dict[str, Any]:
        """Return the check as ATC writes it to ``check_result.json``; a cause of code 0 is a remark, no failure."""
        return {
            "name": self.name,
            "result": "failed" if self.failed else "success",
            "total": len(self.nodes),
            "pass": len(self.nodes) - len(self.failed),
            "fail": len(self.failed),
            "op": [_as_json(node) for node in self.nodes],
        }


def _as_json(node: NodeCheck) -> dict[str, Any]:
    cause = {"cause": [{"code": 0 if node.fits else UNSUPPORTED, "message": node.remark}]} if node.remark else {}
    return {"name": node.name, "type": node.op_type, "result": "success" if node.fits else "failed", **cause}


def check(
    model: Path,
    *,
    soc_version: str = "host",
    input_shapes: ShapeMap | None = None,
    variants: Sequence[ShapeMap] | None = None,
    ranges: RangeMap | None = None,
    config: Config | None = None,
    observer: Observer | None = None,
) -> CheckedModel:
    """Look for every operator of a model that has no kernel; nothing is compiled and the compiler is not needed.

    Arguments are those of ``build_offline``.

    Raises:
        ModelError: If the model is at fault as a whole.
        OptionError: If an argument is at fault.
    """
    nodes = check_nodes(model)
    if not all(node.fits for node in nodes):
        return CheckedModel(model.stem, nodes)
    remarked: dict[str, NodeCheck] = {}
    setup = set_up_file(soc_version, config, observer)
    try:
        plan = plan_file(model, Session(setup), input_shapes=input_shapes, variants=variants, ranges=ranges)
        remarked.update((name, _checked(each)) for name, each in plan.needed.host.items())
    except UnsupportedOperatorError as error:
        blamed = next((node for node in nodes if node.name == error.node), None)
        if blamed is None:
            raise
        remarked[blamed.name] = blamed._replace(fits=False, remark=error.message)
    own = {node.name for node in nodes}
    checked = [remarked.get(node.name, node) for node in nodes]
    return CheckedModel(model.stem, (*checked, *(node for name, node in remarked.items() if name not in own)))


def _checked(host: HostNode) -> NodeCheck:
    where = "numpy evaluates it" if host.portable else "it runs only where the onnx package is installed"
    return NodeCheck(host.node.name, host.node.op_type, host.portable, f"{host.why}: {where}")
