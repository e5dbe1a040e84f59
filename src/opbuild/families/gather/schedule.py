"""How gathers run."""

from __future__ import annotations

from typing import Any

from opbuild.backend.halide.definition import Definition
from opbuild.backend.halide.rows import rows
from opbuild.kernel.opdesc import OpDesc


def schedule(definition: Definition, desc: OpDesc, _target: Any) -> None:
    """Copy contiguous rows as vectors; single elements one by one."""
    width, parallel = int(desc.variant["width"]), bool(desc.variant["parallel"])
    rows(definition.outputs[0], list(definition.variables.values()), width, parallel)
