"""A program as JSON: what its digest is taken of, and back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.frontend.torch.program import Input, Output, Program, Ref, Step, plain
from opbuild.graph.types import TensorType


def program_to_json(program: Program) -> Any:
    """Return a program as plain JSON."""
    return plain([program.name, program.inputs, program.steps, program.outputs])


def program_from_json(found: Any) -> Program:
    """Return the program that ``program_to_json`` wrote.

    Raises:
        ValueError, TypeError, LookupError: If it is something else.
    """
    name, inputs, steps, outputs = found
    return Program(str(name), tuple(map(_input, inputs)), tuple(map(_step, steps)), tuple(map(_output, outputs)))


def _type(found: Sequence[Any]) -> TensorType:
    return TensorType(str(found[0]), tuple(map(int, found[1:])))


def _input(found: Sequence[Any]) -> Input:
    name, kind, type_, order, place = found
    if kind not in ("tensor", "frozen", "size"):
        raise ValueError(f"there is no input of kind {kind!r}")
    return Input(str(name), kind, _type(type_), tuple(order), None if place is None else (place[0], place[1]))


def _step(found: Sequence[Any]) -> Step:
    target, name, args, kwargs, types = found
    kinds = tuple(None if each is None else _type(each) for each in types)
    return Step(str(target), str(name), tuple(map(_value, args)), _value(kwargs), kinds)


def _output(found: Sequence[Any]) -> Output:
    name, is_size, order = found
    return Output(str(name), bool(is_size), tuple(order))


def _value(found: Any) -> Any:
    if isinstance(found, list):
        return tuple(map(_value, found))
    if not isinstance(found, dict):
        return found
    ((kind, value),) = found.items()
    if kind == "ref":
        return Ref(value)
    if kind == "float":
        return float.fromhex(value)
    if kind == "map":
        return {name: _value(each) for name, each in value.items()}
    raise ValueError(f"there is no value of kind {kind!r}")
