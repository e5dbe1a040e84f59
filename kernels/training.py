"""Networks that torch trains, as it hands them over: forward and backward passes, and steps of optimizers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Any

from kernels.layers import Layers
from kernels.tape import Pass
from kernels.transformer import Sizes
from kernels.vision import Image
from opbuild.frontend.torch.builder import Value
from opbuild.graph.types import Graph

Trained = Callable[[], Iterator[Graph]]
"""Returns a pass of a step at several sizes."""


def _resnet(to: Layers, x: Value, *, wide: bool, depths: Sequence[int] = (2, 2, 2, 2)) -> Value:
    """Add a ResNet; ``wide``: of bottlenecks, as ResNet-50, else as ResNet-18. Further blocks bring no kernels."""
    x = to.max_pool(to.relu(to.norm(to.conv(x, 64, 7, stride=2))), 3, 2, 1)
    last = len(depths) - 1
    for stage, depth in enumerate(depths):
        channels = 64 << stage
        outputs = 4 * channels if wide else channels
        for block in range(depth):
            stride = 2 if stage and not block else 1
            if wide:
                y = to.relu(to.norm(to.conv(x, channels, 1)))
                y = to.relu(to.norm(to.conv(y, channels, 3, stride=stride)))
                y = to.norm(to.conv(y, outputs, 1))
            else:
                y = to.relu(to.norm(to.conv(x, channels, 3, stride=stride)))
                y = to.norm(to.conv(y, channels, 3))
            short = x if x.shape[1] == outputs else to.norm(to.conv(x, outputs, 1, stride=stride))
            x = to.relu(to.add(y, short), alone=(stage, block) == (last, depth - 1))
    return to.mean(x)


def _mobilenet(to: Layers, x: Value) -> Value:
    """Add MobileNet-v2."""
    x = to.relu6(to.norm(to.conv(x, 32, 3, stride=2)))
    plan = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 2), (6, 64, 2, 2), (6, 96, 2, 1), (6, 160, 2, 2), (6, 320, 1, 1))
    for wider, outputs, depth, stride in plan:
        for block in range(depth):
            wide = x.shape[1] * wider
            y = x if wider == 1 else to.relu6(to.norm(to.conv(x, wide, 1)))
            y = to.relu6(to.norm(to.conv(y, wide, 3, stride=1 if block else stride, groups=wide)))
            y = to.norm(to.conv(y, outputs, 1))
            x = to.add(x, y) if block else y
    return to.mean(to.relu6(to.norm(to.conv(x, 1280, 1))))


def _digits(
    to: Layers, x: Value, convolutions: Sequence[tuple[int, int, int]], units: Sequence[int], *, pools: bool
) -> Value:
    """Add what small networks have: convolutions, then linear layers.

    Args:
        to: Where to.
        x: The images.
        convolutions: Channels, size and padding of each.
        units: Those of each linear layer.
        pools: Whether there is a pool behind each convolution, and not behind the last alone.
    """
    for number, (channels, kernel, pad) in enumerate(convolutions, 1):
        x = to.relu(to.conv(x, channels, kernel, bias=True, pad=pad))
        x = to.max_pool(x, 2, 2) if pools or number == len(convolutions) else x
    x = to.view(x, x.shape[0], prod(x.shape[1:]))
    for count in units:
        x = to.relu(to.linear(x, count))
    return x


def image_training(size: Image, network: Callable[[Layers, Value], Value], channels: int = 3) -> Sequence[Graph]:
    """Return a step of a network that classifies images by what it says of them."""
    to = Layers()
    x = to.forward.input((size[0], channels, *size[1:]))
    to.cross_entropy(to.linear(network(to, x), 10))
    return to.passes()


def lenet_training(size: Image) -> Sequence[Graph]:
    """Return a step of LeNet."""
    network = partial(_digits, convolutions=((6, 5, 2), (16, 5, 0)), units=(120, 84), pools=True)
    return image_training(size, network, channels=1)


def encoder_training(
    sizes: Sizes, width: int = 768, heads: int = 12, *, joined: bool, masked: bool = False, tokens: int = 1000
) -> Sequence[Graph]:
    """Return a step of an encoder of two layers that predicts tokens.

    Args:
        sizes: Sequences and tokens.
        width: 768 for BERT-base.
        heads: How many.
        joined: One product gives queries, keys and values, as in torch's layer; else three, as in others'.
        masked: Whether padding is masked.
        tokens: Rows of the table of tokens.
    """
    to, (batch, seq, _) = Layers(), sizes
    ids = to.forward.input((batch, seq), "int64")
    x = to.embedding(ids, tokens, width)
    if joined:
        x = to.add(x, to.parameter(seq, width))
    else:
        places = to.forward("slice.Tensor", to.forward.input((1, 512), "int64"), 1, 0, seq, dtype="int64")
        x = to.add(x, to.embedding(places, 512, width))
        x = to.layer_norm(x)
    mask = _mask(to, ids) if masked else None
    attention = _joined if joined else _apart
    for _ in range(2):
        y = attention(to, x, heads, mask)
        x = to.layer_norm(to.add(x, y) if joined else to.add(y, x))
        y = to.linear(to.gelu(to.linear(x, 4 * width)), width)
        x = to.layer_norm(to.add(x, y) if joined else to.add(y, x))
    to.cross_entropy(to.view(to.linear(x, tokens), batch * seq, tokens))
    return to.passes()


def _mask(to: Layers, ids: Value) -> Value:
    """Return the addend of scores, from which tokens are not padding."""
    of, (batch, seq) = to.forward, ids.shape
    there = of("view.default", of("ne.Scalar", ids, 0, dtype="bool"), (batch, 1, 1, seq), dtype="bool")
    there = of("expand.default", there, (batch, 1, seq, seq), dtype="bool")
    ends = [of("scalar_tensor.default", number) for number in (0.0, float("-inf"))]
    found: Value = of("where.self", there, *ends)
    return found


def _joined(to: Layers, x: Value, heads: int, mask: Value | None) -> Value:
    """Add attention of heads as ``nn.MultiheadAttention`` has it, step by step."""
    batch, seq, width = x.shape
    rows = to.view(to.transpose(x, 1, 0), seq * batch, width)
    every = to.add(to.view(to.product(rows, 3 * width), seq, batch, 3 * width), to.parameter(3 * width))
    parts = to.view(every, 1, seq, batch, 3, width)
    parts = to.view(to.transpose(parts, 0, -2), 3, seq, batch, width)
    size = width // heads
    chosen = [to.transpose(to.view(to.select(parts, n), seq, batch * heads, size), 0, 1) for n in range(3)]
    mixed = to.attention(*(to.view(each, batch, heads, seq, size) for each in chosen), mask, steps_first=True)
    rows = to.view(to.permute(mixed, 2, 0, 1, 3), seq * batch, width)
    return to.transpose(to.view(to.linear(rows, width), seq, batch, width), 1, 0)


def _apart(to: Layers, x: Value, heads: int, mask: Value | None) -> Value:
    """Add attention of heads whose queries, keys and values are three products."""
    batch, seq, width = x.shape
    split = (batch, seq, heads, width // heads)
    parts = [to.transpose(to.view(to.linear(x, width), *split), 1, 2) for _ in range(3)]
    mixed = to.attention(*parts, mask, steps_first=False)
    return to.linear(to.view(to.transpose(mixed, 1, 2), batch, seq, width), width)


# Optimizers


def descent(count: int, *, momentum: bool = False, decay: bool = False, nesterov: bool = False) -> Sequence[Graph]:
    """Return the first step of SGD, and with momentum a later one, for a tensor of so many elements."""
    found = []
    for is_first in (True, False)[: 1 + momentum]:
        to = Pass()
        weight, slope = to.input((count,)), to.input((count,))
        if decay:
            slope = to("add.Tensor", slope, weight, alpha=1e-4)
        way = slope
        if momentum:
            kept = slope if is_first else to("add.Tensor", to("mul.Tensor", to.input((count,)), 0.9), slope)
            to.output(kept)
            way = to("add.Tensor", slope, kept, alpha=0.9) if nesterov else kept
        to.output(to("add.Tensor", weight, way, alpha=-0.05))
        found.append(to.written())
    return found


def adam(count: int, *, decay: str = "") -> Sequence[Graph]:
    """Return a step of Adam for a tensor of so many elements; ``decay``: of the ``slope``, or of the ``weight``."""
    to = Pass()
    weight, slope, first, second = (to.input((count,)) for _ in range(4))
    to.output(steps := to("add.Tensor", to.input(()), 1))
    if decay == "slope":
        slope = to("add.Tensor", slope, weight, alpha=1e-2)
    elif decay == "weight":
        weight = to("mul.Tensor", weight, 1 - 1e-5)
    share = to("full.default", (), 0.1, dtype="float32")
    far = to("ge.Scalar", to("abs.default", share), 0.5, dtype="bool")
    near = to("where.self", far, to("sub.Tensor", share, 1), share)
    to.output(
        first := to(
            "add.Tensor",
            to("mul.Tensor", near, to("sub.Tensor", slope, first)),
            to("where.self", far, slope, first),
        )
    )
    kept = to("mul.Tensor", second, 0.999)
    to.output(second := to("prims.fma.default", to("mul.Tensor", slope, slope), 0.001, kept))
    shares = [to("rsub.Scalar", to("pow.Scalar", base, steps), 1) for base in (0.9, 0.999)]
    rate = to("neg.default", to("mul.Tensor", to("reciprocal.default", shares[0]), 1e-3))
    root = to("div.Tensor", to("sqrt.default", second), to("mul.Tensor", to("sqrt.default", shares[1]), rate))
    below = to("add.Tensor", root, to("mul.Tensor", to("reciprocal.default", rate), 1e-8))
    to.output(to("add.Tensor", weight, to("div.Tensor", to("mul.Tensor", first, 1), below)))
    return [to.written()]


IMAGES = ((8, 64, 64), (4, 128, 128), (32, 32, 32), (16, 96, 96), (8, 224, 224), (2, 224, 224), (4, 256, 256))
DIGITS = ((32, 28, 28), (64, 28, 28), (128, 28, 28), (64, 32, 32))
TEXTS = (Sizes(4, 128), Sizes(8, 64), Sizes(4, 32), Sizes(16, 32), Sizes(8, 128), Sizes(64, 16), Sizes(2, 512))
COUNTS = (4096, 12, 7)
"""Elements of tensors that optimizers change: those of one kernel have as many as vectors hold, or not."""


def trainings() -> dict[str, Trained]:
    """Return all structures of training by name: forward and backward passes, steps of optimizers."""
    both, descents = ("forward", "backward"), ("first step", "later step")
    two = partial(_digits, convolutions=((16, 3, 0), (32, 3, 0)), units=(64,), pools=False)
    found: dict[str, Trained] = {
        **_passes("ResNet-50", both, image_training, IMAGES, partial(_resnet, wide=True)),
        **_passes("ResNet-18", both, image_training, IMAGES, partial(_resnet, wide=False)),
        **_passes("MobileNet-v2", both, image_training, IMAGES[:5], _mobilenet),
        **_passes("LeNet", both, lenet_training, DIGITS),
        **_passes("two convolutions", both, image_training, DIGITS, two, channels=1),
        **_passes("BERT", both, encoder_training, TEXTS, joined=True),
        **_passes("BERT, three products", both, encoder_training, TEXTS, joined=False),
        **_passes("BERT, three products, masked", both, encoder_training, TEXTS, joined=False, masked=True),
    }
    found |= _passes("MiniLM, three products", both, encoder_training, TEXTS, 384, joined=False)
    found |= _passes("small BERT", both, encoder_training, TEXTS, 256, 4, joined=True, tokens=100)
    for decay in (False, True):
        found |= _passes(f"SGD, decay {decay}", descents[:1], descent, COUNTS, decay=decay)
        for nesterov in (False, True):
            name = f"SGD with momentum, decay {decay}, Nesterov {nesterov}"
            found |= _passes(name, descents, descent, COUNTS, momentum=True, decay=decay, nesterov=nesterov)
    for decay in ("", "slope", "weight"):
        found |= _passes(f"Adam, decay of {decay or 'nothing'}", descents[:1], adam, COUNTS, decay=decay)
    return found


def _passes(
    name: str,
    passes: Sequence[str],
    step: Callable[..., Sequence[Graph]],
    sizes: Sequence[Any],
    *more: Any,
    **options: Any,
) -> dict[str, Trained]:
    """Return a structure for each pass of a step."""

    def at(number: int) -> Iterator[Graph]:
        return (step(size, *more, **options)[number] for size in sizes)

    return {f"training {name}, {each}": partial(at, number) for number, each in enumerate(passes)}
