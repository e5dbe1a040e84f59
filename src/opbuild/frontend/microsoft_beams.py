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
    first_step,
    given,
    gpt_decoders,
    own,
    search_attributes,
)
from opbuild.frontend.rewriting import Rewriting
from opbuild.graph.types import Node

GPT, T5 = 0, 1


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
    attrs = search_attributes(of, steps_before=int(first is not None))
    choice = Choice("ChooseBeams", 5, given(of, 5, 2, 6, 7, 8), attrs, axis=1)
    cache = cache_attributes(of, decoder.block.inputs[3], 5, 1)
    asked = given(of, 0, 1, 3, 9)
    turns, _, tokens, places, mask, begun, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    found = begin_beams(of, choice, begun)
    state = State(tokens, places, mask, [past] * len(decoder.caches), begun, following, found)
    begins, state, early = first_step(of, choice, first, state) if first is not None else (of.truth(), state, [])
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
        early: The scores of all tokens in a step before the Loop.
    """
    last, scores = decoder.run(of, choice, *control, state, collects=wants_scores(of))
    return of.finish(*end_beams(of, choice, last, begun, [*scores, *early] if scores else []))


def _of_t5(of: Rewriting) -> Sequence[Node]:
    encoder, block = block_of(of, "encoder"), block_of(of, "decoder")
    names = [each.name for each in block.inputs]
    first = 2 + (len(names) > 2 and names[2] == "encoder_hidden_states")
    layers = (len(block.outputs) - 1) // 2
    if layers < 1 or len(names) != first + 4 * layers:
        of.refuse(f"its decoder has {len(names)} inputs, not {first} and 4 caches of each of {layers} layers")
    begins_there = len(encoder.inputs) == 3
    attrs = search_attributes(of, steps_before=int(begins_there), is_encoder=1)
    choice = Choice("ChooseBeams", 5, given(of, 5, 2, 6, 7, 8), attrs, axis=0, whole=_reads_all(block))
    cache = cache_attributes(of, block.inputs[first], 4, 0)
    asked = given(of, 0, 1, 3, 9)
    turns, rows, _, _, mask, begun, following, past = own(of, "BeginSearch", asked, 8, attrs | cache)
    prompt = (of.input(0), *own(of, "EncoderMask", given(of, 0, 9), 1, attrs))
    starts = own(of, "FirstTokens", (of.input(0),), 1, attrs) if begins_there else []
    encoded = called(of, encoder, (*prompt, *starts), "encoder")
    state = State(begun, "", mask, [past] * 2 * layers, begun, following, begin_beams(of, choice, begun))
    state = state._replace(places=following)
    begins, early = of.truth(), list[str]()
    spread = [of("Gather", each, rows, axis=0) for each in (encoded[1:] if begins_there else encoded)]
    if begins_there:
        own_caches = spread[1 : 1 + 2 * layers]
        begins, state, early = choice.step(of, of.number(-1), encoded[0], own_caches, state)
    fixed = dict(zip(names[first + 2 * layers :], spread[-2 * layers :], strict=True)) | {names[1]: mask}
    if first == 3:
        fixed[names[2]] = spread[0]
    decoder = Decoder(block, names[0], names[first : first + 2 * layers], fixed=fixed)
    return finish_beams(of, choice, decoder, (turns, begins), state, begun, early)


def _reads_all(block: Block) -> bool:
    """Return whether a decoder reads all tokens each time, as its first input may have any length."""
    shape = block.inputs[0].shape
    return shape is None or len(shape) != 2 or shape[1] != 1
