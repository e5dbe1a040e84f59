"""The choice of the next tokens in com.microsoft's GreedySearch, Sampling and BeamSearch.

A search is a Loop over its decoder (``frontend.microsoft_search``); these operators stand around it, and in each turn
behind the decoder. What they choose is what ONNX Runtime's kernels for CPUs choose.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.graph.types import Array, Node

DOMAIN = "opbuild"
MOST_TOKENS = 4096
MOST_BEAMS = 128


def _number(inputs: Sequence[Array | None], index: int, default: int) -> int:
    value = inputs[index] if index < len(inputs) else None
    return default if value is None else int(np.asarray(value).reshape(-1)[0])


@implements("BeginSearch", domain=DOMAIN)
def _begin(node: Node, inputs: Any) -> Sequence[Array]:
    """Inputs: the prompt, the most tokens, beams, a mask of the prompt, and the tokens with which a decoder begins.

    Results: turns, which row of the batch each beam has, the prompt, positions, the mask (all for each beam), the
    sequences so far, the first position of what follows, and a cache without keys.
    """
    prompt, most, beams = inputs[0], _number(inputs, 1, MOST_TOKENS), _number(inputs, 2, 1)
    if not 1 <= beams <= MOST_BEAMS:
        raise ValueError(f"num_beams is {beams}, not 1 to {MOST_BEAMS}")
    rows = np.repeat(np.arange(len(prompt)), beams)
    mask = inputs[3] if inputs[3] is not None else _mask(node, prompt)
    if mask.shape != prompt.shape[:2]:
        raise ValueError(f"attention_mask has shape {list(mask.shape)}, not {list(prompt.shape[:2])}")
    shown = _prompt_mask(node, prompt)
    places = np.where(shown, np.cumsum(shown, axis=1) - 1, 0)
    sequences = inputs[4] if len(inputs) > 4 and inputs[4] is not None else _decoder_start(node, prompt)
    if not sequences.shape[1] < most <= MOST_TOKENS:
        raise ValueError(f"max_length is {most}, not more than {sequences.shape[1]} tokens and at most {MOST_TOKENS}")
    given = prompt[rows] if prompt.dtype.kind == "i" else prompt
    following = shown.sum(axis=1)[rows, None]
    values = (given, places[rows], mask[rows], sequences[rows], following)
    turns = np.array(most - sequences.shape[1] - 1, np.int64)  # the first step is before all turns
    cache = [len(rows) if extent < 0 else int(extent) for extent in node.attrs["cache"]]
    typed = (each if each.dtype.kind == "f" else each.astype(np.int32) for each in values)
    return turns, rows, *typed, np.zeros(cache, node.text("cache_type", "float32"))


def _prompt_mask(node: Node, prompt: Array) -> Array:
    """Return the mask of the tokens that are no padding."""
    if prompt.dtype.kind != "i":
        return np.ones(prompt.shape[:2], bool)
    return np.asarray(prompt != int(node.attrs["pad_token_id"]))


def _mask(node: Node, prompt: Array) -> Array:
    """Hide padding; from an encoder only that before the first token, as the last one may be padding, too."""
    shown = _prompt_mask(node, prompt)
    return np.asarray(np.logical_or.accumulate(shown, axis=1) if node.attrs.get("is_encoder", 0) else shown, np.int32)


def _decoder_start(node: Node, prompt: Array) -> Array:
    if not node.attrs.get("is_encoder", 0):
        return np.asarray(prompt)
    return np.full((len(prompt), 1), int(node.attrs.get("decoder_start_token_id", 0)), np.int32)


@implements("BeginSampling", domain=DOMAIN)
def _begin_sampling(node: Node, inputs: Any) -> Sequence[Array]:
    """Which sequences ended, none yet, and the state of random numbers. Inputs: the sequences, and the seed."""
    return np.zeros(len(inputs[0]), bool), np.array(begun(inputs[1] if len(inputs) > 1 else None), np.int64)


def _next_mask(mask: Array, places: Array, step: int) -> tuple[Array, Array]:
    """Return the mask with the token that was chosen, and that token's position; the first one is given."""
    longer = np.concatenate([mask, np.ones((len(mask), 1), mask.dtype)], axis=1)
    return longer, places if step == 0 else places + 1


