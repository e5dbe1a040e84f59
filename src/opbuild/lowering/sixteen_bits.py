"""Sixteen bits on a device: it reads and writes in 16 bits what has only numbers of float16 or bfloat16.

For a CPU such numbers lie as float32 inside a network (``graph.passes.narrow``), and programs say where results are
rounded to them. So memory of a device holds them in 16 bits wherever it has kernels of all calls that touch it, and no
result changes: products reach its kernels in 16 bits, and are summed up in float32 as before.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from opbuild.dtypes import NARROW_FLOATS, numpy_dtype
from opbuild.families.catalogue import find
from opbuild.graph.extents import always_equal
from opbuild.kernel.opdesc import OpDesc, Operand
from opbuild.operations.expression import Expression, arg, children, dtype_of, from_json, substitute
from opbuild.operations.table import OPERATIONS
from opbuild.platform.records import replace
from opbuild.program import Buffer, Call, HostCall, KernelCall, Program, View
from opbuild.target.level import CPU

ANY = "any"
"""Of contents that are numbers of every type of 16 bits, as far as is known."""

_WIDE = {"float32": "", "uint32": "uint16"}
"""The types by which kernels read float32: as numbers, or as bits that are moved; the latter as those of 16 bits."""

SELECTING = ("max", "min")
"""Kinds of pools and reductions whose results are among the elements that they read."""

KernelOf = Callable[[OpDesc], OpDesc | None]
"""Returns a device's kernel for what a CPU's computes; None if it has none."""


def narrow_contents(program: Program) -> dict[int, str]:
    """Return the float32 buffers whose elements are all numbers of one type of 16 bits, with this type.

    Constants of one number that all types have are of that of what is made of them.
    """
    wide = {index: each for index, each in enumerate(program.buffers) if each.dtype == "float32"}
    found = {index: ANY for index, each in wide.items() if each.kind == "temporary" or _is_number_of_all(each)}
    changed = True
    while changed:
        changed = False
        for call in program.calls:
            made = _made(call, found, program.buffers) if isinstance(call, KernelCall) else ""
            for view in filter(None, call.outputs):
                known = found.get(view.buffer, "")
                if known and _common((known, made)) != known:
                    found[view.buffer], changed = _common((known, made)), True
    for index in [index for index in found if program.buffers[index].kind == "constant"]:
        found[index] = _common(found.get(buffer, "") for buffer in _made_of(index, program.calls))
    return {index: type_ for index, type_ in found.items() if type_ in NARROW_FLOATS}


def _is_number_of_all(buffer: Buffer) -> bool:
    """Return whether a buffer is a constant of one number that each type of 16 bits has."""
    if buffer.kind != "constant" or buffer.pack is None or buffer.table is not None or not always_equal(buffer.size, 1):
        return False
    return _is_exact(buffer.pack().reshape(-1)[0])


def _is_exact(number: Any) -> bool:
    return all(numpy_dtype(each).type(number) == number for each in NARROW_FLOATS)


def _made_of(index: int, calls: Sequence[Call]) -> Iterator[int]:
    """Yield the buffers that calls that read a buffer write."""
    for call in calls:
        if any(view is not None and view.buffer == index for view in call.inputs):
            yield from (view.buffer for view in call.outputs if view is not None)


def _made(call: KernelCall, found: Mapping[int, str], buffers: Sequence[Buffer]) -> str:
    """Return the type of 16 bits of whose numbers a call makes all that it writes, ``ANY``, or nothing."""
    desc = call.desc
    if "rounds" in find(desc.family).attributes:
        return str(desc.attrs.get("rounds", ""))
    given = [found.get(view.buffer, "") for view in call.inputs]
    if desc.attrs.get("kind", desc.attrs.get("reduction")) in SELECTING:
        return given[0]
    if desc.outputs[0].dtype == "uint32":
        return _common(kind for kind, each in zip(given, desc.inputs, strict=True) if each.dtype == "uint32")
    name = _expression_name(desc)
    places = _arguments(desc)
    dtypes = [desc.inputs[place].dtype for place in places]
    return _numbers(from_json(desc.attrs[name]), [given[place] for place in places], dtypes) if name else ""


def _numbers(e: Expression, given: Sequence[str], dtypes: Sequence[str]) -> str:
    """Return the same of an expression, whose operands have types, and numbers of types."""
    if e[0] == "arg":
        return given[e[1]]
    if e[0] == "const":
        number = numpy_dtype("float32").type(e[2])
        return ANY if _is_exact(number) else ""
    if e[:2] == ("cast", "float32"):
        read = dtype_of(e[2], dtypes)
        return read if read in NARROW_FLOATS else _numbers(e[2], given, dtypes) if read == "float32" else ""
    operation = OPERATIONS.get(e[0])
    if operation is None or not operation.exact:
        return ""
    return _common(_numbers(each, given, dtypes) for each in children(e)[operation.conditions :])


def _common(types: Any) -> str:
    """Return the type of whose numbers all are."""
    found = {*types} - {ANY}
    return found.pop() if len(found) == 1 else "" if found else ANY


def _expression_name(desc: OpDesc) -> str:
    return next((name for name in ("expression", "epilogue") if name in desc.attrs), "")


def _arguments(desc: OpDesc) -> list[int]:
    """Return which inputs are the operands of a descriptor's expression, in the order of their numbers."""
    return [place for place, each in enumerate(desc.inputs) if each.name[:1] in "xe" and each.name[1:].isdigit()]


