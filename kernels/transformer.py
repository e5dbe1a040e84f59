"""Structures of transformers, as torch's exporters write them: two layers of each, as more bring no kernels.

Attention is written in the ways that exporters have: ``eager`` multiplies the scores, ``sdpa`` both of their factors by
the root, and looks for rows that are masked out whole.
"""

from __future__ import annotations

from typing import NamedTuple

import onnx

from kernels.vision import ImageWriter
from kernels.writer import BOOL, FLOAT, INT64, Extent

LOWEST = -3.4028234663852886e38


class Form(NamedTuple):
    """How an exporter writes a network.

    Attributes:
        whole: Gelu and layer normalisation are operators, else written out.
        sdpa: How attention is written.
        bias_first: The bias is the first operand of the addition.
        opset: The operator set.
        divides: Scores are divided by the root instead, as models did before they multiplied; not with ``sdpa``.
    """

    whole: bool
    sdpa: bool
    bias_first: bool
    opset: int
    divides: bool = False


FORMS = (
    Form(whole=True, sdpa=True, bias_first=False, opset=20),
    Form(whole=True, sdpa=False, bias_first=False, opset=20),
    Form(whole=False, sdpa=True, bias_first=True, opset=17),
    Form(whole=False, sdpa=False, bias_first=True, opset=14),
)
"""Those of torch's exporter of programs, then of the one of TorchScript."""


FORMER = (FORMS[1]._replace(divides=True), FORMS[3]._replace(divides=True))
"""As those wrote models before attention had a function of its own."""

SCALED = ("scaled", "cast last")
"""How padding is masked by a product."""


Split = tuple[Extent, Extent, int, int]
"""Sequences, tokens, heads, and elements of each."""


class Sizes(NamedTuple):
    """Sequences, tokens of each, and tokens that were computed before."""

    batch: Extent
    seq: Extent
    past: Extent = 0