@implements("ChooseTokens", domain=DOMAIN)
def _choose(node: Node, inputs: Any) -> Sequence[Array]:
    """One token for each sequence, the likeliest or at random.

    Inputs: the turn, -1 for the first step, logits, sequences, the mask, the next position, which sequences ended, the
    state of the random numbers, and those of ``processed``. Results: whether to go on, tokens, positions, the mask, the
    sequences, which ended, and the state.
    """
    turn, logits, sequences, mask, places, ended, state, *options = inputs
    step = int(turn) + 1
    scores = np.array(logits[:, -1, : _size(node, logits)], np.float32)
    processed(node, scores, sequences, options, step)
    if node.attrs.get("samples", 0):
        tokens, state = sampled(node, scores, int(state))
    else:
        tokens = scores.argmax(axis=1)
    ended = ended | (tokens == int(node.attrs["eos_token_id"]))
    tokens = np.where(ended, int(node.attrs["pad_token_id"]), tokens).astype(np.int32)[:, None]
    mask, places = _next_mask(mask, places, step)
    longer = np.concatenate([sequences, tokens], axis=1)
    return np.array(not ended.all()), tokens, places, mask, longer, ended, np.array(state, np.int64)


def _size(node: Node, logits: Array) -> int:
    """Return the size of the vocabulary; logits may have some more columns."""
    size = int(node.attrs.get("vocab_size", 0))
    return size if size > 0 else int(logits.shape[-1])


@implements("EncoderMask", domain=DOMAIN)
def _encoder_mask(node: Node, inputs: Any) -> Sequence[Array]:
    """The mask of an encoder's prompt: the one that is given, or of the tokens that are no padding."""
    given = inputs[1] if len(inputs) > 1 else None
    return (_mask(node, inputs[0]) if given is None else np.asarray(given, np.int32),)


@implements("FirstTokens", domain=DOMAIN)
def _first_tokens(node: Node, inputs: Any) -> Sequence[Array]:
    """The first tokens of a decoder behind an encoder's prompt: those that are given, or one."""
    given = inputs[1] if len(inputs) > 1 else None
    return (_decoder_start(node, inputs[0]) if given is None else given.astype(np.int32),)


@implements("EndSearch", domain=DOMAIN)
def _end(node: Node, inputs: Any) -> Sequence[Array]:
    """The sequences, as long as the most tokens."""
    sequences, most = inputs[0], _number(inputs, 1, MOST_TOKENS)
    found = np.full((len(sequences), most), int(node.attrs["pad_token_id"]), np.int32)
    found[:, : sequences.shape[1]] = sequences
    return (found,)


