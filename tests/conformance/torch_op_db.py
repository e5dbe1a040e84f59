"""Runs torch's own samples of its operators through the back end and prints what became of them.

    python tests/conformance/torch_op_db.py [--cache FOLDER] [--samples N] [--update|--gradients] [part of a name ...]

With ``--gradients`` gradients are compared too, of operators that have them. Without parts of names it runs all
operators that take float32. What is not compiled whole is listed with its reason,
then the counts. With ``--update`` the golden file and the page of the documentation are written anew.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
from torch.testing._internal import common_methods_invocations as torchs
from torch.utils import _pytree as pytree

from opbuild.frontend.torch.builder import RULES
from opbuild.torch import opbuild as backend
from opbuild.torch import report, reset
from support import kept_kernels
from support.seeds import try_seeds

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "torch_op_db.json"
PAGE = ROOT / "docs" / "reference" / "torch_operators.md"

WHOLE, PARTITIONED, FAILED = STATES = ("compiled whole", "partitioned", "failed")

SAMPLES = 2
"""Samples of each operator, the first that torch has."""

UNDEFINED = frozenset(
    ("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided", "geqrf", "ormqr")
)
"""Operators whose values nothing says, or of whose results one is given by another: types and shapes are compared."""

RANDOM = frozenset(
    (
        "bernoulli", "cauchy", "exponential", "geometric", "log_normal", "multinomial", "normal", "pca_lowrank",
        "rand_like", "randint", "randint_like", "randn", "randn_like", "svd_lowrank", "uniform",
        "nn.functional.alpha_dropout", "nn.functional.dropout", "nn.functional.dropout2d", "nn.functional.dropout3d",
        "nn.functional.feature_alpha_dropout", "nn.functional.fractional_max_pool2d",
        "nn.functional.fractional_max_pool3d", "nn.functional.multi_head_attention_forward", "nn.functional.rrelu",
    )
)  # fmt: skip
"""Operators of random values: types and shapes are compared."""

UNTRACED = frozenset(
    (
        "combinations", "corrcoef", "cov", "linalg.lstsq", "masked_select", "nn.functional.ctc_loss",
        "nn.functional.gaussian_nll_loss", "sparse.sampled_addmm", "tensor_split", "to_sparse",
    )
)  # fmt: skip
"""Operators with gradients of which Dynamo hands over no graph: shapes by values, sparse tensors, checks of values."""

REFUSED = frozenset(("linalg.eig", "sparse.mm.reduce"))
"""Operators of which torch gives no gradient for its own first samples: one is not defined, one is not asked for."""

MEANINGS = {
    WHOLE: "every operator of ATen in it is computed by opbuild",
    PARTITIONED: "right, some operators or all are left to torch",
    FAILED: "another result than torch's, or an error",
}

INTRODUCTION = """# Torch's own operators

Torch tests its operators with samples (`torch.testing._internal.common_methods_invocations.op_db`). The first
{samples} of each of the {count} operators that take float32 run here through
[`torch.compile(..., backend="opbuild")`](../design/torch.md), and
what comes out is compared with torch: types, shapes, integers exactly, NaN at its place.
`python tests/conformance/torch_op_db.py --update` runs them all and writes this page; the test suite runs a part of
them and compares with what is written down.
"""


_NO_GRAPH = Counter({("all of it", "torch handed over no graph"): 1})


class Outcome(NamedTuple):
    """What became of an operator.

    Attributes:
        state: One of ``STATES``.
        reason: What is left to torch and why, or how it failed.
    """

    state: str
    reason: str = ""


def operators() -> dict[str, Any]:
    """Return torch's operators that take float32, by name."""
    return {
        f"{each.name}.{each.variant_test_name}".rstrip("."): each
        for each in torchs.op_db
        if torch.float32 in each.dtypes
    }


