"""Saving a module: its graph by ``torch.export``, in segments as ``torch.compile`` would have it."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram, export
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec, OutputKind, OutputSpec

from opbuild.errors import InvalidModelError
from opbuild.frontend.torch.capture import DTYPES
from opbuild.platform.files.trust import make_trust
from opbuild.platform.paths import Path
from opbuild.torch.decompositions import decompositions
from opbuild.torch.flat import flat_of, unsupported
from opbuild.torch.loading import Loaded
from opbuild.torch.partition import Partitioned
from opbuild.torch.saved import Given, Result, Saved, write_saved
from opbuild.torch.settings import read_settings
from opbuild.torch.tensors import to_array
from opbuild.torch.trees import tree_of

_STATE = {InputKind.PARAMETER, InputKind.BUFFER}
_WRITTEN = {OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION}


def save(
    path: str | os.PathLike[str],
    model: torch.nn.Module,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    options: Mapping[str, Any] | None = None,
) -> Loaded:
    """Save a module so that another process runs it without Dynamo; see ``load``.

    The file has the graph, which operators opbuild and which torch computes, and what arguments must be like. Weights
    and kernels are not in it: those are the module's, these are in the store, where they are once the module was
    called.

    Args:
        path: The file; one that is there is replaced.
        model: The module, in the mode in which it is to run.
        args: Arguments of a call, as ``torch.export.export`` takes them.
        kwargs: The same by name.
        dynamic_shapes: Extents that may differ from call to call, as ``torch.export.export`` takes them.
        options: The options of ``opbuild.compile``: ``cache_path``, ``num_threads``, ...

    Returns:
        The module as ``load`` returns it; its first call builds what the store lacks.

    Raises:
        InvalidModelError: If torch cannot export the module.
        UnsupportedOperatorError: If it does what cannot be saved.
        FileError: If the file cannot be written.
        OptionError: If an option is at fault.
    """
    saved = _saved(model, args, dict(kwargs or {}), dynamic_shapes)
    loaded = Loaded(saved, model, options, saved.graph.namespaces)
    write_saved(Path(path), saved, make_trust(read_settings(options).config))
    return loaded


def _saved(model: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any) -> Saved:
    if any(each.is_cuda for each in (*model.parameters(), *model.buffers())):
        raise unsupported("a module on a GPU")
    try:
        with torch.no_grad():
            exported = export(model, args, kwargs, dynamic_shapes=dynamic_shapes)
            exported = exported.run_decompositions(decompositions())
    except Exception as error:  # what torch raises here is of every kind
        raise InvalidModelError(
            f"torch.export cannot export the module: {error}", "use torch.compile, which runs what it can"
        ) from error
    signature = exported.graph_signature
    if not isinstance(exported.graph_module, torch.fx.GraphModule):
        raise unsupported("a graph of another kind")
    written = {spec.target for spec in signature.output_specs if spec.kind in _WRITTEN and spec.target is not None}
    frozen = {
        spec.arg.name
        for spec in signature.input_specs
        if spec.kind in {*_STATE, InputKind.CONSTANT_TENSOR} and spec.target not in written
    }
    partitioned = Partitioned(exported.graph_module, frozen)
    given = _graph_inputs(exported, partitioned.module)
    return Saved(
        flat_of(partitioned.module, partitioned.programs),
        given,
        tuple(_result(spec, given) for spec in signature.output_specs),
        tree_of(exported.call_spec.in_spec),
        tree_of(exported.call_spec.out_spec),
        _ranges(exported, given),
        {each.name: _constant(exported.constants[each.name]) for each in given if each.kind == "constant"},
        model.training,
    )


def _graph_inputs(exported: ExportedProgram, module: torch.fx.GraphModule) -> tuple[Given, ...]:
    values = [node.meta.get("val") for node in module.graph.nodes if node.op == "placeholder"]
    leaf, found = 0, []
    for spec, value in zip(exported.graph_signature.input_specs, values, strict=True):
        if spec.kind is InputKind.USER_INPUT:
            found.append(_leaf(spec, value, leaf))
            leaf += 1
            continue
        if spec.kind not in {*_STATE, InputKind.CONSTANT_TENSOR} or not isinstance(value, torch.Tensor):
            raise unsupported(f"an input of kind {spec.kind.name.lower()}")
        kind = "state" if spec.kind in _STATE else "constant"
        found.append(Given(kind, str(spec.target), -1, _dtype(value), _shape(value.shape)))
    return tuple(found)


def _leaf(spec: InputSpec, value: Any, leaf: int) -> Given:
    if isinstance(spec.arg, ConstantArgument):
        if spec.arg.value is not None and not isinstance(spec.arg.value, (bool, int, float, str)):
            raise unsupported(f"an argument of type {type(spec.arg.value).__name__}")
        return Given("fixed", spec.arg.name, leaf, value=spec.arg.value)
    if isinstance(value, torch.Tensor):
        return Given("tensor", spec.arg.name, leaf, _dtype(value), _shape(value.shape))
    if isinstance(value, torch.SymInt):
        return Given("number", spec.arg.name, leaf, shape=_shape((value,)))
    raise unsupported(f"an argument of type {type(value).__name__}")


def _shape(extents: Sequence[Any]) -> list[int | str]:
    found: list[int | str] = []
    for each in extents:
        if isinstance(each, torch.SymInt) and not each.node.expr.is_number:
            if not each.node.expr.is_symbol:
                raise unsupported(f"a dimension that is {each}")
            found.append(str(each.node.expr))
        else:
            found.append(int(each))
    return found


def _dtype(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _result(spec: OutputSpec, given: Sequence[Given]) -> Result:
    if spec.kind is OutputKind.USER_OUTPUT:
        return Result("output")
    if spec.kind is OutputKind.BUFFER_MUTATION:
        return Result("state", str(spec.target))
    if spec.kind is OutputKind.USER_INPUT_MUTATION:
        return Result("leaf", leaf=next(each.leaf for each in given if each.leaf >= 0 and each.name == spec.target))
    raise unsupported(f"a result of kind {spec.kind.name.lower()}")


def _ranges(exported: ExportedProgram, given: Sequence[Given]) -> dict[str, tuple[int, int | None]]:
    names = {extent for each in given for extent in each.shape if isinstance(extent, str)}
    found = {str(symbol): each for symbol, each in exported.range_constraints.items()}
    ends = {name: (int(found[name].lower), found[name].upper) for name in sorted(names)}
    return {name: (least, int(most) if most.is_finite else None) for name, (least, most) in ends.items()}


def _constant(tensor: Any) -> tuple[str, list[int], str]:
    if not isinstance(tensor, torch.Tensor) or tensor.dtype not in DTYPES or tensor.device.type != "cpu":
        raise unsupported("a constant that is no tensor on the CPU")
    array = to_array(tensor, range(tensor.dim()))
    return DTYPES[tensor.dtype], list(tensor.shape), base64.b64encode(array.tobytes()).decode()
