"""Candidates of transformers: architectures with the head they are known for, decoders with and without a cache."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
import transformers
from transformers import AutoConfig, DynamicCache, PreTrainedConfig, PreTrainedModel
from transformers.models.auto import modeling_auto

from benchmarks.structures.candidate import Candidate, Traced, by_name, checked_size
from benchmarks.structures.shrinking import cache_of, inputs_of, shrunk

PARTS = (
    ("detectors", "detector", "OBJECT_DETECTION"), ("detectors", "segmenter", "SEMANTIC_SEGMENTATION"),
    ("detectors", "segmenter", "UNIVERSAL_SEGMENTATION"), ("detectors", "depth", "DEPTH_ESTIMATION"),
    ("detectors", "detector", "ZERO_SHOT_OBJECT_DETECTION"), ("detectors", "keypoints", "KEYPOINT_DETECTION"),
    ("detectors", "pose", "POSE_ESTIMATION"), ("detectors", "matting", "IMAGE_MATTING"),
    ("detectors", "masks", "MASK_GENERATION"), ("detectors", "recognizer", "TEXT_RECOGNITION"),
    ("audio", "ctc", "CTC"), ("audio", "classifier", "AUDIO_CLASSIFICATION"), ("audio", "speech", "SPEECH_SEQ_2_SEQ"),
    ("audio", "voice", "TEXT_TO_WAVEFORM"), ("audio", "voice", "TEXT_TO_SPECTROGRAM"),
    ("vision", "classifier", "IMAGE_CLASSIFICATION"), ("vision", "model", "IMAGE"), ("vision", "backbone", "BACKBONE"),
    ("vision", "video", "VIDEO_CLASSIFICATION"), ("vision", "pair", "ZERO_SHOT_IMAGE_CLASSIFICATION"),
    ("decoders", "causal", "CAUSAL_LM"), ("decoders", "translator", "SEQ_TO_SEQ_CAUSAL_LM"),
    ("encoders", "masked", "MASKED_LM"), ("encoders", "encoder", "TEXT_ENCODING"),
    ("encoders", "tokens", "TOKEN_CLASSIFICATION"),
)  # fmt: skip
"""Family, part, and the table of transformers' own that lists the architectures; an earlier one of a family wins."""

CODECS = ("dac", "encodec", "mimi", "xcodec", "univnet")
OPEN = {"input_ids": {0: "batch", 1: "sequence"}, "attention_mask": {0: "batch", 1: "sequence"},
        "pixel_values": {0: "batch"}, "input_values": {0: "batch", 1: "samples"},
        "decoder_input_ids": {0: "batch", 1: "target"}}  # fmt: skip


def candidates() -> Iterator[Candidate]:
    """Yield the candidates."""
    taken: set[tuple[str, str]] = set()
    for family, part, table in PARTS:
        for kind, names in getattr(modeling_auto, f"MODEL_FOR_{table}_MAPPING_NAMES").items():
            name = names if isinstance(names, str) else names[0]
            if (kind, family) in taken or (part == "tokens" and (kind, "decoders") in taken):
                continue
            taken.add((kind, family))
            yield Candidate(f"transformers/{kind}/{part}", family, partial(traced, kind, name))
            if family == "encoders":
                yield Candidate(f"transformers/{kind}/unmasked", family, partial(traced, kind, name, masked=False))
            if part == "causal":
                yield Candidate(f"transformers/{kind}/next", family, partial(next_token, kind, name))
    for kind in CODECS:
        if name := modeling_auto.MODEL_MAPPING_NAMES.get(kind):
            yield Candidate(f"transformers/{kind}/codec", "audio", partial(traced, kind, name))


def small(kind: str, name: str) -> PreTrainedModel:
    """Return a small model of an architecture: narrow and shallow, or if it cannot be, shallow, or as it comes."""
    cls, problem = getattr(transformers, name), None
    for shrink in (partial(shrunk, narrow=True), partial(shrunk, narrow=False), _unchanged):
        try:
            make = partial(_made, cls, kind, shrink)
            model = checked_size(make)
            with torch.no_grad():
                model(**inputs_of(model), **_fixed(model))
        except Exception as error:  # another way may do
            problem = problem or error
        else:
            return model
    assert problem is not None
    raise problem


def _unchanged(config: PreTrainedConfig) -> PreTrainedConfig:
    return config


def _made(cls: Any, kind: str, shrink: Callable[[PreTrainedConfig], PreTrainedConfig]) -> PreTrainedModel:
    config = AutoConfig.for_model(kind)
    return cls(shrink(config if isinstance(config, cls.config_class) else cls.config_class()))


def _fixed(model: PreTrainedModel) -> Mapping[str, Any]:
    return {"use_cache": False} if "use_cache" in inspect.signature(model.forward).parameters else {}


def traced(kind: str, name: str, *, masked: bool = True) -> Traced:
    """Return an architecture as a whole."""
    model = small(kind, name)
    inputs = inputs_of(model, masked=masked)
    module = by_name(model, inputs, **_fixed(model))
    return Traced(module, inputs, {each: axes for each, axes in OPEN.items() if each in inputs})


class NextToken(torch.nn.Module):
    """A decoder that is given one token and the keys and values of those before it.

    Args:
        model: The decoder.
    """

    def __init__(self, model: PreTrainedModel) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, *past: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        """Return the logits, and keys and values with those of the token."""
        cache = DynamicCache()
        for layer in range(len(past) // 2):
            cache.update(past[2 * layer], past[2 * layer + 1], layer)
        output = self.model(input_ids=input_ids, attention_mask=attention_mask, past_key_values=cache, use_cache=True)
        present = (each for layer in output.past_key_values.layers for each in (layer.keys, layer.values))
        return (output.logits, *present)


def next_token(kind: str, name: str) -> Traced:
    """Return a decoder with its cache."""
    model = small(kind, name)
    with torch.no_grad():
        cache = cache_of(model)
    length = cache[0][0].shape[2] + 1
    inputs = {"input_ids": torch.randint(3, 100, (1, 1)), "attention_mask": torch.ones((1, length), dtype=torch.int64)}
    axes = {"input_ids": {0: "batch"}, "attention_mask": {0: "batch", 1: "length"}}
    for layer, (keys, values) in enumerate(cache):
        for what, value in (("key", keys), ("value", values)):
            inputs[f"past.{layer}.{what}"] = value
            axes[f"past.{layer}.{what}"] = {0: "batch", 2: "past"}
    return Traced(NextToken(model), inputs, axes)
