"""A registry: functions by the operators' domain and type that they serve; modules are loaded by name and fill it.

A module says what it serves with a decorator. The registry knows the names of its modules, and of some what they serve:
those are loaded when one of their operators is first asked for, the others one after the other until one serves it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from contextlib import suppress
from importlib import import_module
from typing import TypeVar

from opbuild.platform.locks import RLock

Operator = tuple[str, str]
"""The domain and the type of an operator."""

Served = Mapping[str, Iterable[str]]
"""Types of operators by domain."""

V = TypeVar("V")


class Registry(MutableMapping[Operator, V]):
    """The implementations of operators: a mapping that loads the modules that fill it. Any thread may load some.

    Args:
        kind: What is registered, for errors.
        package: The package of the modules.
        declared: Modules with the operators that each serves; several may serve one.
        others: Modules of which only they themselves know what they serve, in the order in which they are loaded.
        join: Returns what serves an operator for which two register; without it that is an error.
    """

    def __init__(
        self,
        kind: str,
        package: str = "",
        declared: Mapping[str, Served] | None = None,
        others: Iterable[str] = (),
        join: Callable[[V, V], V] | None = None,
    ) -> None:
        self._kind, self._package, self._join = kind, package, join
        self._lock = RLock()
        self._found: dict[Operator, V] = {}
        self._declared: dict[Operator, list[str]] = {}  # modules that are not loaded, by what they serve
        self._others: list[str] = []  # modules that are not loaded, of which nothing is known
        for name, served in (declared or {}).items():
            self.declare(name, served)
        for name in others:
            self.declare(name)

    def declare(self, module: str, served: Served | None = None) -> None:
        """Tell the operators that a module serves, which is loaded when one of them is asked for."""
        if served is None:
            self._others.append(self._full(module))
            return
        for domain, op_types in served.items():
            for op_type in op_types:
                with self._lock:
                    modules = self._declared.setdefault((domain, op_type), [])
                    if self._full(module) not in modules:
                        modules.append(self._full(module))

    def register(self, *op_types: str, domain: str = "") -> Callable[[V], V]:
        """Register the decorated function for operators, which no other serves unless they are joined."""

        def add(value: V) -> V:
            for op_type in op_types:
                self._add((domain, op_type), value)
            return value

        return add

    def register_all(self, table: Mapping[str, V], domain: str = "") -> None:
        """Register each value of a table for the operators of a domain whose types its key has, with blanks between."""
        for op_types, value in table.items():
            self.register(*op_types.split(), domain=domain)(value)

    def serves(self, domain: str, op_type: str) -> bool:
        """Return whether an operator is served; loads no module that declares its operators."""
        return (domain, op_type) in self._declared or (domain, op_type) in self

    def load(self) -> None:
        """Load all modules."""
        for operator in [*self._declared]:
            self._load_declared(operator)
        while self._others:
            self._load_next()

    def __getitem__(self, operator: Operator) -> V:
        """Return the value registered for an operator."""
        if operator in self._declared:
            self._load_declared(operator)
        while operator not in self._found and self._others:
            self._load_next()
        return self._found[operator]

    def __setitem__(self, operator: Operator, value: V) -> None:
        """Let this serve an operator instead of the former one."""
        self.get(operator)
        self._found[operator] = value

    def __delitem__(self, operator: Operator) -> None:
        """Let nothing serve an operator."""
        self[operator]
        del self._found[operator]

    def __iter__(self) -> Iterator[Operator]:
        """Iterate over all operators that are served; loads all modules."""
        self.load()
        return iter(self._found)

    def __len__(self) -> int:
        """Return the number of operators that are served; loads all modules."""
        self.load()
        return len(self._found)

    def _full(self, module: str) -> str:
        return module if "." in module or not self._package else f"{self._package}.{module}"

    def _add(self, operator: Operator, value: V) -> None:
        with self._lock:  # modules that other threads load may serve it, too
            if operator not in self._found:
                self._found[operator] = value
            elif self._join is not None:
                self._found[operator] = self._join(self._found[operator], value)
            else:
                raise ValueError(f"{_operator_text(operator)} has two {self._kind}s: register one of them")

    def _load_declared(self, operator: Operator) -> None:
        modules = self._declared.get(operator, [])
        loaded = 0
        while loaded < len(modules):
            import_module(modules[loaded])
            loaded += 1
        if operator not in self._found:
            names = " and ".join(modules)
            raise LookupError(
                f"{names} registers no {self._kind} of {_operator_text(operator)}, which it is said to serve"
            )
        with self._lock:
            if self._declared.get(operator) is modules and loaded == len(modules):  # else there is one more by now
                del self._declared[operator]

    def _load_next(self) -> None:
        for module in self._others[:1]:
            import_module(module)
            with suppress(ValueError):  # another thread was faster
                self._others.remove(module)


def _operator_text(operator: Operator) -> str:
    return ".".join(filter(None, operator))
