"""Lowering of decision trees."""

from __future__ import annotations

from opbuild.families.tree_ensemble import family
from opbuild.graph.extents import is_at_least
from opbuild.graph.types import Node
from opbuild.lowering.context import Lowering
from opbuild.lowering.implementations import NotServedError, serves
from opbuild.lowering.strided import dense_as


@serves("opbuild.TreeEnsemble")
def tree_ensemble(lowering: Lowering, node: Node) -> None:
    """Lower decision trees, whose operands are packed already: a node has both forms if both may be the faster one."""
    x, base, *forms = node.inputs
    rows, type_ = lowering.type(x).shape[0], lowering.type(x).dtype
    if any(not lowering.is_constant(name) for name in (base, *forms)):
        raise NotServedError("TreeEnsemble has kernels for known trees")
    out = lowering.new_plain(node.outputs[0])
    if not out.storage.size:
        return
    groups, width = lowering.type(base).shape

    def emit(kind: str) -> None:
        desc = family.describe(
            kind,
            node.text("aggregate", "sum"),
            sides=bool(node.attrs.get("sides", 0)),
            targets=groups > 1,
            types=(type_, lowering.type(base).dtype),
            variant=lowering.choose(family.FAMILY, rows, kind),
        )
        own = forms[: family.PATHS] if kind == "paths" else forms[family.PATHS :]
        operands = [lowering.dense(x), *(lowering.plain(name) for name in own), lowering.plain(base)]
        lowering.emit(desc, [*operands, dense_as(out, (rows, groups, width))], node)

    has_bits = len(forms) > family.PATHS
    lowering.either([
        (is_at_least(rows, family.FEW["bits"]) if has_bits else 0, lambda: emit("bits")),
        (1, lambda: emit("paths")),
    ])  # fmt: skip