def outcome(operator: Any, cache: Path, samples: int, gradients: bool = False) -> Outcome:
    """Run the first samples of an operator by torch and by the back end, and compare."""
    torch.manual_seed(7)
    left, compiled, slopes = Counter[tuple[str, str]](), 0, 0
    for sample in islice(operator.sample_inputs("cpu", torch.float32, requires_grad=gradients), samples):
        try:
            found, expected = _both(operator, sample, cache, gradients)
            if expected is not None:
                _compare(found, expected, values=operator.name not in UNDEFINED | RANDOM)
                slopes += gradients and any(isinstance(each, torch.Tensor) for each in expected[1])
        except Exception as error:  # whatever comes is a fault
            return Outcome(FAILED, f"{type(error).__name__}: {' '.join(str(error).split())[:600]}")
        left.update(report().partitioned)
        compiled += report().compiled.total()
        if not report().graphs:
            left.update(_NO_GRAPH)
    if not left and not compiled:
        left["all of it", "the graph has no operator that computes"] += 1
    if gradients and not (slopes and (compiled or left.keys() - _NO_GRAPH.keys() or operator.name in UNTRACED)):
        return Outcome(FAILED, "no gradient was compared")
    if left:
        return Outcome(PARTITIONED, "; ".join(sorted({f"{target}: {why}" for target, why in left})))
    return Outcome(WHOLE)


def _both(operator: Any, sample: Any, cache: Path, gradients: bool) -> tuple[Any, Any]:
    """Return the results of the back end and of torch for a sample; None for both if torch has an error of its own."""
    torch.compiler.reset()
    reset()
    torchs.wrapper_set_seed = _called

    def function(*args: Any, **kwargs: Any) -> Any:
        return operator.op(*args, **kwargs)

    given = (sample.input, *sample.args)
    apply = _with_gradients if gradients else _applied
    with torch.set_grad_enabled(gradients), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.manual_seed(7)
        try:
            expected = apply(function, given, sample.kwargs)
        except Exception:
            return None, None  # not of this installation
        torch.manual_seed(7)
        fast = torch.compile(
            function, backend=backend, dynamic=False, options={"cache_path": cache, "num_threads": 1, "workers": 1}
        )
        return apply(fast, given, sample.kwargs), expected


