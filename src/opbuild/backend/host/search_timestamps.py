"""The order of Whisper's timestamps: they come in pairs, and none is before an earlier one."""

from __future__ import annotations

import numpy as np

from opbuild.graph.types import Array, Node

LOWEST = np.finfo(np.float32).min

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
