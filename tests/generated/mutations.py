"""Changes to a model: what tools write by mistake, what hostile people write, and what is valid but unusual.

Each mutation takes a model, changes it in place at a place that the random numbers choose, and returns whether it found
something to change. A mutated model is a protobuf message still, whatever it says.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

Mutation = Callable[[ModelProto, random.Random], bool]
MUTATIONS: dict[str, Mutation] = {}
"""Every mutation by its name."""

INTEGERS = (0, 1, -1, 2, 3, 7, 64, -2, 255, 2**16, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63))
NUMBERS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, 3.4e38, float("inf"), float("-inf"), float("nan"))
EXTENTS = (0, 0, 1, 1, 2, 3, 5, 17, -1, 1000, 2**20, 2**31, 2**40, 2**62)
STRINGS = (
    "", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "linear", "nearest", "cubic", "reflect", "edge", "wrap", "tanh",
    "add", "mul", "max", "LEFT", "RIGHT", "no such mode", "\u00e9", "bij,bjk->bik", "...->", "DCR", "x" * 2000,
)  # fmt: skip
NAMES = ("", "x", "y", "no such name", "\u00e9", "a/b:0", "..", "n" * 3000, " ", "#1")
SIMILAR = (
    ("Relu", "Neg", "Abs", "Exp", "Sqrt", "Identity", "Sigmoid", "Floor", "Not", "IsNaN", "Shape", "Size", "NonZero"),
    ("Add", "Sub", "Mul", "Div", "Pow", "Mod", "MatMul", "Equal", "Less", "And", "PRelu", "BitwiseAnd", "Expand"),
    ("Reshape", "Expand", "Tile", "Unsqueeze", "Squeeze", "ReduceSum", "ReduceMax", "Gather", "GatherND", "TopK"),
    ("Softmax", "LogSoftmax", "Hardmax", "Flatten", "LpNormalization", "ArgMax", "Transpose", "Dropout", "Cast"),
    ("MaxPool", "AveragePool", "LpPool", "GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool", "Conv", "ConvTranspose"),
    ("Where", "Clip", "Slice", "Pad", "Range", "OneHot", "ScatterND", "ScatterElements", "Gemm", "Resize", "Einsum"),
    ("Loop", "Scan", "If", "SequenceConstruct", "StringNormalizer", "Optional", "LSTM", "Nothing", "RandomNormalLike"),
)


def mutation(function: Mutation) -> Mutation:
    """Register a mutation."""
    MUTATIONS[function.__name__] = function
    return function


def mutate(model: ModelProto, name: str, seed: int) -> ModelProto:
    """Return a changed copy of a model; an equal one if the mutation finds nothing to change."""
    changed = ModelProto()
    changed.CopyFrom(model)
    MUTATIONS[name](changed, random.Random(seed))
    return changed


# -- what may be chosen -----------------------------------------------------------------------------------------------


def _graphs(model: ModelProto) -> list[GraphProto]:
    """Return the graph and all graphs inside it."""
    found, todo = [], [model.graph]
    while todo:
        graph = todo.pop()
        found.append(graph)
        todo += [attribute.g for node in graph.node for attribute in node.attribute if attribute.HasField("g")]
    return found


def _nodes(model: ModelProto) -> list[NodeProto]:
    inside = [node for graph in _graphs(model) for node in graph.node]
    return inside + [node for function in model.functions for node in function.node]


def _attributes(model: ModelProto) -> list[AttributeProto]:
    return [attribute for node in _nodes(model) for attribute in node.attribute]


def _tensors(model: ModelProto) -> list[TensorProto]:
    found = [tensor for graph in _graphs(model) for tensor in graph.initializer]
    return found + [attribute.t for attribute in _attributes(model) if attribute.HasField("t")]


def _names(model: ModelProto) -> list[str]:
    """Return every name of a value."""
    graph = model.graph
    found = [name for node in _nodes(model) for name in (*node.input, *node.output)]
    found += [each.name for each in (*graph.input, *graph.output, *graph.initializer)]
    return sorted({name for name in found if name}) or ["x"]


def _some_name(model: ModelProto, rng: random.Random) -> str:
    return rng.choice(_names(model)) if rng.random() < 0.75 else rng.choice(NAMES)


def _node_with(model: ModelProto, rng: random.Random, wanted: Callable[[NodeProto], Any]) -> NodeProto | None:
    nodes = [node for node in _nodes(model) if wanted(node)]
    return rng.choice(nodes) if nodes else None


def _array(tensor: TensorProto) -> Any:
    try:
        return numpy_helper.to_array(tensor)
    except Exception:  # changed before
        return None


def _store(tensor: TensorProto, array: Any) -> None:
    tensor.CopyFrom(numpy_helper.from_array(np.asarray(array, order="C"), tensor.name))


def _numeric(tensor: TensorProto) -> Any:
    array = _array(tensor)
    return array if array is not None and array.dtype.kind in "biuf" and array.dtype.itemsize <= 8 else None


# -- attributes -------------------------------------------------------------------------------------------------------


def _values(rng: random.Random) -> Iterator[Any]:
    yield rng.choice(INTEGERS)
    yield rng.choice(NUMBERS)
    yield rng.choice(STRINGS)
    yield [rng.choice(INTEGERS) for _ in range(rng.randrange(1, 5))]
    yield [rng.choice(NUMBERS) for _ in range(rng.randrange(1, 4))]
    yield [rng.choice(STRINGS)]
    yield numpy_helper.from_array(np.full(rng.choice([(), (1,), (2, 2)]), rng.choice([0, 1, 3]), np.float32), "t")
    yield helper.make_graph([], "g", [], [])


@mutation
def attribute_of_another_kind(model: ModelProto, rng: random.Random) -> bool:
    """An int where a float belongs, a list where a number, a graph where a string."""
    attributes = _attributes(model)
    if not attributes:
        return False
    attribute = rng.choice(attributes)
    attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice(list(_values(rng)))))
    return True


@mutation
def attribute_of_an_extreme_value(model: ModelProto, rng: random.Random) -> bool:
    """The right kind, and any value."""
    attributes = [each for each in _attributes(model) if each.type in (1, 2, 3, 6, 7, 8)]
    if not attributes:
        return False
    one = rng.choice(attributes)
    if one.type == AttributeProto.INT:
        one.i = rng.choice(INTEGERS) if rng.random() < 0.6 else one.i + rng.choice([-1, 1])
    elif one.type == AttributeProto.FLOAT:
        one.f = rng.choice(NUMBERS)
    elif one.type == AttributeProto.STRING:
        one.s = rng.choice(STRINGS).encode() if rng.random() < 0.9 else b"\xff\xfe"
    elif one.type == AttributeProto.INTS:
        _change_list(one.ints, INTEGERS, rng)
    elif one.type == AttributeProto.FLOATS:
        _change_list(one.floats, NUMBERS, rng)
    else:
        _change_list(one.strings, [text.encode() for text in STRINGS], rng)
    return True


def _change_list(values: Any, extremes: Any, rng: random.Random) -> None:
    what = rng.randrange(5)
    if what == 0 and values:
        del values[rng.randrange(len(values))]
    elif what == 1:
        values.append(rng.choice(extremes))
    elif what == 2 and values:
        values[rng.randrange(len(values))] = rng.choice(extremes)
    elif what == 3 and len(values) > 1:
        a, b = rng.randrange(len(values)), rng.randrange(len(values))
        values[a], values[b] = values[b], values[a]
    elif values and isinstance(values[0], int):
        values[rng.randrange(len(values))] += rng.choice([-1, 1])


@mutation
def attribute_missing(model: ModelProto, rng: random.Random) -> bool:
    """One is left out, whether there is a default or not."""
    node = _node_with(model, rng, lambda node: node.attribute)
    if node is not None:
        del node.attribute[rng.randrange(len(node.attribute))]
    return node is not None


@mutation
def attribute_added(model: ModelProto, rng: random.Random) -> bool:
    """One that the operator knows, one that it does not, one that it has already, one that refers to a function's."""
    node = _node_with(model, rng, lambda node: True)
    if node is None:
        return False
    known = [*onnx.defs.get_schema(node.op_type).attributes] if onnx.defs.has(node.op_type) else []
    name = rng.choice([*known, *known, *known, "axis", "pads", "auto_pad", "no_such_attribute", ""])
    made = helper.make_attribute(name, rng.choice(list(_values(rng))))
    if rng.random() < 0.15:
        made.ref_attr_name = "alpha"
    elif rng.random() < 0.1:
        made.i, made.f = 1, 1.0
    elif rng.random() < 0.05:
        made.type = rng.randrange(15)
    node.attribute.append(made)
    return True


