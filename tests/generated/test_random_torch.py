"""Random small programs of torch through the back end: what torch computes, or an error that names what it is."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from opbuild.torch import opbuild as backend  # noqa: E402
from opbuild.torch import report, reset  # noqa: E402
from support.fuzzing import CAMPAIGN, check_seeds  # noqa: E402
from support.tiers import spans  # noqa: E402

PROGRAMS = spans(2, 1, campaign=min(CAMPAIGN, 400))
"""Programs that are tried."""

STEPS = 6
"""Steps of a program at most."""

DTYPES = (torch.float32, torch.float32, torch.float32, torch.int64, torch.int32, torch.bool, torch.bfloat16)


class Draws:
    """Numbers that were drawn before: Dynamo follows these, where a generator's would become inputs of the graph."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        self._numbers = [draw.randrange(5040) for _ in range(20 * STEPS)]
        self._count = 0

    def below(self, limit: int) -> int:
        """Return a number from 0 on below a limit."""
        self._count += 1
        return self._numbers[self._count - 1] % limit

    def choice(self, values: Sequence[Any]) -> Any:
        """Return one of several values."""
        return values[self.below(len(values))]


Step = Callable[[Draws, list[Any]], Any]


def _any(draw: Draws, values: list[Any]) -> Any:
    return draw.choice(values)


def _partner(draw: Draws, values: list[Any], x: Any) -> Any:
    """Return a value that can be broadcast with another, or a number."""
    fitting = [each for each in values if _broadcasts(each, x)]
    return draw.choice([*fitting, draw.choice((2, -1, 0.5, True))])


def _broadcasts(one: Any, other: Any) -> bool:
    pairs = zip(reversed(one.shape), reversed(other.shape), strict=False)
    return all(a == b or 1 in (a, b) for a, b in pairs)


def _arithmetic(draw: Draws, values: list[Any]) -> Any:
    x = _any(draw, values)
    function = draw.choice((torch.add, torch.mul, torch.true_divide, torch.maximum, torch.eq, torch.lt, torch.ge))
    other = _partner(draw, values, x)
    if function is torch.maximum and not isinstance(other, torch.Tensor):
        other = torch.full((), other)
    return function(x, other)


def _unary(draw: Draws, values: list[Any]) -> Any:
    x = _any(draw, values)
    name = draw.choice(
        ("abs", "tanh", "sigmoid", "exp", "log1p", "expm1", "isnan", "logical_not", "cos", "float", "int")
    )
    if name == "int":  # what is out of range or no number has no value that is said
        return torch.nan_to_num(x.float(), 0, 9, -9).clamp(-9, 9).int()
    return (
        x.abs() if name == "abs" and x.dtype is not torch.bool else x.float() if name == "abs" else getattr(x, name)()
    )


