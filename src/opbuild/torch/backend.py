"""The back end that torch calls with each graph."""

from __future__ import annotations

import re
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Literal

import torch
from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import CompileContext, TracingContext

from opbuild.torch.aot import Storable, is_ahead_of_time, require_host, require_plain, without_own_cache
from opbuild.torch.artifacts import Recorder
from opbuild.torch.decompositions import attention_written_out, decompositions, kept_whole
from opbuild.torch.devices import settings_for
from opbuild.torch.flat import Flat, flat_of
from opbuild.torch.part import Part
from opbuild.torch.partition import Partitioned
from opbuild.torch.report import Graph, add
from opbuild.torch.settings import Settings, read_settings

_NUMBERS = count()
_FRAMES = re.compile(r'File "(.*)", line (\d+), in ')


def opbuild(gm: fx.GraphModule, example_inputs: Sequence[Any], *, options: Mapping[str, Any] | None = None) -> Any:
    """Return a runner of a graph of torch's; ``torch.compile(model, backend="opbuild")`` calls it.

    Where gradients are needed, it is a forward and a backward graph, between which torch's min-cut partitioner chooses
    what is kept and what is computed again.

    Args:
        gm: The graph that Dynamo found.
        example_inputs: What it was called with.
        options: ``on_error``: ``"raise"`` (the default) raises what opbuild cannot build, ``"eager"`` leaves it to
            torch with a warning. And the options of ``opbuild.compile``: ``cache_path``, ``num_threads``, ...

    Raises:
        OptionError: If an option is at fault.
        TargetError: If tensors are where opbuild computes nothing; with ``"eager"`` what computes on them is torch's.
        ModelError, BuildError: A call, if a part cannot be built.
    """
    settings = settings_for(example_inputs, read_settings(options))
    if is_ahead_of_time():
        require_host(settings.device)
    graph = _graph_of(gm, example_inputs)
    flat = list[Flat]()
    compiler = aot_autograd(
        fw_compiler=_compile(settings, graph, "forward"),
        bw_compiler=_compile(settings, graph, "backward"),
        inference_compiler=_compile(settings, graph, "inference", flat if is_ahead_of_time() else None),
        partition_fn=min_cut_rematerialization_partition,
        decompositions=decompositions(),
        keep_inference_input_mutations=False,
    )
    with without_own_cache(), kept_whole(), attention_written_out(example_inputs):
        compiled = compiler(gm, example_inputs)
    add(graph)
    return Storable(compiled, flat, len(example_inputs), options or {}) if is_ahead_of_time() else compiled


def _graph_of(gm: fx.GraphModule, example_inputs: Sequence[Any]) -> Graph:
    tensors = [each for each in example_inputs if isinstance(each, torch.Tensor)]
    traces = (str(node.meta.get("stack_trace", "")) for node in gm.graph.nodes)
    lines = frozenset((file, int(line)) for trace in traces for file, line in _FRAMES.findall(trace))
    return Graph(f"graph_{next(_NUMBERS)}", _tensors=tuple(map(weakref.ref, tensors)), _lines=lines)


def _compile(settings: Settings, graph: Graph, role: Role, flat: list[Flat] | None = None) -> Callable[..., Any]:
    """Return the compiler of graphs of a role, which adds them as data to a list that is given."""

    def compiler(gm: fx.GraphModule, _: Sequence[Any]) -> Any:
        frozen = _frozen_names(gm) if role == "inference" else set[str]()
        replaced = _replaced(gm) if role == "inference" and flat is None else {}
        prefix = "opbuild_" if role == "inference" else f"{role}_"
        partitioned = Partitioned(
            gm, frozen, replaced, is_stored=flat is not None, prefix=prefix, device=settings.device
        )
        graph.compiled.update(partitioned.compiled)
        graph.partitioned.update(partitioned.left)
        if flat is not None:
            flat.append(flat_of(partitioned.module, partitioned.programs))
            require_plain(_metadata())
        module, built = partitioned.module, was_built(role)
        dynamo: Any = torch._dynamo.config
        # Dynamo would hand over the same again with open sizes
        reopens = bool(dynamo.automatic_dynamic_shapes and dynamo.assume_static_by_default)
        tell = Recorder(settings.config)
        for name, program in partitioned.programs.items():
            eager = module.get_submodule(name)
            delattr(module, name)
            setattr(module, name, Part(program, eager, settings, graph, was_built=built, reopens=reopens, tell=tell))
        module.meta["opbuild"] = graph  # which is reported of for as long as the module is there
        return make_boxed_func(module.forward)

    return compiler


def _frozen_names(gm: fx.GraphModule) -> set[str]:
    """Return the placeholders that are parameters or buffers which the graph does not change.

    There are none where it changes parameters, as an optimizer does: the others differ at each step, too.
    """
    metadata = _metadata()
    if metadata is None or any(each.mutates_data and each.requires_grad for each in metadata.input_info):
        return set()
    placeholders = [node for node in gm.graph.nodes if node.op == "placeholder"]
    return {
        placeholders[index].name
        for index in metadata.static_input_indices
        if index < len(placeholders) and not metadata.input_info[index].mutates_data
    }


def _replaced(gm: fx.GraphModule) -> dict[int, str]:
    """Return the placeholders that outputs replace, by the outputs' positions: the graph's writes in place."""
    metadata = _metadata()
    placeholders = [node.name for node in gm.graph.nodes if node.op == "placeholder"]
    if metadata is None or len(placeholders) != len(metadata.input_info):
        return {}
    changed = enumerate(metadata.mutated_inp_runtime_indices)
    only_data = {
        index for index, each in enumerate(metadata.input_info) if each.mutates_data and not each.mutates_metadata
    }
    return {place: placeholders[index] for place, index in changed if index in only_data}


def _metadata() -> Any:
    """Return the metadata that ``aot_autograd`` found out about the graph; None if there is none."""
    context = TracingContext.try_get()
    return None if context is None else context.fw_metadata


Role = Literal["inference", "forward", "backward"]
"""The part of some code that a graph is: all of it, or where gradients are needed one of two."""

_BUILT: set[tuple[int, Role]] = set()


def was_built(role: Role) -> bool:
    """Return whether Dynamo handed over the present code before; ``role`` is the graph's part of it."""
    compile_id = CompileContext.current_compile_id()
    if compile_id is None or compile_id.frame_id is None:
        return False
    if not compile_id.frame_compile_id:
        _BUILT.add((compile_id.frame_id, role))
        return False
    return (compile_id.frame_id, role) in _BUILT
