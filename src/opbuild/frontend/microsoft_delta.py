"""GatedDeltaNet of ``com.microsoft``: ONNX's LinearAttention on heads that lie apart, and on packed sequences."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from opbuild.frontend.microsoft_packed import Packed
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node

_QUERY, _KEY, _VALUE, _BOUNDS, _DECAY, _BETA, _STATE, _LOG, _BIAS = range(9)

_EPSILON = 1e-6
"""What is added to the square of a norm, so that none is 0."""


class _Tokens:
    """The tokens of a node: queries, keys and values of float32, each ``(tokens, heads, size)``."""

    def __init__(self, of: Rewriting) -> None:
        self.of = of
        shape = of.shape(_QUERY)
        if of.has(_KEY):
            self.lead, (self.heads, self.size) = shape[:-2], shape[-2:]
            self.values, self.width = of.shape(_VALUE)[-2:]
            query, key, value = (self.flat(index, *of.shape(index)[-2:]) for index in (_QUERY, _KEY, _VALUE))
        else:
            _, self.values, self.width, self.size = of.shape(_STATE, 4)
            self.lead, columns = shape[:-1], (shape[-1] - self.values * self.width) // 2
            self.heads, whole = columns // self.size, self.flat(_QUERY, shape[-1])
            query, key, value = (
                of.reshape(of.slice(whole, 1, begin, end), (-1, count, size))
                for begin, end, count, size in (
                    (0, columns, self.heads, self.size),
                    (columns, 2 * columns, self.heads, self.size),
                    (2 * columns, shape[-1], self.values, self.width),
                )
            )
        self.tokens = self.lead[0] if len(self.lead) == 1 else self.lead[0] * self.lead[1]
        if of.attr("qk_l2_norm", 0):
            query, key = self._normal(query), self._normal(key)
        self.query, self.key, self.value = self._shared(query), self._shared(key), value

    def flat(self, index: int, *shape: int) -> str:
        """Return an input in float32 with one axis of tokens."""
        of = self.of
        return of.reshape(of.cast(of.input(index), "float32", of.dtype(index)), (-1, *shape))

    def _normal(self, value: str) -> str:
        of = self.of
        squares = of("ReduceSumSquare", value, of.ints(2), keepdims=1)
        return of("Div", value, of("Sqrt", of("Add", squares, of.constant(np.array(_EPSILON, np.float32)))))

    def _shared(self, value: str) -> str:
        """Return queries or keys with one for each head of values; neighbours share one."""
        of, times = self.of, self.values // self.heads
        if times == 1:
            return value
        repeated = of("Expand", of("Unsqueeze", value, of.ints(2)), of.ints(1, 1, times, 1))
        return of.reshape(repeated, (-1, self.values, self.size))

    def decay(self) -> str:
        """Return the logarithm of what stays of a state, ``(tokens, values, 1 or size)``."""
        of, kind = self.of, self.of.node.text("gate_activation", "none")
        depth = 1 if len(of.shape(_DECAY)) == len(self.lead) + 1 else self.size
        value = self.flat(_DECAY, self.values, depth)
        if kind == "none":
            return value
        if of.has(_BIAS):
            count = int(np.prod(of.shape(_BIAS)))
            value = of("Add", value, of.reshape(of.input(_BIAS), (self.values, count // self.values)))
        rate = (
            of("Exp", of.reshape(of.input(_LOG), (self.values, 1)))
            if of.has(_LOG)
            else of.constant(np.ones(1, np.float32))
        )
        if kind in ("softplus", "qwen"):
            return of("Mul", of("Neg", rate), of("Softplus", value))
        if kind not in ("sigmoid", "kda"):
            of.refuse(f"its gate_activation {kind!r} is not known")
        bound = of.constant(np.array(of.attr("gate_lower_bound", -5.0), np.float32))
        return of("Mul", bound, of("Sigmoid", of("Mul", rate, value)))

    def beta(self) -> str:
        """Return how much of what is new is taken, ``(tokens, values, 1)``."""
        value = self.flat(_BETA, self.values, 1)
        return self.of("Sigmoid", value) if self.of.node.text("beta_activation", "none") == "sigmoid" else value


@writes("GatedDeltaNet")
def _gated_delta(of: Rewriting) -> Sequence[Node]:
    """Linear attention of each sequence; those of several lengths are filled up with tokens that change no state."""
    if of.attr("state_update_capacity", 0):
        of.refuse("what single tokens change of a state (state_update_capacity) is not served")
    rule, tokens = of.node.text("update_rule", "gated_delta"), _Tokens(of)
    given = [tokens.query, tokens.key, tokens.value]
    given += [tokens.decay() if "gated" in rule else "", tokens.beta() if "delta" in rule else ""]
    packed = Packed(of, _BOUNDS, tokens.tokens) if of.has(_BOUNDS) else None
    batch = packed.count if packed else tokens.lead[0] if len(tokens.lead) == 2 else of.shape(_STATE, 4)[0]
    length = tokens.tokens if packed else tokens.tokens // batch
    if packed:
        given = [packed.filled(each) if each else "" for each in given]
    query, key, value, decay, beta = (of.reshape(each, (batch, length, -1)) if each else "" for each in given)
    state = of("Transpose", of.input(_STATE), perm=(0, 1, 3, 2)) if of.has(_STATE) else ""
    attrs = {"q_num_heads": tokens.values, "kv_num_heads": tokens.values, "scale": float(of.attr("scale", 0.0))}
    found, state = of.several("LinearAttention", 2, query, key, value, state, decay, beta, update_rule=rule, **attrs)
    found = of.reshape(found, (batch * length, tokens.values * tokens.width))
    if packed:
        found = packed.taken(found)
    found = of.reshape(found, (*tokens.lead, tokens.values, tokens.width))
    return of.finish(of.cast(found, of.dtype(), "float32"), of("Transpose", state, perm=(0, 1, 3, 2)))
