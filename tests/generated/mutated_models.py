"""Mutated models: each is refused with an error of opbuild or builds, and what ONNX Runtime runs too gives the same.

    cd tests && python -m generated.mutated_models 5000 --seed 1

A seed chooses a valid model and one to three mutations. Each model is read and bound; what binds is compiled, all into
one store, so that kernels are shared, and started from there again; what ONNX Runtime runs, in a process of its own,
is compared. A fault is shrunk and shown as text.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import onnx
from onnx import ModelProto, helper

import opbuild
from generated.base_models import Base, all_models, quick_models, small_networks
from generated.mutations import MUTATIONS, mutate
from generated.oracle import Oracle, limit_memory
from opbuild.backend.evaluate import evaluate
from opbuild.errors import OpbuildError, RunError
from opbuild.frontend.onnx_model import load_model
from opbuild.graph.passes.fold import RANDOM
from support.forked import in_fork
from support.known_differences import known_difference
from support.seeds import FAULTS, Tally, try_seeds

Array = npt.NDArray[Any]
SLOW = 40
"""Seconds after which a model that is done counts as one that hung."""

NOTES = "notes.txt"
"""File in the store that tells of outcomes which are no faults, but worth a look."""

SHRINKS_FOR = 120
"""Seconds in which nodes are taken from a model that shows a fault."""


class Case(NamedTuple):
    """A base, and what is done to it: mutations with their seeds."""

    base: Base
    changes: tuple[tuple[str, int], ...]

    def model(self) -> ModelProto:
        """Return the mutated model."""
        model = self.base.model
        for name, seed in self.changes:
            model = mutate(model, name, seed)
        return model

    def __str__(self) -> str:
        return f"{self.base.name}: {', '.join(f'{name} {seed}' for name, seed in self.changes)}"


def case_of(seed: int, bases: Sequence[Base]) -> Case:
    """Return the case of a seed."""
    rng = random.Random(seed)
    base = rng.choice(small_networks()) if rng.random() < 0.35 else rng.choice(bases)
    count = rng.choice([1, 1, 1, 1, 1, 2, 2, 3])
    return Case(base, tuple((rng.choice([*MUTATIONS]), rng.randrange(10**6)) for _ in range(count)))


# -- one model --------------------------------------------------------------------------------------------------------


@cache
def _oracle(process: int) -> Oracle:
    limit_memory()
    return Oracle()


def feeds_of(model: ModelProto, base: Base) -> dict[str, Array]:
    """Return inputs for a model: the base's where they fit, else small numbers; what no array can be is left out."""
    known = {tensor.name for tensor in model.graph.initializer}
    feeds: dict[str, Array] = {}
    for value in model.graph.input:
        given = base.feeds.get(value.name)
        kind = value.type.tensor_type
        if value.name in known or not value.type.HasField("tensor_type"):
            continue
        try:
            dtype = helper.tensor_dtype_to_np_dtype(kind.elem_type)
            shape = _shape(kind, given)
        except (KeyError, ValueError, TypeError):
            continue
        if given is not None and given.dtype == dtype and given.shape == shape:
            feeds[value.name] = given
        elif all(0 <= extent < 1e6 for extent in shape) and np.prod([*map(float, shape)]) < 1e6:
            feeds[value.name] = _numbers(shape, dtype)
    return feeds


def _shape(kind: onnx.TypeProto.Tensor, given: Array | None) -> tuple[int, ...]:
    if not kind.HasField("shape"):
        return (2, 3) if given is None else given.shape
    dims, like = list(kind.shape.dim), (given.shape if given is not None else ())
    return tuple(
        dim.dim_value if dim.HasField("dim_value") else like[axis] if axis < len(like) else 2
        for axis, dim in enumerate(dims)
    )


def _numbers(shape: tuple[int, ...], dtype: Any) -> Array:
    places = np.arange(int(np.prod(shape, dtype=np.int64))).reshape(shape)
    if np.dtype(dtype).kind == "b":
        return places % 3 == 0
    if np.dtype(dtype).kind == "f":
        return (np.sin(places * 2.3) * 2).astype(dtype)
    return np.asarray(places % 3, dtype)  # of strings and without dimensions too


def try_model(model: ModelProto, base: Base, cache_path: Path) -> tuple[str, str]:
    """Return the outcome of a model, in a word, and why."""
    began = time.monotonic()
    try:
        outcome, said = _try_model(model, base, cache_path)
    except Exception:
        outcome, said = "foreign", traceback.format_exc()
    took = time.monotonic() - began
    return ("hang", f"{took:.0f} s, then {outcome} {said}") if took > SLOW else (outcome, said)


