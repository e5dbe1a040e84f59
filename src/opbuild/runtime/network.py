"""Network: what the user calls. Arrays in, arrays out; everything is checked here, at the edge, and nowhere after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn

import numpy as np

from opbuild.errors import BuildError, InputError, RunError
from opbuild.graph.types import Array, TensorType
from opbuild.kernel.opdesc import FREE
from opbuild.limits import hint_for, named
from opbuild.plural import counted, verb
from opbuild.report import Report
from opbuild.runtime.executor import Executor

Shapes = tuple[tuple[int, ...], ...]
"""The shape of each input, in order: what one binding of a network serves."""


class Endpoint(NamedTuple):
    """An input or output of a network.

    Attributes:
        name: Its name in the model.
        type: Element type and row-major shape; the extent of an input that is open until arrays are given is -1.
    """

    name: str
    type: TensorType


class Binding(NamedTuple):
    """A network that is ready for one input signature."""

    executor: Executor
    report: Report


Bind = Callable[[Shapes], Binding]
"""Builds a network for the shapes of its inputs."""

LEAST_KEPT, MOST_KEPT, MOST_MEMORY = 8, 64, 2**30
"""Signatures that stay bound in any case; that stay if their temporaries are small; bytes of temporaries beyond the
former. A server that sees a new image size with each call would otherwise grow until it is killed."""


class Network:
    """A built network; any number of threads may call it.

    A call takes arrays by position, by name, or one dictionary; it returns one array if the network has one output and
    a tuple if it has several. Inputs are numpy arrays, or anything that speaks DLPack (torch tensors among them), or
    Python numbers and lists. Dense arrays are read in place; outputs are fresh.

    Extents that the model leaves open, or that were given to ``compile`` by ``input_shapes``, may differ from call to
    call: a new signature is bound when it is first seen, and again if many others were bound since.

    Args:
        name: The network's name.
        inputs: Its inputs; -1 marks extents that may differ from call to call.
        outputs: Names of its outputs.
        bind: Makes it ready for a signature.
        first: The signature to bind now; None waits for the first call.
        check: Refuses shapes of inputs that it does not serve; default: those that do not fit ``inputs``.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Endpoint],
        outputs: Sequence[str],
        bind: Bind,
        *,
        first: Shapes | None = None,
        check: Callable[[Shapes], None] | None = None,
    ) -> None:
        self.name = name
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._dtypes = tuple(np.dtype(endpoint.type.dtype) for endpoint in inputs)
        self._positions = {endpoint.name: position for position, endpoint in enumerate(inputs)}
        self._bind = bind
        self._check = check or self._check_shapes
        self._bindings: dict[Shapes, Binding] = {}
        self._lock = threading.Lock()
        self._latest: Binding | None = None
        if first is not None:
            self._binding(first)

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs in order, with the shapes that were bound last; -1 before any were."""
        return self._ports("inputs") or self._inputs

    @property
    def outputs(self) -> tuple[Endpoint, ...]:
        """The outputs in order, with the shapes that were bound last; none before any were."""
        return self._ports("outputs")

    @property
    def report(self) -> Report:
        """What the build of the signature that was bound last did; an empty report before any was."""
        return self._latest.report if self._latest is not None else Report(self.name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network.

        Args:
            args: Arrays in the order of ``inputs``, or one dictionary from names to arrays.
            kwargs: Arrays by name.

        Returns:
            One array, or a tuple of arrays in the order of ``outputs``.

        Raises:
            InputError: If the arrays do not fit the inputs; the message names the input.
            RunError: If the network fails while it runs.
            ModelError, BuildError: If a new signature can not be bound.
        """
        results = self._run(self._collect(args, kwargs))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, feeds: Mapping[str, Any]) -> dict[str, Array]:
        """Run the network on arrays by name and return its outputs by name; raises as a call does."""
        results = self._run(self._collect((feeds,), {}))
        return dict(zip(self._outputs, results, strict=True))

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the network {self.name} can be neither pickled nor deeply copied: it is machine code in this process; "
            "compile the model again where it is needed, which starts it from the store"
        )

    def __copy__(self) -> Network:
        return self

    def __repr__(self) -> str:
        ports = ", ".join(f"{endpoint.name}: {endpoint.type}" for endpoint in self.inputs)
        results = ", ".join(f"{endpoint.name}: {endpoint.type}" for endpoint in self.outputs)
        return f"<opbuild network {self.name} ({ports}) -> ({results})>"

    def _run(self, values: list[Any]) -> list[Array]:
        arrays = [self._array(position, value) for position, value in enumerate(values)]
        shapes = tuple([array.shape for array in arrays])
        binding = self._bindings.get(shapes)
        if binding is None:
            self._check(shapes)
            binding = self._binding(shapes)
        try:
            return binding.executor.run(arrays)
        except MemoryError as error:
            raise RunError(f"the network {self.name} can not run: {error}", hint_for(error)) from error

    def _collect(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return one value for each input."""
        if len(args) == 1 and not kwargs and isinstance(args[0], Mapping):
            return self._collect((), args[0])
        if not kwargs and len(args) == len(self._inputs):
            return list(args)
        names = ", ".join(repr(endpoint.name) for endpoint in self._inputs) or "none"
        if len(args) > len(self._inputs):
            raise InputError(
                f"{counted(len(args), 'array')} {verb(len(args), 'was', 'were')} given",
                f"the network {self.name} has these inputs: {names}",
            )
        values: dict[int, Any] = dict(enumerate(args))
        for name, value in kwargs.items():
            position = self._positions.get(name)
            if position is None:
                raise InputError(f"the network {self.name} has no input {name!r}", f"its inputs are {names}")
            if position in values:
                raise InputError(f"input {name!r} was given twice", "give it by position or by name")
            values[position] = value
        missing = [endpoint.name for position, endpoint in enumerate(self._inputs) if position not in values]
        if missing:
            raise InputError(f"input {missing[0]!r} is missing", f"the network {self.name} has these inputs: {names}")
        return [values[position] for position in range(len(self._inputs))]

    def _array(self, position: int, value: Any) -> Array:
        """Return an input as a dense array of the right type; it is copied only if it is not dense."""
        dtype = self._dtypes[position]
        array = value if type(value) is np.ndarray else _to_numpy(value, dtype, self._inputs[position])
        if array.dtype != dtype:
            name = self._inputs[position].name
            raise InputError(
                f"input {name!r} has element type {array.dtype}, the network needs {dtype}",
                f"convert it, e.g. {name}.astype({dtype.name!r})"
                if name.isidentifier()
                else f"convert it to {dtype.name}",
            )
        if array.flags.c_contiguous and array.flags.aligned:
            return array
        return array.copy(order="C")

    def _check_shapes(self, shapes: Shapes) -> None:
        for endpoint, shape in zip(self._inputs, shapes, strict=True):
            expected = endpoint.type.shape
            fits = len(expected) == len(shape) and all(e in (FREE, s) for e, s in zip(expected, shape, strict=True))
            if not fits:
                raise InputError(
                    f"input {endpoint.name!r} has shape {list(shape)}, the network needs {_shape_text(expected)}",
                    f"the model fixes it; compile with input_shapes={{{endpoint.name!r}: ...}} to leave it open",
                    command=f'the model fixes it; --input_shape "{endpoint.name}:..." gives it another',
                )

    def _binding(self, shapes: Shapes) -> Binding:
        with self._lock:  # a signature is built once, however many threads ask for it
            binding = self._bindings.get(shapes)
            if binding is None:
                with named(BuildError, "the network can not be built"):
                    binding = self._bindings[shapes] = self._bind(shapes)
                self._forget()
            self._latest = binding
            return binding

    def _forget(self) -> None:
        """Let go of the signatures that were bound first; a call that is under way keeps what it uses."""
        while len(self._bindings) > LEAST_KEPT:
            memory = sum(binding.executor.record.arena_size for binding in self._bindings.values())
            if len(self._bindings) <= MOST_KEPT and memory <= MOST_MEMORY:
                break
            del self._bindings[next(iter(self._bindings))]

    def _ports(self, side: str) -> tuple[Endpoint, ...]:
        if self._latest is None:
            return ()
        ports = getattr(self._latest.executor.record, side)
        return tuple(Endpoint(port.name, port.type) for port in ports)


def _to_numpy(value: Any, dtype: np.dtype[Any], endpoint: Endpoint) -> Array:
    """Return what the user gave as a numpy array, sharing memory where it can."""
    try:
        if isinstance(value, np.ndarray):
            return np.asarray(value)
        if isinstance(value, (bool, int, float, list, tuple)):
            return np.asarray(value, dtype)
        if hasattr(value, "__dlpack__") and not isinstance(value, np.generic):
            return np.asarray(np.from_dlpack(value))
        array = np.asarray(value)
    except Exception as error:  # whatever the other library raises
        raise InputError(
            f"input {endpoint.name!r} can not be read as an array: {error}",
            "give a numpy array, or a tensor in the CPU's memory that needs no gradient",
        ) from error
    if array.dtype == object:
        raise InputError(
            f"input {endpoint.name!r} is a {type(value).__name__}, not an array",
            "give a numpy array or a DLPack tensor",
        )
    return array


def _shape_text(shape: tuple[int, ...]) -> str:
    return "[" + ", ".join("any" if extent == FREE else str(extent) for extent in shape) + "]"
