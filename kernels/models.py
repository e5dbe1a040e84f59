"""The networks whose kernels the pack holds: structures at several sizes, without weights; nothing is downloaded.

What is listed together is one structure at several sizes. The pack holds what these sizes need, what sizes between them
would choose, and of each kernel the variant without limits, which serves any size. Some structures are listed again
with open extents, as exporters write them: then layouts and loops are those that suit any size.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import onnx

from kernels.generation import decoder, with_onnx_attention
from kernels.operators import single_operators
from kernels.quantised import Quantised
from kernels.training import trainings
from kernels.transformer import FORMER, FORMS, Sizes, bert, gpt2, llama, vit
from kernels.vision import convnext, efficientnet, mobilenet_v2, mobilenet_v3, resnet, unet
from kernels.writer import Extent
from opbuild.frontend.example_models import EXAMPLES, light_path
from opbuild.graph.types import Graph

Structure = Callable[[], Iterator[onnx.ModelProto | Graph]]
"""Returns a structure at several sizes."""


class OpenStructure(NamedTuple):
    """A structure with open extents.

    Attributes:
        write: Returns it.
        sizes: Its extents by name, for each size at which it is lowered.
    """

    write: Callable[[], onnx.ModelProto]
    sizes: tuple[dict[str, int], ...]


IMAGES = ((1, 224, 224), (8, 224, 224), (1, 256, 256), (1, 160, 160), (1, 384, 384))
SQUARES = ((1, 256, 256), (4, 128, 128), (1, 512, 512), (1, 576, 576))
TEXTS = (Sizes(1, 128), Sizes(1, 8), Sizes(1, 33), Sizes(8, 128), Sizes(1, 384), Sizes(32, 64))
PATCHES = (Sizes(1, 196), Sizes(8, 196), Sizes(1, 49))
CHATS = (Sizes(1, 128), Sizes(1, 16), Sizes(1, 512), Sizes(4, 64))
NEXT_TOKENS = (Sizes(1, 1, 127), Sizes(4, 1, 63), Sizes(1, 1, 511))

TOKENS = (Sizes(1, 128, 0), Sizes(1, 16, 0), Sizes(1, 512, 0), Sizes(1, 1, 128), Sizes(1, 2, 128), Sizes(4, 1, 64))

ROOMS = (Sizes(1, 128, 512), Sizes(1, 16, 512), Sizes(1, 512, 2048), *(Sizes(n, 1, 512) for n in (1, 4)))
"""Of caches: sequences, new tokens, and all that they may hold."""
_IMAGE, _TEXT = ("batch", "height", "width"), Sizes("batch", "seq")
_IMAGES = tuple(dict(zip(_IMAGE, size, strict=True)) for size in IMAGES[:3])
_TEXTS = tuple({"batch": size.batch, "seq": size.seq} for size in TEXTS[:4])
QUANTISED = {
    "ResNet-18": (partial(resnet, _IMAGE, wide=False), _IMAGES, ("QDQ", "QDQ signed", "dynamic")),
    "ResNet-50": (partial(resnet, _IMAGE), _IMAGES, ("QDQ", "QDQ signed")),
    "MobileNet-v2": (partial(mobilenet_v2, _IMAGE), _IMAGES, ("QDQ", "QDQ signed")),
    "BERT 0": (partial(bert, _TEXT, FORMS[0]), _TEXTS, ("QDQ", "QDQ signed", "dynamic")),
    "BERT 2": (partial(bert, _TEXT, FORMS[2]), _TEXTS, ("QDQ", "QDQ signed", "dynamic")),
    "GPT-2 0": (partial(gpt2, _TEXT, FORMS[0]), _TEXTS, ("dynamic",)),
    "GPT-2 2": (partial(gpt2, _TEXT, FORMS[2]), _TEXTS, ("dynamic",)),
}
"""Networks that ONNX Runtime's tools quantise, their sizes, and in which forms."""


def quantised() -> dict[str, Quantised]:
    """Return the quantised networks by name."""
    return {
        f"{name}, {form}": Quantised(write, form, sizes)
        for name, (write, sizes, forms) in QUANTISED.items()
        for form in forms
    }


