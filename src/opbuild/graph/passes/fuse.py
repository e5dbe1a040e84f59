"""Fusion: chains of elementwise operators become one operator, or the epilogue of the product before them.

Three steps, none of which changes a result, NaN included, because an expression rounds after each operation as the
operators one by one do:

1. every elementwise node becomes a node ``opbuild.Elementwise`` with an expression over its distinct inputs;
2. such a node takes in the one that computes an input, if it is that input's only reader and nothing expensive would be
   computed twice;
3. an ``Elementwise`` whose operand is the output of a Conv, ConvTranspose, MatMul or Gemm, and which is that output's
   only reader, becomes its epilogue: ``attrs["epilogue"]`` over ``("acc",)`` and ``("arg", i)``, with operand ``i`` at
   input ``attrs["own_inputs"] + i``; ``attrs["accumulator"]`` is the name of the value that is computed no more. One
   that only rounds to the numbers of 16 bits becomes that of a softmax or a normalisation too.
"""

from __future__ import annotations

from collections.abc import Iterable

from opbuild.graph.elementwise import Elementwise, elementwise_of, rounding_of, squared
from opbuild.graph.extents import always_equal, is_one, same_shape
from opbuild.graph.passes.batchnorm import spell_out_batchnorm
from opbuild.graph.passes.quantization import spell_out_quantization
from opbuild.graph.types import DTYPES, Graph, Node, broadcast_shapes
from opbuild.operations.expression import ACC, Expression, arg, canonical, cost, count_operations, parts_of, substitute
from opbuild.operations.record import Cost
from opbuild.platform.records import dataclass, field

MAX_OPERANDS = 6
"""Operands of a fused chain, but for constants of one element: more streams than that are slower than a temporary that
stays in cache."""

MAX_OPERATIONS = 40
"""Operations of a fused chain; the names of its files list them."""

MAX_PARTS = 256
"""Parts of a fused chain's expression, what is shared counted wherever it stands: a chain in which each value is read
twice has 2^40 of them in 40 operations."""

PRODUCTS = {"Conv": 3, "ConvTranspose": 3, "MatMul": 2, "Gemm": 3}
"""Operators with an epilogue, and the number of their own inputs."""

EXACT_TYPE = "float32"
"""The type in which all of them have kernels, and so epilogues."""

ROUNDED = {
    "Softmax": 1, "LogSoftmax": 1, "LayerNormalization": 3, "RMSNormalization": 2, "InstanceNormalization": 3,
    "GroupNormalization": 3,
}  # fmt: skip
"""Other operators that may have one: nothing but the rounding of their results to the numbers of 16 bits."""

INTEGER_PRODUCTS = {("opbuild", "IntegerMatMul"): 2, ("", "ConvInteger"): 4}
"""Products of bytes, by domain and type, whose sums are int32, and the number of their own inputs."""

BLOCKED_TYPES = frozenset(("float32", "int32", "uint8", "int8"))
"""What the epilogues of products of images read and make; those of other products of bytes take any type."""


def fuse(graph: Graph) -> Graph:
    """Return an equivalent of a typed graph with elementwise operators fused; see the module's text."""
    graph = spell_out_quantization(spell_out_batchnorm(graph))
    fusion = _Fusion(graph)
    fusion.merge_chains()
    fusion.attach_epilogues()
    return graph.with_(nodes=fusion.nodes())


@dataclass(eq=False)
class _Item:
    """A node while it is fused.

    Attributes:
        node: The node.
        chain: What it computes if it is elementwise.
        operations: As many operations as the chain has, or more.
        parts: As many parts as its expression has, or more.
        alive: Whether it is still there.
    """

    node: Node
    chain: Elementwise | None
    operations: int = 0
    parts: int = 0
    alive: bool = True

    def __post_init__(self) -> None:
        if self.chain is not None:
            self.operations = count_operations(self.chain.expression)
            self.parts = len(parts_of(self.chain.expression))

    @property
    def inputs(self) -> tuple[str, ...]:
        return self.chain.inputs if self.chain is not None else self.node.inputs