def _view(draw: Draws, values: list[Any]) -> Any:
    x = _any(draw, values)
    if x.dim() == 0:
        return x[None]
    axis = draw.below(x.dim())
    kind = draw.below(8)
    if kind == 0:
        return x.transpose(axis, -1)
    if kind == 1:
        return x.unsqueeze(axis)
    if kind == 2:
        return x.flip(axis)
    if kind == 3:
        return x.narrow(axis, 0, max(1, x.size(axis) // 2))
    if kind == 4:
        return x.select(axis, -1)
    if kind == 5:
        return x.flatten()[:: draw.choice((1, 2, 3))]
    if kind == 6:
        return torch.cat([x, x], axis)
    return x.expand(2, *x.shape)


def _reduction(draw: Draws, values: list[Any]) -> Any:
    x = _any(draw, values)
    if x.dim() == 0:
        return x.sum()
    axis, keep = draw.below(x.dim()), draw.below(2) == 0
    name = draw.choice(("sum", "amax", "mean", "any", "cumsum", "argmax", "sort"))
    if name in ("mean", "argmax"):
        x = x.float()
    if name == "cumsum":
        return x.cumsum(axis)
    if name == "argmax":
        return torch.nan_to_num(x).argmax(axis, keepdim=keep)
    if name == "sort":
        return x.float().sort(axis, stable=True)[0]
    return getattr(x, name)(axis, keepdim=keep)


def _mutation(draw: Draws, values: list[Any]) -> Any:
    """Change a value in its place, or a view of it; others that share its memory change too."""
    x = _any(draw, values)
    if 0 in x.stride():  # torch's own back ends of its compiler cannot write it back
        return x + 1
    if x.dim() and draw.below(2) == 0:
        x.select(draw.below(x.dim()), 0).fill_(1)
    else:
        x.mul_(2) if x.dtype is not torch.bool else x.logical_not_()
    return x


def _selection(draw: Draws, values: list[Any]) -> Any:
    x = _any(draw, values)
    if x.dim() == 0:
        return torch.where(x > 0, x, -1)
    index = torch.tensor([draw.below(x.size(0)) for _ in range(3)])
    kind = draw.below(3)
    if kind == 0:
        return x[index]
    if kind == 1:
        return torch.index_select(x, 0, index)
    return torch.where(x > 0, x, _partner(draw, [each for each in values if each.dim() == x.dim()] or [x], x))


STEP_KINDS: Sequence[Step] = (_arithmetic, _arithmetic, _unary, _view, _view, _reduction, _mutation, _selection)


def program(seed: int) -> Callable[..., tuple[Any, ...]]:
    """Return a function of tensors whose steps follow from a seed and from the tensors' types and shapes."""

    def function(*given: Any) -> tuple[Any, ...]:
        draw, values = Draws(seed), list(given)
        for _ in range(2 + draw.below(STEPS - 1)):
            found = draw.choice(STEP_KINDS)(draw, values)
            if found.numel() < 2000:
                values.append(found)
        return tuple(values[len(given) :][-3:])

    return function


def inputs(seed: int) -> list[Any]:
    """Return tensors of some types and shapes, dense or not."""
    draw, made = random.Random(seed), torch.Generator().manual_seed(seed)
    shape = [draw.choice((1, 2, 3, 5)) for _ in range(draw.randint(1, 4))]
    found = []
    for _ in range(draw.randint(1, 3)):
        own = [1 if draw.random() < 0.2 else extent for extent in shape[draw.randrange(len(shape)) :]]
        value = (torch.randn(own, generator=made) * 3).to(draw.choice(DTYPES))
        if value.dim() == 4 and draw.random() < 0.5:
            value = value.to(memory_format=torch.channels_last)
        elif draw.random() < 0.3:
            value = value.repeat_interleave(2, -1)[..., ::2]
        found.append(value)
    return found


@torch.no_grad()
def _outcome(seed: int, cache: Path) -> str:
    """Compare a program with torch: its results, and what it leaves in its inputs."""
    torch.compiler.reset()
    reset()
    function, ours, theirs = program(seed), inputs(seed), inputs(seed)
    try:
        expected = function(*theirs)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "no program"
    fast = torch.compile(
        function, backend=backend, dynamic=False, options={"cache_path": cache, "num_threads": 1, "workers": 1}
    )
    found = fast(*ours)
    narrow = any(each.dtype is torch.bfloat16 for each in ours)  # torch rounds each step of these, fused ones too
    tolerance = {"rtol": 5e-2, "atol": 5e-2} if narrow else {"rtol": 1e-4, "atol": 1e-5}
    for one, other in zip((*found, *ours), (*expected, *theirs), strict=True):
        torch.testing.assert_close(one, other, equal_nan=True, **tolerance)
    return "left to torch" if report().partitioned else "compiled"


@pytest.mark.parametrize("seeds", PROGRAMS)
def test_random_programs_compute_what_torch_computes(seeds: range, shared_store: Path) -> None:
    """Views, aliases, changes in place, broadcasts, types and orders of memory: the results and inputs are torch's."""
    tally = check_seeds("programs of torch", lambda seed: _outcome(seed, shared_store), seeds, processes=0)
    assert tally.outcomes["compiled"]
