"""Modes 1 and 6 of ``opbuild compile``: an offline model, or a model, as JSON, and a table of its content."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from rich.text import Text

from opbuild.cli.tables import output_console, plain_table
from opbuild.config import Config
from opbuild.errors import OptionError
from opbuild.files.trust import make_trust
from opbuild.offline.file import OfflineModel, read_offline
from opbuild.offline.format import GRAPH, LIBRARY, PLAN, PROGRAM, WEIGHTS
from opbuild.platform.paths import Path
from opbuild.runtime.record_json import to_json
from opbuild.target.host import compared

SHOWN_SIGNATURES = 8
_KINDS = ((LIBRARY, "library"), (WEIGHTS, "weights"), (PLAN, "plans"), (PROGRAM, "tables for C"), (GRAPH, "graph"))


def show(path: Path) -> None:
    """Print the content of an offline model.

    Raises:
        InvalidModelError: If it is none, or damaged.
    """
    model = read_offline(path, trust=make_trust(Config.from_environment()))
    table = plain_table("", "", header=False)
    table.columns[1].overflow = "fold"
    for name, value in _rows(model):
        table.add_row(Text(name), Text(value))
    console = output_console()
    console.print(table)
    operators = plain_table("operator", "nodes")
    operators.columns[0].overflow = operators.columns[1].overflow = "fold"
    for name, nodes in model.build.get("operators", []):
        operators.add_row(Text(name), Text(", ".join(nodes)))
    if operators.row_count:
        console.print()
        console.print(operators)


def _rows(model: OfflineModel) -> list[tuple[str, str]]:
    served = [str(model.build["ranges"])] if model.build.get("ranges") else model.served
    signatures = served[:SHOWN_SIGNATURES]
    if len(served) > SHOWN_SIGNATURES:
        signatures.append(f"and {len(served) - SHOWN_SIGNATURES} more")
    if model.build.get("ranges"):
        signatures.append(f"stored whole, and run from C: {model.served[0]}")
    rows = [
        ("network", model.name),
        ("level", compared(model.level)),
        ("inputs", ", ".join(map(" ".join, model.inputs))),
        ("shapes", "\n".join(signatures)),
        ("outputs", ", ".join(model.outputs)),
        ("operators", str(len(model.build.get("operators", [])))),
    ]
    rows += [(name, str(model.build[name])) for name in ("opbuild", "compiler", "model") if model.build.get(name)]
    for kind, name in _KINDS:
        places = model.container.places.items()
        size = sum(length for (each, _), (_, length) in places if each == kind)
        if size:
            rows.append((name, f"{size} bytes"))
    return rows


def write_json(om: Path | None, model: Path | None, target: Path) -> None:
    """Write an offline model, or a model, as readable JSON.

    Args:
        om: The offline model; None for ``model``. What is no offline model is read as a model, as ATC does.
        model: The model.
        target: The file to write.

    Raises:
        ModelError: If the file cannot be read.
        OptionError: If ``target`` cannot be written.
    """
    if om is not None and om.suffix == ".om":
        content = _describe(read_offline(om, trust=make_trust(Config.from_environment())))
    else:
        from opbuild.frontend.onnx_inspect import describe_model

        content = describe_model(str(om or model))
    write_report(content, "json", target)


def write_report(content: Mapping[str, Any], option: str, target: Path) -> None:
    """Write JSON for people.

    Args:
        content: What to write.
        option: The option that names the file.
        target: The file.

    Raises:
        OptionError: If it cannot be written.
    """
    try:
        text = json.dumps(content, indent=2, ensure_ascii=False) + "\n"
        target.write_text(text, "utf-8", "backslashreplace")  # names of files may be no UTF-8
    except OSError as error:
        raise OptionError(
            f"--{option} is {str(target)!r}, which cannot be written: {error.strerror}",
            "it must be a file that you may write",
        ) from error


def _describe(model: OfflineModel) -> dict[str, Any]:
    plans = [to_json(model.record(index)) for index in range(len(model.signatures))]
    return {
        "name": model.name,
        "target": model.level.name,
        "inputs": [{"name": name, "type": dtype} for name, dtype in model.inputs],
        "outputs": list(model.outputs),
        "signatures": model.served,
        "build": dict(model.build),
        "plans": plans,
    }
