"""Kernels of the fake device: for each family what its descriptors mean, as the body of a Python function.

Operands are numpy arrays, outermost dimension first, inputs before outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from opbuild.kernel.opdesc import Dim, OpDesc, Operand

TYPES = {"bool", "float16", "bfloat16", "float32", "float64"} | {
    f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)
}

PROLOGUE = """
import numpy as np
from opbuild.operations.evaluation import evaluate_expression
from opbuild.operations.expression import from_json


def wide(operand):
    return operand.astype(np.float32) if operand.dtype.name in ("float16", "bfloat16") else operand
"""


def _elementwise(desc: OpDesc) -> str:
    return f"*given, out = operands\nout[...] = evaluate_expression(from_json({[*desc.attrs['expression']]!r}), given)"


def _matmul(desc: OpDesc) -> str:
    panels = (
        "right = np.moveaxis(right, -3, -2)\n"
        "right = right.reshape(*right.shape[:-2], right.shape[-2] * right.shape[-1])[..., : out.shape[-1]]\n"
    )
    return (
        "left, right, *others, out = operands\n"
        + panels * (desc.attrs["rhs"] == "panels")
        + "right = right.swapaxes(-1, -2)\n" * (desc.inputs[1].format == "turned")
        + f"out[...] = evaluate_expression(from_json({[*desc.attrs['epilogue']]!r}), others, wide(left) @ wide(right))"
    )


def _softmax(desc: OpDesc) -> str:
    axis = 2 if desc.attrs["axis"] == "inner" else 1
    result = "shifted - np.log(total)" if desc.attrs["log"] else "np.exp(shifted) / total"
    result = f"np.nan_to_num({result})" if "zeros" in desc.attrs else result
    return (
        "x, out = operands\n"
        "x = wide(x)\n"
        f"shifted = x - x.max({axis}, keepdims=True)\n"
        f"total = np.exp(shifted).sum({axis}, keepdims=True)\n"
        f"out[...] = {result}"
    )


def _layer_norm(desc: OpDesc) -> str:
    return (
        "x, epsilon, scale, *bias, out = operands\n"
        "x = wide(x)\n"
        f"centred = x - x.mean((-2, -1), keepdims=True) if {desc.attrs['centered']!r} else x\n"
        "out[...] = centred / np.sqrt((centred**2).mean((-2, -1), keepdims=True) + epsilon[0]) * scale + sum(bias)"
    )


_REDUCTIONS = {
    "sum": "x.sum(axes)",
    "mean": "x.mean(axes)",
    "max": "x.max(axes)",
    "min": "x.min(axes)",
    "prod": "x.prod(axes)",
    "l1": "abs(x).sum(axes)",
    "l2": "np.sqrt((x * x).sum(axes))",
    "sum_square": "(x * x).sum(axes)",
    "log_sum": "np.log(x.sum(axes))",
    "log_sum_exp": "np.log(np.exp(x - x.max(axes, keepdims=True)).sum(axes)) + x.max(axes)",
}


def _reduce(desc: OpDesc) -> str:
    axes = (-2, -1) if desc.attrs["layout"] == "inner" else (-3, -2)
    return f"x, out = operands\nx, axes = wide(x), {axes}\nout[...] = {_REDUCTIONS[desc.attrs['reduction']]}"


def _gather(desc: OpDesc) -> str:
    inside = "np.clip(np.where(index < 0, index + {0}, index), 0, {0} - 1)"
    if desc.attrs["kind"] == "rows":
        return f"x, index, out = operands\nout[...] = np.take(x, {inside.format('x.shape[1]')}, 1)"
    if desc.attrs["kind"] == "elements":
        axis = -1 - int(desc.attrs["axis"])
        return (
            "x, index, out = operands\n"
            f"places = [*np.indices(index.shape)]\nplaces[{axis}] = {inside.format(f'x.shape[{axis}]')}\n"
            "out[...] = x[tuple(places)]"
        )
    return (
        "x, index, out = operands\n"
        f"index = {inside.format('np.array(x.shape[1:-1])')}\n"
        "out[...] = x[(np.arange(len(x))[:, None], *np.moveaxis(index, -1, 0))]"
    )


def _gemv(desc: OpDesc) -> str:
    return (
        "matrix, vector, *others, out = operands\n"
        "product = (wide(matrix) @ wide(vector)[..., np.newaxis])[..., 0]\n"
        f"out[...] = evaluate_expression(from_json({[*desc.attrs['epilogue']]!r}), others, product)"
    )


def _attention(desc: OpDesc) -> str:
    seen = f"number = evaluate_expression(from_json({[*desc.attrs.get('seen', ())]!r}), others)\n"
    return (
        "q, k, v, *others, out = operands\n"
        + seen * ("seen" in desc.attrs)
        + "others += [np.arange(k.shape[-1]), number]\n" * ("seen" in desc.attrs)
        + f"epilogue = from_json({[*desc.attrs['epilogue']]!r})\n"
        "scores = wide(evaluate_expression(epilogue, others, wide(q) @ wide(k)))\n"
        "powers = np.exp(scores - scores.max(-1, keepdims=True))\n"
        "weights = powers / powers.sum(-1, keepdims=True)\n"
        f"weights = np.nan_to_num(weights) if {'zeros' in desc.attrs!r} else weights\n"
        "out[...] = weights @ wide(v)"
    )


_POOLS = {"max": "x.max((1, 2, 3))", "average": "x.sum((1, 2, 3)) / operands[1]"}


def _window(desc: OpDesc) -> str:
    return f"x = wide(operands[0])\noperands[-1][...] = {_POOLS[desc.attrs['kind']]}"


FEW = frozenset(("copy", "elementwise", "gather", "layer_norm", "matmul", "reduce", "softmax"))
"""The families that there are kernels of."""

served = set(FEW)
"""Those of which there are any now: tests add others."""

_BODIES: dict[str, Callable[[OpDesc], str]] = {
    "attention": _attention,
    "copy": lambda _: "x, out = operands\nout[...] = x",
    "elementwise": _elementwise,
    "gather": _gather,
    "gemv": _gemv,
    "layer_norm": _layer_norm,
    "matmul": _matmul,
    "reduce": _reduce,
    "softmax": _softmax,
    "window": _window,
}
ALL = frozenset(_BODIES)


def layouts_of(family: str) -> Collection[str] | None:
    """Return the layouts beside plain ones that kernels of a family take: none; None if there are no kernels of it."""
    return () if family in served else None


def for_target(desc: OpDesc, target: str) -> OpDesc | None:
    """Return the kernel that computes the same as a CPU's, for any extents and strides; None if there is none."""
    types = {operand.dtype for operand in desc.operands}
    known = {"zeros"} if desc.family in ("attention", "softmax") else set[str]()
    special = {"rounds", "zeros", "bound"} & desc.attrs.keys() - known or desc.attrs.get("rhs") == "pairs"
    special = special or desc.attrs.get("kind", "") not in ("", "rows", "elements", "nd", *_POOLS)
    if desc.family not in served or special or desc.source or desc.is_precise or not types <= TYPES:
        return None
    inputs, outputs = (tuple(map(_free, side)) for side in (desc.inputs, desc.outputs))
    return replace(desc, inputs=inputs, outputs=outputs, variant={}, target=target)


def _free(operand: Operand) -> Operand:
    return replace(operand, dims=tuple(Dim() for _ in operand.dims))


def source_of(desc: OpDesc, symbol: str) -> str:
    """Return the source of a kernel."""
    body = _BODIES[desc.family](desc).replace("\n", "\n    ")
    return f"{PROLOGUE}\n\ndef {symbol}(*operands):\n    {body}\n"