@dataclass(eq=False)
class _Fusion:
    """A graph while its nodes are fused."""

    graph: Graph
    items: list[_Item] = field(init=False)

    def __post_init__(self) -> None:
        graph = self.graph
        self.items = [_Item(node, elementwise_of(node, graph.types, graph.constants)) for node in graph.nodes]
        self.outputs = frozenset(graph.outputs)
        self.position = {id(item): index for index, item in enumerate(self.items)}
        self.producers = {name: item for item in self.items for name in item.node.outputs if name}
        self.readers: dict[str, set[int]] = {}
        for item in self.items:
            self._read(item, item.inputs)

    def merge_chains(self) -> None:
        """Let every elementwise node take in the nodes that compute its inputs."""
        for item in self.items:
            while item.chain is not None and self._merge_one(item, item.chain):
                pass

    def attach_epilogues(self) -> None:
        """Let products take in the elementwise node that reads them."""
        for item in self.items:
            if item.chain is None or not item.alive:
                continue
            found = [name for name in item.inputs if self._takes_epilogue(name, item, item.chain)]
            if found:
                self._attach(max(found, key=self._precedence), item, item.chain)

    def nodes(self) -> tuple[Node, ...]:
        """Return the nodes that are left."""
        return tuple(_finished(item) for item in self.items if item.alive)

    # -- chains -------------------------------------------------------------------------------------------------------

    def _merge_one(self, item: _Item, chain: Elementwise) -> bool:
        for name in chain.inputs:
            producer = self.producers.get(name)
            if producer is None or producer.chain is None or not self._only_reader(name, item):
                continue
            if self._reads_sums(chain) and self._reads_sums(producer.chain):
                continue  # each is the epilogue of its own product: bytes are less to write and to read than sums
            times = parts_of(chain.expression).count(arg(chain.inputs.index(name)))
            parts = item.parts + (producer.parts - 1) * times  # at most
            if parts > MAX_PARTS or self._too_many_operands(chain, name, producer.chain):
                continue
            merged = _merged(chain, name, producer.chain)
            count = item.operations + producer.operations
            if count > MAX_OPERATIONS:  # what is shared, or is one with its neighbour, counts less
                count = count_operations(merged.expression)
            if count <= MAX_OPERATIONS and self._is_worthwhile(name, producer.chain, item):
                self._forget(producer)
                self._forget(item)
                item.chain, producer.alive, item.alive = merged, False, True
                item.operations, item.parts = count, parts
                item.node = item.node.taking(producer.node)
                self._read(item, merged.inputs)
                return True
        return False

    def _reads_sums(self, chain: Elementwise) -> bool:
        """Return whether a chain reads the sums of a product of bytes."""
        producers = (self.producers.get(name) for name in chain.inputs)
        return any(item is not None and (item.node.domain, item.node.op_type) in INTEGER_PRODUCTS for item in producers)

    def _too_many_operands(self, outer: Elementwise, name: str, inner: Elementwise) -> bool:
        types, constants = self.graph.types, self.graph.constants
        inputs = {*outer.inputs, *inner.inputs} - {name}
        numbers = sum(each in constants and types[each].size == 1 for each in inputs)
        return len(inputs) - numbers > MAX_OPERANDS

    def _is_worthwhile(self, name: str, inner: Elementwise, item: _Item) -> bool:
        if always_equal(self.graph.types[name].size, self.graph.types[item.node.outputs[0]].size):
            return True
        is_cheap = all(cost(part) == Cost.CHEAP for part in parts_of(inner.expression))
        return is_cheap and count_operations(inner.expression) <= 2

    # -- epilogues ----------------------------------------------------------------------------------------------------

    def _precedence(self, name: str) -> tuple[int, int]:
        """Return the rank of a product for the epilogue, which the larger one takes, however the nodes are listed.

        Their results have one shape, so their weights tell which computes more; those of one size are told apart by
        the order of nodes.
        """
        product = self.producers[name]
        weights = product.node.inputs[1:2]
        return sum(self.graph.types[weight].size for weight in weights), self.position[id(product)]

    def _takes_epilogue(self, name: str, item: _Item, chain: Elementwise) -> bool:
        producer = self.producers.get(name)
        if producer is None or _own_inputs(producer.node) is None:
            return False
        types, output = self.graph.types, item.node.outputs[0]
        if not same_shape(types[name].shape, types[output].shape) or len(types[name].shape) < 2:
            return False
        if not {types[name].dtype, types[output].dtype} <= _accepted(producer.node):
            return False
        if "epilogue" in producer.node.attrs or len(producer.node.outputs) != 1 or not self._only_reader(name, item):
            return False
        if any(part[0] == "user" for part in parts_of(chain.expression)):
            return False
        if producer.node.op_type in ROUNDED and not rounding_of(chain.expression):
            return False
        others = [other for other in chain.inputs if other != name]
        shape, is_number = types[name].shape, is_one(types[name].size)
        residuals = sum(not is_number and same_shape(types[other].shape, shape) for other in others)
        return residuals <= 1 and all(self._is_operand(other, name, producer.node) for other in others)

    def _is_operand(self, other: str, name: str, product: Node) -> bool:
        """Return whether the epilogue of a product may read a value."""
        shape, type_, op_type = self.graph.types[name].shape, self.graph.types[other], product.op_type
        if type_.dtype not in _accepted(product) or len(type_.shape) > len(shape):
            return False
        if same_shape(type_.shape, shape):
            return True
        if op_type == "IntegerMatMul":
            return broadcast_shapes((type_.shape, shape)) == shape
        padded = (1,) * (len(shape) - len(type_.shape)) + type_.shape
        if op_type in ("MatMul", "Gemm"):
            return is_one(type_.size) or same_shape(padded, (1,) * (len(shape) - 1) + shape[-1:])
        if type_.size == 1 and op_type == "ConvInteger":
            return True
        if other not in self.graph.constants:
            return False
        return type_.size == 1 or padded == (1, shape[1]) + (1,) * (len(shape) - 2)

    def _attach(self, name: str, item: _Item, chain: Elementwise) -> None:
        producer = self.producers[name]
        own = _own_inputs(producer.node) or 0
        place = chain.inputs.index(name)
        read = substitute(chain.expression, lambda e: ACC if e == arg(place) else None)
        expression, order = canonical(read)
        operands = tuple(chain.inputs[index] for index in order)
        inputs = (*producer.node.inputs, *("",) * (own - len(producer.node.inputs)), *operands)
        attrs = {**producer.node.attrs, "epilogue": expression, "own_inputs": own, "accumulator": name}
        self._forget(producer)
        self._forget(item)
        item.node = producer.node.taking(item.node).with_(inputs=inputs, outputs=item.node.outputs, attrs=attrs)
        item.chain, producer.alive = None, False
        self._read(item, inputs)

    # -- who reads what -----------------------------------------------------------------------------------------------

    def _only_reader(self, name: str, item: _Item) -> bool:
        return name not in self.outputs and self.readers.get(name) == {id(item)}

    def _read(self, item: _Item, names: Iterable[str]) -> None:
        for name in names:
            if name:
                self.readers.setdefault(name, set()).add(id(item))

    def _forget(self, item: _Item) -> None:
        for name in item.inputs:
            if name:
                self.readers[name].discard(id(item))


