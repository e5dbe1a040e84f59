"""NodeArg and ModelMetadata: a session's description of its model."""

from __future__ import annotations

from collections.abc import Mapping

from opbuild.frontend.wire import DeclaredExtent, DeclaredModel, DeclaredType
from opbuild.kernel.opdesc import FREE
from opbuild.onnxruntime.options import SessionOptions
from opbuild.onnxruntime.types import element_name, type_name
from opbuild.platform.records import dataclass
from opbuild.runtime.endpoint import Endpoint

_NO_VERSION = 2**63 - 1
"""What ONNX Runtime answers where a model has no version."""


@dataclass(frozen=True)
class NodeArg:
    """An input or output.

    Attributes:
        name: Its name.
        type: Its type, such as ``tensor(float)``.
        shape: Its extents: a number, the name of an open extent, or None for one without a name. Empty where the rank
            is open too.
    """

    name: str
    type: str
    shape: list[int | str | None]

    def __str__(self) -> str:
        return f"NodeArg(name={self.name!r}, type={self.type!r}, shape={self.shape})"


@dataclass(frozen=True)
class ModelMetadata:
    """The metadata of a model.

    Attributes:
        producer_name: What exported it.
        graph_name: The name of its graph.
        domain: Its domain.
        description: Its description.
        graph_description: Its graph's description.
        version: Its version; the greatest number of 64 bits if it has none.
        custom_metadata_map: The exporter's notes.
    """

    producer_name: str
    graph_name: str
    domain: str
    description: str
    graph_description: str
    version: int
    custom_metadata_map: dict[str, str]


def metadata_of(model: DeclaredModel) -> ModelMetadata:
    """Return the metadata of a model."""
    names = ("producer_name", "graph_name", "domain", "description", "graph_description")
    return ModelMetadata(
        **{name: model.texts.get(name, "") for name in names},
        version=_NO_VERSION if model.version is None else model.version,
        custom_metadata_map=dict(model.metadata),
    )


def arguments_of(declared: Mapping[str, DeclaredType], options: SessionOptions) -> list[NodeArg]:
    """Return inputs or outputs as declared, with the sizes that the options give to open extents."""
    return [
        NodeArg(name, type_name(each), [_extent(extent, options) for extent in each.shape or ()])
        for name, each in declared.items()
    ]


def argument_of_endpoint(endpoint: Endpoint) -> NodeArg:
    """Return an output that the model does not declare in full, as the network infers it."""
    shape: list[int | str | None] = [None if extent == FREE else extent for extent in endpoint.shape or ()]
    return NodeArg(endpoint.name, f"tensor({element_name(endpoint.type.dtype)})", shape)


def _extent(extent: DeclaredExtent, options: SessionOptions) -> int | str | None:
    if extent.value is not None:
        return extent.value
    sizes = (options.sizes_by_name.get(extent.name), options.sizes_by_denotation.get(extent.denotation))
    return next((size for size in sizes if size is not None), extent.name or None)
