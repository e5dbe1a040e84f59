"""BeamSearch of domain ``com.microsoft``, over decoders as those of GPT-2 and of T5."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.frontend.block import Block
from opbuild.frontend.microsoft_search import (
    Choice,
    Decoder,
    State,
    block_of,
    cache_attributes,
    called,
    given,
    gpt_decoders,
    own,
    search_attributes,
)
from opbuild.frontend.rewriting import Rewriting, writes
from opbuild.graph.types import Node
from opbuild.text.plural import counted

GPT, T5 = 0, 1


@writes("BeamSearch")
def beam_search(of: Rewriting) -> Sequence[Node]:
    """BeamSearch: the likeliest sequences."""
    kind = int(of.attr("model_type", GPT))
    if of.has(10) or of.has(11) or kind not in (GPT, T5):
        of.refuse("decoder_input_ids, a logits_processor and model types other than 0 and 1 are not served")
    return _of_gpt(of) if kind == GPT else _of_t5(of)


def begin_beams(of: Rewriting, choice: Choice, sequences: str) -> list[str]:
    """Write the beams' scores and what was found before the first step."""
    return own(of, "BeginBeams", (sequences, *given(of, 1, 3)), choice.remembered, choice.attrs)


def end_beams(of: Rewriting, choice: Choice, last: State, begun: str, scores: Sequence[str]) -> list[str]:
    """Write the results: sequences, their scores, and those of all tokens as far as they are asked for."""
    inputs = (last.sequences, *last.found, *given(of, 5, 1, 4), begun, *scores)
    return own(of, "EndBeams", inputs, 3 if scores else 2, choice.attrs)


def wants_scores(of: Rewriting) -> bool:
    """Return whether the scores of all tokens are asked for."""
    return len(of.node.outputs) > 2 and bool(of.node.outputs[2])


def _of_gpt(of: Rewriting) -> Sequence[Node]:
    decoder, first = gpt_decoders(of)
    attrs = search_attributes(of)
    choice = Choice("ChooseBeams", 5, given(of, 5, 2, 6, 7, 8), attrs, axis=1)
    cache = cache_attributes(of, decoder.block.inputs[3], 5, 1)
    asked = given(of, 0, 1, 3, 9)
    turns, _, tokens, places, mask, begun, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    found = begin_beams(of, choice, begun)
    state = State(tokens, places, mask, [past] * len(decoder.caches), begun, following, found)
    begins, state, early = decoder.begin(of, choice, state, first)
    return finish_beams(of, choice, decoder, (turns, begins), state, begun, early)


def finish_beams(
    of: Rewriting,
    choice: Choice,
    decoder: Decoder,
    control: tuple[str, str],
    state: State,
    begun: str,
    early: Sequence[str],
) -> Sequence[Node]:
    """Write the Loop and what comes of it.

    Args:
        of: Where it is written.
        choice: How beams are chosen.
        decoder: The decoder.
        control: The turns, and whether there is one.
        state: What it begins with.
        begun: The sequences before all.
        early: The scores of all tokens in the step before the Loop.
    """
    last, scores = decoder.run(of, choice, *control, state, collects=wants_scores(of))
    return of.finish(*end_beams(of, choice, last, begun, [*scores, *early] if scores else []))


@writes("WhisperBeamSearch")
def whisper_beam_search(of: Rewriting) -> Sequence[Node]:
    """WhisperBeamSearch: as BeamSearch behind an encoder of sounds, with timestamps in order if they are asked for."""
    if of.attr("decoder_output_cross_qk", 0) or of.has(12) or of.has(13):
        of.refuse("scores of cross attention are not served")
    return _behind_encoder(of, sees_prompt=False, options=given(of, 5, 2, 6, 7, 8, -1, 14, 11), begun=given(of, 10))


def _of_t5(of: Rewriting) -> Sequence[Node]:
    return _behind_encoder(of, sees_prompt=True, options=given(of, 5, 2, 6, 7, 8), begun=[""])


def _behind_encoder(
    of: Rewriting, *, sees_prompt: bool, options: Sequence[str], begun: Sequence[str]
) -> Sequence[Node]:
    """Write a search whose decoder reads what an encoder made of the prompt.

    Args:
        of: Where it is written.
        sees_prompt: Whether encoder and decoder have a mask of the prompt.
        options: The penalty of the length, and what changes scores.
        begun: The tokens with which sequences begin, or nothing: one token does.
    """
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
    choice = Choice("ChooseBeams", 5, options, attrs, axis=0, whole=_reads_all(block))
    asked = [*given(of, 0, 1, 3, 9 if sees_prompt else -1), *begun]
    cache = cache_attributes(of, block.inputs[first], 4, 0)
    turns, rows, _, _, mask, sequences, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    prompt = [of.input(0), *(own(of, "EncoderMask", given(of, 0, 9), 1, attrs) if sees_prompt else ())]
    starts = own(of, "FirstTokens", (of.input(0), *begun), 1, attrs) if begins_there else []
    encoded = called(of, encoder, (*prompt, *starts), "encoder")
    spread = [of("Gather", each, rows, axis=0) for each in (encoded[1:] if begins_there else encoded)]
    caches = spread[1 : 1 + 2 * layers] if begins_there else [past] * 2 * layers
    state = State(sequences, following, mask, caches, sequences, following, begin_beams(of, choice, sequences))
    fixed = dict(zip(names[first + 2 * layers :], spread[-2 * layers :], strict=True))
    fixed |= {names[1]: mask} if sees_prompt else {}
    fixed |= {names[first - 1]: spread[0]} if has_hidden else {}
    decoder = Decoder(block, names[0], names[first : first + 2 * layers], fixed=fixed)
    if begins_there:
        begins, state, early = choice.step(of, of.number(-1), encoded[0], caches, state)
    else:
        begins, state, early = decoder.begin(of, choice, state)
    return finish_beams(of, choice, decoder, (turns, begins), state, sequences, early)


def _reads_all(block: Block) -> bool:
    """Return whether a decoder reads all tokens each time, as its first input may have any length."""
    shape = block.inputs[0].shape
    return shape is None or len(shape) != 2 or shape[1] != 1
