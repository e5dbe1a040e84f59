"""Network: the callable. Arrays in, arrays out; everything is checked here, at the edge, and nowhere after."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, overload

import numpy as np

from opbuild.dtypes import numpy_dtype
from opbuild.errors import BuildError, InputError, OutputError, RunError
from opbuild.graph.types import Array
from opbuild.kernel.free import FREE
from opbuild.platform.background import BACKGROUND_WRITER, begin, yielding
from opbuild.platform.limits import hint_for, named
from opbuild.platform.locks import Lock, lazy_property
from opbuild.report import Report
from opbuild.runtime.binding import Binder, Bound, Improvement, Shapes
from opbuild.runtime.endpoint import Endpoint, as_input, is_dense, shape_text
from opbuild.runtime.executor import Executor
from opbuild.runtime.reused import ReusedMemory, memory_request
from opbuild.runtime.shape_pattern import ShapePattern
from opbuild.text.plural import counted, verb

if TYPE_CHECKING:
    import threading

    from opbuild.runtime.profile import Profile

Declare = Callable[[tuple[Endpoint, ...]], Sequence[Endpoint]]
"""Returns a network's outputs, -1 where they are open, given those of the signature that was bound when the network was
made; none if none was."""

MOST_KEPT, MOST_FILLED = 64, 512
"""Signatures that stay bound: those that have arguments of their own, and all. A server that sees a new image size with
each call would otherwise grow until it is killed: arguments are some hundred bytes for each operand of each call, the
numbers that they are filled with a tenth of that. Bindings share all else."""

MOST_IMPROVED = 16
"""Signatures that wait for faster bindings at once; where more are asked for, later calls ask again."""


class Network:
    """A built network; any number of threads may call it.

    A call takes arrays by position, by name, or one dictionary; it returns one array if the network has one output and
    a tuple if it has several. Inputs are numpy arrays, or anything that speaks DLPack (torch tensors among them), or
    Python numbers and lists. Dense arrays are read in place; outputs are fresh, but for those that replace inputs
    (``Graph.updates``).

    Extents that the model leaves open, or that were given to ``compile`` by ``input_shapes``, may differ from call to
    call: a new signature is bound when it is first seen, and again if many others were bound since.

    Args:
        name: The network's name.
        inputs: Its inputs as declared; -1 marks extents that are open.
        outputs: Names of its outputs.
        bind: Makes it ready for a signature, when a call first has it.
        first: The network as it is ready for one signature already; None: for none.
        check: Refuses shapes of inputs that it does not serve; default: those that do not fit ``inputs``.
        any_shape: Inputs whose extents may all differ from call to call, whatever is declared.
        declare: Says what the outputs are; default: what they are in the signature that is bound first.
    """

    def __init__(
        self,
        name: str,
        inputs: Sequence[Endpoint],
        outputs: Sequence[str],
        bind: Binder,
        *,
        first: Bound | None = None,
        check: Callable[[Shapes], None] | None = None,
        any_shape: Collection[str] = (),
        declare: Declare = tuple,
    ) -> None:
        self.name = name
        self._inputs = tuple(inputs)
        self._outputs = tuple(outputs)
        self._dtypes = tuple(numpy_dtype(endpoint.type.dtype) for endpoint in inputs)
        self._has_others = any(dtype.hasobject for dtype in self._dtypes)
        self._positions = {endpoint.name: position for position, endpoint in enumerate(inputs)}
        self._bind = bind
        self._check = check
        self._any_shape = frozenset(any_shape)
        self._declare = declare
        self._bindings: dict[Shapes, Bound] = {}
        self._own: dict[Shapes, None] = {}
        self._copies = ReusedMemory()
        self._to_improve: dict[Shapes, Improvement] = {}  # the first one may be under way
        self._improver: threading.Thread | None = None  # noqa: TID251  its type alone
        self._lock = Lock()
        self._latest: Bound | None = None
        self._built = 0
        if first is not None:
            self._keep(tuple(port.type.shape for port in first.executor.inputs), first)
            self._latest = first
            self._built = first.built
        self._first_outputs = self.bound_outputs

    @property
    def inputs(self) -> tuple[Endpoint, ...]:
        """The inputs in order, as declared: an extent that is open is -1, before the first call and after."""
        return self._inputs

    @lazy_property
    def outputs(self) -> tuple[Endpoint, ...]:
        """The outputs in order, as declared: an extent that is open is -1, before the first call and after."""
        return tuple(self._declare(self._first_outputs))

    @property
    def bound_inputs(self) -> tuple[Endpoint, ...]:
        """The inputs in order, with the shapes that were bound last; none before any were."""
        return self._ports("inputs")

    @property
    def bound_outputs(self) -> tuple[Endpoint, ...]:
        """The outputs in order, with the shapes that were bound last; none before any were."""
        return self._ports("outputs")

    @property
    def report(self) -> Report:
        """The report of the build of the signature that was bound last; an empty report before any was."""
        return self._latest.report if self._latest is not None else Report(self.name)

    @property
    def built(self) -> int:
        """Operators that were compiled for all signatures together, also for faster bindings behind calls."""
        with self._lock:
            bound = [*self._bindings.values()]
        return self._built + max((each.built_later for each in bound), default=0)

    def __call__(self, /, *args: Any, **kwargs: Any) -> Array | Any:
        """Run the network.

        Args:
            args: Arrays in the order of ``inputs``, or one dictionary from names to arrays.
            kwargs: Arrays by name.

        Returns:
            One array, or a tuple of arrays in the order of ``outputs`` if there are several.

        Raises:
            InputError: If the arrays do not fit the inputs; the message names the input.
            RunError: If the network fails while it runs.
            ModelError, BuildError: If a new signature cannot be bound.
        """
        try:
            results = self._run(self._collect(args, kwargs))
        except KeyboardInterrupt as interrupt:
            raise _bare(interrupt) from None
        return results[0] if len(results) == 1 else tuple(results)

    @overload
    def run(self, feeds: Mapping[str, Any], /, *, out: Mapping[str, Array] | None = None) -> dict[str, Array]: ...

    @overload
    def run(self, /, *, feeds: Mapping[str, Any], out: Mapping[str, Array] | None = None) -> dict[str, Array]: ...

    @overload
    def run(
        self,
        /,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        run_options: None = None,
        *,
        out: Mapping[str, Array] | None = None,
    ) -> list[Array]: ...

    @overload
    def run(self, output_names: Sequence[str] | None, /, **arrays: Any) -> list[Array]: ...

    @overload
    def run(self, /, **arrays: Any) -> dict[str, Array]: ...

    def run(self, /, *args: Any, **kwargs: Any) -> dict[str, Array] | list[Array]:
        """Run the network on arrays by name.

        ``run(feeds)`` and ``run(x=array)`` return all outputs by name. ``run(names, feeds)`` returns a list of the
        outputs that are named, ``run(None, feeds)`` of all, as ONNX Runtime's sessions do.

        With ``out={"name": array}`` an output is written to an array of the caller's, and that is its result. It may
        be an input's array: where the output is the input but for some elements, such as a cache of a decoder with
        the keys of new tokens, only those are written. A call that fails leaves such arrays as it had written them.

        Args:
            args: ``feeds``; or ``output_names`` and ``input_feed``.
            kwargs: Arrays by the input's name; or ``feeds``, ``output_names``, ``input_feed`` and ``out`` where no
                input has such a name.

        Raises:
            InputError: If there is no such output, or as a call does.
            OutputError: If an array of ``out`` does not fit its output.
            RunError, ModelError, BuildError: As a call does.
        """
        try:
            return self._asked(args, kwargs)
        except KeyboardInterrupt as interrupt:
            raise _bare(interrupt) from None

    def profile(self, inputs: Mapping[str, Any] | Sequence[Any] | None = None, *, runs: int = 10) -> Profile:
        """Time each call of a kernel or of the host backend.

        Args:
            inputs: Arrays by name or in order; None: random numbers of the shapes that were bound last.
            runs: How many runs are timed; the median of each call counts.

        Raises:
            InputError: If inputs are needed, or do not fit; if ``runs`` is below 1.
            RunError, ModelError, BuildError: As a call does.
        """
        from opbuild.runtime.profile import profiled, random_inputs

        given = inputs
        if given is None:
            given = random_inputs({port.name: port.type for port in self.bound_inputs or self.inputs})
        try:
            values = self._collect((), given) if isinstance(given, Mapping) else self._collect(tuple(given), {})
            self.wait_until_stored()  # it would be timed too
            return profiled(self.name, lambda: self._run(values), runs)
        except KeyboardInterrupt as interrupt:
            raise _bare(interrupt) from None

    def wait_until_stored(self) -> None:
        """Return when all that was built is stored, or could not be: large weights are stored behind ``compile``.

        A program that ends has stored everything; this is for who removes the cache's folder, or ends in another way.
        """
        BACKGROUND_WRITER.finish()

    @property
    def runners(self) -> tuple[Executor, ...]:
        """The executors of the signature that was bound last, whole or in segments; none before any was."""
        return tuple(self._latest.executor.runners) if self._latest is not None else ()

    def _output(self, name: Any) -> int:
        if name in self._outputs:
            return self._outputs.index(name)
        from opbuild.text.plural import nearest

        raise InputError(
            f"the network {self.name} has no output {name!r}",
            f"{nearest(name, self._outputs)}its outputs are {', '.join(map(repr, self._outputs))}",
        )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"the network {self.name} can be neither pickled nor deeply copied: it is machine code in this process; "
            "compile the model again where it is needed, which starts it from the store"
        )

    def __copy__(self) -> Network:
        return self

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(map(str, side)) for side in (self.inputs, self.outputs))
        return f"<opbuild network {self.name} ({inputs}) -> ({outputs})>"

    def _repr_html_(self) -> str:
        from opbuild.text.visible import table, titled

        sides = (("input", self.inputs), ("output", self.outputs))
        rows = [(side, each.name, each.dtype.name, shape_text(each.shape)) for side, ends in sides for each in ends]
        return titled(f"opbuild network {self.name}", table(("", "name", "type", "shape"), rows))

    def _asked(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Array] | list[Array]:
        """Return the results of ``run`` for any form of its arguments; ONNX Runtime's own form is not looked into."""
        if len(args) == 2 and args[0] is None and type(args[1]) is dict and not kwargs:
            return self._run(self._collect((), args[1]))
        from opbuild.runtime.request import read_request  # a start never needs it

        request = read_request(args, kwargs, self._positions)
        chosen = [self._output(name) for name in request.names or ()]
        results = self._run_into(request.out, self._collect((), request.feeds))
        if not request.as_list:
            return dict(zip(self._outputs, results, strict=True))
        return [results[index] for index in chosen] if chosen else results

    def _run_into(self, out: Mapping[str, Any], values: Sequence[Any]) -> list[Array]:
        """Return the results of a call, some of them in arrays of the caller's."""
        if not out:
            return self._run(values)
        given: list[Array | None] = [None] * len(self._outputs)
        for name, array in out.items():
            given[self._output(name)] = self._target(name, array)
        results = self._run(values, given)
        for place, (array, result) in enumerate(zip(given, results, strict=True)):
            if array is not None and array is not result:
                results[place] = self._copied(self._outputs[place], result, array)
        return results

    def _target(self, name: str, array: Any) -> Array:
        """Return an array of the caller's that takes an output."""
        if type(array) is not np.ndarray or not array.flags.writeable:
            what = "a read-only array" if isinstance(array, np.ndarray) else f"a value of {type(array).__name__}"
            raise OutputError(f"out has {what} for output {name!r}", "give a numpy array that can be written to")
        return array

    def _copied(self, name: str, result: Any, array: Array) -> Array:
        """Return the caller's array with an output's value in it."""
        require_alike(name, result, array)
        array[...] = result
        return array

    def _run(self, values: Sequence[Any], given: Sequence[Array | None] = ()) -> list[Array]:
        dtypes = self._dtypes
        for place, value in enumerate(values):
            if type(value) is not np.ndarray or value.dtype is not dtypes[place] or not value.flags.carray:
                values = self._arrays(values)
                break
        shapes = tuple([value.shape for value in values]) if not self._has_others else self._tensor_shapes(values)
        binding = self._bindings.get(shapes)
        if binding is None or binding.better is not None:
            binding = self._bound(shapes)
        try:
            return binding.executor.run(values, given)
        except MemoryError as error:
            raise self._memory_error(error) from error

    def _bound(self, shapes: Shapes) -> Bound:
        """Return the binding for shapes of inputs, made if there is none; a faster one is asked for."""
        binding = self._bindings.get(shapes)
        if binding is None:
            (self._check or self._check_shapes)(shapes)
            was_called, alone = self._latest is not None, self._bound_alone()
            binding = self._binding(shapes)
            if alone is not None:  # no later size shall wait for the program of all
                self._ask_for_better(alone)
            if was_called and binding.is_first_tier:  # a cache that grows: no size comes twice
                self._ask_for_better(shapes)
        elif binding.better is not None:
            self._ask_for_better(shapes)
        return binding

    def _bound_alone(self) -> Shapes | None:
        """Return the one signature that is bound so far, if by no program for others too."""
        with self._lock:  # others are bound meanwhile
            if len(self._bindings) != 1:
                return None
            shapes, binding = next(iter(self._bindings.items()))
            return None if binding.executor.is_filled else shapes

    def _memory_error(self, error: MemoryError) -> RunError:
        return RunError(f"the network {self.name} cannot run: {error}", hint_for(error))

    def _arrays(self, values: Sequence[Any]) -> list[Array]:
        """Return the values as arrays of the inputs' types whose elements lie in order; else they are copied."""
        named = zip(values, self._dtypes, self._positions, strict=True)
        arrays = [as_input(value, dtype, name) for value, dtype, name in named]
        others = [place for place, array in enumerate(arrays) if not is_dense(array)]
        if not others:
            return arrays
        copies = self._copies.take([memory_request(arrays[place].shape, arrays[place].dtype) for place in others])
        for place, copy in zip(others, copies, strict=True):
            copy[...] = arrays[place]
            arrays[place] = copy
        return arrays

    def _tensor_shapes(self, values: Sequence[Any]) -> Shapes:
        """Return the shapes of inputs of which some are no tensors; see ``graph.breaks.HOST_VALUE``."""
        return tuple(() if dtype.hasobject else each.shape for each, dtype in zip(values, self._dtypes, strict=True))

    def _collect(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Sequence[Any]:
        """Return one value for each input."""
        if len(args) == 1 and type(args[0]) is not np.ndarray and not kwargs and isinstance(args[0], Mapping):
            return self._collect((), args[0])
        if not kwargs and len(args) == len(self._inputs):
            return args
        if not args and kwargs.keys() == self._positions.keys():
            return [kwargs[name] for name in self._positions]
        return self._joined(args, kwargs)

    def _joined(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """Return one value for each input, of which some are given by position and others by name."""
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
                from opbuild.text.plural import nearest

                near = nearest(name, self._positions)
                raise InputError(f"the network {self.name} has no input {name!r}", f"{near}its inputs are {names}")
            if position in values:
                raise InputError(f"input {name!r} was given twice", "give it by position or by name")
            values[position] = value
        missing = [endpoint.name for position, endpoint in enumerate(self._inputs) if position not in values]
        if missing:
            raise InputError(f"input {missing[0]!r} is missing", f"the network {self.name} has these inputs: {names}")
        return [values[position] for position in range(len(self._inputs))]

    @lazy_property
    def _expected(self) -> list[tuple[int, ...] | None]:
        """The shape of each input, ``FREE`` where it may differ; None: any number of dimensions."""
        return [
            (FREE,) * len(each.shape) if each.shape is not None and each.name in self._any_shape else each.shape
            for each in self._inputs
        ]

    @lazy_property
    def _pattern(self) -> ShapePattern | None:
        """The shapes of all inputs; None if one may have any number of dimensions."""
        known = [each for each in self._expected if each is not None]
        return ShapePattern(known) if len(known) == len(self._expected) else None

    def _check_shapes(self, shapes: Shapes) -> None:
        if self._pattern is not None and self._pattern.fits(shapes):
            return
        for endpoint, expected, shape in zip(self._inputs, self._expected, shapes, strict=True):
            if expected is not None and not ShapePattern([expected]).fits([shape]):
                message = f"input {endpoint.name!r} has shape {list(shape)}, the network needs {shape_text(expected)}"
                hint, command = _how_to_fit(endpoint.name, shape, expected)
                raise InputError(message, hint, command=command)

    def _binding(self, shapes: Shapes) -> Bound:
        with self._lock:  # a signature is built once, however many threads ask for it
            binding = self._bindings.get(shapes)
            if binding is None:
                with named(BuildError, "the network cannot be built"):
                    binding = self._bind(shapes)
                self._built += binding.built
                self._keep(shapes, binding)
            self._latest = binding
            return binding

    def _ask_for_better(self, shapes: Shapes) -> None:
        """Have a faster binding made behind the calls, once; those that are under way keep the one they have."""
        is_asked = shapes in self._to_improve or len(self._to_improve) >= MOST_IMPROVED
        if is_asked and self._is_improving:  # without the lock, under which another size may be bound for seconds
            return
        with self._lock:
            binding = self._bindings.get(shapes)
            if binding is None or (better := binding.better) is None:
                return
            if len(self._to_improve) < MOST_IMPROVED:
                self._to_improve.setdefault(shapes, better)
            if not self._is_improving:
                self._improver = begin(self._improve, "opbuild-improve")
            if self._improver is None:  # each call would look for room for one
                self._to_improve.pop(shapes, None)
                self._bindings[shapes] = binding.without_better()

    @property
    def _is_improving(self) -> bool:
        """Whether a thread improves sizes; a fork has none of its parent's."""
        improver = self._improver
        return improver is not None and improver.is_alive()

    def _next_improvement(self) -> tuple[Shapes, Improvement] | None:
        """Return the next signature to improve; None: there is none, and who asks next begins a thread.

        It stays in line until it is improved: where the process forks meanwhile, the child does it too.
        """
        with self._lock:
            if self._to_improve:
                return next(iter(self._to_improve.items()))
            self._improver = None
            return None

    def _improve(self) -> None:
        """Exchange bindings for faster ones, one after the other."""
        while (asked := self._next_improvement()) is not None:
            shapes, better = asked
            found = None
            try:
                with yielding():
                    found = better.bind()
            finally:
                self._exchange(shapes, found)

    def _exchange(self, shapes: Shapes, found: Bound | None) -> None:
        """Put the binding that was found in the place of one, which stays if there is none."""
        with self._lock:
            del self._to_improve[shapes]
            before = self._bindings.get(shapes)
            self._built += found.built if found is not None else 0
            if before is None:
                return
            if found is None:
                self._bindings[shapes] = before.without_better()
            else:
                self._keep(shapes, found)
                if self._latest is not None and self._latest.executor is before.executor:
                    self._latest = found

    def _keep(self, shapes: Shapes, binding: Bound) -> None:
        """Keep a binding, and let go of the one that was bound first if there are too many.

        A call that is under way keeps what it uses.
        """
        self._bindings[shapes] = binding
        if binding.executor.is_filled:
            self._own.pop(shapes, None)
        else:
            self._own[shapes] = None
        over = self._own if len(self._own) > MOST_KEPT else self._bindings
        if over is self._own or len(over) > MOST_FILLED:
            first = next(iter(over))
            self._own.pop(first, None)
            gone = self._bindings.pop(first).executor
            if gone.arena_size > binding.executor.arena_size:  # else this one needs as much
                gone.blocks.shrink(max(each.executor.arena_size for each in self._bindings.values()))

    def _ports(self, side: str) -> tuple[Endpoint, ...]:
        if self._latest is None:
            return ()
        ports = getattr(self._latest.executor, side)
        return tuple(Endpoint(port.name, port.type) for port in ports)


def require_alike(name: str, result: Any, array: Any) -> None:
    """Refuse an array of the caller's that an output does not fit into.

    Raises:
        OutputError: If shape or element type differ.
    """
    own = f"{result.dtype}{list(result.shape)}" if isinstance(result, np.ndarray) else f"a {type(result).__name__}"
    if own != f"{array.dtype}{list(array.shape)}":
        message = f"out has {array.dtype}{list(array.shape)} for output {name!r}, which is {own}"
        raise OutputError(message, "give an array of the output's shape and type")


def _has_channels_last(shape: tuple[int, ...], expected: tuple[int, ...]) -> bool:
    """Return whether an array would fit if its last dimension stood second: NHWC, where NCHW is expected."""
    if len(shape) < 3 or expected[1] == FREE or shape[1] == expected[1]:
        return False
    moved = (shape[0], shape[-1], *shape[1:-1])
    return all(e in (FREE, s) for e, s in zip(expected, moved, strict=True))


def _how_to_fit(name: str, shape: tuple[int, ...], expected: tuple[int, ...]) -> tuple[str, str]:
    """Return the advice, in Python and in a command, for an input of a shape that the network does not take."""
    if len(shape) == len(expected):
        if _has_channels_last(shape, expected):
            order = (0, len(shape) - 1, *range(1, len(shape) - 1))
            move = "the channels stand last here, the model has them second"
            shown = name if name.isidentifier() else "array"
            return f"{move}: np.transpose({shown}, {order})", f"{move}: transpose the array by {order}"
        memory_request = tuple(e if e == s else None for e, s in zip(expected, shape, strict=True))
        return (
            f"the model fixes it; compile with input_shapes={{{name!r}: {memory_request}}} to leave it open",
            f'the model fixes it; --shape "{name}:{",".join(map(str, shape))}" gives it another',
        )
    hint = f"give an array of rank {len(expected)}"
    shown = name if name.isidentifier() else "array"
    return (f"{hint}; {shown}[None] adds a dimension in front" if len(shape) + 1 == len(expected) else hint), hint


def _bare(interrupt: KeyboardInterrupt) -> KeyboardInterrupt:
    from opbuild.platform.calls import bare

    return bare(interrupt)