def _try_model(model: ModelProto, base: Base, cache_path: Path) -> tuple[str, str]:
    try:
        content = model.SerializeToString()
    except Exception:  # no UTF-8, which is no message
        return "no-message", ""
    feeds = feeds_of(model, base)
    oracle = _oracle(os.getpid())
    expected = oracle.run("onnxruntime", content, feeds)
    mine = _outputs(content, feeds, cache_path)
    if isinstance(mine, OpbuildError):
        kind = "failed" if isinstance(mine, RunError) else "refused"
        if isinstance(expected, str):
            return kind, ""
        return f"{kind}-though-valid", f"{type(mine).__name__}: {mine}"
    if isinstance(expected, str):
        return "built", ""
    problem = difference(mine, expected)
    if not problem:
        return "agreed", ""
    reason = _not_compared(model, feeds)
    if reason:
        return "not-compared", reason
    third = oracle.run("reference", content, feeds)
    if not isinstance(third, str) and not difference(mine, third):
        return "as-the-evaluator", problem
    return "wrong", f"{problem}; onnx's evaluator: {third if isinstance(third, str) else 'as ONNX Runtime, or else'}"


def _outputs(content: bytes, feeds: Mapping[str, Array], cache_path: Path) -> list[Array] | OpbuildError:
    shapes = {name: array.shape for name, array in feeds.items()}
    try:
        loaded = load_model(content)
        loaded.bind({name: shape for name, shape in shapes.items() if name in loaded.inputs}, evaluate)
        shapes = {name: shape for name, shape in shapes.items() if name in loaded.inputs}
        network = opbuild.compile(content, input_shapes=shapes, cache_path=cache_path, num_threads=1, workers=1)
        given = {name: feeds[name] for name in loaded.inputs if name in feeds}
        results = network(given)
        again = opbuild.compile(content, input_shapes=shapes, cache_path=cache_path, num_threads=1, forbid_compile=True)
        if not _random_operators(ModelProto.FromString(content)):
            _check_equal(results, again(given))
        return list(results) if isinstance(results, tuple) else [results]
    except OpbuildError as error:
        if not error.message or "please report" in str(error):
            raise AssertionError("no error that helps") from error
        return error


def _check_equal(results: Any, again: Any) -> None:
    """Check that a network which is started from the store gives the same."""
    pairs = zip(*(each if isinstance(each, tuple) else (each,) for each in (results, again)), strict=True)
    assert all(_is_same(a, b) for a, b in pairs), "another result when warm"


def _is_same(a: Array, b: Array) -> bool:
    """Return whether arrays are equal, NaN to NaN; numpy knows none in float types that are not its own."""
    known = a.dtype.kind == "f"
    return np.array_equal(a, b, equal_nan=known) or (not known and a.tobytes() == b.tobytes())


def _not_compared(model: ModelProto, feeds: Mapping[str, Array]) -> str:
    random_ones = _random_operators(model)
    if random_ones:
        return f"{min(random_ones)} is random"
    try:
        return known_difference(model, feeds) or ""
    except Exception:  # the list is made for valid models
        return ""


def _random_operators(model: ModelProto) -> set[str]:
    """Return the operators of a model whose results differ from call to call; Dropout is one where it may train."""
    inside = [node for function in model.functions for node in function.node]
    nodes = [node for node in (*_all_nodes(model.graph), *inside) if node.op_type != "Dropout" or len(node.input) > 2]
    return {node.op_type for node in nodes} & RANDOM


