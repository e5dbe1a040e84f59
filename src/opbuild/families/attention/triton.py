"""Attention in Triton: a block of queries at a time, with an online softmax (Dao 2023, FlashAttention-2).

What depends on how many operands the scores have is generated: the kernel's parameters, and how scores and numbers of
keys are computed. What is done with them is in ``backend.triton.attention``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opbuild.backend.triton import attention as kernels
from opbuild.backend.triton.expression import expression_function
from opbuild.backend.triton.kernel import ADDRESS, EXTENT, STRIDE, Argument, Tiles, TritonKernel
from opbuild.backend.triton.rows import split_known
from opbuild.backend.triton.source import jit_function
from opbuild.families.attention.cuda import NUMBERS
from opbuild.kernel.opdesc import OpDesc
from opbuild.operations.expression import Expression, from_json, walk

_STRIDES = {"q": ("at", "row"), "k": ("key", "at"), "v": ("at", "key"), "out": ("at", "row")}
_BATCH = ("b0", "b1", "b2")

_BODY = """
    chunk = tl.program_id(0) % tl.cdiv(columns, 64) * 64
    program = tl.program_id(0) // tl.cdiv(columns, 64)
    first = program % tl.cdiv(rows, ROWS) * ROWS
    program = program // tl.cdiv(rows, ROWS)
    b0, b1, b2 = (program % batch0).to(tl.int64), (program // batch0 % batch1).to(tl.int64), program // batch0 // batch1
"""
_WHOLE = """
    b2 = b2.to(tl.int64)
    part = 0
"""
_PART = """
    part = b2 // batch2
    b2 = (b2 % batch2).to(tl.int64)
    out += part.to(tl.int64) * out_part
"""

_CALL = """
    row = tl.minimum(first + tl.arange(0, ROWS), rows - 1)[:, None].to(tl.int64)
    seen, spans = ranges(others, row, keys, ROWS)
    dispatch(q, k, v, out, others, seen, spans,
             size, rows, keys, columns, first, chunk, q_at, q_row, k_key, k_at, v_at, v_key, out_at, out_row,
             ROWS, KEYS, scored, SHOWS, ZEROS, ROUNDS, part, {parts}, {is_part})
"""

_MERGE = """
def merged({parameters}, ZEROS: tl.constexpr, ROUNDS: tl.constexpr):
    chunk = tl.program_id(0) % tl.cdiv(columns, 64) * 64
    program = tl.program_id(0) // tl.cdiv(columns, 64)
    row, program = (program % rows).to(tl.int64), program // rows
    b0, b1, b2 = (program % batch0).to(tl.int64), (program // batch0 % batch1).to(tl.int64), program // batch0 // batch1
    b2 = b2.to(tl.int64)
    sums += row * sums_row + b0 * sums_b0 + b1 * sums_b1 + b2 * sums_b2
    out += row * out_row + b0 * out_b0 + b1 * out_b1 + b2 * out_b2
    merge(sums, out, columns, parts, sums_at, sums_part, out_at, chunk, 64, ZEROS, ROUNDS)
"""


def define(desc: OpDesc) -> TritonKernel:
    """Return the kernel of a descriptor."""
    return _merging(desc) if "merge" in desc.variant else _attending(desc)


def _attending(desc: OpDesc) -> TritonKernel:
    """Return the kernel that attends to all keys, or to parts of them."""
    count, is_part = len(desc.inputs) - 3, "parts" in desc.variant
    strides = {**_STRIDES, **{f"e{number}": ("key", "row") for number in range(count)}}
    numbers = {"q": 0, "k": 1, "v": 2, **{f"e{number}": 3 + number for number in range(count)}, "out": 3 + count}
    parameters = {
        **{name: Argument(ADDRESS, number) for name, number in numbers.items()},
        "size": Argument(EXTENT, 0, 0),
        "rows": Argument(EXTENT, 0, 1),
        "keys": Argument(EXTENT, 1, 0),
        "columns": Argument(EXTENT, 2, 0),
        "batch0": Argument(EXTENT, 0, 2),
        "batch1": Argument(EXTENT, 0, 3),
        **{
            f"{name}_{of}": Argument(STRIDE, number, dim)
            for name, number in numbers.items()
            for dim, of in enumerate((*strides[name], *_BATCH))
        },
    }
    output = numbers["out"]
    if is_part:
        own = {"batch2": Argument(EXTENT, 0, 4), "parts": Argument(EXTENT, output, 5)}
        parameters |= {**own, "out_part": Argument(STRIDE, output, 5)}
    given, known = split_known(desc, parameters)
    flags = ("ROWS", "KEYS", "SHOWS", "ZEROS", "ROUNDS")
    text = f"def attention({', '.join((*parameters, *(f'{flag}: tl.constexpr' for flag in flags)))}):" + _BODY
    text += _PART if is_part else _WHOLE
    text += "".join(f"    {x} += " + " + ".join(f"{b} * {x}_{b}" for b in _BATCH) + "\n" for x in numbers)
    text += f"    others = ({''.join(f'e{n}, e{n}_key, e{n}_row, ' for n in range(count))})"
    text += _CALL.format(parts="parts" if is_part else "1", is_part=is_part)
    names = {"dispatch": kernels.dispatch, "ranges": _ranges(desc), "scored": _scored(desc)}
    constants = {
        **known,
        **{name.upper(): desc.variant[name] for name in ("rows", "keys")},
        "SHOWS": _may_show(desc),
        "ZEROS": str(desc.attrs.get("zeros", "")),
        "ROUNDS": str(desc.attrs.get("rounds", "")),
    }
    grid = [
        [
            Tiles(2 if is_part else output, 0, 64),
            Tiles(0, 1, int(desc.variant["rows"])),
            *(Tiles(0, dim) for dim in (2, 3, 4)),
        ]
    ]
    if is_part:
        grid[0].append(Tiles(output, 5))
    return TritonKernel(
        jit_function(text, "attention", names), given, grid, constants, warps=desc.variant["warps"], stages=2
    )


def _merging(desc: OpDesc) -> TritonKernel:
    """Return the kernel that merges what was found of parts of the keys."""
    names = ("at", "row", *_BATCH)
    parameters = {
        "sums": Argument(ADDRESS, 0),
        "out": Argument(ADDRESS, 1),
        **{name: Argument(EXTENT, 1, dim) for dim, name in enumerate(("columns", "rows", "batch0", "batch1"))},
        "parts": Argument(EXTENT, 0, 5),
        **{f"sums_{of}": Argument(STRIDE, 0, dim) for dim, of in enumerate((*names, "part"))},
        **{f"out_{of}": Argument(STRIDE, 1, dim) for dim, of in enumerate(names)},
    }
    given, known = split_known(desc, parameters)
    text = _MERGE.format(parameters=", ".join(parameters))
    constants = {**known, **{name.upper(): str(desc.attrs.get(name, "")) for name in ("zeros", "rounds")}}
    grid = [[Tiles(1, 0, 64), *(Tiles(1, dim) for dim in (1, 2, 3, 4))]]
    function = jit_function(text, "merged", {"merge": kernels.merge})
    return TritonKernel(function, given, grid, constants, warps=desc.variant["warps"], stages=2)


def _may_show(desc: OpDesc) -> bool:
    """Return whether a key that is hidden may show in the result: not if every query sees all that there are."""
    pairs = (("seen", "bound"), ("since", "start"))
    return "seen" in desc.attrs and any(desc.attrs.get(name) != desc.attrs.get(end) for name, end in pairs)


def _operands(expression: Expression, count: int) -> list[int]:
    return sorted({part[1] for part in walk(expression) if part[0] == "arg" and part[1] < count})


def _loads(used: Sequence[int], has_keys: bool) -> str:
    """Return the lines that load operands at keys and rows, or at the first key."""
    at = " + at * others[{1}]" if has_keys else ""
    line = "    a{3} = tl.load(others[{0}]" + at + " + row * others[{2}]{4})\n"
    mask = ", mask=here, other=0" if has_keys else ""
    return "".join(line.format(3 * each, 3 * each + 1, 3 * each + 2, each, mask) for each in used)


def _scored(desc: OpDesc) -> Any:
    """Return the function of scores: of sums of products, the keys' places, rows, and how many keys each one sees."""
    dtypes = [each.dtype for each in desc.inputs[3:]]
    expression, count = from_json(list(desc.attrs["epilogue"])), len(dtypes)
    used = _operands(expression, count)
    places = ["at", "seen"] if "seen" in desc.attrs else []
    given = [f"a{each}" if each in used else "0" for each in range(count)]
    function = expression_function(expression, [*dtypes, *["int32"] * len(places)], "float32", "float32")
    text = "def scored(acc, at, row, here, seen, others):\n" + _loads(used, True)
    text += f"    return expression({', '.join((*given, *places, 'acc'))})\n"
    return jit_function(text, "scored", {"expression": function})


def _ranges(desc: OpDesc) -> Any:
    """Return the function of numbers of keys.

    How many each query sees; from which to which key scores are made; from which to which key values are no zeros; and
    from which to which key anything would be computed if nothing were left out.
    """
    dtypes, names = [each.dtype for each in desc.inputs[3:]], dict[str, Any]()
    lines = ["seen = 0", "low = 0", "high = keys", "low_value = 0", "high_value = keys", "low_all = 0"]
    lines += ["high_all = keys"]
    for name in NUMBERS:
        if name in desc.attrs:
            expression = from_json(list(desc.attrs[name]))
            names[name] = _number(expression, dtypes)
    if "seen" in desc.attrs:
        lines += [
            "seen = seen_of(others, row, keys)",
            f"since = {'since_of(others, row, keys)' if 'since' in desc.attrs else 'seen * 0'}",
            f"bound = {'tl.max(bound_of(others, row * 0, keys))' if 'bound' in desc.attrs else 'keys'}",
            f"start = {'tl.max(start_of(others, row * 0, keys))' if 'start' in desc.attrs else '0'}",
            "most, fewest = tl.max(seen), tl.min(since)",
            "leaves_out = tl.min(seen - since) > 0",
            f"high_all = {'tl.maximum(most, bound)' if 'bound' in desc.attrs else 'keys'}",
            f"low_all = {'tl.minimum(fewest, start)' if 'since' in desc.attrs else '0'}",
            "high = tl.where(leaves_out, most, high_all)",
            f"low = {'tl.where(leaves_out, fewest, low_all)' if 'since' in desc.attrs else '0'}",
            f"high_value = {'bound' if 'bound' in desc.attrs else 'keys'}",
            f"low_value = {'start' if 'start' in desc.attrs else '0'}",
        ]
    lines += ["return seen, (low, high, low_value, high_value, low_all, high_all)"]
    text = "def ranges(others, row, keys, ROWS: tl.constexpr):\n" + "".join(f"    {line}\n" for line in lines)
    return jit_function(text, "ranges", {f"{name}_of": each for name, each in names.items()})


def _number(expression: Expression, dtypes: Sequence[str]) -> Any:
    """Return the function of a number of keys, at least none and at most all, for rows."""
    used = _operands(expression, len(dtypes))
    given = [f"a{each}" if each in used else "0" for each in range(len(dtypes))]
    text = "def number(others, row, keys):\n" + _loads(used, False)
    text += f"    found = expression({', '.join(given)})\n"
    text += "    return tl.maximum(tl.minimum(found, keys.to(tl.int64)), 0).to(tl.int32)\n"
    return jit_function(text, "number", {"expression": expression_function(expression, dtypes, "int64")})
