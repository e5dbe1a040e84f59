"""Which operators have kernels, for which element types, and which run on the host.

Nothing is listed by hand: each operator's small model (``frontend.operator_examples`` has them) goes the way of every
model, and what becomes of it is the answer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING

import numpy as np

from opbuild.arguments import checks_arguments
from opbuild.backend.evaluate import evaluate
from opbuild.backend.host.evaluate import is_native
from opbuild.config import Config
from opbuild.errors import ModelError, OptionError, RunError
from opbuild.events import ignore
from opbuild.graph.breaks import GraphBreak, type_of_value
from opbuild.graph.types import Array, Graph, Node, TensorType
from opbuild.pipeline.setup import Setup
from opbuild.platform.records import NamedTuple
from opbuild.program import HostCall
from opbuild.report import Clock
from opbuild.session import Session
from opbuild.target.host import host_level
from opbuild.text.plural import nearest

if TYPE_CHECKING:
    from opbuild.frontend.operator_examples import OperatorExample


NO_TENSORS = "for lists, optional values or text: falls back to numpy, at a graph break"
"""Remark on an operator that is given or gives no tensors."""


class OperatorSupport(NamedTuple):
    """The support of an operator: by kernels, by the host, or none.

    Attributes:
        name: The operator's type; after its domain, if that is not ONNX's own: ``com.microsoft.MatMulNBits``.
        form: The way of using it that this is about, such as ``3-D``; empty if all are alike.
        kernel: Element types for which kernels compute it.
        host: Element types for which it runs on the host, without a kernel.
        folded: Element types for which it is computed when the network is built.
        refused: Element types that the operator allows and opbuild cannot serve.
        offline: Whether an offline model can have it: what runs on the host needs the ``onnx`` package otherwise.
        why: Why there is no kernel, or why it is refused; empty if there is one.
    """

    name: str
    form: str
    kernel: tuple[str, ...]
    host: tuple[str, ...]
    folded: tuple[str, ...]
    refused: tuple[str, ...]
    offline: bool
    why: str


class _Outcome(NamedTuple):
    """The outcome of one model: a field of ``OperatorSupport``, whether onnx is needed to run it, and why."""

    place: str
    offline: bool = True
    why: str = ""


@checks_arguments
def operators(name: str | Sequence[str] | None = None) -> tuple[OperatorSupport, ...]:
    """Return the operators with kernels, for which element types, and those that fall back to numpy.

    Each is asked about by a small network, in its usual form; other attributes and shapes may be served otherwise:
    ``opbuild explain`` and ``net.report.host`` tell it of a network.

    Args:
        name: An operator's type, or several; None for all. A type without a domain is that of every domain.

    Returns:
        A record for each operator, or one for each form of an operator whose forms are served differently.

    Raises:
        OptionError: If there is no operator of that name.
    """
    wanted = (name,) if isinstance(name, str) else name
    found = (
        _operators_with_examples() if wanted is None else dict.fromkeys(each for one in wanted for each in _named(one))
    )
    return tuple(record for each in found for record in _records(each))


@cache
def _operators_with_examples() -> Sequence[str]:
    """Return the operators of which there are examples."""
    from opbuild.frontend.operator_examples import operator_types
    from opbuild.frontend.rewritten import LEARNED, MICROSOFT

    return [name for domain in ("", LEARNED, MICROSOFT) for name in operator_types(domain)]


def _named(name: str) -> Sequence[str]:
    """Return the operators of a name, or of a type in all domains."""
    known = _operators_with_examples()
    found = [each for each in known if name in (each, each.rpartition(".")[2])]
    if not found:
        hint = f"{nearest(name, known)}'opbuild operators' lists all {len(known)}"
        raise OptionError(f"there is no operator {name!r}", hint)
    return found


@cache
def _records(op_type: str) -> tuple[OperatorSupport, ...]:
    forms: defaultdict[str, dict[str, _Outcome]] = defaultdict(dict)
    from opbuild.frontend.operator_examples import examples

    for example in examples(op_type):
        forms[example.label][example.dtype] = outcome(example)
    alike: dict[OperatorSupport, list[str]] = {}
    for label, outcomes in forms.items():
        alike.setdefault(_record(op_type, outcomes), []).append(label)
    labels = {record: ", ".join(each) if len(alike) > 1 else "" for record, each in alike.items()}
    return tuple(record._replace(form=label) for record, label in labels.items())


def _record(op_type: str, outcomes: dict[str, _Outcome]) -> OperatorSupport:
    places = {
        place: tuple(dtype for dtype, each in outcomes.items() if each.place == place and dtype)
        for place in ("kernel", "host", "folded", "refused")
    }
    offline = all(each.offline for each in outcomes.values())
    reasons = [outcomes[dtype].why for dtype in ("float32", *outcomes) if dtype in outcomes and not places["kernel"]]
    return OperatorSupport(op_type, "", **places, offline=offline, why=next(filter(None, reasons), ""))


def outcome(example: OperatorExample) -> _Outcome:
    """Return the outcome of an example, by the steps that every model takes."""
    from opbuild.frontend.onnx_model import load_model

    if example.model is None:
        return _Outcome("refused", False, NO_TENSORS)
    try:
        setup = Setup(Config(), host_level(), ignore)
        walked = load_model(example.model).walk({}, evaluate)
        if walked.follows is not None:
            return _outcome_at_break(walked.graph, walked.follows)
        needed = Session(setup).plan([walked.graph], Clock())
    except ModelError as error:
        return _Outcome("refused", False, error.message.partition("node 'node'")[2].lstrip(": ") or error.message)
    (graph,), (program,) = needed.graphs, needed.programs
    hosts = [call for call in program.calls if isinstance(call, HostCall) and not call.is_check]
    foreign = [call for call in hosts if not needed.host[call.node.name].portable]
    if not all(_evaluates(call, graph) for call in foreign):
        return _Outcome("refused", False, "the onnx package does not evaluate it")
    if all(name in graph.constants for name in graph.outputs):
        return _Outcome("folded")
    if not needed.host:
        return _Outcome("kernel")
    return _Outcome("host", not foreign, next(each.why for each in needed.host.values()))


def _outcome_at_break(graph: Graph, follows: GraphBreak) -> _Outcome:
    """Return the outcome of an operator at which a network breaks: the host computes it, or only chooses kernels."""
    if follows.kind != "data":
        return _Outcome("kernel")
    types = {**graph.types, **{name: type_of_value(value) for name, value in follows.constants.items()}}
    constants = {**graph.constants, **follows.constants}
    for node in follows.nodes:
        if _results(node, [types[name] if name else None for name in node.inputs], constants, follows.opset) is None:
            return _Outcome("refused", False, "the onnx package does not evaluate it")
    return _Outcome("host", all(map(is_native, follows.nodes)), "what it gives decides the shapes behind it")


def _evaluates(call: HostCall, graph: Graph) -> bool:
    """Return whether the host computes a node, as the type that it should be: onnx's evaluator does not all."""
    results = _results(call.node, call.input_types, graph.constants, call.opset)
    expected = [each and each.dtype for each in call.output_types]
    return results is not None and all(
        dtype in (None, array.dtype) for array, dtype in zip(results, expected, strict=False)
    )


def _results(
    node: Node, types: Sequence[TensorType | None], constants: Mapping[str, Array], opset: int
) -> Sequence[Array] | None:
    """Return the results of the host for inputs of ones, None if it cannot compute them."""
    arrays = [
        constants[name] if name in constants else None if each is None else np.ones(each.shape, each.dtype)
        for name, each in zip(node.inputs, types, strict=True)
    ]
    try:
        return evaluate(node, arrays, opset)
    except (RunError, ModelError):
        return None


def filtered(
    records: Sequence[OperatorSupport], *, kernel: bool = False, host: bool = False, dtype: str = ""
) -> Iterator[OperatorSupport]:
    """Yield the records of operators that have kernels, or that run on the host, for some type or for one."""
    for each in records:
        sides = [side for asked, side in ((kernel, each.kernel), (host, each.host)) if asked]
        sides = sides or [each.kernel + each.host + each.folded + (() if dtype else each.refused or ("",))]
        if all((dtype in side) if dtype else side for side in sides):
            yield each