class TransformerWriter(ImageWriter):
    """A writer that knows the parts of transformers.

    Args:
        form: How they are written.
    """

    def __init__(self, form: Form) -> None:
        super().__init__(form.opset)
        self.form = form

    def norms(self, x: str, width: int, epsilon: float) -> str:
        """Add a layer normalisation; TorchScript's has been an operator from set 17 on."""
        return self.layer_norm(x, width, epsilon, whole=self.form.opset >= 17)

    def dense(self, x: str, inputs: int, outputs: int, *, bias: bool = True) -> str:
        """Add a linear layer."""
        product = self.add("MatMul", x, self.weight(inputs, outputs))
        if not bias:
            return product
        terms = [product, self.weight(outputs)]
        return self.add("Add", *(reversed(terms) if self.form.bias_first else terms))

    def heads(self, x: str, sizes: Split) -> str:
        """Return ``[batch, seq, width]`` as ``[batch, heads, seq, size]``."""
        return self.add("Transpose", self.add("Reshape", x, self.shape(*sizes)), perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, mask: str, sizes: Split, keys: Extent) -> str:
        """Add attention of heads; return ``[batch, seq, width]``.

        Args:
            q: Queries, ``[batch, heads, seq, size]``.
            k: Keys, ``[batch, heads, keys, size]``.
            v: Values, as the keys.
            mask: What is added to the scores; "" for nothing.
            sizes: Batch, tokens, heads, elements of each.
            keys: How many there are.
        """
        batch, seq, heads, size = sizes
        if self.form.sdpa:
            root = size**-0.25
            if self.form.whole:
                flat = self.add("Reshape", k, self.shape(-1, keys, size))
                turned = self.add("Transpose", flat, perm=[0, 2, 1])
                k = self.add("Reshape", turned, self.shape(batch, heads, size, keys))
            else:
                k = self.add("Transpose", k, perm=[0, 1, 3, 2])
            scores = self.add("MatMul", self.add("Mul", q, self.number(root)), self.add("Mul", k, self.number(root)))
        else:
            scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 1, 3, 2]))
            scale = ("Div", size**0.5) if self.form.divides else ("Mul", size**-0.5)
            scores = self.add(scale[0], scores, self.number(scale[1]))
        if mask:
            scores = self.add("Add", scores, mask)
        weights = self.add("Softmax", scores, axis=-1)
        if not self.form.sdpa and not self.form.whole:
            weights = self.add("Cast", self.add("Cast", weights, to=FLOAT), to=FLOAT)
        if self.form.sdpa and (mask or self.form.whole):
            weights = self.add("Where", self.add("IsNaN", weights), self.number(0.0), weights)
        mixed = self.add("Transpose", self.add("MatMul", weights, v), perm=[0, 2, 1, 3])
        return self.add("Reshape", mixed, self.shape(batch, seq, heads * size))

    def hidden_mask(self, allowed: str) -> str:
        """Return the addend of scores: 0 where a key is allowed."""
        lowest = LOWEST if self.form.whole or not self.form.sdpa else float("-inf")
        return self.add("Where", allowed, self.number(0.0), self.number(lowest))

    def padding(self, mask: str, sizes: Sizes) -> str:
        """Return which keys each token may look at, from ``[batch, seq]``, as exporters write indexing."""
        batch, seq, _ = sizes
        rows = self.weight(1, 1, seq, 1, value=1, dtype="bool")
        if self.form.whole:
            places = self.weight(batch, 1, 1, seq, 2, value=0, dtype="int64")
            return self.add("And", rows, self.add("GatherND", mask, places))
        if isinstance(batch, str) and isinstance(seq, str):
            return self._open_padding(mask, batch, seq)
        places = self.weight(batch, 1, 1, seq, value=0, dtype="int64")
        keys = self.add("Gather", self.add("Flatten", mask, axis=2), places, axis=0)
        keys = self.add("Reshape", self.add("Reshape", keys, self.numbers([-1])), self.shape(batch, 1, 1, seq))
        allowed = self.add("And", rows, self.add("Cast", keys, to=BOOL))
        return self.add("Expand", allowed, self.shape(batch, 1, seq, seq))

    def _open_padding(self, mask: str, batch: str, seq: str) -> str:
        """Return the same where extents are open: places are worked out of their numbers."""
        is_row = self.add("GreaterOrEqual", self.places(0, seq, 0, 1, 3), self.numbers(0))
        rows = self.add("And", self.numbers(True, "bool"), self.add("Cast", is_row, to=BOOL))
        first = self.add("Mul", self.places(0, batch, 1, 2, 3), self.extent(seq))
        places = self.add("Add", self.places(0, seq, 0, 1, 2), first)
        keys = self.add("Gather", self.add("Flatten", mask, axis=2), places, axis=0)
        keys = self.add("Reshape", self.add("Reshape", keys, self.numbers([-1])), self.add("Shape", places))
        allowed = self.add("And", rows, self.add("Cast", keys, to=BOOL))
        return self.add("Expand", allowed, self.shape(batch, 1, seq, seq))

    def types(self, places: str, sizes: Sizes) -> str:
        """Return the type of each token, which is the same; where extents are open it is looked up by ``places``."""
        batch, seq, _ = sizes
        if self.form.whole or isinstance(seq, int):
            return self.weight(batch, seq, value=0, dtype="int64")
        row = self.add("Expand", self.weight(1, 512, value=0, dtype="int64"), self.shape(1, 512))
        return self.add("Expand", self.add("GatherElements", row, places, axis=1), self.shape(batch, seq))

    def causal(self, sizes: Sizes) -> str:
        """Return the addend of scores of tokens that look at those before them."""
        keys = self.total(sizes.past, sizes.seq)
        seen = self.add("LessOrEqual", self.places(0, keys, 0, 1, 2), self.places(sizes.past, keys, 0, 1, 3))
        return self.hidden_mask(seen)

    def caches(self, layers: int, shape: tuple[Extent, ...]) -> list[tuple[str, str]]:
        """Add inputs for the keys and values of tokens that were computed before, two for each layer."""
        names = [[f"past_{number}_{kind}" for kind in "kv"] for number in range(layers)]
        return [(self.input(k, shape), self.input(v, shape)) for k, v in names]

    def split_gelu(self, x: str) -> str:
        """Add a Gelu by tanh, written out."""
        cubed = self.add("Mul", self.add("Pow", x, self.number(3.0)), self.number(0.044714998453855515))
        inner = self.add("Mul", self.add("Add", x, cubed), self.number(0.7978845834732056))
        one = self.add("Add", self.add("Tanh", inner), self.number(1.0))
        return self.add("Mul", self.add("Mul", x, self.number(0.5)), one)


