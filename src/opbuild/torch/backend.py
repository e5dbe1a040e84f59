"""The back end that torch calls with each graph."""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from opbuild.config import Config
from opbuild.torch.decompositions import decompositions
from opbuild.torch.part import Part
from opbuild.torch.partition import Partitioned
from opbuild.torch.report import Graph, add

GRADIENTS = "gradients are needed: call the model under torch.no_grad() or torch.inference_mode()"


def opbuild(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Return what runs a graph of torch's; ``torch.compile(model, backend="opbuild")`` calls it.

    Args:
        gm: The graph that Dynamo found.
        example_inputs: What it was called with.
        options: Options of ``opbuild.compile``: ``cache_path``, ``num_threads``, ``workers``, ``forbid_compile``, ...

    Raises:
        OptionError: If an option is at fault.
        ModelError, BuildError: A call, if a part can not be built.
    """
    config = Config.from_environment(**dict(options or {}))
    number = next(_NUMBERS)
    graph = _graph_of(gm, example_inputs, number)
    add(graph)
    compiler = aot_autograd(
        fw_compiler=_leave(graph),
        bw_compiler=_leave(graph),
        inference_compiler=_compile(config, graph),
        decompositions=decompositions(),
        keep_inference_input_mutations=False,
    )
    return compiler(gm, example_inputs)


_NUMBERS = count()


def _graph_of(gm: fx.GraphModule, example_inputs: Sequence[Any], number: int) -> Graph:
    tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    code = set()
    for frame in TracingContext.extract_stack():
        code.add((frame.filename, frame.name))
    return Graph(f"graph_{number}", _tensors=tuple(map(weakref.ref, tensors)), _code=frozenset(code))


def _leave(graph: Graph) -> Callable[..., Any]:
    """Return a compiler that leaves graphs to torch, because they are for gradients."""

    def compiler(gm: fx.GraphModule, _: Sequence[Any]) -> Any:
        names = (str(node.target) for node in gm.graph.nodes if node.op == "call_function")
        graph.partitioned.update((name, GRADIENTS) for name in names if name.startswith("aten."))
        return make_boxed_func(gm.forward)

    return compiler


def _compile(config: Config, graph: Graph) -> Callable[..., Any]:
    """Return the compiler of graphs that need no gradients."""

    def compiler(gm: fx.GraphModule, _: Sequence[Any]) -> Any:
        partitioned = Partitioned(gm, _frozen_names(gm))
        graph.compiled = Counter(partitioned.compiled)
        graph.partitioned.update(partitioned.left)
        module = partitioned.module
        for name, program in partitioned.programs.items():
            delattr(module, name)
            setattr(module, name, Part(program, config, graph))
        return make_boxed_func(module.forward)

    return compiler


def _frozen_names(gm: fx.GraphModule) -> set[str]:
    """Return the placeholders that are parameters or buffers which the graph does not change."""
    context = TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    if metadata is None:
        return set()
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return {
        placeholders[index].name
        for index in metadata.static_input_indices
        if index < len(placeholders) and not metadata.input_info[index].mutates_data
    }
