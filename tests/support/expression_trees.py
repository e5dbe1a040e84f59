"""Random expressions over all operations and types, evaluated by compiled code and, operation by operation, by numpy.

``exact_arithmetic`` says what an operation gives. Functions that it has not, such as ``exp``, are compiled alone and
applied to the values that numpy found: fused or alone they must give the same bits.
"""

from __future__ import annotations

import faulthandler
import os
import resource
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from random import Random
from typing import Any

import halide as hl
import numpy as np

from opbuild.backend.halide.definition import TYPES
from opbuild.backend.halide.emission import halide_target
from opbuild.backend.halide.expression import compile_expression
from opbuild.backend.halide.target import spelled
from opbuild.graph.types import Graph, Node, TensorType
from opbuild.operations.expression import Expression, arg, children, const, dtype_of, rebuild, walk
from opbuild.operations.table import OPERATIONS
from opbuild.target.host import host_problem
from opbuild.target.level import LEVELS
from support import exact_arithmetic
from support.exact_arithmetic import FLOATS, INTEGERS, Array
from support.forked import forked

CARRIER = {"bool": "uint8", "float16": "uint16", "uint64": "int64"}
"""Types that Halide's Python buffers do not carry travel as others of their size."""

TRUTH = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "is_nan", "is_inf", "is_finite")
LOGIC = ("and", "or", "xor", "not")
BITS = ("bit_and", "bit_or", "bit_xor", "bit_not", "shift_left", "shift_right")
PARAMETERS: dict[str, tuple[float, ...]] = {
    **{
        name: tuple(default for _, default in each.as_onnx.parameters)
        for name, each in OPERATIONS.items()
        if each.as_onnx is not None
    },
    "celu": (1.3,),
    "thresholded_relu": (0.3,),
    "shrink": (0.5, 0.1),
}
"""The last operands of operations that ONNX has as attributes."""
CHECKS = "no_asserts-no_bounds_query"
LENGTH = 96
MEMORY, SECONDS = 4 * 2**30, 60
MOST_OPERATIONS, MOST_FUNCTIONS = 8, 2
"""Operations of a tree, and those of them that are not exact."""


def levels() -> dict[str, str]:
    """Return the targets of every level of instructions that this machine runs, by name."""
    return {level.name: str(halide_target(spelled(level))) for level in LEVELS if host_problem(level) is None}


@dataclass(frozen=True)
class Tree:
    """An expression with the values that it reads.

    Attributes:
        expression: What is computed.
        args: What ``("arg", i)`` stands for.
        refined: Whether it is compiled for the mode ``high_precision``.
    """

    expression: Expression
    args: tuple[Array, ...] = field(compare=False)
    refined: bool = False

    def dtype(self, expression: Expression) -> str:
        """Return the type of a part of the expression."""
        return dtype_of(expression, [str(array.dtype) for array in self.args])


# -- making trees -----------------------------------------------------------------------------------------------------