# -- inputs of nodes --------------------------------------------------------------------------------------------------


@mutation
def input_changed(model: ModelProto, rng: random.Random) -> bool:
    """Another value of the model, one that nothing assigns, or none."""
    node = _node_with(model, rng, lambda node: node.input)
    if node is not None:
        node.input[rng.randrange(len(node.input))] = _some_name(model, rng)
    return node is not None


@mutation
def inputs_rearranged(model: ModelProto, rng: random.Random) -> bool:
    """Dropped, added, twice the same, in another order."""
    node = _node_with(model, rng, lambda node: True)
    if node is None:
        return False
    names = list(node.input)
    what = rng.randrange(5)
    if what == 0 and names:
        names.pop(rng.randrange(len(names)))
    elif what == 1:
        names.insert(rng.randrange(len(names) + 1), _some_name(model, rng))
    elif what == 2 and names:
        names = [rng.choice(names) for _ in names]
    elif what == 3 and names:
        names[rng.randrange(len(names))] = ""
    else:
        rng.shuffle(names)
    del node.input[:]
    node.input.extend(names)
    return True


@mutation
def node_reads_what_it_or_a_later_one_assigns(model: ModelProto, rng: random.Random) -> bool:
    """A circle, if it is not out of order only."""
    node = _node_with(model, rng, lambda node: node.input)
    outputs = [name for each in _nodes(model) for name in each.output if name]
    if node is None or not outputs:
        return False
    node.input[rng.randrange(len(node.input))] = rng.choice(outputs)
    return True


