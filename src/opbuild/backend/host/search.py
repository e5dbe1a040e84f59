"""The choice of the next tokens in com.microsoft's GreedySearch, Sampling and BeamSearch.

A search is a Loop over its decoder (``frontend.microsoft_search``); these operators stand around it, and in each turn
behind the decoder. What they choose is what ONNX Runtime's kernels for CPUs choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from opbuild.backend.host.movement import implements
from opbuild.backend.host.search_beams import Beams
from opbuild.backend.host.search_scores import begun, processed, sampled
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
    shown = _shown(node, prompt)
    places = np.where(shown, np.cumsum(shown, axis=1) - 1, 0)
    sequences = inputs[4] if len(inputs) > 4 and inputs[4] is not None else _begun(node, prompt)
    if not sequences.shape[1] < most <= MOST_TOKENS:
        raise ValueError(f"max_length is {most}, not more than {sequences.shape[1]} tokens and at most {MOST_TOKENS}")
    given = prompt[rows] if prompt.dtype.kind == "i" else prompt
    following = shown.sum(axis=1)[rows, None]
    values = (given, places[rows], mask[rows], sequences[rows], following)
    turns = np.array(most - sequences.shape[1] - 1, np.int64)  # the first step is before all turns
    cache = [len(rows) if extent < 0 else int(extent) for extent in node.attrs["cache"]]
    typed = (each if each.dtype.kind == "f" else each.astype(np.int32) for each in values)
    return turns, rows, *typed, np.zeros(cache, node.text("cache_type", "float32"))


def _shown(node: Node, prompt: Array) -> Array:
    """Return the mask of the tokens that are no padding."""
    if prompt.dtype.kind != "i":
        return np.ones(prompt.shape[:2], bool)
    return np.asarray(prompt != int(node.attrs["pad_token_id"]))


def _mask(node: Node, prompt: Array) -> Array:
    """Hide padding; from an encoder only that before the first token, as the last one may be padding, too."""
    shown = _shown(node, prompt)
    return np.asarray(np.logical_or.accumulate(shown, axis=1) if node.attrs.get("is_encoder", 0) else shown, np.int32)


def _begun(node: Node, prompt: Array) -> Array:
    if not node.attrs.get("is_encoder", 0):
        return np.asarray(prompt)
    return np.full((len(prompt), 1), int(node.attrs.get("decoder_start_token_id", 0)), np.int32)


@implements("BeginSampling", domain=DOMAIN)
def _begin_sampling(node: Node, inputs: Any) -> Sequence[Array]:
    """Which sequences ended, none yet, and the state of random numbers. Inputs: the sequences, and the seed."""
    return np.zeros(len(inputs[0]), bool), np.array(begun(inputs[1] if len(inputs) > 1 else None), np.int64)


def _following(mask: Array, places: Array, step: int) -> tuple[Array, Array]:
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
    mask, places = _following(mask, places, step)
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
    return (_begun(node, inputs[0]) if given is None else given.astype(np.int32),)


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
    mask, places = _following(mask, places, step)
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
