"""The back end that torch calls with each graph."""

from __future__ import annotations

import re
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import TracingContext

from opbuild.frontend.torch.capture import target_of
from opbuild.torch.ahead import is_ahead_of_time, require_plain, storable, without_own_cache
from opbuild.torch.artifacts import Recorder
from opbuild.torch.decompositions import decompositions, kept_whole
from opbuild.torch.flat import Flat, flat_of
from opbuild.torch.part import Part
from opbuild.torch.partition import Partitioned
from opbuild.torch.report import Graph, add
from opbuild.torch.settings import Settings, read_settings
from opbuild.torch.sizes import built_before

GRADIENTS = "gradients are needed: call the model under torch.no_grad() or torch.inference_mode()"
"""Why the graphs of training are left to torch."""

_NUMBERS = count()
_FRAMES = re.compile(r'File "(.*)", line \d+, in (.*)')


def opbuild(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Return what runs a graph of torch's; ``torch.compile(model, backend="opbuild")`` calls it.

    Args:
        gm: The graph that Dynamo found.
        example_inputs: What it was called with.
        options: ``on_error``: ``"raise"`` (the default) raises what opbuild can not build, ``"eager"`` leaves it to
            torch with a warning. And the options of ``opbuild.compile``: ``cache_path``, ``num_threads``, ...

    Raises:
        OptionError: If an option is at fault.
        ModelError, BuildError: A call, if a part can not be built.
    """
    settings = read_settings(options)
    graph = _graph_of(gm, example_inputs)
    flat = list[Flat]()
    compiler = aot_autograd(
        fw_compiler=_leave(graph),
        bw_compiler=_leave(graph),
        inference_compiler=_compile(settings, graph, flat if is_ahead_of_time() else None),
        decompositions=decompositions(),
        keep_inference_input_mutations=False,
    )
    with without_own_cache(), kept_whole():
        compiled = compiler(gm, example_inputs)
    add(graph)
    return storable(compiled, flat, example_inputs, options or {}) if is_ahead_of_time() else compiled


def _graph_of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Graph:
    tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    traces = (str(node.meta.get("stack_trace", "")) for node in gm.graph.nodes)
    code = frozenset(frame for trace in traces for frame in _FRAMES.findall(trace))
    return Graph(f"graph_{next(_NUMBERS)}", _tensors=tuple(map(weakref.ref, tensors)), _code=code)


def _leave(graph: Graph) -> Callable[..., Any]:
    """Return a compiler that leaves graphs to torch, because they are for gradients."""

    def compiler(gm: fx.GraphModule, _: Sequence[Any]) -> Any:
        if not graph.partitioned:
            warnings.warn(f"opbuild leaves {graph.name} to torch: {GRADIENTS}", stacklevel=2)
        graph.partitioned.update((name, GRADIENTS) for name in map(target_of, gm.graph.nodes) if name)
        return _boxed(gm, graph)

    return compiler


def _compile(settings: Settings, graph: Graph, flat: list[Flat] | None) -> Callable[..., Any]:
    """Return the compiler of graphs that need no gradients, which adds them as data to a list that is given."""

    def compiler(gm: fx.GraphModule, _: Sequence[Any]) -> Any:
        partitioned = Partitioned(gm, _frozen_names(gm), is_stored=flat is not None)
        graph.compiled.update(partitioned.compiled)
        graph.partitioned.update(partitioned.left)
        if flat is not None:
            flat.append(flat_of(partitioned.module, partitioned.programs))
            require_plain(_metadata())
        module, precedes, built = partitioned.module, _may_have_other_sizes(), built_before(partitioned.programs)
        tell = Recorder(settings.config)
        for name, program in partitioned.programs.items():
            eager = module.get_submodule(name)
            follows = None if built is None else built[name]
            delattr(module, name)
            setattr(module, name, Part(program, eager, settings, graph, follows=follows, precedes=precedes, tell=tell))
        return _boxed(module, graph)

    return compiler


def _boxed(module: fx.GraphModule, graph: Graph) -> Any:
    """Return what runs a module and keeps what is reported of it."""
    module.meta["opbuild"] = graph
    return make_boxed_func(module.forward)


def _may_have_other_sizes() -> bool:
    """Return whether Dynamo would hand over the same again with open sizes."""
    settings: Any = torch._dynamo.config
    return bool(settings.automatic_dynamic_shapes and settings.assume_static_by_default)


def _frozen_names(gm: fx.GraphModule) -> set[str]:
    """Return the placeholders that are parameters or buffers which the graph does not change."""
    metadata = _metadata()
    if metadata is None:
        return set()
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return {
        placeholders[index].name
        for index in metadata.static_input_indices
        if index < len(placeholders) and not metadata.input_info[index].mutates_data
    }


def _metadata() -> Any:
    """Return what ``aot_autograd`` found out about the graph; None if there is none."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata
