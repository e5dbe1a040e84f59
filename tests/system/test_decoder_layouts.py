"""Decoders in the files and folders of those who export them run as they are: the tokens are ONNX Runtime's."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import opbuild
from opbuild.errors import OptionError
from opbuild.graph.types import TensorType
from opbuild.onnxruntime import InferenceSession
from opbuild.runtime.endpoint import Endpoint
from opbuild.tuning.bench.decoder import DecoderLayout, layout_of
from support.decoders import LAYOUTS, fixed
from support.tiers import few

pytestmark = pytest.mark.usefixtures("kept_objects")

PROMPT, TOKENS = 7, 16


def tokens(decoder: DecoderLayout, runner: Any, prompt: int = PROMPT) -> list[int]:
    """Return the likeliest tokens behind a prompt, by a network or a session."""
    return [token for token, _ in decoder.generate(lambda feeds, out: runner.run(None, feeds), prompt, TOKENS)]


@pytest.mark.parametrize("layout", few(LAYOUTS, 2))
def test_a_folder_of_an_exporter_runs_token_by_token(
    layout: str, tmp_path: Path, shared_store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Through both interfaces; weights lie in a file beside the model."""
    monkeypatch.setenv("MS_COMPILER_CACHE_PATH", str(shared_store))
    path = LAYOUTS[layout](tmp_path)
    network = opbuild.compile(path)
    decoder = layout_of(path.name, network.inputs, network.outputs)
    expected = tokens(decoder, onnxruntime.InferenceSession(path))
    assert len(set(expected)) > TOKENS // 4
    assert tokens(decoder, network) == expected
    assert tokens(decoder, InferenceSession(path)) == expected
    assert not network.report.host or layout == "optimum merged"


def test_a_cache_of_a_fixed_length_is_continued_in_place(tmp_path: Path, shared_store: Path) -> None:
    """The mask is as wide as the cache; tokens are those of ONNX Runtime, and what is returned is the very array."""
    path, room = fixed(tmp_path, PROMPT + TOKENS), PROMPT + TOKENS
    network = opbuild.compile(path, cache_path=shared_store)
    decoder = layout_of(path.name, network.inputs, network.outputs)
    assert decoder.room == room
    expected = tokens(decoder, onnxruntime.InferenceSession(path))
    assert len(set(expected)) > TOKENS // 4
    names = [each.name for each in network.outputs]

    def run(feeds: Any, out: Any) -> Any:
        found = network.run(feeds, out={names[place]: array for place, array in out.items()})
        assert all(found[names[place]] is array for place, array in out.items())
        assert [out[place] is feeds[name] for name, (place, _, _) in decoder.cache.items()] == [True] * len(out)
        return list(found.values())

    assert [token for token, _ in decoder.generate(run, PROMPT, TOKENS)] == expected
    assert not network.report.host


