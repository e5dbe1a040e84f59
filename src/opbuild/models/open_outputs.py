"""The outputs of a network whose inputs are open, told from some of the sizes that it may get."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from opbuild.errors import ShapeError
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.models.sizes import Shapes, Sizes
from opbuild.runtime.endpoint import Endpoint, common

if TYPE_CHECKING:
    from opbuild.frontend.portable import PortableModel

COMPARED, TRIED = 3, 24
"""Sizes that are compared (the middle of the ranges, the least, the greatest, or the next that the network takes), and
how many are tried for them."""


def outputs_of_any(model: PortableModel, sizes: Sizes, known: Sequence[Shapes] = ()) -> tuple[Endpoint, ...]:
    """Return a network's outputs; an extent that differs between sizes is -1, and so is any if one size alone is taken.

    Args:
        model: The network.
        sizes: The ranges of its inputs.
        known: Sizes that it surely takes.

    Raises:
        ShapeError: If the network takes none of the sizes that were tried.
        UnsupportedOperatorError: If a type can not be told without the ``onnx`` package.
    """
    from opbuild.backend.host.evaluate import evaluate_native

    graphs, problem = list[Graph](), ShapeError("there is no size in the ranges")
    tried = dict.fromkeys((*sizes.samples()[:TRIED], *known))
    for shapes in tried:
        try:
            graphs.append(model.bind(shapes, evaluate_native))
        except ShapeError as error:  # a size that the network itself does not take
            problem = error
        if len(graphs) == COMPARED:
            break
    if not graphs:
        raise problem
    columns = [[graph.types[name] for graph in graphs] for name in graphs[0].outputs]
    if len(graphs) == 1 and len(tried) > 1:
        columns = [[one, TensorType(one.dtype, (FREE,) * len(one.shape))] for (one,) in columns]
    return tuple(Endpoint(name, common(types)) for name, types in zip(graphs[0].outputs, columns, strict=True))
