"""Records as earlier releases wrote them: buffers and steps as rows, extents and strides by view or not."""

from __future__ import annotations

from typing import Any

from opbuild.program import HostCall, View
from opbuild.runtime.record import KernelStep, Record
from opbuild.runtime.record_json import to_json


def to_old_json(record: Record, version: int) -> dict[str, Any]:
    """Return the JSON of a record as it was when offline models had version 2 or 3 of their form."""
    table = list(record.steps.dims)

    def view(each: View | None) -> Any:
        if each is None or version < 3:
            return each and list(each)
        if each.dims not in table:
            table.append(each.dims)
        return [each.buffer, each.offset, table.index(each.dims)]

    hosts = iter(to_json(record)["steps"]["hosts"])

    def row(step: KernelStep | HostCall) -> dict[str, Any]:
        if isinstance(step, HostCall):
            return {**next(hosts), "inputs": [*map(view, step.inputs)], "outputs": [*map(view, step.outputs)]}
        own = {"kernel": step.symbol, "views": [*map(view, step.views)], "nodes": step.nodes, "work": step.work}
        return (
            own
            | ({"dtypes": step.dtypes} if step.dtypes else {})
            | ({"writes": step.writes} if step.writes > 1 else {})
        )

    old = {
        **to_json(record),
        "buffers": [*map(list, record.buffers)],
        "steps": [*map(row, record.steps)],
        "dims": table,
        "constants": [*map(list, record.constants)],
    }
    if version < 3:
        del old["dims"]
    return old
