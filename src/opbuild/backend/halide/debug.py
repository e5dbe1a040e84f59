"""Compiling an operator to be debugged: with checks, without schedule, with everything that Halide can show of it."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import halide as hl

from opbuild.backend.halide.definition import CHECKED, Definition
from opbuild.backend.halide.emission import dot_features, halide_target
from opbuild.backend.halide.target import HalideLevel
from opbuild.kernel.debug import DUMP_COMPUTE
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.machine import Machine

_READABLE = {".stmt": hl.OutputFileType.stmt, ".ll": hl.OutputFileType.llvm_assembly}
_ASSEMBLY = {".s": hl.OutputFileType.assembly}
_EXPRESSION = re.compile(r"<halide\.Expr of type \S+: (.*)>", re.DOTALL)


def compile_debug(
    desc: OpDesc, symbol: str, level: HalideLevel, options: Collection[str], *, module: str, folder: Path
) -> dict[str, bytes]:
    """Compile one operator with debug options.

    Args:
        desc: What to compile.
        symbol: The kernel's symbol.
        level: What to compile for.
        options: Of ``kernel.debug.OPTIONS``, and ``dump_compute``.
        module: The module that defines and schedules its family.
        folder: Where the compiler may write.

    Returns:
        Contents by suffix: always ``.o``; ``.stmt`` and ``.ll`` for ``dump_cce``; ``.s`` for ``ccec_g``;
        ``_compute.json`` for ``dump_compute``.
    """
    if "oom" in options:
        desc = _checkable(desc)
    with _checked_promises("oom" in options):
        definition: Definition = import_module(module).define(desc)
    if "ccec_O0" in options:
        _leave_unscheduled(definition)
    else:
        tasks = definition.tasks
        if "oom" in options:
            # Halide derives what is touched before the loops run, and of work that is divided by extents too much: it
            # would refuse sound calls.
            definition.tasks = hl.Expr(1)
        import_module(module).schedule(definition, desc, Machine.of(level))
        definition.tasks = tasks
    wanted = {".o": hl.OutputFileType.object}
    if "dump_cce" in options:
        wanted |= _READABLE
    if "ccec_g" in options:
        wanted |= _ASSEMBLY
    outputs = definition.outputs
    pipeline = outputs[0] if len(outputs) == 1 else hl.Pipeline(outputs)
    paths = {suffix: folder / f"kernel{suffix}" for suffix in wanted}
    files = {wanted[suffix]: str(path) for suffix, path in paths.items()}
    features = (*_features(options), *dot_features(definition, level))
    pipeline.compile_to(files, definition.arguments, symbol, halide_target(level, features))
    contents = {suffix: path.read_bytes() for suffix, path in paths.items()}
    if DUMP_COMPUTE in options:
        contents["_compute.json"] = _description(desc, symbol, definition)
    return contents


def _checkable(desc: OpDesc) -> OpDesc:
    """Return a descriptor whose definition reads nothing beyond the operands' extents."""
    return replace(desc, variant={**desc.variant, CHECKED: True})


def _features(options: Collection[str]) -> tuple[str, ...]:
    """Return Halide's features: ``oom`` checks bounds, ``ccec_g`` shows every call."""
    chosen = {"no_asserts": "oom" not in options, "debug": "ccec_g" in options}
    return ("no_runtime", "no_bounds_query", *(name for name, wanted in chosen.items() if wanted))


@contextmanager
def _checked_promises(checked: bool) -> Iterator[None]:
    """Let the promises of definitions on an index be checked where it is used, with a message that has its value.

    Halide's feature ``check_unsafe_promises`` would check it too, but does not say the value.
    """
    promise = hl.unsafe_promise_clamped

    def check(value: Any, least: Any, greatest: Any) -> Any:
        value = value if isinstance(value, hl.Expr) else hl.Expr(value)
        low, high = hl.cast(value.type(), least), hl.cast(value.type(), greatest)
        inside = (value >= low) & (value <= high)
        message = (hl.Expr("index"), value, hl.Expr("is outside of"), low, hl.Expr("to"), high)
        return promise(hl.require(inside, value, *message), least, greatest)

    try:
        if checked:
            hl.unsafe_promise_clamped = check
        yield
    finally:
        hl.unsafe_promise_clamped = promise


def _leave_unscheduled(definition: Definition) -> None:
    """Compute one function after the other in plain loops: no vectors, tiles, unrolled loops or tasks."""
    for function in definition.functions.values():
        if isinstance(function, hl.Func):
            function.compute_root()


def _description(desc: OpDesc, symbol: str, definition: Definition) -> bytes:
    """Return the operator's compute description: its descriptor, and each function with its defining expressions."""
    functions = [function for function in definition.functions.values() if isinstance(function, hl.Func)]
    functions += definition.outputs
    content = {
        "kernelName": symbol,
        **desc.components(),
        "functions": [_function(function) for function in functions if function.defined()],
    }
    return (json.dumps(content, indent=4) + "\n").encode()


def _function(function: Any) -> dict[str, Any]:
    updates = range(function.num_update_definitions())
    return {
        "name": function.name(),
        "types": [str(kind) for kind in function.types()],
        "arguments": [variable.name() for variable in function.args()],
        "values": _texts(function.values()),
        "updates": [
            {"arguments": _texts(function.update_args(n)), "values": _texts(function.update_values(n))} for n in updates
        ],
    }


def _texts(expressions: Any) -> list[str]:
    found = [repr(expressions[index]) for index in range(len(expressions))]
    return [match.group(1) if (match := _EXPRESSION.fullmatch(text)) else text for text in found]