def decoder_of_onnx() -> onnx.ModelProto:
    """Return a decoder whose caches have room and which attends as ONNX says."""
    return with_onnx_attention(decoder(Sizes("batch", "seq", "room"), 4, 32, False, 4, has_room=True))


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
    found |= {name: each.at_sizes for name, each in quantised().items()}
    return found | single_operators() | trainings()


def open_structures() -> dict[str, OpenStructure]:
    """Return the structures that come with open extents by name."""
    images, patches, texts = ("batch", "height", "width"), Sizes("batch", 196), Sizes("batch", "seq")
    next_tokens = Sizes("batch", 1, "past")

    def at(
        sizes: tuple[Sequence[Any], ...],
        build: Callable[..., onnx.ModelProto],
        names: Sequence[Extent],
        *more: object,
        **options: object,
    ) -> OpenStructure:
        extents = tuple({n: v for n, v in zip(names, size, strict=True) if isinstance(n, str)} for size in sizes)
        return OpenStructure(partial(build, names, *more, **options), extents)

    found = {
        "ResNet-50": at(IMAGES, resnet, images),
        "ResNet-18": at(IMAGES, resnet, images, wide=False),
        "MobileNet-v2": at(IMAGES, mobilenet_v2, images),
        "MobileNet-v3": at(IMAGES, mobilenet_v3, images),
        "MobileNet-v2, same": at(IMAGES, mobilenet_v2, images, same="auto"),
        "EfficientNet": at(IMAGES, efficientnet, images),
        "EfficientNet, same": at(IMAGES, efficientnet, images, same="auto"),
        "ConvNeXt": at(IMAGES, convnext, images, whole=True),
        "ConvNeXt, written out": at(IMAGES, convnext, images, whole=False),
        "U-Net": at(SQUARES, unet, images),
        "U-Net, resized": at(SQUARES, unet, images, resized=True),
    }
    for number, form in enumerate(FORMS):
        found |= {
            f"BERT {number}": at(TEXTS, bert, texts, form),
            f"BERT {number}, masked by keys": at(TEXTS, bert, texts, form, masked="keys"),
            f"ViT {number}": at(PATCHES[:2], vit, patches, form),
            f"GPT-2 {number}": at(CHATS, gpt2, texts, form),
            f"GPT-2 {number}, next": at(NEXT_TOKENS, gpt2, next_tokens, form),
            f"Llama {number}": at(CHATS, llama, texts, form),
            f"Llama {number}, next": at(NEXT_TOKENS, llama, next_tokens, form),
        }
    for number, masked in product((0, 3), ("scaled", "indexed")):
        width = 768 if masked == "scaled" else 384
        found[f"BERT {number}, {masked}, {width}"] = at(TEXTS, bert, texts, FORMS[number], width, masked=masked)
    for number, (form, width) in enumerate(product(FORMER, (768, 384))):
        found[f"BERT {number}, scores divided"] = at(TEXTS, bert, texts, form, width, masked="cast last")
    weights = ((4, 32, False), (4, 32, True), (4, 128, False), (4, 128, True), (8, 32, False))
    for (bits, block, zeros), scale in product(weights, (0.01, 2**-7)):
        found[f"decoder of {bits} bits in blocks of {block}, zero points {zeros}, scales {scale}"] = at(
            TOKENS, decoder, Sizes("batch", "seq", "past"), bits, block, zeros, 4, scale
        )
    for groups, attending in product((4, 32), (dict[str, Any](), {"local_window_size": 256}, {"softcap": 50.0})):
        found[f"decoder of 4 bits, caches with room, {groups} heads of keys, {attending}"] = at(
            ROOMS, decoder, Sizes("batch", "seq", "room"), 4, 32, False, 4, groups=groups, has_room=True, **attending
        )
    rooms = tuple({"batch": each.batch, "seq": each.seq, "room": each.past} for each in ROOMS)
    found["decoder of 4 bits, caches with room, ONNX's attention"] = OpenStructure(decoder_of_onnx, rooms)
    masked = partial(decoder, Sizes("batch", "seq", "past"), 4, 32, False, 4, has_mask=True)
    lengths = tuple({**size._asdict(), "total": size.seq + size.past} for size in TOKENS)
    found["decoder of 4 bits, lengths counted in a mask"] = OpenStructure(masked, lengths)
    found |= {name: OpenStructure(each.model, each.sizes) for name, each in quantised().items()}
    return {f"{name}, open": each for name, each in found.items()}
