"""Writes ``src/opbuild/frontend/onnx_schemas.json``: what the installed onnx says about calls of its operators.

    .venv/bin/python tools/onnx_schemas.py

To be run when a new release of onnx is installed.
"""

from __future__ import annotations

import json
from typing import Any

from onnx import __version__, defs

from opbuild.frontend.onnx_schemas import TABLE, described


def table() -> str:
    """Return the table of the installed onnx."""
    schemas: dict[str, dict[str, list[Any]]] = {}
    for each in defs.get_all_schemas_with_history():
        said = described(each)
        row = [*said._replace(optional=sorted(said.optional), required=sorted(said.required))]
        schemas.setdefault(each.domain, {}).setdefault(each.name, []).append(row)
    for operators in schemas.values():
        for rows in operators.values():
            rows.sort(key=lambda row: row[0])
    content = {"release": __version__, "opset": defs.onnx_opset_version(), "schemas": schemas}
    return json.dumps(content, sort_keys=True, separators=(",", ":")).replace('},"', '},\n"') + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