# -- nodes ------------------------------------------------------------------------------------------------------------


@mutation
def nodes_permuted(model: ModelProto, rng: random.Random) -> bool:
    """Valid in all but their order, in the graph, a branch or a function."""
    holders = [each for each in (*_graphs(model), *model.functions) if len(each.node) > 1]
    if not holders:
        return False
    holder = rng.choice(holders)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in holder.node]
    rng.shuffle(nodes)
    del holder.node[:]
    holder.node.extend(nodes)
    return True


@mutation
def node_doubled_or_removed(model: ModelProto, rng: random.Random) -> bool:
    """A second node that assigns the same, perhaps under new names; or none that does."""
    graph = rng.choice(_graphs(model))
    if not graph.node:
        return False
    place = rng.randrange(len(graph.node))
    if rng.random() < 0.4:
        del graph.node[place]
        return True
    graph.node.add().CopyFrom(graph.node[place])
    if rng.random() < 0.6:
        twin = graph.node[-1]
        twin.output[:] = [f"{name}_twin" for name in twin.output]
        model.graph.output.append(helper.make_empty_tensor_value_info(twin.output[0] if twin.output else "y"))
    return True


@mutation
def operator_changed(model: ModelProto, rng: random.Random) -> bool:
    """One that takes as many inputs, or any."""
    node = _node_with(model, rng, lambda node: True)
    if node is None:
        return False
    groups = [group for group in SIMILAR if node.op_type in group]
    node.op_type = rng.choice(groups[0] if groups and rng.random() < 0.8 else rng.choice(SIMILAR))
    if rng.random() < 0.1:
        node.domain = rng.choice(
            ["ai.onnx", "com.microsoft", "ai.onnx.ml", "own", "opbuild", "opbuild.ranks", "\u00e9"]
        )
    return True


@mutation
def node_inserted(model: ModelProto, rng: random.Random) -> bool:
    """An Identity, a Dropout, a Cast or another node between two; at the end, as converters do."""
    node = _node_with(model, rng, lambda node: any(node.input))
    if node is None:
        return False
    place = rng.choice([index for index, name in enumerate(node.input) if name])
    made = f"{node.input[place]}_through_{rng.randrange(1000)}"
    kind = rng.choice(["Identity", "Dropout", "Cast", "Relu", "Neg", "Flatten", "Transpose", "Shape", "Squeeze"])
    attributes = {"to": rng.choice([1, 2, 6, 7, 9, 10, 11, 16])} if kind == "Cast" else {}
    model.graph.node.append(helper.make_node(kind, [node.input[place]], [made], **attributes))
    node.input[place] = made
    return True


