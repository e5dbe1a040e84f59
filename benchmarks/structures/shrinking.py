"""Small configurations of transformers' architectures, and inputs that their forward passes take."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import torch
from transformers import PreTrainedConfig, PreTrainedModel

DEPTH = {
    "num_layers": 2, "num_hidden_layers": 2, "n_layer": 2, "n_layers": 2, "encoder_layers": 2, "decoder_layers": 2,
    "num_encoder_layers": 2, "num_decoder_layers": 2, "depth": 2, "num_queries": 20, "vocab_size": 512,
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    "decoder_start_token_id": 1, "max_source_positions": 64, "use_pretrained_backbone": False,
    "use_timm_backbone": False,
}  # fmt: skip
"""What makes a network shallow."""

WIDTH = {
    "hidden_size": 64, "d_model": 64, "n_embd": 64, "dim": 64, "embed_dim": 64, "word_embed_proj_dim": 64,
    "embedding_size": 64, "num_attention_heads": 4, "n_head": 4, "n_heads": 4, "encoder_attention_heads": 4,
    "decoder_attention_heads": 4, "num_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "d_kv": 16,
    "intermediate_size": 128, "d_ff": 128, "ffn_dim": 128, "encoder_ffn_dim": 128, "decoder_ffn_dim": 128,
    "hidden_dim": 128, "moe_intermediate_size": 64, "q_lora_rank": 32, "kv_lora_rank": 16, "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16, "v_head_dim": 16, "rotary_dim": 8, "projection_dim": 64,
}  # fmt: skip
"""What makes it narrow; architectures with a list of widths keep theirs."""

TEXT = 16
PAST = 8
SAMPLES = 4000


def shrunk(config: PreTrainedConfig, *, narrow: bool) -> PreTrainedConfig:
    """Return a configuration made small, with those inside it; a backbone keeps the layers that others look into."""
    for name, value in (DEPTH | WIDTH if narrow else DEPTH).items():
        with suppress(Exception):  # some compute an attribute from others, or refuse to
            now = getattr(config, name)
            is_missing = now is None and name == "vocab_size"
            if is_missing or (isinstance(now, int) and isinstance(now, bool) == isinstance(value, bool)):
                setattr(config, name, value)
    layer_types = getattr(config, "layer_types", None)
    if isinstance(layer_types, list):
        kinds = list(dict.fromkeys(layer_types))[:2]
        config.layer_types = (kinds * 2)[:2]
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig) and not hasattr(value, "out_features"):
            shrunk(value, narrow=narrow)
    return config


def inputs_of(model: PreTrainedModel, *, masked: bool = True) -> dict[str, torch.Tensor]:
    """Return inputs of a model, by the names of its forward pass."""
    names = inspect.signature(model.forward).parameters
    found: dict[str, torch.Tensor] = {}
    for name, parameter in names.items():
        wanted = parameter.default is inspect.Parameter.empty and parameter.kind is not parameter.VAR_KEYWORD
        if wanted or name == model.main_input_name or name in ("decoder_input_ids", "input_ids"):
            value = _input(name, model.config)
            if value is not None:
                found[name] = value
    if "decoder_input_ids" in found and not model.config.is_encoder_decoder:
        del found["decoder_input_ids"]
    if "input_ids" in found and model.main_input_name != "input_ids" and not _is_needed(names["input_ids"], model):
        del found["input_ids"]
    if masked and "input_ids" in found and "attention_mask" in names:
        found["attention_mask"] = torch.ones(found["input_ids"].shape, dtype=torch.int64)
    return found


def _is_needed(parameter: inspect.Parameter, model: PreTrainedModel) -> bool:
    return parameter.default is inspect.Parameter.empty or hasattr(model.config, "text_config")


def _input(name: str, config: PreTrainedConfig) -> torch.Tensor | None:
    if name in ("input_ids", "decoder_input_ids"):
        length = PAST if name.startswith("decoder") else TEXT
        return torch.randint(3, max(4, min(_numbers(config, "vocab_size", 512))), (1, length))
    if name in ("pixel_values", "pixel_values_videos"):
        in_time = name.endswith("videos") or hasattr(config, "num_frames")
        frames = [min(_numbers(config, "num_frames", 8))] if in_time else []
        return torch.randn(1, *frames, min(_numbers(config, "num_channels", 3)), *image_size(config))
    if name == "input_values" and not hasattr(config, "num_mel_bins"):
        return torch.randn((1, 1, SAMPLES) if hasattr(config, "audio_channels") else (1, SAMPLES))
    return _spectrum(config) if name in ("input_features", "input_values", "audio_values") else None


def _spectrum(config: PreTrainedConfig) -> torch.Tensor:
    bins = min(_numbers(config, "num_mel_bins", 80))
    if config.model_type == "audio-spectrogram-transformer":
        return torch.randn(1, config.max_length, bins)
    frames = 2 * getattr(config, "max_source_positions", 64)
    if "whisper" in config.model_type:
        return torch.randn(1, bins, frames)
    return torch.randn(1, frames, getattr(config, "feature_projection_input_dim", bins))


def image_size(config: PreTrainedConfig) -> tuple[int, int]:
    """Return height and width of the images of a configuration, or of one inside it."""
    for each in _nested(config):
        size = getattr(each, "image_size", None)
        if isinstance(size, int):
            return size, size
        if isinstance(size, (list, tuple)):
            return int(size[0]), int(size[-1])
    return 128, 128


def _numbers(config: PreTrainedConfig, name: str, default: int) -> list[int]:
    found = [getattr(each, name, None) for each in _nested(config)]
    return [each for each in found if isinstance(each, int)] or [default]


def _nested(config: PreTrainedConfig) -> Iterator[PreTrainedConfig]:
    yield config
    for value in vars(config).values():
        if isinstance(value, PreTrainedConfig):
            yield from _nested(value)


def cache_of(model: PreTrainedModel) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return keys and values of each layer after some tokens."""
    ids = torch.randint(3, 100, (1, PAST))
    layers: Any = model(input_ids=ids, use_cache=True).past_key_values.layers
    return [(layer.keys, layer.values) for layer in layers]
