"""Words that would be orders to a terminal, and a model in which every name and text is one."""

from __future__ import annotations

import random

from onnx import ModelProto, TensorProto, helper

ORDERS = (
    *(
        "\x1b]52;c;b3duZWQ=\x07",
        "\x1b]0;title\x1b\\",
        "\x1b[2J",
        "\x1b[1A\x1b[2K",
        "\x9b31m",
        "\x9d52;c;b3du\x9c",
        "\x90q\x9c",
    ),
    *("\r", "\n", "\x08", "\x07", "\x0b", "\x0c", "\x0e", "\x7f", "\x85", "\t"),
    *("\u202e", "\u2066", "\u2069", "\u200b", "\u200d", "\ufeff", "\u2028", "\u2029", "\U000e0041"),
    *("[red]", "[/]", "[bold link=http://x]", ":boom:", "%s", "{0}", "<script>alert(1)</script>"),
)
"""Orders to terminals, and to what writes for them."""

SURROGATE = "\udc80"
"""Half of a character, as names of files have it that are no UTF-8; no model's text has."""


def word(draw: random.Random, base: str) -> str:
    """Return a name with some orders in it."""
    return base + "".join(draw.choice(("", "a")) + draw.choice(ORDERS) for _ in range(draw.randint(1, 3)))


def hostile_model(draw: random.Random) -> ModelProto:
    """Return a valid model every name and text of which gives orders, or one that a command refuses."""
    x, y, v, axis, name = (word(draw, each) for each in ("x", "y", "v", "n", "net"))
    kind = draw.choice(("valid", "valid", "valid", "domain", "operator", "attribute", "reader", "shape"))
    nodes = [helper.make_node("Sin", [x], [v], name=word(draw, "sin"))]
    nodes.append(helper.make_node("Softmax", [v], [y], name=word(draw, "softmax"), doc_string=word(draw, "doc")))
    last = nodes[1]
    if kind == "domain":
        last.domain = word(draw, "d")
    elif kind == "operator":
        last.op_type = word(draw, "Op")
    elif kind == "attribute":
        last.attribute.append(helper.make_attribute(word(draw, "attribute"), word(draw, "text")))
    elif kind == "reader":
        last.input[0] = word(draw, "unknown")
    shape = [2, axis if kind == "shape" else 8]
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info(x, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, shape)],
        doc_string=word(draw, "doc"),
    )
    opsets = [helper.make_opsetid("", 21), *([helper.make_opsetid(last.domain, 1)] if kind == "domain" else [])]
    model = helper.make_model(graph, opset_imports=opsets, producer_name=word(draw, "made"))
    helper.set_model_props(model, {word(draw, "key"): word(draw, "value")})
    return model


def orders_in(text: str) -> list[str]:
    """Return the characters of an output that are orders, but for ends of lines."""
    return [each for each in text if each != "\n" and not each.isprintable()]
