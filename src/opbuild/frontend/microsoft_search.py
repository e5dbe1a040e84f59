"""Searches of ``com.microsoft`` over decoders as those of GPT-2 and of T5: a search is a loop over its decoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.errors import InvalidModelError
from opbuild.frontend.block import UntypedGraph, UntypedPort
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node
from opbuild.platform.records import NamedTuple, dataclass
from opbuild.text.plural import counted

DOMAIN = "opbuild"

KEPT = (
    *("eos_token_id", "pad_token_id", "vocab_size", "no_repeat_ngram_size", "early_stopping", "decoder_start_token_id"),
    *("temperature", "top_p", "filter_value", "min_tokens_to_keep", "custom", "presence_penalty"),
    *("beginning_timestamp_token_id", "no_timestamps_token_id", "start_of_lm_token_id", "translate_token_id"),
    "transcribe_token_id",
)
"""Attributes that the host reads."""


class State(NamedTuple):
    """The values that a search carries from turn to turn, or their names.

    Attributes:
        tokens, places, mask: What the decoder reads of the new tokens.
        caches: Its earlier keys and values.
        sequences: All tokens so far.
        following: The position of the next token.
        found: What the choice remembers.
    """

    tokens: str
    places: str
    mask: str
    caches: Sequence[str]
    sequences: str
    following: str
    found: Sequence[str]

    @property
    def values(self) -> tuple[str, ...]:
        """All, in one order."""
        first = (self.tokens, self.places, self.mask, *self.caches)
        return (*first, self.sequences, self.following, *self.found)


@dataclass(frozen=True, eq=False)
class TokenChoice:
    """The choice of tokens: by an operator of the host.

    Attributes:
        op_type: The operator.
        remembered: How many values it remembers.
        options: The inputs that change scores.
        attrs: Its attributes.
        axis: The axis of caches along which the beams lie that go on; None if there are no beams.
        whole: Whether the decoder reads all tokens each time.
    """

    op_type: str
    remembered: int
    options: Sequence[str]
    attrs: Mapping[str, Any]
    axis: int | None = None
    whole: bool = False

    def step(
        self, to: Rewriting, turn: str, logits: str, presents: Sequence[str], state: State
    ) -> tuple[str, State, list[str]]:
        """Write the choice behind a decoder: whether to go on, the next tokens, and the scores of all tokens."""
        inputs = (turn, logits, state.sequences, state.mask, state.following, *state.found, *self.options)
        beside = 0 if self.axis is None else 2
        goes_on, tokens, places, mask, sequences, *more = own(
            to, self.op_type, inputs, 5 + self.remembered + beside, self.attrs
        )
        found, beside_them = more[: self.remembered], more[self.remembered :]
        if self.axis is not None:
            presents = [to("Gather", present, beside_them[0], axis=self.axis) for present in presents]
        read = sequences if self.whole else tokens
        return goes_on, State(read, places, mask, presents, sequences, places, found), beside_them[1:]


@dataclass(frozen=True, eq=False)
class Decoder:
    """A decoder, and the roles of its inputs.

    Attributes:
        block: The graph.
        tokens, places, mask: The names of inputs, empty for one that it lacks.
        caches: Those of earlier keys and values.
        fixed: Values of the inputs that are the same in all turns.
    """

    block: UntypedGraph
    tokens: str
    caches: Sequence[str]
    places: str = ""
    mask: str = ""
    fixed: Mapping[str, str] | None = None

    def begin(
        self, of: Rewriting, choice: TokenChoice, state: State, block: UntypedGraph | None = None
    ) -> tuple[str, State, list[str]]:
        """Write the first step, before the Loop: its prompt is longer than the input of a turn.

        The turns' values then differ in one extent only, for which all of them are bound at once. ``block`` is a graph
        for this step, if it has one of its own.
        """
        names = (self.tokens, self.places, self.mask, *self.caches)
        values = dict(zip(names, state.values, strict=False)) | dict(self.fixed or {})
        given = [values[each.name] for each in self.block.inputs]
        logits, *presents = called(of, block or self.block, given, "decoder")
        return choice.step(of, of.number(-1), logits, presents, state)

    def run(
        self, of: Rewriting, choice: TokenChoice, turns: str, begins: str, first: State, *, collects: bool = False
    ) -> tuple[State, list[str]]:
        """Write the Loop: the last state, and the scores of all turns if they are to be collected."""
        body = Rewriting(of.node.with_(name=f"{of.node.name}/turn"), of.scope)
        turn, begun = of.fresh("turn"), of.fresh("begun")
        names = State(
            self.tokens,
            self.places or of.fresh("places"),
            self.mask or of.fresh("mask"),
            self.caches,
            of.fresh("sequences"),
            of.fresh("following"),
            [of.fresh("found") for _ in first.found],
        )
        logits, *presents = (each.name for each in self.block.outputs)
        goes_on, following, scores = choice.step(body, turn, logits, presents, names)
        collected = scores if collects else []
        fixed = self.fixed or {}
        nodes = (*bound([*fixed], [*fixed.values()]), *self.block.nodes, *body.nodes)
        inputs, outputs = (turn, begun, *names.values), (goes_on, *following.values, *collected)
        inner = UntypedGraph(
            nodes, self.block.tensors, tuple(map(UntypedPort, inputs)), tuple(map(UntypedPort, outputs))
        )
        found = [of.fresh("last") for _ in outputs[1:]]
        of.write("Loop", (turns, begins, *first.values), found, {"body": inner})
        tokens, places, mask, *last = found[: len(found) - len(collected)]
        caches, (all_tokens, after, *choice_found) = last[: len(self.caches)], last[len(self.caches) :]
        state = State(tokens, places, mask, caches, all_tokens, after, choice_found)
        return state, found[len(found) - len(collected) :]


def search_attributes(of: Rewriting, **more: Any) -> dict[str, Any]:
    """Return the attributes of a search that the host reads, and more.

    Raises:
        InvalidModelError: If it lacks the token that ends a sequence, or the one that fills it up.
    """
    for name in ("eos_token_id", "pad_token_id"):
        if not isinstance(of.node.attrs.get(name), int):
            raise InvalidModelError(
                f"{of.node.op_type} node {of.node.name!r} lacks the attribute {name!r}", "export the model again"
            )
    return {name: of.node.attrs[name] for name in KEPT if name in of.node.attrs} | more


def given(of: Rewriting, *indices: int) -> list[str]:
    """Return the names of inputs, empty for one that is not there."""
    return [of.input(index) if index >= 0 and of.has(index) else "" for index in indices]


def own(of: Rewriting, op_type: str, inputs: Sequence[str], count: int, attrs: Mapping[str, Any]) -> list[str]:
    """Write an operator of the host and return its outputs."""
    return [*of.write(op_type, inputs, (None,) * count, attrs, DOMAIN)]


def block_of(of: Rewriting, name: str) -> UntypedGraph:
    """Return a graph among the attributes."""
    found = of.node.attrs.get(name)
    if not isinstance(found, UntypedGraph):
        of.refuse(f"it has no graph {name!r}")
    return found


def bound(names: Sequence[str], values: Sequence[str]) -> list[Node]:
    """Return nodes that give values the names of a graph's inputs."""
    return [Node("Identity", (value,), (name,), {}, name) for name, value in zip(names, values, strict=True)]