def bert(
    sizes: Sizes, form: Form, width: int = 768, heads: int = 12, masked: str = "indexed", *, layers: int = 2
) -> onnx.ModelProto:
    """Return an encoder as BERT and MiniLM are.

    Args:
        sizes: Sequences and tokens.
        form: How it is written.
        width: 768 for BERT-base, 384 for MiniLM.
        heads: How many.
        masked: How padding is masked: ``indexed`` for each token, ``keys`` for all at once, ``scaled`` by a product,
            ``cast last`` by the same, of a mask that becomes numbers after its axes were added.
        layers: How many.
    """
    to = TransformerWriter(form)
    batch, seq, _ = sizes
    ids, mask = to.input("input_ids", (batch, seq), INT64), to.input("attention_mask", (batch, seq), INT64)
    words = to.add("Gather", to.weight(1000, width), ids)
    places = to.part((1, 512), 1, 0, seq, value=0, dtype="int64")
    types = to.add("Gather", to.weight(2, width), to.types(places, sizes))
    positions = to.add("Gather", to.weight(512, width), places)
    x = to.norms(to.add("Add", to.add("Add", words, types), positions), width, 1e-12)
    kind = FLOAT if masked in SCALED else BOOL
    number = mask if masked == "cast last" else to.add("Cast", mask, to=kind)
    keys = to.add("Unsqueeze", number, to.numbers([1, 2]))
    keys = to.add("Cast", keys, to=kind) if masked == "cast last" else keys
    allowed = to.padding(number, sizes) if masked == "indexed" else keys
    split, hidden = (batch, seq, heads, width // heads), ""
    for _ in range(layers):
        if masked in SCALED:
            hidden = hidden or to.add("Mul", to.add("Sub", to.number(1.0), keys), to.number(LOWEST))
        elif not hidden or (form.sdpa and not form.whole):  # TorchScript's does it in each layer
            hidden = to.hidden_mask(allowed)
        q, k, v = (to.heads(to.dense(x, width, width), split) for _ in range(3))
        mixed = to.dense(to.attention(q, k, v, hidden, split, seq), width, width)
        x = to.norms(to.add("Add", mixed, x), width, 1e-12)
        wide = to.gelu(to.dense(x, width, 4 * width), whole=form.whole)
        x = to.norms(to.add("Add", to.dense(wide, 4 * width, width), x), width, 1e-12)
    first = to.add("Gather", x, to.numbers(0), axis=1)
    pooled = to.add("Tanh", to.add("Gemm", first, to.weight(width, width), to.weight(width), transB=1))
    return to.model(x, pooled)


def vit(
    sizes: Sizes, form: Form, width: int = 768, heads: int = 12, patch: int = 16, *, layers: int = 2
) -> onnx.ModelProto:
    """Return ViT for ``seq`` patches and a token for the class."""
    to = TransformerWriter(form)
    batch, patches, _ = sizes
    side = patch * round(patches**0.5)
    x = to.conv(to.image((batch, side, side)), 3, width, patch, stride=patch, pads=(0,) * 4)
    x = to.add("Transpose", to.add("Reshape", x, to.shape(batch, width, patches)), perm=[0, 2, 1])
    seq = patches + 1
    x = to.add("Concat", to.weight(batch, 1, width), x, axis=1)
    x = to.add("Add", x, to.weight(1, seq, width))
    split = (batch, seq, heads, width // heads)
    for _ in range(layers):
        normed = to.norms(x, width, 1e-12)
        q, k, v = (to.heads(to.dense(normed, width, width), split) for _ in range(3))
        x = to.add("Add", to.dense(to.attention(q, k, v, "", split, seq), width, width), x)
        wide = to.gelu(to.dense(to.norms(x, width, 1e-12), width, 4 * width), whole=form.whole)
        x = to.add("Add", to.dense(wide, 4 * width, width), x)
    first = to.add("Gather", to.norms(x, width, 1e-12), to.numbers(0), axis=1)
    return to.model(to.add("Gemm", first, to.weight(1000, width), to.weight(1000), transB=1))


def gpt2(sizes: Sizes, form: Form, width: int = 768, heads: int = 12, *, layers: int = 2) -> onnx.ModelProto:
    """Return GPT-2; tokens that were computed before come as inputs."""
    to = TransformerWriter(form)
    batch, seq, past = sizes
    ids = to.input("input_ids", (batch, seq), INT64)
    size = width // heads
    before, keys = to.caches(layers, (batch, heads, past, size)) if past else [], to.total(past, seq)
    positions = to.add("Gather", to.weight(1024, width), to.part((1, 1024), 1, past, keys, value=0, dtype="int64"))
    x = to.add("Add", to.add("Gather", to.weight(1000, width), ids), positions)
    hidden = to.causal(sizes)
    split, kept = (batch, seq, heads, size), []

    def layer(x: str, inputs: int, outputs: int) -> str:
        flat = to.add("Reshape", x, to.numbers([-1, inputs]))
        product = to.add("Gemm", flat, to.weight(inputs, outputs), to.weight(outputs))
        return to.add("Reshape", product, to.shape(batch, seq, outputs))

    for number in range(layers):
        parts = to.several(
            3, "Split", layer(to.norms(x, width, 1e-5), width, 3 * width), to.numbers([width] * 3), axis=2
        )
        q, k, v = (to.heads(part, split) for part in parts)
        if past:
            k, v = (to.add("Concat", old, new, axis=2) for old, new in zip(before[number], (k, v), strict=True))
            kept += [k, v]
        x = to.add("Add", layer(to.attention(q, k, v, hidden, split, keys), width, width), x)
        wide = to.split_gelu(layer(to.norms(x, width, 1e-5), width, 4 * width))
        x = to.add("Add", x, layer(wide, 4 * width, width))
    logits = to.add("MatMul", to.norms(x, width, 1e-5), to.weight(width, 1000))
    return to.model(logits, *kept)


def llama(
    sizes: Sizes, form: Form, width: int = 2048, heads: int = 32, groups: int = 4, *, layers: int = 2
) -> onnx.ModelProto:
    """Return Llama with grouped queries; tokens that were computed before come as inputs."""
    to = TransformerWriter(form)
    batch, seq, past = sizes
    size, wide = width // heads, width * 11 // 4
    x = to.add("Gather", to.weight(1000, width), to.input("input_ids", (batch, seq), INT64))
    before, keys = to.caches(layers, (batch, groups, past, size)) if past else [], to.total(past, seq)
    hidden, kept = to.causal(sizes), []

    def norm(x: str) -> str:
        mean = to.mean(to.add("Pow", x, to.number(2.0)), -1)
        root = to.add("Sqrt", to.add("Add", mean, to.number(1e-6)))
        return to.add("Mul", to.weight(width), to.add("Mul", x, to.add("Reciprocal", root)))

    def turned(x: str) -> str:
        half, axis = to.numbers([size // 2]), to.numbers([3])
        low = to.add("Slice", x, to.numbers([0]), half, axis)
        high = to.add("Slice", x, half, to.numbers([2**63 - 1]), axis)
        swapped = to.add("Concat", to.add("Neg", high), low, axis=-1)
        angles = [to.part((1, 1, 4096, size), 2, past, keys, value=0.5) for _ in range(2)]
        return to.add("Add", to.add("Mul", x, angles[0]), to.add("Mul", swapped, angles[1]))

    def repeated(x: str) -> str:
        each = to.add("Unsqueeze", x, to.numbers([2]))
        every = to.add("Expand", each, to.shape(batch, groups, heads // groups, keys, size))
        return to.add("Reshape", every, to.shape(batch, heads, keys, size))

    for number in range(layers):
        normed = norm(x)
        q = turned(to.heads(to.dense(normed, width, width, bias=False), (batch, seq, heads, size)))
        few = (batch, seq, groups, size)
        k = turned(to.heads(to.dense(normed, width, groups * size, bias=False), few))
        v = to.heads(to.dense(normed, width, groups * size, bias=False), few)
        if past:
            k, v = (to.add("Concat", old, new, axis=2) for old, new in zip(before[number], (k, v), strict=True))
            kept += [k, v]
        split = (batch, seq, heads, size)
        mixed = to.attention(q, repeated(k), repeated(v), hidden, split, keys)
        x = to.add("Add", x, to.dense(mixed, width, width, bias=False))
        normed = norm(x)
        gate = to.silu(to.dense(normed, width, wide, bias=False))
        product = to.add("Mul", gate, to.dense(normed, width, wide, bias=False))
        x = to.add("Add", x, to.dense(product, wide, width, bias=False))
    return to.model(to.dense(norm(x), width, 1000, bias=False), *kept)
