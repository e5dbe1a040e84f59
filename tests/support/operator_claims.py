"""What really becomes of an operator's small model: it is built and called, and its report is looked at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx

import opbuild
from opbuild.errors import ModelError, RunError
from opbuild.frontend.operator_examples import OperatorExample, examples, operator_types
from opbuild.frontend.rewritten import LEARNED, MICROSOFT
from opbuild.graph.shape_rules import ONNX_DTYPES


def all_examples() -> list[OperatorExample]:
    """Return every small model."""
    names = (name for domain in ("", MICROSOFT, LEARNED) for name in operator_types(domain))
    return [example for name in names for example in examples(name)]


def claim(example: OperatorExample) -> str:
    """Return the claim of ``opbuild.operators`` for an example: ``host``, ``no host`` or ``refused``."""
    records = opbuild.operators(example.op_type)
    record = next(each for each in records if each.form == "" or example.label in each.form.split(", "))
    if example.dtype in record.host:
        return "host"
    return "no host" if example.dtype in record.kernel + record.folded else "refused"


def what_happens(example: OperatorExample, cache: Path) -> str:
    """Build a small model, call it, and return ``host``, ``no host`` or ``refused``."""
    if example.model is None:
        return "refused"
    try:
        net = opbuild.compile(example.model, cache_path=cache, num_threads=1)
    except ModelError:
        return "refused"
    try:
        net.run(feeds_of(example.model))
    except (ModelError, RunError):  # onnx's evaluator, which computes what has no kernel, does not know all types
        return "refused"
    return "host" if net.report.host else "no host"


def feeds_of(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    """Return ones for every input."""
    known = {each.name for each in model.graph.initializer}
    feeds = {}
    for port in model.graph.input:
        if port.name not in known:
            tensor = port.type.tensor_type
            shape = [dim.dim_value for dim in tensor.shape.dim]
            feeds[port.name] = np.ones(shape, ONNX_DTYPES[tensor.elem_type])
    return feeds