def values(dtype: str, random: Random) -> Array:
    """Return special, small and arbitrary numbers of a type, mixed."""
    if dtype == "bool":
        return np.array([random.random() < 0.5 for _ in range(LENGTH)])
    if dtype in FLOATS:
        numbers = [
            random.choice(special_floats(dtype)) if random.random() < 0.5 else _float(random) for _ in range(LENGTH)
        ]
        with np.errstate(all="ignore"):
            return np.array(numbers).astype(dtype)
    info = np.iinfo(dtype)
    edges = (info.min, info.min + 1, info.max - 1, info.max, info.max // 2, 0, 1, 2, 3, 7, 31, 64)
    small = (max(-9, info.min), 9)
    picks = [
        random.choice((random.choice(edges), random.randint(*small), random.randint(info.min, info.max)))
        for _ in range(LENGTH)
    ]
    return np.array(picks, dtype)


def _float(random: Random) -> float:
    return random.choice(
        (random.gauss(0, 3), random.gauss(0, 1) * 10.0 ** random.uniform(-20, 20), random.gauss(0, 100))
    )


@lru_cache
def special_floats(dtype: str) -> tuple[float, ...]:
    """Return numbers of a type at which something begins or ends, of both signs."""
    info = np.finfo(dtype)
    ends = [float(x) for x in (info.tiny, info.smallest_subnormal, info.max, info.eps, info.tiny / 2)]
    whole = [float(2**bits) for bits in (7, 8, 15, 16, 31, 32, 63, 64)]
    below = [
        float(np.nextafter(np.dtype(dtype).type(x), np.dtype(dtype).type(0))) for x in whole if x < float(info.max)
    ]
    positive = [0.0, *ends, *whole, *below, 0.5, 1.0, 1.5, 2.5, 255.5, 2.0**31 - 0.5, 9.7, float("inf")]
    return tuple(positive + [-x for x in positive] + [float("nan")] * 3)


class _Maker:
    """Makes one tree."""

    def __init__(self, random: Random, types: Sequence[str]) -> None:
        self.random, self.types = random, types
        self.args: list[Array] = []
        self.made: dict[str, list[Expression]] = {}
        self.left, self.functions = random.randint(2, MOST_OPERATIONS), MOST_FUNCTIONS

    def make(self, dtype: str) -> Expression:
        """Return an expression of a type; sometimes one that is there already."""
        if self.left <= 0 or self.random.random() < 0.1:
            return self.leaf(dtype)
        self.left -= 1
        found = self.operation(dtype)
        self.made.setdefault(dtype, []).append(found)
        return found

    def leaf(self, dtype: str) -> Expression:
        pick = self.random.random()
        if pick < 0.25 and dtype in self.made:
            return self.random.choice(self.made[dtype])
        if pick < 0.4:
            return self.constant(dtype)
        there = [index for index, array in enumerate(self.args) if array.dtype == dtype]
        if (there and self.random.random() < 0.5) or (len(self.args) >= 6 and there):
            return arg(self.random.choice(there))
        self.args.append(values(dtype, self.random))
        return arg(len(self.args) - 1)

    def constant(self, dtype: str) -> Expression:
        number = self.random.choice(values(dtype, self.random).tolist())
        return const(
            number if dtype == "bool" or self.random.random() < 0.5 else self.random.choice((0, 1, 2, 3)), dtype
        )

    def operation(self, dtype: str) -> Expression:
        pick = self.random.random()
        if pick < 0.3:
            source = self.random.choice([each for each in self.types if each != dtype])
            return ("cast", dtype, self.make(source))
        if pick < 0.37:
            return ("where", self.make("bool"), self.make(dtype), self.make(dtype))
        name = self.random.choice(_operations_of(dtype))
        if name in TRUTH:
            dtype = self.random.choice([each for each in self.types if each != "bool"])
        if not exact_arithmetic.is_exact(name, dtype):
            if self.functions == 0:
                return self.operation(dtype)
            self.functions -= 1
        if name == "pow" and self.random.random() < 0.5:
            return (name, self.make(dtype), const(self.random.choice((0, 1, 2, 3, 4)), dtype))
        parameters = [const(value, dtype) for value in PARAMETERS.get(name, ())]
        return (name, *(self.make(dtype) for _ in range(OPERATIONS[name].arity - len(parameters))), *parameters)


@lru_cache
def _operations_of(dtype: str) -> tuple[str, ...]:
    if dtype == "bool":
        return (*TRUTH, *LOGIC)
    kinds = ("numbers", "floats" if dtype in FLOATS else "integers")
    served = [each for each in OPERATIONS.values() if each.float64 or dtype != "float64"]  # the host has the others
    return tuple(each.name for each in served if each.kinds in kinds and not each.predicate)


def tree(seed: int) -> Tree:
    """Return the tree of a seed: of all types, or of a few between which it converts often."""
    random = Random(seed)
    while True:
        types = (*FLOATS, *INTEGERS, "bool")
        if random.random() < 0.5:
            types = (random.choice(FLOATS), random.choice(INTEGERS), random.choice(types[:-1]), "bool")
        maker = _Maker(random, types)
        expression = maker.make(random.choice(types))
        made = Tree(expression, tuple(maker.args), random.random() < 0.2)
        if maker.args:
            return made


# -- evaluating them --------------------------------------------------------------------------------------------------


class Died(Exception):
    """The process that compiled and ran trees ended."""


def compiled(trees: Sequence[Tree], target: str) -> list[Array]:
    """Return the values of trees, compiled together for a target as kernels are, and run, in a process of their own.

    Raises:
        Died: If that process did not live to return them, for example because a division trapped.
    """
    _prepare(target)
    status, said = forked(lambda pipe: _child(pipe, trees, target), 10 * SECONDS)
    if status:
        raise Died(said.decode(errors="replace") or f"the process ended with {status:#x}")
    results, at = [], 0
    for each in trees:
        dtype = np.dtype(each.dtype(each.expression))
        results.append(np.frombuffer(said, dtype, LENGTH, at).copy())
        at += LENGTH * dtype.itemsize
    return results


@lru_cache
def _prepare(target: str) -> None:
    """Compile the compiler's runtime library for a target, which forks then have."""
    _run([Tree(("neg", arg(0)), (np.zeros(LENGTH, np.float32),))], target)


def _child(pipe: int, trees: Sequence[Tree], target: str) -> None:
    faulthandler.disable()
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
    try:
        os.write(pipe, b"".join(result.tobytes() for result in _run(trees, target)))
    except BaseException as error:
        os.write(pipe, f"{type(error).__name__}: {error}"[:2000].encode())
        os._exit(1)


def _run(trees: Sequence[Tree], target: str) -> list[Array]:
    i, count = hl.Var("i"), iter(range(10**6))
    functions, results = [], []
    for each in trees:
        operands = [_element(x, i, next(count)) for x in each.args]
        value = compile_expression(each.expression, operands, [i], refined=each.refined)
        dtype = each.dtype(each.expression)
        carrier = CARRIER.get(dtype, dtype)
        function = hl.Func(f"tree{next(count)}")
        function[i] = hl.reinterpret(TYPES[carrier], value)
        function.vectorize(i, 16, hl.TailStrategy.RoundUp)
        functions.append(function)
        results.append(np.zeros(LENGTH, carrier))
    hl.Pipeline(functions).realize([hl.Buffer(result) for result in results], hl.Target(f"{target}-{CHECKS}"))
    return results


def _element(array: Array, i: Any, number: int) -> Any:
    dtype = str(array.dtype)
    bits = np.ascontiguousarray(array).view(CARRIER.get(dtype, dtype))
    parameter = hl.ImageParam(TYPES[str(bits.dtype)], 1, f"x{number}")
    parameter.set(hl.Buffer(bits))
    return hl.reinterpret(TYPES[dtype], parameter[i])


class Reference:
    """What trees must give on one target: numpy's values, and those of functions compiled alone."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.problems: list[str] = []

    def values(self, tree: Tree) -> dict[Expression, Array]:
        """Return the value of every part of a tree."""
        found: dict[Expression, Array] = {}
        with np.errstate(all="ignore"):
            for part in walk(tree.expression):
                if part not in found:
                    found[part] = self._value(tree, part, found)
        return found

    def _value(self, tree: Tree, part: Expression, found: dict[Expression, Array]) -> Array:
        if part[0] == "arg":
            return tree.args[part[1]]
        if part[0] == "const":
            return np.full(LENGTH, _number(part), part[1])
        operands = [found[child] for child in children(part)]
        if part[0] == "cast":
            return exact_arithmetic.cast(operands[0], part[1])
        if exact_arithmetic.is_exact(part[0], str(operands[-1].dtype)):
            return exact_arithmetic.apply(part[0], operands)
        alone = rebuild(part, tuple(c if c[0] == "const" else arg(n) for n, c in enumerate(children(part))))
        return compiled([Tree(alone, tuple(operands), tree.refined)], self.target)[0]


def _number(literal: Expression) -> Any:
    dtype, text = literal[1], literal[2]
    if dtype.startswith("float"):
        return float(text)
    return int(text)


def differences(got: Array, expected: Array) -> Array:
    """Return where values differ: every NaN is equal to every other, zeros of two signs differ."""
    if got.dtype.kind != "f":
        return np.flatnonzero(got != expected)
    both = np.isnan(got) & np.isnan(expected)
    same = (got == expected) & (np.signbit(got) == np.signbit(expected))
    return np.flatnonzero(~(both | same))


# -- shrinking --------------------------------------------------------------------------------------------------------


def smaller_trees(tree: Tree, found: dict[Expression, Array]) -> Iterator[Tree]:
    """Yield simpler trees: a part alone, a part replaced by an operand with its value."""
    parts = [part for part in dict.fromkeys(walk(tree.expression)) if children(part)]
    for part in parts[:-1]:
        yield replace(tree, expression=part)
    for part in reversed(parts[:-1]):
        operand = arg(len(tree.args))
        yield _compact(
            replace(tree, expression=_replaced(tree.expression, part, operand), args=(*tree.args, found[part]))
        )
    for literal in {part for part in walk(tree.expression) if part[0] == "const"}:
        operand = arg(len(tree.args))
        number = np.full(LENGTH, _number(literal), literal[1])
        yield _compact(
            replace(tree, expression=_replaced(tree.expression, literal, operand), args=(*tree.args, number))
        )


def _replaced(expression: Expression, part: Expression, by: Expression) -> Expression:
    if expression == part:
        return by
    return rebuild(expression, tuple(_replaced(child, part, by) for child in children(expression)))


def _compact(tree: Tree) -> Tree:
    used = sorted({part[1] for part in walk(tree.expression) if part[0] == "arg"})

    def renumbered(e: Expression) -> Expression:
        if e[0] == "arg":
            return arg(used.index(e[1]))
        return rebuild(e, tuple(renumbered(child) for child in children(e)))

    return replace(tree, expression=renumbered(tree.expression), args=tuple(tree.args[index] for index in used))


def shrunk(tree: Tree, fails: Callable[[Tree], bool], find: Callable[[Tree], dict[Expression, Array]]) -> Tree:
    """Return a smallest tree that still fails."""
    while True:
        for candidate in smaller_trees(tree, find(tree)):
            if fails(candidate):
                tree = candidate
                break
        else:
            return tree


# -- as a network -----------------------------------------------------------------------------------------------------


def as_graph(tree: Tree) -> tuple[Graph, dict[str, Array]]:
    """Return a tree as a graph of one node an operation, and its inputs."""
    names: dict[Expression, str] = {}
    types: dict[str, TensorType] = {}
    constants: dict[str, Array] = {}
    nodes = []
    for part in dict.fromkeys(walk(tree.expression)):
        name = names[part] = f"v{len(names)}"
        inputs = tuple(names[child] for child in children(part))
        shape = () if part[0] == "const" else (LENGTH,)
        types[name] = TensorType(tree.dtype(part), shape)
        if part[0] == "const":
            constants[name] = np.array(_number(part), part[1])
        elif part[0] == "cast":
            nodes.append(Node("Cast", inputs, (name,), {"to": part[1]}, name))
        elif part[0] != "arg":
            operator = "".join(word.capitalize() for word in part[0].split("_"))
            nodes.append(Node(operator, inputs, (name,), {}, name, "opbuild"))
    feeds = {names[part]: tree.args[part[1]] for part in names if part[0] == "arg"}
    return Graph("tree", tuple(nodes), tuple(feeds), (names[tree.expression],), types, constants, 21), feeds


def is_alive(tree: Tree) -> bool:
    """Return whether every operation of a tree depends on an input, so that none is computed before it runs."""
    return bool(children(tree.expression)) and all(
        any(leaf[0] == "arg" for leaf in walk(part)) for part in walk(tree.expression) if children(part)
    )
