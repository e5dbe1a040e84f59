"""Keys and records are frozen: a change here rebuilds every operator of every user, so it must be a decision."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import Dim, OpDesc, Operand, runtime_desc
from support.samples import IDENTITY, LEVEL, conv, entry_of

SQUARE = OpDesc(
    op_types=("Square",),
    family="elementwise",
    inputs=(Operand("x", "float32", (Dim(stride=1, min=1),)),),
    outputs=(Operand("y", "float32", (Dim(stride=1, min=1),)),),
    attrs={"expression": ["mul", ["arg", 0], ["arg", 0]]},
    variant={"vector": 16, "parallel": False},
)


def test_keys_are_what_they_were(golden: Callable[[str, Any], None]) -> None:
    """Digest, name and components of a few keys are those of the golden file; see ``--update-golden``."""
    descs = {"square": SQUARE, "conv_relu": conv(7), "runtime": runtime_desc()}
    keys = {name: make_key(desc, LEVEL, IDENTITY, "sources") for name, desc in descs.items()}
    golden(
        "keys",
        {
            name: {"sha256": key.sha256, "name": key.name(0), "symbol": key.symbol, "components": key.components}
            for name, key in keys.items()
        },
    )


def test_records_are_what_they_were(golden: Callable[[str, Any], None]) -> None:
    """Both records of an entry are those of the golden file."""
    _, entry = entry_of(SQUARE)
    golden("records", {"info": entry.info, "record": entry.record})