def called(of: Rewriting, block: UntypedGraph, values: Sequence[str], where: str) -> list[str]:
    """Write a graph with values for its inputs, and return its outputs: a branch that is always taken."""
    names = [each.name for each in block.inputs]
    of.refuse_if(len(names) != len(values), f"its {where} has {counted(len(names), 'input')}, not {len(values)}")
    results = [of.fresh(each.name) for each in block.outputs]
    branch = UntypedGraph((*bound(names, values), *block.nodes), block.tensors, (), block.outputs)
    of.write("If", (of.constant(True),), results, {"then_branch": branch})
    return results


def cache_attributes(of: Rewriting, declared: UntypedPort, rank: int, axis: int) -> dict[str, Any]:
    """Return the shape of a cache without keys: as a decoder declares it, with any rows at an axis."""
    shape = declared.shape
    if shape is None or len(shape) != rank or shape[-1] < 1 or shape[-3] < 1:
        of.refuse(f"its decoder does not declare heads and their size: {declared.name} is {shape}")
    found = list(shape)
    found[axis], found[-2] = -1, 0
    return {"cache": tuple(found), "cache_type": declared.dtype or "float32"}


def gpt_decoders(of: Rewriting) -> tuple[Decoder, UntypedGraph | None]:
    """Return the decoder, and the graph of the first step if it is another one, of a search as GPT-2's.

    Raises:
        UnsupportedOperatorError: If they have other inputs and outputs.
    """
    block = block_of(of, "decoder")
    first = block_of(of, "init_decoder") if "init_decoder" in of.node.attrs else None
    for each in filter(None, (block, first)):
        if len(each.inputs) < 4 or len(each.inputs) != len(each.outputs) + 2:
            of.refuse(
                f"its decoder has {counted(len(each.inputs), 'input')} and {counted(len(each.outputs), 'output')}, "
                "not tokens, positions, "
                "a mask and caches, and logits and caches; buffers that past and present share are not served"
            )
    tokens, places, mask, *caches = (each.name for each in block.inputs)
    return Decoder(block, tokens, caches, places, mask), first