@pytest.mark.usefixtures("with_pack")
def test_kernels_are_made_behind_tokens_though_no_length_comes_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a cache that grows each call has another size: the second one has what the first lacked compiled."""
    monkeypatch.setenv("OPBUILD_FIRST", "answer")
    path = LAYOUTS["optimum"](tmp_path)
    network = opbuild.compile(path, cache_path=tmp_path / "cache")
    layout, pending = layout_of(path.name, network.inputs, network.outputs), []
    for _ in layout.generate(lambda feeds, out: network.run(None, feeds), PROMPT, 4 * TOKENS - 2 * PROMPT):
        pending.append(network.report.pending)
        time.sleep(0.1 if pending[-1] else 0)
    assert pending[0] > 0
    assert pending[-1] == 0


def ends(*named: tuple[str, str, tuple[int, ...]]) -> list[Endpoint]:
    """Return inputs or outputs."""
    return [Endpoint(name, TensorType(dtype, shape)) for name, dtype, shape in named]


TOKENS_IN = ("input_ids", "int64", (-1, -1))
KEYS = ("past_key_values.0.key", "float16", (-1, 2, -1, 8))
OUTPUTS = ends(("present.0.key", "float16", (-1, 2, -1, 8)), ("logits", "float32", (-1, -1, 50)))


def test_a_decoder_is_told_by_the_names_of_its_inputs() -> None:
    """Types, heads and the words of the vocabulary are what the model declares; lengths may be scalars or lists."""
    lengths = ("seqlens_k", "int32", (-1,)), ("total_sequence_length", "int32", ())
    decoder = layout_of("m.onnx", ends(TOKENS_IN, *lengths, KEYS), OUTPUTS)
    assert decoder.cache == {KEYS[0]: (0, "float16", (1, 2, 0, 8))}
    assert (decoder.scores, decoder.words) == (1, 50)
    asked: list[dict[str, Any]] = []

    def run(feeds: Any, out: Any) -> list[Any]:
        assert not out
        asked.append(feeds)
        length = feeds["input_ids"].shape[1]
        past = np.concatenate([feeds[KEYS[0]], np.zeros((1, 2, length, 8), np.float16)], 2)
        return [past, np.eye(50, dtype=np.float32)[np.full((1, length), len(asked))]]

    assert [token for token, _ in decoder.generate(run, 3, 2)] == [1, 2, 3]
    assert [feeds["input_ids"].tolist() for feeds in asked[1:]] == [[[1]], [[2]]]
    assert [feeds[KEYS[0]].shape[2] for feeds in asked] == [0, 3, 4]
    assert [feeds["seqlens_k"].tolist() for feeds in asked] == [[2], [3], [4]]
    assert [(feeds["total_sequence_length"].shape, int(feeds["total_sequence_length"])) for feeds in asked] == [
        ((), 3), ((), 4), ((), 5),
    ]  # fmt: skip
    assert {feeds["total_sequence_length"].dtype.name for feeds in asked} == {"int32"}


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ([TOKENS_IN, KEYS, ("images", "float32", (-1, 3, -1, -1))], "images: float32[any, 3, any, any]"),
        ([TOKENS_IN, KEYS, ("position_ids", "int64", (3, -1, -1))], "position_ids: int64[3, any, any]"),
        ([TOKENS_IN, KEYS, ("attention_mask", "int64", (1, 64))], "attention_mask"),
        ([TOKENS_IN, ("past_key_values.0.key", "float32", (-1, -1, -1, 8))], "past_key_values.0.key: float32[any, a"),
        ([TOKENS_IN, ("past_key_values.1.key", "float32", (-1, 2, -1, 8))], "past_key_values.1.key"),
        ([TOKENS_IN, ("attention_mask", "int64", (-1, -1))], "no tokens and cache"),
        ([KEYS], "no tokens and cache"),
    ],
    ids=["no decoder's", "three places", "wide mask", "open heads", "no output", "no cache", "no tokens"],
)
def test_other_inputs_are_refused_by_name(inputs: list[Any], named: str) -> None:
    """A mask of a fixed width goes with caches that are as long alone."""
    with pytest.raises(OptionError) as caught:
        layout_of("m.onnx", ends(*inputs), OUTPUTS)
    assert named in caught.value.message
    assert "past_key_values.0.key" in str(caught.value.hint)


def test_a_cache_that_is_returned_longer_than_it_may_be_is_refused() -> None:
    """The next call could not be given what the first returned."""
    longer = ends(("present.0.key", "float16", (-1, 2, 65, 8)), ("logits", "float32", (-1, -1, 50)))
    keys = ("past_key_values.0.key", "float16", (-1, 2, 64, 8))
    with pytest.raises(OptionError, match=r"past_key_values.0.key: float16\[any, 2, 64, 8\]"):
        layout_of("m.onnx", ends(TOKENS_IN, keys), longer)
    assert layout_of("m.onnx", ends(TOKENS_IN, keys), OUTPUTS).room == 64
