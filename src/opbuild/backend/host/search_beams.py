"""Beams: the sequences that a beam search found, and the next tokens of those that it follows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.graph.types import Array, Node


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
