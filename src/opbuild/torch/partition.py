"""Which operators of a graph opbuild computes, and which are left to torch."""

from __future__ import annotations

import operator
from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Any

import torch
from torch import fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from opbuild.backend.evaluate import evaluate
from opbuild.errors import ModelError
from opbuild.frontend.torch.builder import build_graph
from opbuild.frontend.torch.capture import capture, target_of, why_not
from opbuild.frontend.torch.program import AtenProgram, floats_in_doubles, size_shape
from opbuild.platform.records import replace

MOVEMENT = frozenset(
    f"aten.{name}"
    for name in (
        "view.default", "_unsafe_view.default", "permute.default", "t.default", "transpose.int", "unsqueeze.default",
        "squeeze.dim", "squeeze.dims", "squeeze.default", "expand.default", "slice.Tensor", "select.int",
        "alias.default", "detach.default", "split.Tensor", "split_with_sizes.default", "unbind.int",
    )
)  # fmt: skip
"""Operators that cost torch nothing: parts of nothing else are left to it."""


class _Support(OperatorSupportBase):
    """Answers for each node whether opbuild computes it.

    Args:
        refused: Why some nodes are not, which their rules said.
        device: The kind of device that computes.
    """

    def __init__(self, refused: Mapping[str, str], device: str) -> None:
        self._refused, self._device = refused, device
        self._found: dict[fx.Node, str] = {}

    def why_not(self, node: fx.Node) -> str:
        """Return the reason that a node is left to torch; empty if it is not."""
        if node not in self._found:
            source = node.args[0] if target_of(node) == "sym.getitem" else node
            name = source.name if isinstance(source, fx.Node) else node.name
            self._found[node] = self._refused.get(name) or why_not(node, self._device)
        return self._found[node]

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: fx.Node) -> bool:
        """Return whether opbuild computes a node."""
        return node.op == "call_function" and not self.why_not(node)


class Partitioned:
    """A graph of which parts are submodules.

    Args:
        module: The graph; it is changed.
        frozen: Names of the placeholders that are constants.
        replaced: Names of the placeholders that outputs replace, by the outputs' positions.
        is_stored: Whether it runs later without the module: then what may need torch at a call is left to it at once.
        prefix: What the names of its parts begin with, by which warnings tell a forward pass from a backward one.
        device: The kind of device that computes; what is on others is left to torch.

    Attributes:
        module: The graph, which calls the parts.
        programs: The parts, by the names of the submodules.
        left: The operators that are left to torch, with the reason.
        compiled: The operators in parts.
    """

    def __init__(
        self,
        module: fx.GraphModule,
        frozen: AbstractSet[str],
        replaced: Mapping[int, str] = MappingProxyType({}),
        *,
        is_stored: bool = False,
        prefix: str = "opbuild_",
        device: str = "cpu",
    ) -> None:
        self.module = module
        self.programs: dict[str, AtenProgram] = {}
        self.left: list[tuple[str, str]] = []
        self.compiled: list[str] = []
        self._frozen = frozen
        self._is_stored, self._prefix = is_stored, prefix
        refused: dict[str, str] = {}
        module.graph.eliminate_dead_code()
        while True:
            support = _Support(refused, device)
            partitioner = CapabilityBasedPartitioner(module, support, allows_single_node_partition=True)
            found = [
                part
                for part in partitioner.propose_partitions()
                if any(
                    not target.startswith("sym.") and target not in MOVEMENT for target in map(target_of, part.nodes)
                )
            ]
            new: dict[str, str] = {}
            for number, part in enumerate(found):
                new |= self._problems([*part.nodes], number)
            if not new:
                break
            refused |= new
        self._count(support, {node for part in found for node in part.nodes})
        self.module = partitioner.fuse_partitions(found, prefix=prefix)
        self._read()
        self._replace(replaced)

    def _problems(self, nodes: Sequence[fx.Node], number: int) -> dict[str, str]:
        """Return nodes of a part that are left to torch, and why: the first one whose rule refuses it, or all."""
        program, examples = capture(_copied(nodes), f"part_{number}", ())
        floats = {program.inputs[index].name for index in floats_in_doubles(program)}
        if self._is_stored and not floats <= self._frozen:
            return {node.name: "it may be given a float with more digits than a stored graph tells" for node in nodes}
        try:
            build_graph(program, example_shapes(program, examples), (), evaluate)
        except ModelError as error:
            if not error.node:
                raise
            return {error.node: error.message.partition(": ")[2] or error.message}
        return {}

    def _count(self, support: _Support, inside: Collection[fx.Node]) -> None:
        for node in self.module.graph.nodes:
            target = target_of(node) if node.op == "call_function" else ""
            if not target or target.startswith("sym."):
                continue
            if node in inside:
                self.compiled.append(target)
            else:
                self.left.append(
                    (target, support.why_not(node) or "it only moves elements, beside nothing that is compiled")
                )

    def _read(self) -> None:
        for node in self.module.graph.nodes:
            if node.op != "call_module" or not str(node.target).startswith(self._prefix):
                continue
            inner = self.module.get_submodule(str(node.target))
            assert isinstance(inner, fx.GraphModule)  # noqa: S101 - the partitioner makes them
            names = [each.name for each in inner.graph.nodes if each.op == "placeholder"]
            frozen = {
                name
                for name, given in zip(names, node.args, strict=True)
                if isinstance(given, fx.Node) and given.name in self._frozen
            }
            program, _ = capture(inner.graph, str(node.target), frozen)
            self.programs[str(node.target)] = program

    def _replace(self, replaced: Mapping[int, str]) -> None:
        """Let parts replace the tensors that they alone read and that the graph is to replace."""
        results: Any = self.module.graph.output_node().args[0]
        placeholders = {node.name: node for node in self.module.graph.nodes if node.op == "placeholder"}
        for place, name in replaced.items():
            found, given = results[place], placeholders[name]
            part, output = found.args if found.target is operator.getitem else (found, 0)
            program = self.programs.get(str(part.target))
            if program is None or program.is_open or [*given.users] != [part] or part.args.count(given) != 1:
                continue
            update = output, part.args.index(given)
            wanted, made = program.inputs[update[1]], program.outputs[output]
            types = {each.name: each.types[0] for each in program.steps if len(each.types) == 1}
            is_alike = wanted.order == made.order and types.get(made.name) == wanted.type  # in memory
            if wanted.kind == "tensor" and is_alike:
                self.programs[str(part.target)] = replace(program, updates=(*program.updates, update))


def _copied(nodes: Sequence[fx.Node]) -> fx.Graph:
    """Return some nodes of a graph as one of their own."""
    graph, copies = fx.Graph(), dict[fx.Node, fx.Node]()
    own = {*nodes}
    for node in nodes:
        for source in node.all_input_nodes:
            if source not in own and source not in copies:
                copies[source] = graph.placeholder(source.name)
                copies[source].meta = dict(source.meta)
    for node in sorted(nodes):
        copies[node] = graph.node_copy(node, copies.__getitem__)
    results = [node for node in nodes if any(user not in own for user in node.users)]
    graph.output(tuple(copies[node] for node in results if not isinstance(node.meta.get("val"), (tuple, list))))
    return graph


def example_shapes(program: AtenProgram, examples: Sequence[Any]) -> list[tuple[int, ...]]:
    """Return the shapes of a program's inputs, of an example of each."""
    pairs = ((program.inputs[index], examples[index]) for index in program.given)
    return [
        size_shape(found) if each.kind == "size" else tuple(found[axis] for axis in each.order) for each, found in pairs
    ]
