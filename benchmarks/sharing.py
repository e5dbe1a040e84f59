"""Networks, one after another, into one empty store: operators that each needs, builds, and finds there."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import fresh_process
import measure
import models
from rich.console import Console
from rich.table import Table


def main() -> int:
    """Build the networks, print a table, write the results."""
    parser = measure.parser(__doc__ or "")
    parser.add_argument(
        "networks",
        nargs="*",
        default=models.NAMES,
        metavar="NETWORK",
        help="names, or paths of ONNX files, in this order; default: the nine of the onnx package",
    )
    arguments = parser.parse_args()
    console = Console()
    table = Table(title="Operators shared between networks, one store", title_justify="left", show_footer=True)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name, console.status("") as status:
        folder = Path(name)
        for network in arguments.networks:
            status.update(f"{network} ...")
            is_name = network in models.NAMES
            path = models.write(network, folder) if is_name else Path(network)
            started = fresh_process.start(path, folder / "store")
            if is_name:
                path.unlink()
            needed = started["built"] + started["reused"]
            rows.append(
                {
                    "network": path.stem,
                    "needed": needed,
                    **{key: started[key] for key in ("built", "reused", "seconds")},
                }
            )
    table.add_column("network", "together")
    for column in ("needed", "built", "reused", "seconds"):
        total = sum(row[column] for row in rows)
        table.add_column(column, f"{total:.2f}" if column == "seconds" else str(total), justify="right")
    for row in rows:
        table.add_row(
            row["network"], *(str(row[key]) for key in ("needed", "built", "reused")), f"{row['seconds']:.2f}"
        )
    console.print(table)
    measure.write_results(arguments.json, "sharing", rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