def _all_nodes(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.HasField("g"):
                yield from _all_nodes(attribute.g)


def difference(mine: Sequence[Array], expected: Sequence[Array]) -> str:
    """Return how results differ, empty if they do not but for rounding."""
    if len(mine) != len(expected):
        return f"{len(mine)} outputs, not {len(expected)}"
    for place, (given, b) in enumerate(zip(mine, expected, strict=True)):
        # ONNX Runtime hands out numbers that numpy has not as their bits.
        a = given.view(np.uint8) if b.dtype == np.uint8 and given.dtype.name.startswith("float8") else given
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"output {place} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        if not a.size:
            continue
        if b.dtype.kind != "f":
            close = a == b
        else:
            relative = 2e-2 if b.dtype == np.float16 else 1e-3
            with np.errstate(all="ignore"):
                scale = np.abs(b[np.isfinite(b)], dtype=np.float64).max(initial=0)
                close = np.isclose(a.astype(np.float64), b.astype(np.float64), relative, relative * 0.1 * scale, True)
        if not close.all():
            worst = int(np.flatnonzero(~close)[0])
            count = int((~close).sum())
            return (
                f"output {place}, {b.dtype}{b.shape}: {count} of {a.size} differ, element {worst} is "
                f"{a.reshape(-1)[worst]}, not {b.reshape(-1)[worst]}"
            )
    return ""


# -- many models ------------------------------------------------------------------------------------------------------


def run(seeds: Sequence[int], bases: Sequence[Base], cache_path: Path, processes: int = 1) -> Tally:
    """Try the models of seeds and return what became of them."""

    def try_seed(seed: int) -> tuple[str, str]:
        case = case_of(seed, bases)
        outcome, said = try_model(case.model(), case.base, cache_path)
        if said and outcome not in FAULTS:
            with (cache_path / NOTES).open("a") as file:
                file.write(f"{outcome} {seed} {case.base.name}: {' '.join(said.split())[:300]}\n")
        return outcome, said

    return try_seeds("mutated models", try_seed, seeds, processes)


def fault_report(seed: int, outcome: str, said: str, bases: Sequence[Base], cache_path: Path) -> str:
    """Return a fault as people want to read it: its seed, what was said, and the model, made as small as it can be."""
    case = case_of(seed, bases)
    try:
        model, said = shrink(case, outcome, said, cache_path)
        text = onnx.printer.to_text(model)[:3000]
    except Exception:
        text = f"(cannot be shown: {traceback.format_exc(limit=1)})"
    return f"seed {seed}: {outcome}: {case}\n{said[-3000:]}\n{text}"


def shrink(case: Case, outcome: str, said: str, cache_path: Path) -> tuple[ModelProto, str]:
    """Return a smaller model that has the same fault, and what is said of it."""

    def again(model: ModelProto) -> str | None:
        try:
            found, why = in_fork(lambda: try_model(model, case.base, cache_path), SLOW + 20)
        except AssertionError as error:  # it died
            found, why = "crash", str(error)
        return why if found == outcome or {found, outcome} <= {"crash", "hang"} else None

    for index in reversed(range(len(case.changes))):
        fewer = case._replace(changes=(*case.changes[:index], *case.changes[index + 1 :]))
        why = again(fewer.model())
        if why is not None:
            case, said = fewer, why
    return smaller(case.model(), said, again)


def smaller(model: ModelProto, said: str, again: Callable[[ModelProto], str | None]) -> tuple[ModelProto, str]:
    """Return a model with fewer nodes, outputs and attributes for which ``again`` still says something."""
    places = [("node", index) for index in reversed(range(len(model.graph.node)))]
    places += [("output", index) for index in reversed(range(len(model.graph.output)))]
    ends = time.monotonic() + SHRINKS_FOR
    for field, index in places:
        if time.monotonic() > ends:
            break
        cut = ModelProto()
        cut.CopyFrom(model)
        del getattr(cut.graph, field)[index]
        if field == "node":
            for name in model.graph.node[index].output:
                _feed_instead(cut, model, name)
        why = again(cut)
        if why is not None:
            model, said = cut, why
    return model, said


def _feed_instead(cut: ModelProto, model: ModelProto, name: str) -> None:
    """Let a value that no node assigns any more be an input, if something reads it and its type is known."""
    reads = any(name in node.input for node in cut.graph.node)
    known = [value for value in model.graph.value_info if value.name == name]
    if reads and known:
        cut.graph.input.append(known[0])


def main(arguments: Sequence[str]) -> int:
    """Try as many models as asked for; return 1 if there is a fault."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("count", type=int, help="how many models")
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--quick", action="store_true", help="only the bases of the normal suite")
    parser.add_argument("--store", type=Path, help="a folder that holds kernels, to be used again")
    parser.add_argument("--notes", action="store_true", help="show what was refused though ONNX Runtime runs it")
    options = parser.parse_args(arguments)
    bases = quick_models() if options.quick else all_models()
    with tempfile.TemporaryDirectory(prefix="opbuild-mutated-") as made:
        store = options.store or Path(made)
        tally = run(range(options.seed, options.seed + options.count), bases, store, options.processes)
        for fault in tally.faults:
            print(fault_report(*fault, bases, store), flush=True)
        if options.notes and (store / NOTES).exists():
            print((store / NOTES).read_text())
    print(tally)
    print(", ".join(f"{name} {tally.outcomes[name]}" for name in FAULTS))
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
