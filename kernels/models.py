"""The networks whose kernels the pack holds: structures at several sizes, without weights; nothing is downloaded.

What is listed together is one structure at several sizes. The pack holds what these sizes need, what sizes between them
would choose, and of each kernel the variant without limits, which serves any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import onnx

from kernels.operators import single_operators
from kernels.training import trainings
from kernels.transformer import FORMER, FORMS, Sizes, bert, gpt2, llama, vit
from kernels.vision import convnext, efficientnet, mobilenet_v2, mobilenet_v3, resnet, unet
from opbuild.frontend.example_models import EXAMPLES, light_path
from opbuild.graph.types import Graph

Structure = Callable[[], Iterator[onnx.ModelProto | Graph]]
"""Returns a structure at several sizes."""

IMAGES = ((1, 224, 224), (8, 224, 224), (1, 256, 256), (1, 160, 160), (1, 384, 384))
SQUARES = ((1, 256, 256), (4, 128, 128), (1, 512, 512), (1, 576, 576))
TEXTS = (Sizes(1, 128), Sizes(1, 8), Sizes(1, 33), Sizes(8, 128), Sizes(1, 384), Sizes(32, 64))
PATCHES = (Sizes(1, 196), Sizes(8, 196), Sizes(1, 49))
CHATS = (Sizes(1, 128), Sizes(1, 16), Sizes(1, 512), Sizes(4, 64))
NEXT_TOKENS = (Sizes(1, 1, 127), Sizes(4, 1, 63), Sizes(1, 1, 511))


def _light(name: str) -> Iterator[onnx.ModelProto]:
    """Yield a network of the onnx package, whose size is fixed."""
    yield onnx.load(light_path(name))


def _at(
    build: Callable[..., onnx.ModelProto], sizes: tuple[object, ...], *more: object, **options: object
) -> Structure:
    return lambda: (build(size, *more, **options) for size in sizes)


def structures() -> dict[str, Structure]:
    """Return all structures by name."""
    found: dict[str, Structure] = {f"light {name}": partial(_light, name) for name in EXAMPLES}
    found |= {
        "ResNet-50": _at(resnet, IMAGES),
        "ResNet-18": _at(resnet, IMAGES, wide=False),
        "MobileNet-v2": _at(mobilenet_v2, IMAGES),
        "MobileNet-v2, same": _at(mobilenet_v2, IMAGES, same="pads"),
        "MobileNet-v2, padded": _at(mobilenet_v2, IMAGES, same="node"),
        "MobileNet-v3": _at(mobilenet_v3, IMAGES),
        "EfficientNet": _at(efficientnet, IMAGES),
        "EfficientNet, same": _at(efficientnet, IMAGES, same="pads"),
        "EfficientNet, padded": _at(efficientnet, IMAGES, same="node"),
        "ConvNeXt": _at(convnext, IMAGES, whole=True),
        "ConvNeXt, written out": _at(convnext, IMAGES, whole=False),
        "U-Net": _at(unet, SQUARES),
        "U-Net, resized": _at(unet, SQUARES, resized=True),
    }
    for number, form in enumerate(FORMS):
        found |= {
            f"BERT {number}": _at(bert, TEXTS, form),
            f"BERT {number}, masked by keys": _at(bert, TEXTS, form, masked="keys"),
            f"ViT {number}": _at(vit, PATCHES, form),
            f"GPT-2 {number}": _at(gpt2, CHATS, form),
            f"GPT-2 {number}, next": _at(gpt2, NEXT_TOKENS, form),
            f"Llama {number}": _at(llama, CHATS, form),
            f"Llama {number}, next": _at(llama, NEXT_TOKENS, form),
        }
    for number in (0, 3):
        found |= {
            f"BERT {number}, mask scaled": _at(bert, TEXTS, FORMS[number], masked="scaled"),
            f"MiniLM {number}": _at(bert, TEXTS, FORMS[number], 384),
        }
    for number, form in enumerate(FORMER):
        found |= {
            f"BERT {number}, scores divided": _at(bert, TEXTS, form, masked="cast last"),
            f"MiniLM {number}, scores divided": _at(bert, TEXTS, form, 384, masked="cast last"),
        }
    return found | single_operators() | trainings()
