"""Decoders: models that take tokens and the keys and values of those before them, by the names that exporters give."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import OptionError
from opbuild.kernel.free import FREE
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted
from opbuild.tuning.bench.runtimes import Array, Run

if TYPE_CHECKING:
    from opbuild.frontend.models.declaration import Declared
    from opbuild.runtime.endpoint import Endpoint

FEW_WORDS = 100
"""Tokens that any vocabulary has, where a model does not say how many are its own."""

MASK = "attention_mask"

_CACHE = re.compile("past_key_values|past|present")


class DecoderLayout(NamedTuple):
    """A decoder's inputs and outputs.

    Attributes:
        made: The type, the number of dimensions and the width, by name, of the inputs that follow from the tokens; 0:
            they are as wide as there are tokens.
        cache: For each input of keys or values the number of the output that takes its place in the next call, its
            type, and its shape before there is any token: with room for all, or for none.
        scores: The number of the output that scores the next tokens.
        words: How many tokens there are.
    """

    made: Mapping[str, tuple[str, int, int]]
    cache: Mapping[str, tuple[int, str, Sequence[int]]]
    scores: int
    words: int

    @property
    def room(self) -> int:
        """The number of tokens for which caches of a fixed length have room; 0 if all of them grow."""
        return min((shape[-2] for _, _, shape in self.cache.values() if shape[-2]), default=0)

    def generate(self, run: Run, prompt: int, tokens: int) -> Iterator[tuple[int, float]]:
        """Yield the likeliest token behind a prompt of random ones, and more, with the seconds that each took.

        Caches of a fixed length are continued in their own arrays.
        """
        words = np.random.default_rng(0).integers(0, self.words, prompt)
        cache = {name: np.zeros(shape, numpy_dtype(dtype)) for name, (_, dtype, shape) in self.cache.items()}
        out = {place: cache[name] for name, (place, _, shape) in self.cache.items() if shape[-2]}
        past = 0
        for _ in range(tokens + 1):
            made = _inputs(words, past)
            feeds = {name: _fed(made[name], *each) for name, each in self.made.items()}
            began = time.perf_counter()
            outputs = run(feeds | cache, out)
            seconds = time.perf_counter() - began
            past += len(words)
            words = outputs[self.scores][0, -1:].argmax(-1)
            yield int(words[0]), seconds
            cache = {name: outputs[place] for name, (place, _, _) in self.cache.items()}


def _inputs(words: Array, past: int) -> dict[str, Array]:
    """Return the inputs besides the cache that exporters know, for new tokens behind past ones."""
    total = past + len(words)
    return {
        "input_ids": words[None],
        "attention_mask": np.ones((1, total)),
        "position_ids": np.arange(past, total)[None],
        "cache_position": np.arange(past, total),
        "use_cache_branch": np.array([past > 0]),
        "past_sequence_length": np.array([past]),
        "seqlens_k": np.array([total - 1]),
        "total_sequence_length": np.array([total]),
        "nonpad_kv_seqlen": np.array([total]),
        "write_indices": np.array([past]),
    }


def _fed(made: Array, dtype: str, rank: int, width: int) -> Array:
    """Return an input as it is declared; a mask of a fixed width has zeros behind."""
    wide = np.pad(made, ((0, 0), (0, width - made.shape[1]))) if width else made
    return wide.astype(dtype).reshape(wide.shape[:rank])


def layout_of(model: str, inputs: Sequence[Endpoint], outputs: Sequence[Declared]) -> DecoderLayout:
    """Return the decoder that a model is.

    Args:
        model: Its file, for messages.
        inputs: Its inputs.
        outputs: Its outputs.

    Raises:
        OptionError: If it has other inputs than exporters of decoders give them.
    """
    present = {_part(each.name): place for place, each in enumerate(outputs) if "present" in each.name}
    made: dict[str, tuple[str, int, int]] = {}
    cache: dict[str, tuple[int, str, Sequence[int]]] = {}
    unknown = []
    for each in inputs:
        dtype, shape = each.dtype.name, each.shape
        place = present.get(_part(each.name)) if "past" in each.name else None
        if place is not None and (empty := _without_tokens(shape, outputs[place].shape)):
            cache[each.name] = place, dtype, empty
        elif _is_made(each):
            is_wide = each.name == MASK and shape[-1] != FREE
            made[each.name] = dtype, len(shape), shape[-1] if is_wide else 0
        else:
            unknown.append(str(each))
    rooms = {shape[-2] for _, _, shape in cache.values()}
    unknown += [name for name, (_, _, width) in made.items() if width and width not in rooms]
    if unknown or not cache or "input_ids" not in made:
        known = ", ".join(_inputs(np.zeros(1, np.int64), 0))
        raise OptionError(
            f"--generate: {model!r} has {counted(len(unknown), 'input')} that no exporter of decoders gives: "
            f"{', '.join(unknown)}"
            if unknown
            else f"--generate: {model!r} has no tokens and cache among its inputs: {', '.join(map(str, inputs))}",
            f"known are {known}, and past_key_values.0.key of shape [any, heads, any or fixed, size], whose output is "
            "present.0.key; --shape gives shapes that are open",
        )
    scores = next((place for place, each in enumerate(outputs) if each.name == "logits"), 0)
    extent = (outputs[scores].shape or (FREE,))[-1]
    return DecoderLayout(made, cache, scores, FEW_WORDS if extent == FREE else extent)


def _part(name: str) -> str:
    """Return the layer and part that an input or output of the cache is, as ``0.key``."""
    return _CACHE.sub("", name).strip("._")


def _without_tokens(shape: Sequence[int] | None, later: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return the shape of keys or values of no tokens, in one sequence; None if they are not kept so.

    One of a fixed length is returned as long.
    """
    if shape is None or len(shape) < 4 or FREE in (shape[-3], shape[-1]):
        return None
    if shape[-2] != FREE and later is not None and later[-2] not in (FREE, shape[-2]):
        return None
    return *(1 if extent == FREE else extent for extent in shape[:-2]), max(shape[-2], 0), shape[-1]


def _is_made(declared: Endpoint) -> bool:
    """Return whether an input follows from the tokens, whatever their number."""
    shape, made = declared.shape, _inputs(np.zeros(2, np.int64), 3).get(declared.name)
    if made is None or shape is None:
        return False
    if not shape and made.shape == (1,):
        return True
    if declared.name == MASK:  # of all keys, or as wide as a cache
        return len(shape) == 2 and shape[0] in (FREE, 1)
    return len(shape) == made.ndim and all(one in (FREE, other) for one, other in zip(shape, made.shape, strict=True))