@writes("GreedySearch")
def greedy_search(of: Rewriting) -> Sequence[Node]:
    """GreedySearch: the likeliest token each time."""
    return _one_token(of, given(of, 2, 3, 4, 5), [], samples=0)


@writes("Sampling")
def sampling(of: Rewriting) -> Sequence[Node]:
    """Sampling: a token at random among the likeliest each time, by ONNX Runtime's random numbers."""
    return _one_token(of, given(of, 2, 3, 4, 5, 7), given(of, 8), samples=1)


def _one_token(of: Rewriting, options: Sequence[str], seed: Sequence[str], *, samples: int) -> Sequence[Node]:
    """Write a search that follows one sequence for each prompt."""
    of.refuse_if(int(of.attr("model_type", 0)) != 0, f"its model_type is {of.attr('model_type', 0)}, not 0, as GPT-2")
    decoder, first = gpt_decoders(of)
    attrs = search_attributes(of, samples=samples)
    choice = TokenChoice("ChooseTokens", 2, options, attrs)
    cache = cache_attributes(of, decoder.block.inputs[3], 5, 1)
    asked = given(of, 0, 1, -1, 6)
    turns, _, tokens, places, mask, begun, following, past = own(of, "BeginSearch", asked, 8, {**attrs, **cache})
    found = own(of, "BeginSampling", (begun, *seed), 2, attrs)
    state = State(tokens, places, mask, [past] * len(decoder.caches), begun, following, found)
    begins, state, _ = decoder.begin(of, choice, state, first)
    last, _ = decoder.run(of, choice, turns, begins, state)
    return of.finish(*own(of, "EndSearch", (last.sequences, *given(of, 1)), 1, attrs))


GPT, T5 = 0, 1


@writes("BeamSearch")
def beam_search(of: Rewriting) -> Sequence[Node]:
    """BeamSearch: the likeliest sequences."""
    kind = int(of.attr("model_type", GPT))
    if of.has(10) or of.has(11) or kind not in (GPT, T5):
        of.refuse("decoder_input_ids, a logits_processor and model types other than 0 and 1 are not served")
    if kind == GPT:
        return _of_gpt(of)
    return _encoder_search(of, sees_prompt=True, options=given(of, 5, 2, 6, 7, 8), begun=[""])


def begin_beams(of: Rewriting, choice: TokenChoice, sequences: str) -> list[str]:
    """Write the beams' scores and the sequences found before the first step."""
    return own(of, "BeginBeams", (sequences, *given(of, 1, 3)), choice.remembered, choice.attrs)


def end_beams(of: Rewriting, choice: TokenChoice, last: State, begun: str, scores: Sequence[str]) -> list[str]:
    """Write the results: sequences, their scores, and those of all tokens as far as they are asked for."""
    inputs = (last.sequences, *last.found, *given(of, 5, 1, 4), begun, *scores)
    return own(of, "EndBeams", inputs, 3 if scores else 2, choice.attrs)


def wants_scores(of: Rewriting) -> bool:
    """Return whether the scores of all tokens are asked for."""
    return len(of.node.outputs) > 2 and bool(of.node.outputs[2])


