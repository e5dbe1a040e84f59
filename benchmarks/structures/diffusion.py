"""Candidates of diffusers: every class of a network, its defaults made small, inputs by the names of parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import diffusers
import torch
from diffusers import ModelMixin

from benchmarks.structures.candidate import Candidate, Traced, Wrapped, by_name, checked_size, tensors

SMALL = {
    "num_layers": 1, "num_single_layers": 1, "num_refiner_layers": 1, "num_attention_heads": 2,
    "attention_head_dim": 16, "layers_per_block": 1, "norm_num_groups": 8, "sample_size": 16,
    "num_cross_attention_heads": 2,
}  # fmt: skip
"""Arguments of constructors that many classes share; lists of channels become shorter numbers."""
LISTS = {"block_out_channels", "encoder_block_out_channels", "decoder_block_out_channels"}

U_NET = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "sample_size": 16,
    "cross_attention_dim": 32, "attention_head_dim": 8,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"), "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}  # fmt: skip
V_NET = {**U_NET, "down_block_types": ("DownBlock3D", "CrossAttnDownBlock3D"),
         "up_block_types": ("CrossAttnUpBlock3D", "UpBlock3D")}  # fmt: skip
KL = {
    "block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2,
}  # fmt: skip

OWN: dict[str, dict[str, Any]] = {
    "UNet2DConditionModel": U_NET,
    "UNet3DConditionModel": V_NET,
    "I2VGenXLUNet": V_NET,
    "UNet2DModel": {"block_out_channels": (32, 64), "layers_per_block": 1, "norm_num_groups": 8, "sample_size": 16,
                    "attention_head_dim": 8, "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
                    "up_block_types": ("AttnUpBlock2D", "UpBlock2D")},
    "ControlNetModel": {k: v for k, v in U_NET.items() if k not in ("sample_size", "up_block_types")}
    | {"conditioning_embedding_out_channels": (16, 32)},
    "AutoencoderKL": KL, "AsymmetricAutoencoderKL": {"latent_channels": 4, "norm_num_groups": 8},
    "VQModel": KL,
    "AutoencoderTiny": {"encoder_block_out_channels": (32,) * 4, "decoder_block_out_channels": (32,) * 4},
    "DiTTransformer2DModel": {"sample_size": 16, "num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16},
    "PixArtTransformer2DModel": {"sample_size": 16, "num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16,
                                 "cross_attention_dim": 32, "caption_channels": 32},
    "Transformer2DModel": {"num_attention_heads": 2, "attention_head_dim": 16, "in_channels": 32, "norm_num_groups": 8,
                           "cross_attention_dim": 32},
    "SD3Transformer2DModel": {"sample_size": 16, "num_layers": 1, "num_attention_heads": 2, "attention_head_dim": 16,
                              "caption_projection_dim": 32, "joint_attention_dim": 32, "pooled_projection_dim": 32,
                              "in_channels": 4, "out_channels": 4},
    "FluxTransformer2DModel": {"num_layers": 1, "num_single_layers": 1, "num_attention_heads": 2, "in_channels": 4,
                               "attention_head_dim": 16, "joint_attention_dim": 32, "pooled_projection_dim": 32,
                               "axes_dims_rope": (4, 4, 8)},
}  # fmt: skip
"""Arguments of constructors that do not follow from others'."""

WELCOME = ("timestep", "encoder_hidden_states", "class_labels", "pooled_projections", "img_ids", "txt_ids")
"""Parameters of networks that have defaults and are given all the same."""
WIDTHS = ("joint_attention_dim", "caption_channels", "cross_attention_dim", "text_embed_dim", "caption_dim", "text_dim",
          "cross_attention_input_dim", "cap_feat_dim", "caption_feat_dim")  # fmt: skip
"""What configurations call the width of an embedded text."""


def candidates() -> Iterator[Candidate]:
    """Yield the candidates."""
    for name in sorted(dir(diffusers)):
        cls = getattr(diffusers, name, None)
        if inspect.isclass(cls) and issubclass(cls, ModelMixin) and cls is not ModelMixin and "Multi" not in name:
            for part in _parts(cls):
                yield Candidate(f"diffusers/{name}/{part}", "diffusion", partial(_traced, name, part))