def in_sixteen_bits(desc: OpDesc, types: Sequence[str]) -> OpDesc | None:
    """Return the descriptor of the same on operands that are stored in 16 bits; None if there is none.

    Args:
        desc: The descriptor.
        types: For each operand the type of 16 bits that its float32 is stored in; empty: it is stored as it was.
    """
    if not any(types):
        return desc
    operands = list(desc.operands)
    for place, (each, narrow) in enumerate(zip(operands, types, strict=True)):
        if narrow and each.dtype not in _WIDE:
            return None
        operands[place] = replace(each, dtype=_WIDE[each.dtype] or narrow) if narrow else each
    if {"uint16", "uint32"} <= {each.dtype for each in operands}:
        return None  # moved bits stay as many
    inputs, outputs = tuple(operands[: len(desc.inputs)]), tuple(operands[len(desc.inputs) :])
    return replace(desc, inputs=inputs, outputs=outputs, attrs=_attributes(desc, inputs, types))


def _attributes(desc: OpDesc, inputs: Sequence[Operand], types: Sequence[str]) -> Mapping[str, Any]:
    """Return the attributes where operands are stored in 16 bits: to store a result is to round it."""
    attrs, name, result = dict(desc.attrs), _expression_name(desc), types[len(inputs)]
    rounds = "rounds" in find(desc.family).attributes  # then no expression is that of the result
    if rounds and result:
        attrs.pop("rounds", None)
    if not name:
        return attrs
    places = _arguments(desc)
    dtypes = [inputs[place].dtype for place in places]

    def written(e: Expression) -> Expression | None:
        return ("cast", "float32", e) if e[0] == "arg" and types[places[e[1]]] else None

    def shorter(e: Expression) -> Expression | None:
        is_back = e[0] == "cast" and e[1] in NARROW_FLOATS and e[2][:2] == ("cast", "float32")
        return e[2][2] if is_back and dtype_of(e[2][2], dtypes) == e[1] else None

    expression = substitute(from_json(attrs[name]), written)
    expression = ("cast", result, expression) if result and not rounds else expression
    attrs[name] = substitute(expression, shorter)
    return attrs


def stored_types(
    calls: Mapping[int, KernelCall], narrow: Mapping[int, str], kernel: KernelOf
) -> tuple[dict[int, str], set[int]]:
    """Return the buffers that a device has in 16 bits, and the calls that it has no kernel for then.

    Args:
        calls: The calls that are to be run there, by any numbers.
        narrow: The buffers that may be in 16 bits, with the type.
        kernel: Returns its kernels.
    """
    stored, lacking = dict(narrow), set[int]()
    before: tuple[int, int] | None = None
    while before != (len(stored), len(lacking)):
        before = len(stored), len(lacking)
        for number, call in calls.items():
            touched = {view.buffer for view in call.views} & stored.keys()
            desc = None if call.desc.device != CPU and touched else described(call, stored)
            if desc is None or kernel(desc) is None:
                lacking |= set() if touched else {number}
                for buffer in touched:
                    del stored[buffer]
    return stored, lacking


def described(call: KernelCall, stored: Mapping[int, str]) -> OpDesc | None:
    """Return the descriptor of a call where buffers are stored in 16 bits."""
    return in_sixteen_bits(call.desc, [stored.get(view.buffer, "") for view in call.views])


def buffers_in(buffers: Sequence[Buffer], stored: Mapping[int, str]) -> list[Buffer]:
    """Return buffers, some of them in 16 bits."""
    return [replace(each, dtype=stored[index]) if index in stored else each for index, each in enumerate(buffers)]


def constant_in(buffer: Buffer, dtype: str) -> Buffer:
    """Return a constant in a type of 16 bits."""
    read, named = buffer.pack, buffer.source
    assert read is not None  # noqa: S101 - as ``narrow_contents`` says
    assert named is not None  # noqa: S101
    kind = numpy_dtype(dtype)
    return replace(buffer, dtype=dtype, pack=lambda: read().astype(kind), source=lambda: (named(), dtype))


def without_conversions(calls: Sequence[Call], buffers: Sequence[Buffer]) -> list[Call]:
    """Return calls without those that convert what is stored in 16 bits to the same: readers read what they read."""
    writers = Counter(view.buffer for call in calls for view in call.outputs if view is not None)
    written, moved, kept = Counter[int](), dict[int, tuple[int, int]](), list[Call]()
    for given in calls:
        call = _reading(given, moved)
        written.update(view.buffer for view in call.outputs if view is not None)
        if isinstance(call, KernelCall) and _converts_nothing(call):
            source, target = call.views
            is_last = written[source.buffer] == writers[source.buffer] and writers[target.buffer] == 1
            if is_last and buffers[target.buffer].kind == buffers[source.buffer].kind == "temporary":
                moved[target.buffer] = source.buffer, source.offset - target.offset
                continue
        kept.append(call)
    return kept


def _converts_nothing(call: KernelCall) -> bool:
    """Return whether a call on a device copies its operand as that lies."""
    desc = call.desc
    is_same = len(desc.operands) == 2 and desc.inputs[0].dtype == desc.outputs[0].dtype in NARROW_FLOATS
    if desc.device == CPU or not is_same or from_json(desc.attrs.get("expression", ())) != arg(0):
        return False
    return call.views[0].dims == call.views[1].dims


def _reading(call: Call, moved: Mapping[int, tuple[int, int]]) -> Call:
    def place(view: View) -> View:
        buffer, offset = moved.get(view.buffer, (view.buffer, 0))
        return view._replace(buffer=buffer, offset=view.offset + offset)

    if isinstance(call, HostCall):
        return replace(call, inputs=tuple(view and place(view) for view in call.inputs))
    return replace(call, views=tuple(map(place, call.views)))
