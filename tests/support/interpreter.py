"""Kernels in Triton run by Triton's interpreter: numpy on the host's own addresses, in the process that compiles them.

Triton interprets by an environment variable that is read when functions are decorated, and a process that sets it
compiles nothing. Here the functions stay what they are: while a kernel runs, calls of what ``triton.jit`` made run
interpreted, and functions of libdevice are numpy's. Of bfloat16 the interpreter converts, and computes nothing right:
what computes in it is tried as float16.
"""

from __future__ import annotations

import ast
import inspect
import itertools
import math
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import triton
import triton.language as tl
from triton._utils import validate_block_shape
from triton.language.extra import libdevice as common
from triton.language.extra.cuda import libdevice
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter
from triton.runtime.jit import JITFunction

from opbuild.backend.triton.kernel import ADDRESS, EXTENT, TritonKernel

Array = Any

TYPES = {
    "bool": "u8", "float16": "fp16", "bfloat16": "bf16", "float32": "fp32", "float64": "fp64",
    **{f"int{bits}": f"i{bits}" for bits in (8, 16, 32, 64)}, **{f"uint{bits}": f"u{bits}" for bits in (8, 16, 32, 64)},
}  # fmt: skip
"""Element types as Triton names what pointers point to."""


def interpret(kernel: TritonKernel, arrays: Sequence[Array]) -> None:
    """Run a kernel on operands, inputs before outputs, as a launch on a device would; outputs are written in place.

    Args:
        kernel: The kernel.
        arrays: The operands; the last axis of one is its dimension 0.
    """
    dims = [[*zip(each.shape, _strides(each), strict=True)][::-1] for each in arrays]
    addresses = [each.__array_interface__["data"][0] for each in arrays]
    values = [
        addresses[operand] if kind == ADDRESS else dims[operand][dim][0 if kind == EXTENT else 1]
        for kind, operand, dim in kernel.arguments.values()
    ]
    grid = [math.prod(-(-dims[operand][dim][0] // size) for operand, dim, size in axis) for axis in kernel.grid]
    interpret_raw(kernel, [each.dtype.name for each in arrays], values, grid)


def interpret_raw(kernel: TritonKernel, dtypes: Sequence[str], values: Sequence[int], grid: Sequence[int]) -> None:
    """Run a kernel on plain numbers, as a driver is given them.

    Args:
        kernel: The kernel.
        dtypes: The element type of each operand.
        values: The kernel's arguments, without constants: addresses of the host's own memory, extents and strides.
        grid: How many programs there are along each axis, ``x`` first.
    """
    given = {
        name: _scalar(argument.kind, dtypes[argument.operand], value)
        for (name, argument), value in zip(kernel.arguments.items(), values, strict=True)
    }
    for name in kernel.aligned:
        assert values[[*kernel.arguments].index(name)] % 16 == 0, f"{name} is no multiple of 16"
    sizes = (*grid, 1, 1)[:3]
    with _interpreting(), np.errstate(all="ignore"):
        interpreter.interpreter_builder.set_grid_dim(*sizes)
        for z, y, x in itertools.product(*map(range, reversed(sizes))):
            interpreter.interpreter_builder.set_grid_idx(x, y, z)
            kernel.function(**given, **kernel.constants)


def _strides(array: Array) -> list[int]:
    assert all(stride % array.itemsize == 0 for stride in array.strides)
    return [stride // array.itemsize for stride in array.strides]


def _scalar(kind: str, dtype: str, value: int) -> Any:
    """Return an argument of a kernel."""
    if kind == ADDRESS:
        name, held = f"*{TYPES[dtype]}", np.uint64
    else:
        name, held = ("i32", np.int32) if kind == EXTENT else ("i64", np.int64)
    type_ = tl.str_to_ty(name, None)
    return tl.tensor(interpreter.TensorHandle(np.array([value], held), type_), type_)


# -- the language, for the time of a run -------------------------------------------------------------------------------

_LOCK = threading.RLock()


@contextmanager
def _interpreting() -> Iterator[None]:
    """Have the language's functions, and those that ``triton.jit`` made, run by numpy; by one thread at a time."""
    with _LOCK:
        scope = interpreter._LangPatchScope()
        try:
            for change in _changes():
                scope.set_attr(*change)
            yield
        finally:
            scope.restore()


@cache
def _changes() -> list[tuple[Any, str, Any]]:
    """Return the attributes that have another value while kernels run: owner, name, value."""
    scope, changes = interpreter._LangPatchScope(), list[tuple[Any, str, Any]]()
    try:
        for module in (tl, tl.core):
            _patch_module(module, scope)
        for module in (tl.math, tl.core.tensor_descriptor_base, libdevice):
            interpreter._patch_builtin(module, interpreter.interpreter_builder, scope)
        for name, _ in inspect.getmembers(common, inspect.isfunction):
            if hasattr(libdevice, name):
                scope.set_attr(common, name, getattr(libdevice, name))
        scope.set_attr(tl.tensor, "__index__", lambda self: int(self.handle.data.item()))
        scope.set_attr(JITFunction, "__call__", lambda self, *args, **kwargs: _rewritten(self)(*args, **kwargs))
        scope.set_attr(interpreter.InterpreterBuilder, "create_extern_elementwise", _extern)
        scope.set_attr(interpreter.InterpreterBuilder, "get_all_ones_value", _all_ones)
        scope.set_attr(interpreter.interpreter_builder, "options", _OPTIONS)
        scope.set_attr(interpreter, "_get_np_dtype", _held)
        scope.set_attr(tl.block_type, "__init__", _init_block_type)
        scope.set_attr(tl.tensor, "__init__", _init_tensor)
        scope.set_attr(TritonSemantic, "broadcast_impl_value", _broadcast)
        changes += [(owner, name, getattr(owner, name)) for owner, name, _ in scope._changes]
    finally:
        scope.restore()
    return changes


def _patch_module(module: Any, scope: Any) -> None:
    interpreter._patch_builtin(module, interpreter.interpreter_builder, scope)
    if module is tl:
        interpreter._patch_builtin(tl.tensor, interpreter.interpreter_builder, scope)
        interpreter._patch_lang_tensor(tl.tensor, scope)
    interpreter._patch_lang_core(module, scope)


def _all_ones(_: Any, type_: Any) -> Any:
    """Return -1; of an unsigned type, too, for which numpy 2 refuses it."""
    held = interpreter._get_np_dtype(type_)
    ones = np.ones(1, bool) if held == np.bool_ else np.full(1, -1, np.int64).astype(held)
    return interpreter.TensorHandle(ones, type_.scalar)


# What the language finds out anew for each value, found out once: it is most of what a kernel takes.

_OPTIONS = replace(interpreter.InterpreterOptions(), sanitize_overflow=False)
"""Without sums in 64 bits for an assertion that is made only while Triton is debugged."""

_numpy_dtype = interpreter._get_np_dtype
_HELD: dict[str, Any] = {}


def _held(type_: Any) -> Any:
    """Return numpy's type of a type's elements."""
    name = type_.scalar.name
    if name not in _HELD:
        _HELD[name] = _numpy_dtype(type_)
    return _HELD[name]


@cache
def _shape(*extents: int) -> tuple[Any, int, str, Any, Any]:
    """Return a block's shape, count and name, then the shape and the count as its tensors have them."""
    count, shape = validate_block_shape(extents), tl.tuple(extents)
    return shape, count, str(shape), tl.tuple([tl.constexpr(each) for each in extents]), tl.constexpr(count)


_SCALAR = tl.tuple(()), tl.constexpr(1)


def _init_block_type(self: Any, element_ty: Any, shape: Iterable[Any]) -> None:
    extents = [each.value if isinstance(each, tl.constexpr) else each for each in shape]
    if not extents:
        raise TypeError("0d block_type is forbidden")
    self.shape, self.numel, name, *self.of_tensors = _shape(*extents)
    self.element_ty, self.name = element_ty, f"<{name}, {element_ty}>"


def _init_tensor(self: Any, handle: Any, type_: Any) -> None:
    self.handle, self.type, self.dtype = handle, type_, type_.scalar
    self.shape, self.numel = type_.of_tensors if type_.is_block() else _SCALAR


_broadcast_any = TritonSemantic.broadcast_impl_value


def _broadcast(self: Any, one: Any, other: Any) -> tuple[Any, Any]:
    return (one, other) if one.shape is other.shape else _broadcast_any(self, one, other)


_REWRITTEN: dict[Any, Callable[..., Any]] = {}


def _rewritten(function: JITFunction[Any]) -> Callable[..., Any]:
    """Return a function whose assigned values are tensors, as the interpreter wants them."""
    if function.fn not in _REWRITTEN:
        tree = ast.fix_missing_locations(interpreter.ASTTransformer().visit(function.parse()))
        names = {**function.get_capture_scope(), "interpreter_semantic": interpreter.interpreter_semantic}
        exec(compile(tree, f"<{function.__name__}, interpreted>", "exec"), names)
        _REWRITTEN[function.fn] = names[function.fn.__name__]
    return _REWRITTEN[function.fn]


# -- libdevice ---------------------------------------------------------------------------------------------------------


def _each(function: Callable[[float], float]) -> Callable[[Array], Array]:
    return lambda x: np.vectorize(function, otypes=[x.dtype])(x)


_FUNCTIONS: Mapping[str, Callable[..., Array]] = {
    **{name: getattr(np, name) for name in ("sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "exp2", "expm1")},
    **{name: getattr(np, name) for name in ("log", "log2", "log10", "log1p", "floor", "ceil", "trunc", "sqrt", "fmod")},
    **{name: getattr(np, f"arc{name[1:]}") for name in ("asin", "acos", "atan", "asinh", "acosh", "atanh", "atan2")},
    "copysign": np.copysign, "fabs": np.abs, "rint": np.rint, "nearbyint": np.rint, "pow": np.power,
    "mul_rn": np.multiply, "div_rn": np.divide, "sqrt_rn": np.sqrt,
    "normcdf": _each(lambda x: math.erfc(-x * math.sqrt(0.5)) / 2), "erf": _each(math.erf),
    "rsqrt": lambda x: 1 / np.sqrt(x), "hypot": np.hypot,
    "isnand": np.isnan, "isnan": np.isnan, "isinfd": np.isinf, "isinf": np.isinf,
    "finitef": np.isfinite, "isfinited": np.isfinite,
}  # fmt: skip
"""Functions by libdevice's names of them, without ``__nv_`` and the ``f`` of float32."""


def _extern(_: Any, __: str, ___: str, symbol: str, args: Sequence[Any], result: Any, ____: bool) -> Any:
    """Return the values of a function of libdevice."""
    name = symbol.removeprefix("__nv_")
    plain = name[1:] if name.endswith("_rn") else name
    function = _FUNCTIONS.get(plain) or _FUNCTIONS[plain.removesuffix("f")]
    scalar = result.scalar
    data = np.asarray(function(*(each.data for each in args))).astype(interpreter._get_np_dtype(scalar))
    return interpreter.TensorHandle(data, scalar)


assert not triton.knobs.runtime.interpret, "with TRITON_INTERPRET nothing is compiled"