@mutation
def node_outputs_changed(model: ModelProto, rng: random.Random) -> bool:
    """More or fewer, empty, named as something else is."""
    node = _node_with(model, rng, lambda node: node.output)
    if node is None:
        return False
    what = rng.randrange(4)
    if what == 0:
        node.output.append(rng.choice(["", "more", _some_name(model, rng)]))
    elif what == 1:
        node.output[rng.randrange(len(node.output))] = _some_name(model, rng)
    elif what == 2:
        node.output.pop()
    else:
        node.output[rng.randrange(len(node.output))] = ""
    return True


@mutation
def value_renamed_everywhere(model: ModelProto, rng: random.Random) -> bool:
    """To a name that is odd, or taken already."""
    old, new = rng.choice(_names(model)), _some_name(model, rng)
    if rng.random() < 0.5:
        new = rng.choice([name for name in NAMES if name])
    for node in _nodes(model):
        node.input[:] = [new if name == old else name for name in node.input]
        node.output[:] = [new if name == old else name for name in node.output]
    for graph in _graphs(model):
        for each in (*graph.input, *graph.output, *graph.initializer, *graph.value_info):
            each.name = new if each.name == old else each.name
    for node in _nodes(model):
        node.name = rng.choice([node.name, new, ""])
    return True


# -- types and shapes -------------------------------------------------------------------------------------------------


def _declared(model: ModelProto) -> list[ValueInfoProto]:
    return [value for graph in _graphs(model) for value in (*graph.input, *graph.output, *graph.value_info)]


@mutation
def declared_type_changed(model: ModelProto, rng: random.Random) -> bool:
    """Of an input, an output, a value inside; also to what is no tensor."""
    inputs = [value for value in model.graph.input if rng.random() < 0.7]
    value = rng.choice(inputs or _declared(model) or [ValueInfoProto()])
    what = rng.random()
    if what < 0.85:
        value.type.tensor_type.elem_type = rng.choice([1, 6, 7, 9, 10, 11]) if what < 0.6 else rng.randrange(26)
    elif what < 0.9:
        value.type.Clear()
    else:
        value.type.sequence_type.elem_type.tensor_type.elem_type = 1
    return True


@mutation
def declared_shape_changed(model: ModelProto, rng: random.Random) -> bool:
    """Extents of 0, 1, -1, huge ones, names, another rank, none."""
    inputs = [value for value in model.graph.input if rng.random() < 0.8]
    value = rng.choice(inputs or _declared(model) or [ValueInfoProto()])
    dims = value.type.tensor_type.shape.dim
    what = rng.randrange(6)
    if what == 0 and dims:
        del dims[rng.randrange(len(dims))]
    elif what == 1:
        dims.add().dim_value = rng.choice(EXTENTS)
    elif what == 2:
        value.type.tensor_type.ClearField("shape")
    elif dims:
        dim = rng.choice(list(dims))
        if what == 3:
            dim.dim_param = rng.choice(["n", "", "n", "other"])
        elif what == 4 and dim.dim_value:
            dim.dim_value = max(dim.dim_value + rng.choice([-1, 1]), 0)
        else:
            dim.dim_value = rng.choice(EXTENTS)
    return True


# -- constants --------------------------------------------------------------------------------------------------------


@mutation
def constant_damaged(model: ModelProto, rng: random.Random) -> bool:
    """Data too short or too long, in two fields, of another type, dims that lie, data that is elsewhere."""
    tensors = _tensors(model)
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    what = rng.randrange(7)
    if what == 0 and tensor.raw_data:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data))]
    elif what == 1:
        tensor.raw_data += bytes(rng.randrange(1, 9))
    elif what == 2:
        tensor.data_type = rng.randrange(26)
    elif what == 3 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(EXTENTS)
    elif what == 4:
        tensor.dims.append(rng.choice(EXTENTS))
    elif what == 5:
        tensor.float_data.extend([1.0, 2.0])
    else:
        tensor.data_location = TensorProto.EXTERNAL
        if rng.random() < 0.7:
            entry = tensor.external_data.add()
            entry.key = rng.choice(["location", "offset", "opbuild_place"])
            entry.value = rng.choice(["none.bin", "../x", "/dev/zero", "-1", "0 16", "\u00e9"])
    return True


