"""Models that grow: each shape makes one of about ``n`` nodes, values, attributes or characters.

Whatever grows in a model, a build's work may grow with it, and no faster.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from onnx import AttributeProto, FunctionProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

OPSETS = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
SHAPE = [2, 3]

Make = Callable[[int], ModelProto]


def model(
    nodes: Sequence[NodeProto],
    outputs: Sequence[str],
    *,
    tensors: Sequence[TensorProto] = (),
    inputs: Sequence[str] = ("x",),
    functions: Sequence[FunctionProto] = (),
    dtype: int = TensorProto.FLOAT,
    shape: Sequence[int] | None = SHAPE,
) -> ModelProto:
    """Return a model of nodes."""
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in inputs]
    found = [helper.make_tensor_value_info(name, dtype, shape) for name in outputs]
    graph = helper.make_graph(list(nodes), "grown", given, found, initializer=list(tensors))
    return helper.make_model(graph, opset_imports=OPSETS, functions=list(functions))


def node(op_type: str, inputs: Sequence[str], outputs: Sequence[str], **attrs: Any) -> NodeProto:
    """Return a node without a name."""
    return helper.make_node(op_type, list(inputs), list(outputs), **attrs)


def tensor(name: str, value: Any, dtype: str = "float32") -> TensorProto:
    """Return a constant of a model."""
    return numpy_helper.from_array(np.array(value, dtype), name)


def chain(n: int, *op_types: str, name: Callable[[int], str] = "v{}".format) -> list[NodeProto]:
    """Return nodes of which each reads the one before; the last one makes ``y``."""
    names = ["x", *map(name, range(n - 1)), "y"]
    return [node(op_types[i % len(op_types)], [names[i]], [names[i + 1]]) for i in range(n)]


def fan_out(n: int) -> ModelProto:
    """Return a model in which one value has many readers, and there are as many outputs."""
    nodes = [node("Elu", ["x"], [f"y{i}"], alpha=0.5 + i) for i in range(n)]
    return model(nodes, [each.output[0] for each in nodes])


def same_output(n: int) -> ModelProto:
    """Return a model whose outputs are one value under many names."""
    nodes = [node("Relu", ["x"], ["v"]), *(node("Identity", ["v"], [f"y{i}"]) for i in range(n))]
    return model(nodes, [f"y{i}" for i in range(n)])


def shadowed(n: int) -> ModelProto:
    """Return a model whose outputs have the names of values in a branch."""
    inner = [node("Elu", ["x"], [f"y{i}"], alpha=1.0 + i) for i in range(n)] + [
        node("Sum", [f"y{i}" for i in range(n)], ["r"])
    ]
    branch = helper.make_graph(inner, "b", [], [helper.make_tensor_value_info("r", TensorProto.FLOAT, SHAPE)])
    nodes = [node("If", ["c"], ["v"], then_branch=branch, else_branch=branch)]
    nodes += [node("Elu", ["v"], [f"y{i}"], alpha=1.0 + i) for i in range(n)]
    return model(nodes, [f"y{i}" for i in range(n)], tensors=[tensor("c", True, "bool")])


def fan_in(n: int, op_type: str, **attrs: Any) -> ModelProto:
    """Return a model in which one node reads many values."""
    nodes = [node("Elu", ["x"], [f"v{i}"], alpha=0.5 + i) for i in range(n)]
    return model([*nodes, node(op_type, [f"v{i}" for i in range(n)], ["y"], **attrs)], ["y"], shape=None)


def ladder(n: int) -> ModelProto:
    """Return a model in which each value is read twice by the next node: 2^n paths."""
    names = ["x", *(f"v{i}" for i in range(n - 1)), "y"]
    return model([node("Add", [names[i], names[i]], [names[i + 1]]) for i in range(n)], ["y"])


def diamonds(n: int) -> ModelProto:
    """Return a model in which two branches part and meet again and again."""
    nodes, value = [], "x"
    for i in range(n // 3):
        nodes += [
            node("Sin", [value], [f"a{i}"]),
            node("Cos", [value], [f"b{i}"]),
            node("Mul", [f"a{i}", f"b{i}"], [f"c{i}"]),
        ]
        value = f"c{i}"
    return model([*nodes, node("Relu", [value], ["y"])], ["y"])


def far_skips(n: int) -> ModelProto:
    """Return a model in which every value lives until the end, where they are read in turn."""
    nodes = chain(n // 2, "Sin", "Cos")
    value = "y"
    for i in range(n // 2 - 1):
        nodes.append(node("Add", [value, f"v{i}"], [f"s{i}"]))
        value = f"s{i}"
    return model([*nodes, node("Relu", [value], ["z"])], ["z"])


def many_tensors(n: int) -> ModelProto:
    """Return a model with a constant for each node."""
    nodes = [node("Add", [f"v{i}", f"w{i}"], [f"v{i + 1}"]) for i in range(n)]
    tensors = [tensor(f"w{i}", np.full(3, i)) for i in range(n)]
    return model([node("Relu", ["x"], ["v0"]), *nodes], [f"v{n}"], tensors=tensors)


def unread_tensors(n: int) -> ModelProto:
    """Return a model with constants that nothing reads."""
    return model([node("Relu", ["x"], ["y"])], ["y"], tensors=[tensor(f"w{i}", [i]) for i in range(n)])


def many_inputs(n: int) -> ModelProto:
    """Return a model with many inputs."""
    names = [f"x{i}" for i in range(n)]
    return model([node("Sum", names, ["y"])], ["y"], inputs=names)


def products(n: int) -> ModelProto:
    """Return a model of matrix products with their biases and activations."""
    nodes: list[NodeProto] = []
    for i in range(n // 3):
        nodes += [
            node("MatMul", [f"v{i}", "w"], [f"m{i}"]),
            node("Add", [f"m{i}", "b"], [f"a{i}"]),
            node("Relu", [f"a{i}"], [f"v{i + 1}"]),
        ]
    tensors = [tensor("w", np.eye(3)), tensor("b", np.ones(3))]
    return model([node("Relu", ["x"], ["v0"]), *nodes], [f"v{n // 3}"], tensors=tensors)


def moves(n: int) -> ModelProto:
    """Return a model of transpositions and reshapes."""
    nodes: list[NodeProto] = []
    for i in range(n // 2):
        nodes += [node("Transpose", [f"v{i}"], [f"t{i}"], perm=[1, 0]), node("Reshape", [f"t{i}", "s"], [f"v{i + 1}"])]
    return model([node("Relu", ["x"], ["v0"]), *nodes], [f"v{n // 2}"], tensors=[tensor("s", SHAPE, "int64")])


def splits(n: int) -> ModelProto:
    """Return a model in which one value is split into many and joined again."""
    many = [f"v{i}" for i in range(n)]
    nodes = [
        node("Expand", ["x", "s"], ["wide"]),
        node("Split", ["wide"], many, axis=0, num_outputs=n),
        node("Concat", many[::-1], ["y"], axis=1),
    ]
    return model(nodes, ["y"], tensors=[tensor("s", [n, 2, 3], "int64")], shape=None)


def slices(n: int) -> ModelProto:
    """Return a model that reads a value in slices."""
    nodes = [node("Slice", ["x", f"a{i}", f"b{i}"], [f"v{i}"]) for i in range(n)]
    tensors = [tensor(f"{c}{i}", [(i + k) % 2 + k], "int64") for i in range(n) for k, c in enumerate("ab")]
    return model(
        [*nodes, node("Concat", [f"v{i}" for i in range(n)], ["y"], axis=0)], ["y"], tensors=tensors, shape=None
    )


def equal_names(n: int) -> ModelProto:
    """Return a model whose nodes have one name."""
    nodes = chain(n, "Elu", "Softmax", "Gelu")
    for each in nodes:
        each.name = "same"
    return model(nodes, ["y"])


def numbered_names(n: int) -> ModelProto:
    """Return a model whose values have the names that are made where one is taken."""
    return model(chain(n, "Softmax", "Sin", name="v#{}".format), ["y"])


def long_name(n: int) -> ModelProto:
    """Return a model with a name that is long, of an input, a node, a value and an output."""
    name = "n" * (16 * n)
    nodes = [node("Softmax", [name], [name + "v"]), node("Sin", [name + "v"], [name + "y"])]
    for each in nodes:
        each.name = each.output[0]
    return model(nodes, [name + "y"], inputs=[name])


def long_attribute(n: int) -> ModelProto:
    """Return a model with an attribute of many numbers."""
    nodes = [node("Constant", [], ["c"], value_floats=[float(i) for i in range(n)]), node("ReduceSum", ["c"], ["s"])]
    return model([*nodes, node("Add", ["x", "s"], ["y"])], ["y"], shape=None)


def unknown_attributes(n: int) -> ModelProto:
    """Return a model, not a valid one, with a node of many attributes."""
    return model([node("Relu", ["x"], ["y"], **{f"a{i}": i for i in range(n)})], ["y"])


def doubled_attributes(n: int) -> ModelProto:
    """Return a model, not a valid one, with an attribute that is there many times."""
    found = node("Elu", ["x"], ["y"])
    found.attribute.extend([helper.make_attribute("alpha", 1.0)] * n)
    return model([found], ["y"])


def deep(n: int, kind: str) -> ModelProto:
    """Return a model with branches or loops in each other, wider the larger it is: protobuf reads none that is deep."""
    depth, width = 12, n // 12
    value = helper.make_tensor_value_info("r", TensorProto.FLOAT, SHAPE)
    inner = [*chain(2, "Sin")]
    inner[-1].output[0] = "r"
    for level in range(depth):
        name = f"r{level}"
        out = helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE)
        own = [node("Elu", ["x"], [f"u{level}_{i}"], alpha=1.0 + i) for i in range(width)]
        if kind == "If":
            body = helper.make_graph(inner, f"b{level}", [], [value])
            outer = node(
                "If",
                ["c"],
                ["q" + name],
                then_branch=body,
                else_branch=body
                if level < 3
                else helper.make_graph([node("Sin", ["x"], [value.name])], "e", [], [value]),
            )
        else:
            given = [
                helper.make_tensor_value_info("i", TensorProto.INT64, []),
                helper.make_tensor_value_info("k", TensorProto.BOOL, []),
            ]
            body = helper.make_graph(
                [*inner, node("Identity", ["k"], ["go"])], f"b{level}", given,
                [helper.make_tensor_value_info("go", TensorProto.BOOL, []), value],
            )  # fmt: skip
            outer = node("Loop", ["m", "", "x"], ["q" + name], body=_carrying(body))
        inner, value = [*own, outer, node("Sum", ["q" + name, *(f"u{level}_{i}" for i in range(width))], [name])], out
    nodes = [*inner, node("Relu", [value.name], ["y"])]
    return model(nodes, ["y"], tensors=[tensor("c", True, "bool"), tensor("m", 2, "int64")])


def _carrying(body: Any) -> Any:
    """Return a body of a loop that carries one value from turn to turn."""
    body.input.append(helper.make_tensor_value_info("carried", TensorProto.FLOAT, SHAPE))
    return body


def calls(n: int) -> ModelProto:
    """Return a model that calls a function of its own many times."""
    function = helper.make_function(
        "own", "F", ["a"], ["b"], [node("Sin", ["a"], ["t"]), node("Cos", ["t"], ["b"])], OPSETS
    )
    nodes = chain(n // 2, "F")
    for each in nodes:
        each.domain = "own"
    return model(nodes, ["y"], functions=[function])


def nested_functions(levels: int) -> ModelProto:
    """Return a model whose functions call each other twice, so that it has 2^levels nodes."""
    functions = [helper.make_function("own", "F0", ["a"], ["b"], [node("Relu", ["a"], ["b"])], OPSETS)]
    for level in range(1, levels):
        inner = [node(f"F{level - 1}", [a], [b], domain="own") for a, b in ("at", "tb")]
        functions.append(helper.make_function("own", f"F{level}", ["a"], ["b"], inner, OPSETS))
    return model([node(f"F{levels - 1}", ["x"], ["y"], domain="own")], ["y"], functions=functions)


def function_defaults(n: int) -> ModelProto:
    """Return a model with functions that have attributes with defaults, of which calls lack most."""
    inner = [node("Elu", ["a"], ["b"])]
    inner[0].attribute.append(AttributeProto(name="alpha", ref_attr_name="a0", type=AttributeProto.FLOAT))
    function = helper.make_function(
        "own", "F", ["a"], ["b"], inner, OPSETS, [], [helper.make_attribute(f"a{i}", 1.0 + i) for i in range(20)]
    )
    nodes = chain(n // 20, "F")
    for each in nodes:
        each.domain = "own"
    return model(nodes, ["y"], functions=[function])


def expanded(n: int) -> ModelProto:
    """Return a model of operators that ONNX defines by others."""
    return model(chain(n // 8, "Softsign", "Mish", "ThresholdedRelu", "Shrink", "Celu"), ["y"])


def shuffled(n: int) -> ModelProto:
    """Return a model whose nodes stand in the opposite order."""
    return model(chain(n, "Sin", "Cos")[::-1], ["y"])


def circle(n: int) -> ModelProto:
    """Return a model, not a valid one, in which nodes read each other in a circle."""
    return model(
        [node("Add", [f"v{i}", f"v{(i + 1) % n}"], [f"v{(i + 1) % n}" if i + 1 < n else "v0"]) for i in range(n)],
        ["v0"],
    )


def constants(n: int) -> ModelProto:
    """Return a model that is known but for its last node."""
    nodes = [node("Add", [f"c{i}", "one"], [f"c{i + 1}"]) for i in range(n)]
    tensors = [tensor("c0", 0), tensor("one", 1)]
    return model([*nodes, node("Add", ["x", f"c{n}"], ["y"])], ["y"], tensors=tensors)


def known_shapes(n: int) -> ModelProto:
    """Return a model that computes shapes."""
    nodes: list[NodeProto] = []
    for i in range(n // 3):
        nodes += [
            node("Shape", [f"v{i}"], [f"s{i}"]),
            node("Reshape", [f"v{i}", f"s{i}"], [f"r{i}"]),
            node("Sin", [f"r{i}"], [f"v{i + 1}"]),
        ]
    return model([node("Relu", ["x"], ["v0"]), *nodes], [f"v{n // 3}"])


def dead(n: int) -> ModelProto:
    """Return a model most of which no output needs."""
    return model([*chain(n, "Sin", "Cos"), node("Relu", ["x"], ["z"])], ["z"])


def identities(n: int) -> ModelProto:
    """Return a model of nodes that compute nothing."""
    return model([*chain(n, "Identity", "Dropout", "Identity")], ["y"])


def twins(n: int) -> ModelProto:
    """Return a model that computes the same again and again."""
    nodes = [node("Sin", ["x"], [f"v{i}"]) for i in range(n)]
    return model([*nodes, node("Sum", [f"v{i}" for i in range(n)], ["y"])], ["y"])


def doubling(n: int) -> ModelProto:
    """Return a model in which a constant is doubled ten times, and then many times negated."""
    nodes = [node("Concat", [f"c{i}"] * 2, [f"c{i + 1}"], axis=0) for i in range(10)]
    nodes += [node("Neg", [f"c{i}"], [f"c{i + 1}"]) for i in range(10, n)]
    return model(
        [*nodes, node("ReduceSum", [f"c{n}"], ["s"]), node("Add", ["x", "s"], ["y"])],
        ["y"],
        tensors=[tensor("c0", [1])],
        shape=None,
    )


UNARY = ("Relu", "Sin", "Neg", "Softmax", "Identity", "Sigmoid", "Transpose", "Cast", "Gelu")
BINARY = ("Add", "Mul", "Max", "Sub")


def mixed(seed: int) -> Make:
    """Return a shape of random operators, which read what random rules say: near or far, few values or many."""
    draw = random.Random(seed)
    op_types = draw.sample(UNARY, draw.randint(1, 4)) + draw.sample(BINARY, draw.randint(0, 3))
    rules: list[Callable[[random.Random, int], int]] = [
        lambda _, i: i,
        lambda _, i: 0,
        lambda _, i: max(i - 1, 0),
        lambda d, i: d.randint(0, i),
        lambda _, i: i // 2,
    ]
    first, second, named = draw.choice(rules), draw.choice(rules), draw.choice(("", "same", "long" * 9))
    many = draw.random() < 0.3

    def make(n: int) -> ModelProto:
        pick = random.Random(seed)
        nodes = []
        for i in range(n):
            op_type = pick.choice(op_types)
            reads = [f"v{first(pick, i)}", f"v{second(pick, i)}"][: 2 if op_type in BINARY else 1]
            attrs: dict[str, Any] = {"Transpose": {"perm": [0, 1]}, "Cast": {"to": 1}}.get(op_type, {})
            nodes.append(node(op_type, reads, [f"v{i + 1}"], **attrs))
            if named:
                nodes[-1].name = named
        outputs = [f"v{i + 1}" for i in range(n)] if many else [f"v{n}"]
        return model([node("Relu", ["x"], ["v0"]), *nodes], outputs, shape=None)

    return make


SHAPES: dict[str, Make] = {
    "chain of one": lambda n: model(chain(n, "Relu"), ["y"]),
    "chain of exp": lambda n: model(chain(n, "Exp"), ["y"]),
    "chain of abs": lambda n: model(chain(n, "Abs"), ["y"]),
    "chain of clip": lambda n: model(chain(n, "Relu", "Clip", "Abs", "Neg", "Floor"), ["y"]),
    "chain of some": lambda n: model(chain(n, "Relu", "Sin", "Softmax", "Tanh", "Gelu"), ["y"]),
    "not": lambda n: model(chain(n, "Neg"), ["y"]),
    "fan out": fan_out,
    "one value, many outputs": same_output,
    "shadowed outputs": shadowed,
    "fan into Sum": lambda n: fan_in(n, "Sum"),
    "fan into Max": lambda n: fan_in(n, "Max"),
    "fan into Concat": lambda n: fan_in(n, "Concat", axis=0),
    "ladder": ladder,
    "diamonds": diamonds,
    "far skips": far_skips,
    "many tensors": many_tensors,
    "unread tensors": unread_tensors,
    "many inputs": many_inputs,
    "products": products,
    "moves": moves,
    "splits": splits,
    "slices": slices,
    "equal names": equal_names,
    "numbered names": numbered_names,
    "long name": long_name,
    "long attribute": long_attribute,
    "unknown attributes": unknown_attributes,
    "doubled attributes": doubled_attributes,
    "deep If": lambda n: deep(n, "If"),
    "deep Loop": lambda n: deep(n, "Loop"),
    "calls": calls,
    "function defaults": function_defaults,
    "nested functions": lambda n: nested_functions(n.bit_length()),
    "operators with functions": expanded,
    "shuffled": shuffled,
    "circle": circle,
    "constants": constants,
    "known shapes": known_shapes,
    "dead": dead,
    "identities": identities,
    "twins": twins,
    "doubled constants": doubling,
}
"""What grows, by what one says of it."""