def _own_inputs(node: Node) -> int | None:
    """Return the number of a product's own inputs; None if a node is none with an epilogue."""
    own = None if node.domain else {**PRODUCTS, **ROUNDED}.get(node.op_type)
    return own or INTEGER_PRODUCTS.get((node.domain, node.op_type))


def _accepted(product: Node) -> frozenset[str]:
    """Return the types that the epilogue of a product reads and makes, and that of its sums."""
    if (product.domain, product.op_type) not in INTEGER_PRODUCTS:
        return frozenset((EXACT_TYPE,))
    return BLOCKED_TYPES if product.op_type == "ConvInteger" else frozenset(DTYPES)


def _merged(outer: Elementwise, name: str, inner: Elementwise) -> Elementwise:
    """Return ``outer`` with the value ``name`` replaced by its expression."""
    names = tuple(dict.fromkeys((*(other for other in outer.inputs if other != name), *inner.inputs)))
    moved = inner.expression
    if names != inner.inputs:
        moved = substitute(moved, lambda e: arg(names.index(inner.inputs[e[1]])) if e[0] == "arg" else None)

    def replace(e: Expression) -> Expression | None:
        if e[0] != "arg":
            return squared(e)
        return moved if outer.inputs[e[1]] == name else arg(names.index(outer.inputs[e[1]]))

    return Elementwise(substitute(outer.expression, replace), names)


def _finished(item: _Item) -> Node:
    if item.chain is None:
        return item.node
    expression, order = canonical(item.chain.expression)
    inputs = tuple(item.chain.inputs[index] for index in order)
    fused = Node("Elementwise", inputs, item.node.outputs, {"expression": expression}, item.node.name, "opbuild")
    return fused.with_(made_of=item.node.origins, merged=item.node.merged)