@implements("ChooseBeams", domain=DOMAIN)
def _choose_beams(node: Node, inputs: Any) -> Sequence[Array]:
    """The likeliest continuations of all beams of a sequence.

    Inputs: the turn, -1 for the first step, logits, sequences, the mask, the next position, the beams' scores, what was
    found (``Beams``), the penalty of the length, and those of ``processed``. Results: whether to go on, tokens,
    positions, the mask, the sequences, scores, what was found, which beam each continues, and the scores of all tokens.
    """
    turn, logits, sequences, mask, places, scores, *found, penalty = inputs[:11]
    step = int(turn) + 1
    beams = Beams(node, *found, penalty=1.0 if penalty is None else float(np.asarray(penalty).reshape(-1)[0]))
    last = np.repeat(logits[:, -1, : _size(node, logits)], len(sequences) // len(logits), axis=0)
    likely = np.asarray(last, np.float32)
    likely = likely - likely.max(axis=1, keepdims=True)
    likely = likely - np.log(np.exp(likely).sum(axis=1, keepdims=True))
    processed(node, likely, sequences, inputs[11:], step)
    likely += scores[:, None]
    rows, tokens, scores = beams.advance(sequences, likely)
    mask, places = _next_mask(mask, places, step)
    longer = np.concatenate([sequences[rows], tokens[:, None]], axis=1)
    goes_on = np.array(not beams.ended.all())
    return goes_on, tokens[:, None], places, mask, longer, scores, *beams.state, rows, likely


@implements("BeginBeams", domain=DOMAIN)
def _begin_beams(node: Node, inputs: Any) -> Sequence[Array]:
    """Scores of beams, of which all but the first of each sequence are hopeless; and nothing found yet."""
    sequences, most, beams = inputs[0], _number(inputs, 1, MOST_TOKENS), _number(inputs, 2, 1)
    scores = np.full((len(sequences) // beams, beams), -1e9, np.float32)
    scores[:, 0] = 0
    return scores.reshape(-1), *Beams.nothing(len(scores), beams, most)


@implements("EndBeams", domain=DOMAIN)
def _end_beams(node: Node, inputs: Any) -> Sequence[Array]:
    """The best sequences of each of the batch, their scores, and the scores of all tokens at each step.

    Inputs: sequences, scores, what was found, the penalty of the length, the most tokens, the sequences to return, the
    sequences with which it began, and the scores of all tokens of the steps there were, those of the last ones first.
    """
    sequences, scores, *found, penalty = inputs[:7]
    beams = Beams(node, *found, penalty=1.0 if penalty is None else float(np.asarray(penalty).reshape(-1)[0]))
    most, wanted = _number(inputs, 7, MOST_TOKENS), _number(inputs, 8, 1)
    if not 1 <= wanted <= beams.count:
        raise ValueError(f"num_return_sequences is {wanted}, not 1 to {beams.count}, which num_beams is")
    beams.end(sequences, scores)
    best = beams.best(wanted, int(node.attrs["pad_token_id"]))
    if len(inputs) < 11:
        return best
    size = inputs[-1].shape[-1]
    every = np.concatenate([np.reshape(each, (-1, *scores.shape, size)) for each in inputs[:9:-1]])
    steps = np.zeros((most - inputs[9].shape[1], *every.shape[1:]), np.float32)
    steps[: len(every)] = every
    return *best, steps.reshape(len(steps), len(beams.ended), beams.count, size)


class Beams:
    """The state of a beam search.

    Args:
        node: The operator, whose attributes are the search's.
        tokens: The best sequences that ended, ``(batch, beams, most tokens)``, best first.
        lengths: Their lengths; 0 where there is none yet.
        scores: Their scores.
        ended: Which of the batch have enough.
        penalty: The exponent of a length by whose power a score is divided.
    """

    def __init__(
        self, node: Node, tokens: Array, lengths: Array, scores: Array, ended: Array, *, penalty: float
    ) -> None:
        self._eos, self._pad = (int(node.attrs[name]) for name in ("eos_token_id", "pad_token_id"))
        self._ends_early = bool(node.attrs.get("early_stopping", 0))
        self._tokens, self._lengths, self._scores = tokens.copy(), lengths.copy(), scores.copy()
        self.ended, self._penalty = ended.copy(), np.float32(penalty)

    @staticmethod
    def nothing(batch: int, beams: int, most: int) -> tuple[Array, ...]:
        """Return the state in which nothing was found."""
        tokens = np.zeros((batch, beams, most), np.int32)
        return tokens, np.zeros((batch, beams), np.int32), np.zeros((batch, beams), np.float32), np.zeros(batch, bool)

    @property
    def state(self) -> tuple[Array, Array, Array, Array]:
        """The state in which the next turn begins."""
        return self._tokens, self._lengths, self._scores, self.ended

    @property
    def count(self) -> int:
        """Beams of a sequence."""
        return int(self._lengths.shape[1])

    def advance(self, sequences: Array, scores: Array) -> tuple[Array, Array, Array]:
        """Take the scores of all tokens behind all beams; return which beams go on, with which tokens and scores."""
        batch, count, size = len(self.ended), self.count, scores.shape[1]
        every = scores.reshape(batch, count * size)
        places = np.stack([_largest(row, 2 * count) for row in every])
        best = np.take_along_axis(every, places, axis=1)
        rows, tokens = np.zeros((batch, count), np.int64), np.full((batch, count), self._pad, np.int32)
        following = np.zeros((batch, count), np.float32)
        for index in map(int, np.flatnonzero(~self.ended)):
            chosen = []
            for rank, (place, score) in enumerate(zip(places[index], best[index], strict=True)):
                beam, token = index * count + place // size, place % size
                if token != self._eos:
                    chosen.append((beam, token, score))
                elif rank < count:
                    self._add(index, sequences[beam], score)
                if len(chosen) == count:
                    break
            rows[index], tokens[index], following[index] = zip(*chosen, strict=True)
            self.ended[index] = self._is_over(index, best, sequences.shape[1])
        return rows.reshape(-1), tokens.reshape(-1), following.reshape(-1)

    def _add(self, index: int, sequence: Array, total: np.float32) -> None:
        """Take a sequence among the best, behind those that are as good."""
        length = len(sequence)
        score = np.float32(total / np.float32(length) ** self._penalty)
        used = int((self._lengths[index] > 0).sum())
        if used == self.count and score <= self._scores[index, -1]:
            return
        at = int((self._scores[index, :used] >= score).sum())
        for array in (self._tokens, self._lengths, self._scores):
            array[index, at + 1 :] = array[index, at:-1].copy()
        self._tokens[index, at, :length], self._lengths[index, at], self._scores[index, at] = sequence, length, score

    def _is_over(self, index: int, best: Array, length: int) -> bool:
        """Return whether nothing that follows can be better than the worst that was found."""
        if not self._lengths[index].all():
            return False
        if self._ends_early:
            return True
        # ONNX Runtime compares with candidates from this place on, of whichever sequence of the batch.
        first = index * self.count
        reachable = best.reshape(-1)[first : first + 2 * self.count].max() / np.float32(length) ** self._penalty
        return bool(self._scores[index, -1] >= reachable)

    def end(self, sequences: Array, scores: Array) -> None:
        """Take the sequences that are still followed."""
        for index in map(int, np.flatnonzero(~self.ended)):
            for beam in range(index * self.count, (index + 1) * self.count):
                self._add(index, sequences[beam], scores[beam])

    def best(self, wanted: int, pad: int) -> tuple[Array, Array]:
        """Return so many sequences of each of the batch, and their scores."""
        tokens, lengths = self._tokens[:, :wanted], self._lengths[:, :wanted, None]
        return np.where(np.arange(tokens.shape[2]) < lengths, tokens, pad).astype(np.int32), self._scores[:, :wanted]


def _largest(values: Array, count: int) -> Sequence[int] | Array:
    """Return the places of the largest values, from the largest on; of equal ones the first come first."""
    least = np.partition(values, -count)[-count]
    places = np.flatnonzero(values >= least)
    return places[np.argsort(-values[places], kind="stable")][:count]


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
            _hide_masked(scores, given[name], name)
    if number["min_length"] is not None and sequences.shape[1] < number["min_length"]:
        scores[:, int(node.attrs["eos_token_id"])] = LOWEST
    temperature = number["temperature"] if number["temperature"] is not None else node.attrs.get("temperature", 1.0)
    if temperature > 0 and temperature != 1:
        scores /= np.float32(temperature)
    if given["presence_mask"] is not None:
        scores -= given["presence_mask"].astype(np.float32) * np.float32(node.attrs.get("presence_penalty", 0.0))
    if number["logits_processor"] == TIMESTAMPS:
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


def _hide_masked(scores: Array, mask: Any, name: str) -> None:
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


LATEST_FIRST = 50
"""How far above the least the first timestamp may be."""


def keep_timestamps_in_order(node: Node, scores: Array, sequences: Array) -> None:
    """Hide the tokens that may not follow each sequence, in place."""
    first = int(node.attrs["beginning_timestamp_token_id"])
    for row, sequence in zip(scores, sequences, strict=True):
        stamps = np.flatnonzero(sequence >= first)
        begun = int(stamps[0]) + 1 if len(stamps) else len(sequence)
        _hide_special(node, row, is_later=len(sequence) > begun)
        _keep_pairs(node, row, sequence, first, begun=begun)
        if len(sequence) == begun:
            row[first + LATEST_FIRST + 1 :] = LOWEST
        if _are_likely(row[first:], row[:first]):
            row[:first] = LOWEST


def _are_likely(stamps: Array, others: Array) -> bool:
    """Return whether all timestamps together are likelier than any other token."""
    if not len(stamps) or not len(others):
        return False
    most = stamps.max()
    return bool(most + np.log(np.exp(stamps - most).sum()) > others.max())


def _hide_special(node: Node, row: Array, *, is_later: bool) -> None:
    """Hide tokens that are for prompts only; some of them from the second token on."""
    names = ["no_timestamps_token_id", "start_of_lm_token_id"]
    if is_later:
        names += ["decoder_start_token_id", "translate_token_id", "transcribe_token_id"]
    for name in names:
        token = int(node.attrs.get(name, -1))
        if 0 <= token < len(row):
            row[token] = LOWEST


def _keep_pairs(node: Node, row: Array, sequence: Array, first: int, *, begun: int) -> None:
    """Hide timestamps behind a pair, text behind one alone, and timestamps before the last."""
    was_stamp = sequence[-1] >= first
    was_before = len(sequence) <= begun or sequence[-2] >= first
    if was_stamp and was_before:
        row[first:] = LOWEST
    elif was_stamp:
        row[: int(node.attrs["eos_token_id"])] = LOWEST
    stamps = sequence[sequence >= first]
    if len(stamps):
        alone = was_stamp and not was_before
        row[first : int(stamps[-1]) + (0 if alone else 1)] = LOWEST
