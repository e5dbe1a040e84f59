"""``Cell``: the part of which networks are made."""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from typing import Any
from weakref import ref

from opbuild.dtypes import is_float
from opbuild.frontend.cell import current
from opbuild.mindspore.arguments import ArgumentTypeError, ArgumentValueError, one_of
from opbuild.mindspore.context import is_graph_mode
from opbuild.mindspore.dtype import to_type
from opbuild.mindspore.execution import cast, nested
from opbuild.mindspore.networks import Networks
from opbuild.mindspore.ops.control import with_own_gradient
from opbuild.mindspore.parameter import Parameter, ParameterTuple
from opbuild.mindspore.tensor import Tensor

__all__ = ["Cell", "no_init_parameters"]

_CURRENT: ContextVar[str] = ContextVar("float type", default="")


def computed(cell: Any, construct: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """Return the results of ``construct`` in the cell's own float type, or in that of the cell around it.

    Tensors among the arguments and the cell's own trained parameters are cast; what is not trained, such as running
    statistics, stays.
    """
    dtype = cell._float or _CURRENT.get()
    if not dtype:
        return construct(*args, **kwargs)
    token = _CURRENT.set(dtype)
    try:
        with _cast_parameters(cell, dtype):
            result = construct(*_cast(args, dtype), **_cast(dict(kwargs), dtype))
    finally:
        _CURRENT.reset(token)
    return _cast(result, cell._float_out) if cell._float_out else result


@contextmanager
def _cast_parameters(cell: Any, dtype: str) -> Iterator[None]:
    """Let attributes that are parameters give their elements in another type."""
    own = {
        name: parameter
        for name, parameter in cell._params.items()
        if parameter.requires_grad and cell.__dict__.get(name) is parameter and is_float(parameter.type.dtype)
    }
    try:
        for name, parameter in own.items():
            cell.__dict__[name] = cast(parameter, dtype)
        yield
    finally:
        cell.__dict__.update(own)


def _cast(value: Any, dtype: str) -> Any:
    """Return a nest with its float tensors in another type; parameters are cast where a cell owns them."""

    def leaf(item: Any) -> Any:
        is_given = isinstance(item, Tensor) and not isinstance(item, Parameter)
        return cast(item, dtype) if is_given and is_float(item.type.dtype) else item

    return nested(value, leaf)


class Cell:
    """A network or a part of one. Subclasses make their parts in ``__init__`` and compute in ``construct``.

    In ``GRAPH_MODE`` a call traces ``construct`` once for each signature (shapes, element types, plain values, the
    ``training`` flags) and runs what was built; in ``PYNATIVE_MODE`` ``construct`` runs as it stands, operator by
    operator.

    Args:
        auto_prefix: Whether parameters are named after the attributes that lead to them.
        flags: Kept for programs that ask.
    """

    def __init__(self, auto_prefix: bool = True, flags: dict[str, Any] | None = None) -> None:
        set_ = object.__setattr__
        set_(self, "_cells", OrderedDict())
        set_(self, "_params", OrderedDict())
        set_(self, "_networks", None)
        set_(self, "_version", 0)
        set_(self, "_scope", type(self).__name__)
        set_(self, "_auto_prefix", auto_prefix)
        self.training = False
        self.requires_grad = False
        self.flags = dict(flags or {})

    _cells: OrderedDict[str, Cell]
    _params: OrderedDict[str, Parameter]
    _networks: Networks | None
    _version: int
    _scope: str
    _auto_prefix: bool
    _float = _float_out = ""
    """The element types that the cell computes in, and that its results have; empty: those that its inputs have."""
    _recomputes = False
    """Whether a backward pass computes the cell again."""
    _is_step = False
    """Whether a call changes parameters: it is one network in both modes, and they are its states."""
    _shown = ""
    """The attributes that ``repr`` shows: ``attribute``, or ``label=attribute``."""
    _constructor_takes: tuple[str, ...] = ()
    """What of the attributes of a declared layer its base takes."""

    def construct(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs; every subclass has its own."""
        raise ArgumentTypeError(f"{type(self).__name__} has no construct", "define construct(self, ...) in the class")

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the network."""
        trace = current()
        if trace is not None:
            with trace.scope(self._scope), trace.region() if self._recomputes else nullcontext():
                if not hasattr(self, "bprop"):
                    return computed(self, self.construct, args, kwargs)
                return with_own_gradient(
                    trace, self, lambda *args, **kwargs: computed(self, self.construct, args, kwargs), args, kwargs
                )
        if not is_graph_mode() and not self._is_step:
            return computed(self, self.construct, args, kwargs)
        networks = self._networks
        if networks is None:
            owner = ref(self)  # which has its networks

            def construct(*args: Any, **kwargs: Any) -> Any:
                cell: Any = owner()  # it is being called
                return computed(cell, cell.construct, args, kwargs)

            networks = Networks(type(self).__name__, construct, has_states=self._is_step)
            object.__setattr__(self, "_networks", networks)
        return networks.call(args, kwargs, self._state())

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Build the network for these arguments' signature; it is run once."""
        self(*args, **kwargs)

    def _state(self) -> tuple[Any, Any]:
        """Return the state that decides the network beside its inputs: parts, training flags, and parameters' types."""
        cells = tuple((id(cell), cell._version, cell.training) for _, cell in self.cells_and_names())
        return cells, tuple((id(parameter), parameter.type) for parameter in self.get_parameters())

    # Parts and parameters

    def __setattr__(self, name: str, value: Any) -> None:
        if "_cells" not in self.__dict__:
            if isinstance(value, (Cell, Parameter)):
                raise ArgumentTypeError(
                    f"{type(self).__name__} assigns {name} before Cell.__init__", "call super().__init__() first"
                )
        else:
            self._register(name, value)
        object.__setattr__(self, name, value)

    def _register(self, name: str, value: Any) -> None:
        if isinstance(value, Cell):
            self._params.pop(name, None)
            self._cells[name] = value
            value._scope = name
            if self._auto_prefix:
                value.update_parameters_name(f"{name}.")
        elif isinstance(value, Parameter):
            self._cells.pop(name, None)
            self.insert_param_to_cell(name, value)
        elif isinstance(value, ParameterTuple):
            for index, parameter in enumerate(value):
                self.insert_param_to_cell(parameter.name if parameter.named else f"{name}.{index}", parameter)
        else:
            self._cells.pop(name, None)
            self._params.pop(name, None)
        if name not in ("training", "_version", "_scope") and current() is None:
            object.__setattr__(self, "_version", self._version + 1)

    def __delattr__(self, name: str) -> None:
        self._cells.pop(name, None)
        self._params.pop(name, None)
        object.__delattr__(self, name)
        object.__setattr__(self, "_version", self._version + 1)

    def __deepcopy__(self, memo: dict[int, Any]) -> Cell:
        new = type(self).__new__(type(self))
        memo[id(self)] = new
        for name, value in self.__dict__.items():
            object.__setattr__(new, name, None if name == "_networks" else copy.deepcopy(value, memo))
        return new

    def insert_param_to_cell(self, param_name: str, param: Parameter, check_name_contain_dot: bool = True) -> None:
        """Add a parameter."""
        if not isinstance(param, Parameter):
            raise ArgumentTypeError(f"the parameter {param_name} is a {type(param).__name__}", "give a Parameter")
        if not param.named:
            param.name = param_name
            param.named = True
        self._params[param_name] = param
        if "." not in param_name:
            object.__setattr__(self, param_name, param)

    def insert_child_to_cell(self, child_name: str, child_cell: Cell) -> None:
        """Add a part."""
        if not isinstance(child_cell, Cell):
            raise ArgumentTypeError(f"the part {child_name} is a {type(child_cell).__name__}", "give a Cell")
        if child_name in self._cells:
            raise ArgumentValueError(f"{type(self).__name__} has a part {child_name!r} already", "choose another name")
        setattr(self, child_name, child_cell)

    def update_parameters_name(self, prefix: str = "", recurse: bool = True) -> None:
        """Name the parameters after the attributes that lead to them, behind ``prefix``."""
        for path, parameter in self.parameters_and_names(expand=recurse):
            parameter.name = prefix + path
            parameter.named = True

    def cells(self) -> Any:
        """Return the parts assigned to this cell."""
        return self._cells.values()

    def name_cells(self) -> OrderedDict[str, Cell]:
        """Return the parts by the names of their attributes."""
        return OrderedDict(self._cells)

    def cells_and_names(self, name_prefix: str = "") -> Iterator[tuple[str, Cell]]:
        """Yield this cell and all below it with the paths that lead to them, each cell once."""
        yield from self._walk(name_prefix, set())

    def _walk(self, path: str, visited: set[int]) -> Iterator[tuple[str, Cell]]:
        if id(self) in visited:
            return
        visited.add(id(self))
        yield path, self
        for name, cell in self._cells.items():
            yield from cell._walk(f"{path}.{name}" if path else name, visited)

    def parameters_and_names(self, name_prefix: str = "", expand: bool = True) -> Iterator[tuple[str, Parameter]]:
        """Yield the parameters with the paths that lead to them, each once; without ``expand`` only this cell's own."""
        yielded: set[int] = set()
        for path, cell in self.cells_and_names(name_prefix) if expand else ((name_prefix, self),):
            for name, parameter in cell._params.items():
                if id(parameter) not in yielded:
                    yielded.add(id(parameter))
                    yield (f"{path}.{name}" if path else name), parameter

    def get_parameters(self, expand: bool = True) -> Iterator[Parameter]:
        """Yield the parameters."""
        for _, parameter in self.parameters_and_names(expand=expand):
            yield parameter

    def parameters_dict(self, recurse: bool = True) -> OrderedDict[str, Parameter]:
        """Return the parameters by name."""
        return OrderedDict((parameter.name, parameter) for parameter in self.get_parameters(recurse))

    def trainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Return the parameters with ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(recurse) if parameter.requires_grad]

    def untrainable_params(self, recurse: bool = True) -> list[Parameter]:
        """Return the parameters without ``requires_grad``."""
        return [parameter for parameter in self.get_parameters(recurse) if not parameter.requires_grad]

    def apply(self, fn: Callable[[Cell], None]) -> Cell:
        """Call ``fn`` with every cell below this one and then with this one."""
        for cell in self._cells.values():
            cell.apply(fn)
        fn(self)
        return self

    def init_parameters_data(self, auto_parallel_mode: bool = False) -> dict[Parameter, Parameter]:
        """Return the parameters: they hold data from the start."""
        return {parameter: parameter for parameter in self.get_parameters()}

    # Modes

    def set_train(self, mode: bool = True) -> Cell:
        """Set ``training`` here and below."""
        for _, cell in self.cells_and_names():
            object.__setattr__(cell, "training", bool(mode))
        return self

    def set_grad(self, requires_grad: bool = True) -> Cell:
        """Keep the flag for programs that ask: ``value_and_grad`` computes gradients whatever it is."""
        self.requires_grad = requires_grad
        return self

    def add_flags(self, **flags: Any) -> Cell:
        """Keep flags for programs that ask; they change nothing."""
        self.flags.update(flags)
        return self

    def add_flags_recursive(self, **flags: Any) -> Cell:
        """Keep flags here and below."""
        for _, cell in self.cells_and_names():
            cell.add_flags(**flags)
        return self

    def get_flags(self) -> dict[str, Any]:
        """Return the flags."""
        return self.flags

    def set_inputs(self, *inputs: Any, **kwargs: Any) -> None:
        """Do nothing: operators are shape-generic, so inputs need no declaration."""

    def to_float(self, dst_type: Any, gives: str = "") -> Cell:
        """Let this cell and those below it compute in another type: inputs and parameters are cast where they are used.

        Args:
            dst_type: float16, bfloat16 or float32.
            gives: The name of the type that results are cast to; empty: they stay as they are computed.
        """
        self._float = one_of(to_type(dst_type).name, ("float16", "bfloat16", "float32"), "the type of to_float")
        self._float_out = gives
        return self

    def recompute(self, **options: Any) -> None:
        """Let a backward pass compute this cell again from its inputs, instead of keeping its intermediate values.

        Args:
            options: What MindSpore takes here is about several devices, and changes nothing.
        """
        self._recomputes = True

    @property
    def cls_name(self) -> str:
        """The name of the class."""
        return type(self).__name__

    @property
    def param_prefix(self) -> str:
        """An empty text, as in MindSpore unless the cell was named."""
        return ""

    def extend_repr(self) -> str:
        """Return the text of ``repr`` between the brackets; subclasses override it."""
        pairs = (each.partition("=") for each in self._shown.split())
        return ", ".join(f"{label}={getattr(self, name or label)}" for label, _, name in pairs)

    def __repr__(self) -> str:
        arguments = self.extend_repr()
        name = type(self).__name__
        if not self._cells:
            return f"{name}({arguments})"
        lines = [arguments] if arguments else []
        for key, cell in self._cells.items():
            first, *rest = repr(cell).split("\n")
            lines.append("\n".join([f"({key}): {first}", *(f"  {line}" for line in rest)]))
        return f"{name}(\n" + "\n".join(f"  {line}" for line in lines) + "\n)"


@contextmanager
def no_init_parameters() -> Iterator[None]:
    """Make cells whose parameters are loaded before they are used; here they get their first values all the same."""
    yield