def _of_gpt(of: Rewriting) -> Sequence[Node]:
    decoder, first = gpt_decoders(of)
    attrs = search_attributes(of)
    choice = TokenChoice("ChooseBeams", 5, given(of, 5, 2, 6, 7, 8), attrs, axis=1)
    cache = cache_attributes(of, decoder.block.inputs[3], 5, 1)
    asked = given(of, 0, 1, 3, 9)
    turns, _, tokens, places, mask, begun, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    found = begin_beams(of, choice, begun)
    state = State(tokens, places, mask, [past] * len(decoder.caches), begun, following, found)
    begins, state, early = decoder.begin(of, choice, state, first)
    return finish_beams(of, choice, decoder, (turns, begins), state, begun, early)


def finish_beams(
    of: Rewriting,
    choice: TokenChoice,
    decoder: Decoder,
    control: tuple[str, str],
    state: State,
    begun: str,
    early: Sequence[str],
) -> Sequence[Node]:
    """Write the Loop and its results; ``control``: its turns, and whether there is one; ``early``: scores before it."""
    last, scores = decoder.run(of, choice, *control, state, collects=wants_scores(of))
    return of.finish(*end_beams(of, choice, last, begun, [*scores, *early] if scores else []))


@writes("WhisperBeamSearch")
def whisper_beam_search(of: Rewriting) -> Sequence[Node]:
    """WhisperBeamSearch: as BeamSearch behind an encoder of sounds, with timestamps in order if they are asked for."""
    if of.attr("decoder_output_cross_qk", 0) or of.has(12) or of.has(13):
        of.refuse("scores of cross attention are not served")
    return _encoder_search(of, sees_prompt=False, options=given(of, 5, 2, 6, 7, 8, -1, 14, 11), begun=given(of, 10))


def _encoder_search(
    of: Rewriting, *, sees_prompt: bool, options: Sequence[str], begun: Sequence[str]
) -> Sequence[Node]:
    """Write a search whose decoder reads an encoder's results for the prompt, of which both may have a mask."""
    encoder, block = block_of(of, "encoder"), block_of(of, "decoder")
    names, masks = [each.name for each in block.inputs], int(sees_prompt)
    first = 1 + masks
    has_hidden = len(names) > first and names[first] == "encoder_hidden_states"
    first, layers = first + has_hidden, (len(block.outputs) - 1) // 2
    if layers < 1 or len(names) != first + 4 * layers:
        of.refuse(
            f"its decoder has {counted(len(names), 'input')}, not {first} and 4 caches of each of {layers} layers"
        )
    begins_there = len(encoder.inputs) == 2 + masks
    attrs = search_attributes(of, is_encoder=1)
    shape = block.inputs[0].shape  # a first input that may have any length is given all tokens each time
    reads_all = shape is None or len(shape) != 2 or shape[1] != 1
    choice = TokenChoice("ChooseBeams", 5, options, attrs, axis=0, whole=reads_all)
    asked = [*given(of, 0, 1, 3, 9 if sees_prompt else -1), *begun]
    cache = cache_attributes(of, block.inputs[first], 4, 0)
    turns, rows, _, _, mask, sequences, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    prompt = [of.input(0), *(own(of, "EncoderMask", given(of, 0, 9), 1, attrs) if sees_prompt else ())]
    starts = own(of, "FirstTokens", (of.input(0), *begun), 1, attrs) if begins_there else []
    encoded = called(of, encoder, (*prompt, *starts), "encoder")
    spread = [of("Gather", each, rows, axis=0) for each in (encoded[1:] if begins_there else encoded)]
    caches = spread[1 : 1 + 2 * layers] if begins_there else [past] * 2 * layers
    state = State(sequences, following, mask, caches, sequences, following, begin_beams(of, choice, sequences))
    fixed = dict[str, str](zip(names[first + 2 * layers :], spread[-2 * layers :], strict=True))
    fixed |= {names[1]: mask} if sees_prompt else {}
    fixed |= {names[first - 1]: spread[0]} if has_hidden else {}
    decoder = Decoder(block, names[0], names[first : first + 2 * layers], fixed=fixed)
    if begins_there:
        begins, state, early = choice.step(of, of.number(-1), encoded[0], caches, state)
    else:
        begins, state, early = decoder.begin(of, choice, state)
    return finish_beams(of, choice, decoder, (turns, begins), state, sequences, early)
