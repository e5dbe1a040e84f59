"""The changes of the scores of the next tokens before a search chooses, and the choice at random."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.graph.types import Array, Node

TIMESTAMPS = 1
"""The value of ``logits_processor`` that lets Whisper's timestamps come in pairs."""

LOWEST = np.finfo(np.float32).min

OPTIONS = (
    *("min_length", "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "presence_mask", "temperature"),
    "logits_processor",
)
"""The inputs that decide, in order."""


def processed(node: Node, scores: Array, sequences: Array, options: Sequence[Array | None], step: int) -> None:
    """Change the scores of all tokens behind some sequences, in place, in the order in which ONNX Runtime does.

    Args:
        node: The operator, whose attributes are the search's.
        scores: ``(sequences, vocabulary)``.
        sequences: The tokens so far.
        options: Values of ``OPTIONS``, None for one that is not given.
        step: How many tokens were chosen before.
    """
    given = dict.fromkeys(OPTIONS) | dict(zip(OPTIONS, options, strict=False))
    number = {name: None if value is None else value.reshape(-1)[0] for name, value in given.items()}
    penalty = number["repetition_penalty"]
    if penalty is not None and float(penalty) <= 0:
        raise ValueError(f"repetition_penalty is {float(penalty)}, not more than 0")
    if penalty is not None and penalty != 1:
        _repeated(scores, sequences, np.float32(penalty))
    _block_ngrams(scores, sequences, int(node.attrs.get("no_repeat_ngram_size", 0)))
    for name in ("vocab_mask", "prefix_vocab_mask")[: 2 if step == 0 else 1]:
        if given[name] is not None:
            _hide(scores, given[name], name)
    if number["min_length"] is not None and sequences.shape[1] < number["min_length"]:
        scores[:, int(node.attrs["eos_token_id"])] = LOWEST
    temperature = number["temperature"] if number["temperature"] is not None else node.attrs.get("temperature", 1.0)
    if temperature > 0 and temperature != 1:
        scores /= np.float32(temperature)
    if given["presence_mask"] is not None:
        scores -= given["presence_mask"].astype(np.float32) * np.float32(node.attrs.get("presence_penalty", 0.0))
    if number["logits_processor"] == TIMESTAMPS:
        from opbuild.backend.host.search_timestamps import keep_timestamps_in_order

        keep_timestamps_in_order(node, scores, sequences)


def _repeated(scores: Array, sequences: Array, penalty: np.float32) -> None:
    """Make tokens that were there before less likely."""
    for row, sequence in zip(scores, sequences, strict=True):
        places = np.unique(sequence)
        found = row[places]
        row[places] = np.where(found < 0, found * penalty, found / penalty)


def _block_ngrams(scores: Array, sequences: Array, size: int) -> None:
    """Hide tokens with which the last ones would be some that were there before."""
    length = sequences.shape[1]
    if not 0 < size <= length:
        return
    last = sequences[:, length - size + 1 :]
    for row, sequence, end in zip(scores, sequences, last, strict=True):
        grams = np.lib.stride_tricks.sliding_window_view(sequence, size)
        row[grams[(grams[:, :-1] == end).all(axis=1), -1]] = LOWEST


def _hide(scores: Array, mask: Any, name: str) -> None:
    """Hide tokens whose mask is 0; a mask may have a row for each of the batch."""
    if mask.shape[-1] != scores.shape[1]:
        raise ValueError(f"{name} has {mask.shape[-1]} tokens, the vocabulary {scores.shape[1]}")
    rows = mask.reshape(-1, mask.shape[-1])
    scores[np.repeat(rows == 0, len(scores) // len(rows), axis=0)] = LOWEST


MODULUS, FACTOR = 2**31 - 1, 16807


def begun(seed: Array | None) -> int:
    """Return the state of random numbers for a seed; each time another one if there is none."""
    number = int(seed.reshape(-1)[0]) if seed is not None else time.time_ns()
    return number % 2**32 % MODULUS or 1


def _uniform(state: int) -> tuple[float, int]:
    """Return a number from 0 to 1, and the next state of the generator of C++'s library."""
    first = state * FACTOR % MODULUS
    second = first * FACTOR % MODULUS
    span = MODULUS - 1
    return ((first - 1) + (second - 1) * float(span)) / float(span * span), second


def sampled(node: Node, scores: Array, state: int) -> tuple[Array, int]:
    """Return a token for each row, at random among the likeliest, and the next state of the random numbers."""
    _keep_likely(node, scores)
    tokens = []
    for row in scores:
        finite = np.isfinite(row)
        likely = np.where(finite, np.exp(row.astype(np.float64) - float(row[finite].max(initial=LOWEST))), 0)
        sums = np.cumsum(likely)
        number, state = _uniform(state)
        tokens.append(int(np.searchsorted(sums, number * sums[-1], side="right")))
    return np.array(tokens), state


def _keep_likely(node: Node, scores: Array) -> None:
    """Give ``filter_value`` to the least likely tokens, without which the others have the probability ``top_p``."""
    top_p, least = np.float32(node.attrs.get("top_p", 0.0)), int(node.attrs.get("min_tokens_to_keep", 0))
    is_custom, size = bool(node.attrs.get("custom", 0)), scores.shape[1]
    filtered = np.float32(node.attrs.get("filter_value", -1e20))
    for row in scores:
        order = np.argsort(-row if is_custom else row, kind="stable")
        likely = np.exp(row[order] - row.max())
        sums = np.cumsum(likely / likely.sum(dtype=np.float32), dtype=np.float32)
        if is_custom:
            row[order[1:][sums[:-1] > top_p]] = filtered
        else:
            hidden = sums <= np.float32(1) - top_p
            hidden[max(size - least, 1) :] = False
            row[order[hidden]] = filtered
