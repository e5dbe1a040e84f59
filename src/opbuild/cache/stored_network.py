"""A stored network as its users see it: what it says of itself, whether its record can be run, which files it needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from opbuild.graph.types import TensorType
from opbuild.kernel.reason import Reason
from opbuild.program import HostCall
from opbuild.runtime.record_json import from_json
from opbuild.store.networks import Contents
from opbuild.store.reading import REFUSED
from opbuild.store.weights import weights_file


@dataclass(frozen=True)
class Description:
    """What a stored network says of itself.

    Attributes:
        network: The network's own name.
        target: The machine that it is for.
        num_threads: How many threads it was built for; 0 if it does not say.
        inputs: Name and type of each input.
        outputs: Name and type of each output.
        operators: Name of each operator, and the nodes that it computes.
        host: How many nodes of each type run on the host.
        weights: Digest and bytes of the packed weights that it maps.
        files: Its files and those of its weights, as paths below the folder; the commit mark last.
    """

    network: str
    target: str
    num_threads: int
    inputs: tuple[tuple[str, TensorType], ...]
    outputs: tuple[tuple[str, TensorType], ...]
    operators: tuple[tuple[str, tuple[str, ...]], ...]
    host: Mapping[str, int]
    weights: Mapping[str, int]
    files: tuple[str, ...]


def describe(name: str, stored: Contents) -> Description | Reason:
    """Return what a stored network says of itself, or why it can not be run; its weights are not looked at.

    Args:
        name: The files' name without suffix.
        stored: What they hold.
    """
    try:
        record = from_json(stored.record)
        threads = stored.key.components.get("num_threads")
        weights = {each.digest: each.nbytes for each in record.constants if each.digest}
        return Description(
            network=record.name,
            target=str(stored.key.components["target"]),
            num_threads=threads if isinstance(threads, int) else 0,
            inputs=tuple((port.name, port.type) for port in record.inputs),
            outputs=tuple((port.name, port.type) for port in record.outputs),
            operators=tuple(
                (str(operator), tuple(map(str, nodes))) for operator, nodes, _ in record.notes.get("operators", ())
            ),
            host=Counter(step.node.op_type for step in record.steps if isinstance(step, HostCall)),
            weights=weights,
            files=(*map(weights_file, weights), f"{name}.so", f"{name}.bin", f"{name}.json"),
        )
    except REFUSED as error:
        return Reason("damaged", str(error))