def _parts(cls: type) -> tuple[str, ...]:
    return ("encoder", "decoder") if {"encode", "decode"} <= set(dir(cls)) else ("network",)


def _small(cls: Callable[..., Any]) -> dict[str, Any]:
    """Return arguments of a constructor: its defaults made small."""
    found: dict[str, Any] = {}
    for name, parameter in inspect.signature(cls).parameters.items():
        if name in SMALL and isinstance(parameter.default, int):
            found[name] = SMALL[name]
        elif name in LISTS and isinstance(parameter.default, (tuple, list)):
            found[name] = type(parameter.default)(max(16, each // 8) for each in parameter.default)
        elif name in ("num_layers", "layers_per_block", "depths") and isinstance(parameter.default, (tuple, list)):
            found[name] = type(parameter.default)(1 for _ in parameter.default)
    return found


def _traced(name: str, part: str) -> Traced:
    cls = getattr(diffusers, name)
    module = checked_size(partial(cls, **OWN.get(name, _small(cls))))
    if part == "network":
        inputs = _inputs(module)
        return Traced(by_name(module, inputs), inputs)
    x = _images(module)
    if part == "encoder":
        return Traced(Wrapped(module, lambda inner, x: _latent(inner.encode(x))), {"x": x})
    with torch.no_grad():
        latent = _latent(module.encode(x))
    return Traced(Wrapped(module, lambda inner, latent: inner.decode(latent)), {"latent": latent})


def _images(module: torch.nn.Module) -> torch.Tensor:
    """Return images, frames or sound for an autoencoder."""
    channels = module.config.get("in_channels", 3)
    if _has(module, torch.nn.Conv3d):
        return torch.randn(1, channels, 9, 32, 32)
    if _has(module, torch.nn.Conv1d):
        return torch.randn(1, module.config.get("audio_channels", channels), 2048)
    return torch.randn(1, channels, 32, 32)


def _has(module: torch.nn.Module, layer: type) -> bool:
    return any(isinstance(each, layer) for each in module.modules())


def _latent(encoded: Any) -> torch.Tensor:
    distribution = getattr(encoded, "latent_dist", None)
    return distribution.mode() if distribution is not None else next(tensors(encoded))


def _inputs(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return inputs of a network by the names of its parameters."""
    parameters = inspect.signature(module.forward).parameters
    asked = [name for name, each in parameters.items() if each.default is inspect.Parameter.empty or name in WELCOME]
    known = _known(module, tokens="img_ids" in parameters)
    return {name: known[name] for name in asked if name in known}


def _known(module: torch.nn.Module, *, tokens: bool) -> dict[str, torch.Tensor]:
    """Return inputs of all kinds of networks by name; ``tokens``: of those that take images as sequences."""
    config = module.config
    text = torch.randn(1, 8, next((config[each] for each in WIDTHS if isinstance(config.get(each), int)), 32))
    image, time = _sample(module, tokens=tokens), torch.tensor([0.5 if tokens else 10.0])
    return {
        **dict.fromkeys(("sample", "hidden_states", "x"), image),
        **dict.fromkeys(("timestep", "timesteps", "t"), time),
        **dict.fromkeys(("encoder_hidden_states", "prompt_embeds", "text_hidden_states", "context"), text),
        **dict.fromkeys(("encoder_attention_mask", "attention_mask"), torch.ones(1, 8)),
        **({"class_labels": torch.tensor([1])} if config.get("num_embeds_ada_norm") else {}),
        "img_ids": torch.randn(16, 3),
        "txt_ids": torch.zeros(8, 3),
        "pooled_projections": torch.randn(1, config.get("pooled_projection_dim") or 32),
        "controlnet_cond": torch.randn(1, 3, 32, 32),
        "fps": torch.tensor([8.0]),
    }


def _sample(module: torch.nn.Module, *, tokens: bool) -> torch.Tensor:
    channels, name = module.config.get("in_channels") or 4, type(module).__name__
    if tokens:
        return torch.randn(1, 16, channels)
    if "1D" in name or "Audio" in name:
        return torch.randn(1, channels, 64)
    frames = (4,) if "3D" in name or _has(module, torch.nn.Conv3d) else ()
    return torch.randn(1, channels, *frames, 16, 16)