def _called(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a function as torch's own wrapper does, without the seed that it sets: Dynamo hands over none of that."""
    return function(*args, **kwargs)


def _applied(function: Any, args: Any, kwargs: Any) -> Any:
    return function(*_copied(args), **_copied(kwargs))


def _with_gradients(function: Any, args: Any, kwargs: Any) -> Any:
    """Return results, and the gradients of the arguments that are to have one by torch's sample."""
    wanted = [_is_float(each) and each.requires_grad for each in pytree.tree_leaves((args, kwargs))]
    args, kwargs = _copied((args, kwargs))
    leaves = [each for each, want in zip(pytree.tree_leaves((args, kwargs)), wanted, strict=True) if want]
    for leaf in leaves:
        leaf.requires_grad_()
    copies = pytree.tree_map_only(torch.Tensor, torch.clone, (args, kwargs))  # what writes in place needs no leaf
    results = function(*copies[0], **copies[1])
    sources = [each for each in pytree.tree_leaves(results) if isinstance(each, torch.Tensor) and each.requires_grad]
    slopes = [torch.linspace(0.5, 1.5, each.numel(), dtype=each.dtype).reshape(each.shape) for each in sources]
    found = torch.autograd.grad(sources, leaves, slopes, allow_unused=True) if sources else ()
    return pytree.tree_map_only(torch.Tensor, torch.detach, results), found


def _is_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype is torch.float32


def _copied(value: Any) -> Any:
    """Return arguments of their own, so that nothing sees what an operator changes in its place."""
    return pytree.tree_map_only(torch.Tensor, lambda each: each.detach().clone(), value)


def _compare(found: Any, expected: Any, *, values: bool) -> None:
    """Compare results: types, shapes, and values unless they are random; integers exactly, NaN at its place.

    Raises:
        AssertionError: If they differ.
    """
    ours, theirs = (pytree.tree_leaves(each) for each in (found, expected))
    if len(ours) != len(theirs):
        raise AssertionError(f"{len(ours)} results instead of {len(theirs)}")
    for one, other in zip(ours, theirs, strict=True):
        if not isinstance(other, torch.Tensor) or values:
            torch.testing.assert_close(one, other, equal_nan=True, rtol=1e-4, atol=1e-5)
        elif (one.dtype, one.shape) != (other.dtype, other.shape):
            raise AssertionError(f"{one.dtype} {one.shape} instead of {other.dtype} {other.shape}")


def run(
    names: Sequence[str], cache: Path, processes: int, samples: int = SAMPLES, gradients: bool = False
) -> dict[str, Outcome]:
    """Return the outcome of each operator, by name, sorted; processes of their own run them."""
    RULES.load()  # once, not in each process
    known = operators()
    with tempfile.TemporaryDirectory(prefix="opbuild-operators-") as folder:

        def one(index: int) -> tuple[str, str]:
            torch.set_num_threads(1)
            found = outcome(known[names[index]], cache, samples, gradients)
            Path(folder, str(index)).write_text(json.dumps(found), encoding="utf-8")
            return found.state, ""

        tally = try_seeds("torch's operators", one, range(len(names)), processes)
        ended = {index: Outcome(FAILED, said[-600:]) for index, _, said in tally.faults}
        return {
            name: ended.get(index) or Outcome(*json.loads(Path(folder, str(index)).read_text(encoding="utf-8")))
            for index, name in enumerate(names)
        }


def remembered(found: Mapping[str, Outcome]) -> dict[str, Any]:
    """Return the summary of all operators: the count of each state, and the state of each."""
    counts = Counter(each.state for each in found.values())
    return {
        "counts": {state: counts[state] for state in STATES},
        "operators": {name: each.state for name, each in found.items()},
    }


def page(found: Mapping[str, Outcome]) -> str:
    """Return the page as Markdown."""
    counts = Counter(each.state for each in found.values())
    lines = [INTRODUCTION.format(count=len(found), samples=SAMPLES), "| | operators | |", "|---|---|---|"]
    lines += [f"| {state} | {counts[state]} | {MEANINGS[state]} |" for state in STATES]
    lines += ["", f"With torch {torch.__version__.partition('+')[0]}.", "", "## Compiled whole", ""]
    lines.append(", ".join(f"`{name}`" for name, each in found.items() if each.state == WHOLE))
    for state in (PARTITIONED, FAILED):
        lines += ["", f"## {state.capitalize()}", "", "| operator | what is left to torch |", "|---|---|"]
        lines += [
            f"| `{name}` | {each.reason[:300].replace('|', '&#124;').replace('<', '&lt;')} |"
            for name, each in found.items()
            if each.state == state
        ]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str]) -> int:
    """Run operators; return 1 if one failed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("parts", nargs="*", help="parts of names")
    parser.add_argument("--exact", action="store_true", help="take the parts for whole names")
    parser.add_argument("--cache", type=Path, help="folder of the store (default: one that is removed again)")
    parser.add_argument("--samples", type=int, default=SAMPLES, help=f"samples of each operator (default: {SAMPLES})")
    parser.add_argument("--processes", type=int, default=os.cpu_count(), help="operators that run at once")
    parser.add_argument("--gradients", action="store_true", help="compare gradients, of operators that have them")
    parser.add_argument("--json", type=Path, help="file for what became of each operator")
    parser.add_argument("--update", action="store_true", help="write the golden file and the page; runs all operators")
    given = parser.parse_args(arguments)
    if not given.update:
        kept_kernels.take_in_builds()
    parts = [] if given.update else given.parts
    names = [
        name
        for name, each in operators().items()
        if (each.supports_autograd and each.name not in RANDOM | REFUSED) or not given.gradients
        if not parts or (name in parts if given.exact else any(part in name for part in parts))
    ]
    with tempfile.TemporaryDirectory(prefix="opbuild-operators-") as folder:
        began = time.perf_counter()
        found = run(names, given.cache or Path(folder), given.processes, given.samples, given.gradients)
        seconds = time.perf_counter() - began
    for name, each in found.items():
        if each.state != WHOLE:
            print(f"{each.state:12} {name} {each.reason[:400]}")
    counts = Counter(each.state for each in found.values())
    print(", ".join(f"{state} {counts[state]}" for state in STATES), f"in {seconds:.1f} s")
    if given.update:
        GOLDEN.write_text(json.dumps(remembered(found), indent=1) + "\n", encoding="utf-8")
        PAGE.write_text(page(found), encoding="utf-8")
    if given.json:
        given.json.write_text(json.dumps(found), encoding="utf-8")
    return 1 if counts[FAILED] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
