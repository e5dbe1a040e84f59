"""Declaration: a model's inputs and outputs as it declares them, as its users see them, or told from some sizes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from opbuild.errors import OpbuildError, OptionError, ShapeError
from opbuild.graph.types import Graph, TensorType
from opbuild.kernel.free import FREE
from opbuild.platform.records import NamedTuple
from opbuild.report import Clock
from opbuild.runtime.endpoint import Endpoint, common
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from opbuild.frontend.models.sizes import Shapes, Sizes

COMPARED, TRIED = 3, 24
"""Sizes that are compared (the middle of the ranges, the least, the greatest, or the next that the network takes), and
how many are tried for them."""


class Declared(NamedTuple):
    """The declaration of an input or output of a model.

    Attributes:
        name: Its name.
        dtype: Its element type, a numpy name.
        shape: Its shape: -1 for an open extent, None for an open rank.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None


def declared_from_json(name: Any, dtype: Any, shape: Any) -> Declared:
    """Return the declaration of an input or output that is stored as JSON."""
    return Declared(str(name), str(dtype), None if shape is None else tuple(map(int, shape)))


class Declaration(NamedTuple):
    """The declaration of a model; with it a network that was built before starts without the model being read.

    Attributes:
        name: The network's name.
        inputs: What it says of each input.
        outputs: What it says of each output; the element type is empty where that cannot be told.
        external: The files that hold the model's external data, relative to the model.
    """

    name: str
    inputs: tuple[Declared, ...]
    outputs: tuple[Declared, ...]
    external: tuple[str, ...]

    @property
    def is_open(self) -> bool:
        """Whether some input may have several shapes."""
        return any(shape is None or FREE in shape for _, _, shape in self.inputs)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the inputs, -1 where an extent is open; none has an open rank."""
        return tuple(shape or () for _, _, shape in self.inputs)


def inputs_of(
    declaration: Declaration, input_shapes: Mapping[str, Sequence[int]], *, open_ranks: bool = False
) -> tuple[tuple[Endpoint, ...], Shapes | None]:
    """Return the inputs as declared, -1 where they are open, and the signature if it is known already.

    Args:
        declaration: What the model declares.
        input_shapes: Shapes by input name; they win over the model's: an extent in which they differ is open. -1
            leaves an extent open too.
        open_ranks: Whether inputs may have any number of dimensions, which a call tells; their shape is None then.

    Raises:
        ShapeError: If a shape does not fit its input or names none.
    """
    names = [name for name, _, _ in declaration.inputs]
    for name in input_shapes:
        if name not in names:
            from opbuild.text.plural import nearest

            hint = f"{nearest(name, names)}the inputs are {', '.join(map(repr, names)) or 'none'}"
            raise ShapeError(f"a shape was given for {name!r}, which is no input", hint)
    endpoints, shapes = [], []
    for name, dtype, declared in declaration.inputs:
        if name in input_shapes:
            shape = _checked(name, declared, tuple(input_shapes[name]))
            endpoints.append(Endpoint(name, TensorType(dtype, _in_common(shape, declared))))
        elif declared is None and not open_ranks:
            raise ShapeError(
                f"input {name!r} may have any rank",
                f"give its shape: input_shapes={{{name!r}: (...)}}",
                command=f'give its shape: --shape "{name}:..."',
            )
        else:
            shape = cast("tuple[int, ...]", declared)  # see Endpoint
            endpoints.append(Endpoint(name, TensorType(dtype, shape)))
        shapes.append(shape)
    return tuple(endpoints), None if any(map(_is_open, shapes)) else tuple(shapes)


def _is_open(shape: tuple[int, ...] | None) -> bool:
    return shape is None or FREE in shape


def outputs_of(
    declaration: Declaration,
    inputs: Sequence[Endpoint],
    bound: Sequence[Endpoint],
    bind: Callable[[Shapes, Clock], Graph],
) -> tuple[Endpoint, ...]:
    """Return the outputs as declared, -1 where they are open, given those of a signature that was bound, if one was.

    Of inputs that are not what the model declares they may be anything: then they are told from some sizes of the
    model, for which ``bind`` returns its graph.
    """
    if bound and not any(_is_open(endpoint.shape) for endpoint in inputs):
        return tuple(bound)
    declared = (each.shape for each in declaration.inputs)
    as_declared = all(endpoint.shape == shape for endpoint, shape in zip(inputs, declared, strict=True))
    has_ranks = all(endpoint.shape is not None for endpoint in inputs)
    if has_ranks and (any(output.shape is None for output in declaration.outputs) or not (bound or as_declared)):
        from opbuild.frontend.models.sizes import make_sizes

        with contextlib.suppress(OpbuildError):  # a model that has operators without rules, say
            sizes = make_sizes([endpoint.name for endpoint in inputs], [endpoint.shape for endpoint in inputs])
            return outputs_of_any(bind, sizes)
    examples = bound or (None,) * len(declaration.outputs)
    return tuple(_output(each, one, as_declared) for each, one in zip(declaration.outputs, examples, strict=True))


def outputs_of_any(
    bind: Callable[[Shapes, Clock], Graph], sizes: Sizes, known: Sequence[Shapes] = ()
) -> tuple[Endpoint, ...]:
    """Return a network's outputs; an extent that differs between sizes is -1, and so is any if one size alone is taken.

    Args:
        bind: Returns the network's graph for a size.
        sizes: The ranges of its inputs.
        known: Sizes that it surely takes.

    Raises:
        ShapeError: If the network takes none of the sizes that were tried.
    """
    graphs, problem = list[Graph](), ShapeError("there is no size in the ranges")
    tried = dict.fromkeys((*sizes.samples()[:TRIED], *known))
    for shapes in tried:
        try:
            graphs.append(bind(shapes, Clock()))
        except ShapeError as error:  # a size that the network itself does not take
            problem = error.with_traceback(None)
        if len(graphs) == COMPARED:
            break
    if not graphs:
        try:
            raise problem
        finally:
            del problem  # its traceback has this frame: a cycle
    columns = [[graph.types[name] for graph in graphs] for name in graphs[0].outputs]
    if len(graphs) == 1 and len(tried) > 1:
        columns = [[one, TensorType(one.dtype, (FREE,) * len(one.shape))] for (one,) in columns]
    return tuple(Endpoint(name, common(types)) for name, types in zip(graphs[0].outputs, columns, strict=True))


def _in_common(shape: tuple[int, ...], declared: tuple[int, ...] | None) -> tuple[int, ...]:
    """Return a shape with -1 for each extent that another one does not have too."""
    if declared is None or len(declared) != len(shape):
        return (FREE,) * len(shape)
    return tuple(one if one == other else FREE for one, other in zip(shape, declared, strict=True))


def _output(declared: Declared, example: Endpoint | None, as_declared: bool) -> Endpoint:
    """Return an output as declared, but for parts that differ in ``example``, a signature that was bound.

    It may be anything unless the inputs are ``as_declared``.
    """
    if example is not None:
        return Endpoint(declared.name, TensorType(example.type.dtype, _in_common(example.shape, declared.shape)))
    shape = declared.shape if as_declared or declared.shape is None else (FREE,) * len(declared.shape)
    return Endpoint(declared.name, TensorType(declared.dtype, cast("tuple[int, ...]", shape)))  # see Endpoint


def _checked(name: str, declared: tuple[int, ...] | None, given: tuple[int, ...]) -> tuple[int, ...]:
    if declared is not None and len(declared) != len(given):
        shown = ["?" if extent == FREE else extent for extent in declared]
        problem = f"input {name!r} has {counted(len(declared), 'dimension')} {shown}; the shape given is {list(given)}"
        raise ShapeError(problem, "give one number for each dimension")
    if any(not FREE <= extent < 2**31 for extent in given):
        message = f"the shape given for input {name!r} is {list(given)}"
        raise ShapeError(message, "dimensions are from 0 to 2147483647; -1 leaves one open")
    return tuple(int(extent) for extent in given)


def signature_of(declaration: Declaration, name: str, input_shapes: Mapping[str, Sequence[int]]) -> Shapes:
    """Return the types of the inputs of a model with that name, for a command that needs one size.

    Raises:
        OptionError: If a shape is open still.
    """
    ports, signature = inputs_of(declaration, input_shapes)
    if signature is None:
        missing = [(port.name, port.shape) for port in ports if any(extent < 0 for extent in port.shape)]
        named = ";".join(f"{port}:{','.join(map(str, shape))}" for port, shape in missing)
        first = missing[0][0] if missing else "name"
        raise OptionError(
            f"inputs of {name!r} have open shapes: {named}",
            f"give one size as input_shapes={{{first!r}: (1, 128)}}: its operators serve other sizes too",
            command=f'give one size as --shape "{first}:1,128": its operators serve other sizes too',
        )
    return signature