@mutation
def constant_of_another_type(model: ModelProto, rng: random.Random) -> bool:
    """Its values, converted: float16 weights, int32 shapes."""
    tensors = [tensor for tensor in _tensors(model) if _numeric(tensor) is not None]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    wanted = rng.choice(["float16", "float32", "float64", "int32", "int64", "int8", "uint8", "bool", "uint64"])
    with np.errstate(all="ignore"):
        _store(tensor, _array(tensor).astype(wanted))
    return True


@mutation
def constant_of_another_shape(model: ModelProto, rng: random.Random) -> bool:
    """A 0-d one becomes 1-d or the other way round; transposed, flattened, with one more dimension, cut, empty."""
    tensors = [tensor for tensor in _tensors(model) if _numeric(tensor) is not None]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    array = _array(tensor)
    what = rng.randrange(6)
    if array.size == 1 and what < 4:
        array = array.reshape(() if array.ndim else rng.choice([(1,), (1, 1)]))
    elif what == 0:
        array = array.T
    elif what == 1:
        array = array.reshape(-1)
    elif what == 2:
        array = array[None]
    elif what == 3 and array.ndim:
        array = array[: max(array.shape[0] - 1, 0)]
    elif what == 4 and array.ndim:
        array = np.concatenate([array, array[:1]])
    else:
        array = array.reshape(-1)[:0]
    _store(tensor, array)
    return True


@mutation
def constant_of_other_values(model: ModelProto, rng: random.Random) -> bool:
    """Zeros, extremes, NaN, one more or less: shapes, axes, bounds, factors, weights."""
    tensors = [tensor for tensor in _tensors(model) if _numeric(tensor) is not None]
    if not tensors:
        return False
    tensor = rng.choice(tensors)
    array = _array(tensor).copy()
    if not array.size:
        return False
    values: tuple[Any, ...] = NUMBERS if array.dtype.kind == "f" else INTEGERS
    with np.errstate(all="ignore"):
        if rng.random() < 0.3:
            array[...] = np.asarray(rng.choice(values)).astype(array.dtype)
        elif rng.random() < 0.5:
            array.reshape(-1)[rng.randrange(array.size)] = np.asarray(rng.choice(values)).astype(array.dtype)
        else:
            place = rng.randrange(array.size)
            flat = array.reshape(-1)
            flat[place] = (flat[place] + np.asarray(rng.choice([-1, 1])).astype(array.dtype)).astype(array.dtype)
    _store(tensor, array)
    return True


@mutation
def constant_becomes_an_input(model: ModelProto, rng: random.Random) -> bool:
    """Known at run time only; or known, and declared as an input too, as old exporters do."""
    graph = model.graph
    if not graph.initializer:
        return False
    place = rng.randrange(len(graph.initializer))
    tensor = graph.initializer[place]
    value = helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims))
    graph.input.append(value)
    if rng.random() < 0.7:
        del graph.initializer[place]
    return True


@mutation
def constant_becomes_a_node(model: ModelProto, rng: random.Random) -> bool:
    """A Constant node, perhaps at the end, or one that holds a plain number."""
    graph = model.graph
    if not graph.initializer:
        return False
    place = rng.randrange(len(graph.initializer))
    tensor = TensorProto()
    tensor.CopyFrom(graph.initializer[place])
    del graph.initializer[place]
    made = helper.make_node("Constant", [], [tensor.name], value=tensor)
    array = _numeric(tensor)
    if array is not None and array.dtype == np.int64 and array.ndim < 2 and array.size and rng.random() < 0.5:
        attributes = {"value_ints": array.tolist()} if array.ndim else {"value_int": int(array)}
        made = helper.make_node("Constant", [], [tensor.name], **attributes)
    nodes = [NodeProto.FromString(node.SerializeToString()) for node in graph.node]
    nodes.insert(rng.choice([0, len(nodes)]), made)
    del graph.node[:]
    graph.node.extend(nodes)
    return True


