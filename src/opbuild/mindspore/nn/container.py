"""Cells that hold cells."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from opbuild.mindspore import names
from opbuild.mindspore.arguments import ArgumentTypeError
from opbuild.mindspore.nn.cell import Cell


class _Numbered(Cell):
    """Cells in order, named by number or by the keys of an ``OrderedDict``."""

    def _register(self, name: str, value: Any) -> None:
        prefix = self._prefix() if isinstance(value, Cell) and self._auto_prefix else ""
        super()._register(name, value)
        if prefix:
            value.update_parameters_name(f"{prefix}{name}.")

    def _prefix(self) -> str:
        """Return the prefix of names of parameters here: another cell has been given these, so its parts have too."""
        for path, parameter in self.parameters_and_names():
            if parameter.name.endswith(path):
                return parameter.name.removesuffix(path)
        return ""

    def _add(self, cells: Iterable[Any]) -> None:
        for cell in cells:
            self.append(cell)

    def append(self, cell: Cell) -> Any:
        """Add a cell at the end."""
        self.insert_child_to_cell(str(len(self._cells)), _checked(cell, type(self).__name__))
        return self

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[Cell]:
        return iter(list(self._cells.values()))

    def __getitem__(self, index: int | slice) -> Any:
        cells = list(self._cells.values())
        if isinstance(index, slice):
            return type(self)(*([cells[index]] if isinstance(self, CellList) else cells[index]))
        return cells[index]

    def __setitem__(self, index: int, cell: Cell) -> None:
        setattr(self, list(self._cells)[index], _checked(cell, type(self).__name__))

    def __delitem__(self, index: int | slice) -> None:
        cells = list(self._cells.values())
        del cells[index]
        self._replace(cells)

    def _replace(self, cells: list[Cell]) -> None:
        for name in list(self._cells):
            delattr(self, name)
        self._add(cells)


class SequentialCell(_Numbered):
    """Cells of which each takes the result of the one before.

    Args:
        args: Cells, one list of cells, or one ``OrderedDict`` of named cells.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__()
        if len(args) == 1 and isinstance(args[0], (OrderedDict, dict)):
            for name, cell in args[0].items():
                self.insert_child_to_cell(name, _checked(cell, "SequentialCell"))
            return
        self._add(args[0] if len(args) == 1 and isinstance(args[0], list) else args)

    def construct(self, input_data: Any) -> Any:
        """Apply the cells in order."""
        for cell in self._cells.values():
            input_data = cell(input_data)
        return input_data


class CellList(_Numbered):
    """A list of cells; it holds them and computes nothing.

    Args:
        args: One list of cells, or cells.
        kwargs: ``auto_prefix`` as in ``Cell``.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(kwargs.get("auto_prefix", True))
        self._add(args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args)

    def extend(self, cells: Iterable[Cell]) -> CellList:
        """Add cells at the end."""
        self._add(cells)
        return self

    def insert(self, index: int, cell: Cell) -> None:
        """Add a cell before another."""
        cells = list(self._cells.values())
        cells.insert(index, _checked(cell, "CellList"))
        self._replace(cells)


class CellDict(Cell):
    """Cells by name.

    Args:
        cells: A mapping of names to cells, or None.
    """

    def __init__(self, cells: Mapping[str, Cell] | None = None) -> None:
        super().__init__()
        for name, cell in (cells or {}).items():
            self.insert_child_to_cell(name, _checked(cell, "CellDict"))

    def __getitem__(self, name: str) -> Cell:
        return self._cells[name]

    def __len__(self) -> int:
        return len(self._cells)

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._cells))

    def __contains__(self, name: object) -> bool:
        return name in self._cells

    def keys(self) -> Any:
        """Return the names."""
        return self._cells.keys()

    def values(self) -> Any:
        """Return the cells."""
        return self._cells.values()

    def items(self) -> Any:
        """Return names and cells."""
        return self._cells.items()


def _checked(cell: Any, owner: str) -> Cell:
    if not isinstance(cell, Cell):
        raise ArgumentTypeError(f"{owner} was given a {type(cell).__name__}", "give cells")
    return cell


__all__ = names.public(vars(), Cell)
