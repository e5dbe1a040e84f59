"""Indices in torch's operators: eager torch's results, and an ``IndexError`` where eager torch raises an error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="the back end of torch.compile needs torch")

from torch.nn import functional  # noqa: E402

from opbuild.errors import OutOfRangeError  # noqa: E402
from opbuild.torch import opbuild as backend  # noqa: E402

pytestmark = pytest.mark.usefixtures("kept_objects")

TABLE = torch.arange(20.0).reshape(5, 4)
SCORES = torch.tensor([[1.0, 2.0, 0.5], [0.0, -1.0, 3.0]])

CASES: dict[str, tuple[Callable[[Any], Any], list[int], list[list[int]]]] = {
    "embedding": (lambda i: functional.embedding(i, TABLE), [1, 4], [[1, 5], [1, -1]]),
    "index_select": (lambda i: TABLE.index_select(0, i), [0, 4], [[1, 5], [-1, 0]]),
    "gather": (lambda i: TABLE.gather(0, i.view(1, 2)), [0, 4], [[1, 5], [-2, 0]]),
    "index": (lambda i: TABLE[i], [-5, 4], [[1, 5], [-6, 0]]),
    "scatter": (lambda i: TABLE.scatter(0, i.view(1, 2), 3.0), [0, 4], [[1, 5], [-2, 0]]),
    "scatter_add": (lambda i: TABLE.scatter_add(0, i.view(1, 2), torch.ones(1, 2)), [4, 4], [[1, 5], [-2, 0]]),
    "index_put": (lambda i: TABLE.index_put((i,), torch.ones(4)), [-5, 4], [[1, 5], [-6, 0]]),
    "take": (lambda i: torch.take(TABLE, i), [-20, 19], [[1, 20], [-21, 0]]),
    "cross_entropy": (lambda i: functional.cross_entropy(SCORES, i), [2, -100], [[1, 3], [-1, 0]]),
    "nll_loss": (lambda i: functional.nll_loss(SCORES, i, ignore_index=7), [2, 7], [[1, 3], [-100, 0]]),
}


@pytest.fixture
def compiled(shared_store: Path) -> Any:
    """Return a function that compiles a function with the store that tests share."""
    torch.compiler.reset()
    return lambda function: torch.compile(function, backend=backend, options={"cache_path": shared_store})


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_an_index_out_of_range_is_an_error_as_in_eager_torch(name: str, compiled: Any) -> None:
    """Before and after it what is in range is right."""
    function, good, others = CASES[name]
    fast = compiled(function)
    for bad in others:
        torch.testing.assert_close(fast(torch.tensor(good)), function(torch.tensor(good)))
        with pytest.raises((IndexError, RuntimeError)):
            function(torch.tensor(bad))
        with pytest.raises(IndexError) as caught:
            fast(torch.tensor(bad))
        assert isinstance(caught.value, OutOfRangeError)
    torch.testing.assert_close(fast(torch.tensor(good)), function(torch.tensor(good)))


@pytest.mark.slow
def test_a_step_of_training_says_which_word_or_class_there_is_not(compiled: Any) -> None:
    """Parameters and gradients are as they were, and the next step is right."""
    torch.manual_seed(0)
    words, layer = torch.nn.Embedding(5, 4), torch.nn.Linear(4, 3)

    def loss(ids: Any, classes: Any) -> Any:
        return functional.cross_entropy(layer(words(ids)), classes)

    fast = compiled(loss)
    for ids, classes in (([1, 7], [0, 1]), ([1, -1], [0, 1]), ([1, 2], [0, 3])):
        with pytest.raises(IndexError):
            fast(torch.tensor(ids), torch.tensor(classes)).backward()
        assert words.weight.grad is None
    found = fast(torch.tensor([1, 2]), torch.tensor([0, 1]))
    found.backward()
    gradient = words.weight.grad.clone()
    words.zero_grad()
    wanted = loss(torch.tensor([1, 2]), torch.tensor([0, 1]))
    wanted.backward()
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(gradient, words.weight.grad)