@mutation
def input_becomes_a_constant(model: ModelProto, rng: random.Random) -> bool:
    """All that depends on it is folded."""
    inputs = [value for value in model.graph.input if value.type.tensor_type.elem_type]
    if not inputs:
        return False
    value = rng.choice(inputs)
    tensor = value.type.tensor_type
    shape = tuple(dim.dim_value for dim in tensor.shape.dim)
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if np.prod([max(extent, 1) for extent in shape], dtype=float) > 1e5 or dtype.kind not in "biuf":
            return False
        array = np.full(shape, rng.choice([0, 1, 1, 2]), dtype)
    except Exception:  # changed before
        return False
    model.graph.initializer.append(numpy_helper.from_array(array, value.name))
    if rng.random() < 0.7:
        model.graph.input.remove(value)
    return True


# -- outputs, operator sets, the model --------------------------------------------------------------------------------


@mutation
def outputs_changed(model: ModelProto, rng: random.Random) -> bool:
    """An input, a constant or a value inside as an output; one twice; one that nothing assigns; none."""
    outputs = model.graph.output
    what = rng.randrange(6)
    if what <= 2:
        outputs.append(helper.make_empty_tensor_value_info(_some_name(model, rng)))
    elif what == 3 and outputs:
        outputs.append(outputs[rng.randrange(len(outputs))])
    elif what == 4 and outputs:
        outputs[rng.randrange(len(outputs))].name = _some_name(model, rng)
    elif outputs:
        outputs.pop(rng.randrange(len(outputs)))
    return True


@mutation
def inputs_changed(model: ModelProto, rng: random.Random) -> bool:
    """One twice, one more, one less, another order, of a graph or a branch."""
    graph = rng.choice(_graphs(model))
    what = rng.randrange(4)
    if what == 0 and graph.input:
        graph.input.append(graph.input[rng.randrange(len(graph.input))])
    elif what == 1:
        graph.input.append(helper.make_tensor_value_info(_some_name(model, rng), 1, rng.choice([[], [2], [1, 3]])))
    elif what == 2 and graph.input:
        del graph.input[rng.randrange(len(graph.input))]
    elif graph.input:
        first = ValueInfoProto.FromString(graph.input[0].SerializeToString())
        del graph.input[0]
        graph.input.append(first)
    return True


@mutation
def operator_set_changed(model: ModelProto, rng: random.Random) -> bool:
    """Another version, twice one domain, none."""
    what = rng.random()
    if what < 0.8 and model.opset_import:
        rng.choice(list(model.opset_import)).version = rng.choice([*range(6, 27), 0, -1, 2**40])
    elif what < 0.9:
        model.opset_import.append(helper.make_opsetid(rng.choice(["", "ai.onnx", "own"]), rng.randrange(7, 24)))
    elif model.opset_import:
        del model.opset_import[0]
    return True


@mutation
def branch_changed(model: ModelProto, rng: random.Random) -> bool:
    """Fewer or more outputs, outputs from outside, no nodes, names that stand outside too."""
    graphs = _graphs(model)[1:]
    if not graphs:
        return False
    graph = rng.choice(graphs)
    what = rng.randrange(4)
    if what == 0 and graph.output:
        graph.output[rng.randrange(len(graph.output))].name = _some_name(model, rng)
    elif what == 1:
        graph.output.append(helper.make_empty_tensor_value_info(_some_name(model, rng)))
    elif what == 2:
        del graph.node[:]
    elif graph.output:
        graph.output.pop()
    return True


@mutation
def function_changed(model: ModelProto, rng: random.Random) -> bool:
    """Other inputs or outputs, another name, one that calls itself, none."""
    if not model.functions:
        return False
    function = rng.choice(list(model.functions))
    what = rng.randrange(5)
    if what == 0 and function.node:
        node = rng.choice(list(function.node))
        node.op_type, node.domain = function.name, function.domain
    elif what == 1:
        function.input.append("more")
    elif what == 2 and function.output:
        function.output[0] = _some_name(model, rng)
    elif what == 3:
        function.name = rng.choice(["Relu", "Square", "", "Both"])
    else:
        model.functions.remove(function)
    return True
