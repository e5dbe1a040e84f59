"""``opbuild operators``: the operators that have kernels, and those that fall back to numpy."""

from __future__ import annotations

from collections.abc import Sequence

import click

from opbuild.cli.options import WordValue, json_option, print_json
from opbuild.cli.tables import say, show_table, text_table
from opbuild.graph.types import DTYPES
from opbuild.offline.operator_support import NO_TENSORS, OperatorSupport, filtered
from opbuild.offline.operator_support import operators as supported

_GROUPS = {
    "uint*": ("uint8", "uint16", "uint32", "uint64"),
    "int*": ("int8", "int16", "int32", "int64"),
    "float*": ("float16", "float32", "float64", "bfloat16"),
    "float8*": ("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"),
}


@click.command()
@click.argument("names", metavar="[OPERATOR]...", nargs=-1)
@click.option("--kernel", is_flag=True, help="Only those that have kernels.")
@click.option("--host", is_flag=True, help="Only those that fall back to numpy.")
@click.option("--type", "dtype", metavar="TYPE", type=WordValue(DTYPES), default=None,
              help="Only what is so for this element type, such as float16.")  # fmt: skip
@json_option
def operators(names: tuple[str, ...], kernel: bool, host: bool, dtype: str | None, as_json: bool) -> None:
    """Show which operators have kernels, for which element types, and which run on the host.

    Without names, all of them. Each is asked about by a small network in its usual form; 'opbuild explain' tells it of
    a model.
    """
    records = list(filtered(supported(names or None), kernel=kernel, host=host, dtype=dtype or ""))
    if as_json:
        print_json([record._asdict() for record in records])
        return
    _show(records)


def _show(records: Sequence[OperatorSupport]) -> None:
    names = ("operator", "kernels for", "falls back to numpy", "remarks")
    show_table(text_table(names, map(row, records), folds=False))
    groups = "; ".join(f"{group} is {', '.join(dtypes)}" for group, dtypes in _GROUPS.items())
    say(f"{summary(records)}\n{groups}")


def row(record: OperatorSupport) -> tuple[str, str, str, str]:
    """Return a row of the table: name and form, types with kernels, types on the host, remarks."""
    remarks = [record.why] if record.why not in ("", f"no kernel for {record.name}") else []
    if record.folded:
        remarks = ["computed when the network is built"]
    elif not record.kernel and not record.host and record.why != NO_TENSORS:
        remarks.insert(0, "not supported")
    elif record.host and not record.offline:
        remarks.append("not in .om files")
    name = f"{record.name} ({record.form})" if record.form else record.name
    return name, short(record.kernel), short(record.host), ": ".join(remarks)


def summary(records: Sequence[OperatorSupport]) -> str:
    """Return the numbers of operators with kernels, and of those that fall back to numpy for every type."""
    names = {record.name for record in records}
    kernels = {record.name for record in records if record.kernel}
    host = {record.name for record in records if record.host} - kernels
    return f"operators: {len(names)}; with kernels: {len(kernels)}; numpy only: {len(host)}"


def short(dtypes: Sequence[str]) -> str:
    """Return element types in few words: all that begin alike as one."""
    words = []
    for dtype in dtypes:
        group = next((name for name, all_ in _GROUPS.items() if dtype in all_ and {*all_} <= {*dtypes}), dtype)
        if group not in words:
            words.append(group)
    return " ".join(words)
