"""Parts of a library that is linked: what its exported symbols reach in the objects."""

from __future__ import annotations

from collections.abc import Sequence

from opbuild.platform.records import NamedTuple, dataclass, field
from opbuild.runtime.devices.cpu.objects import ARRAYS, ObjectError, ObjectFile, ObjectSection, ObjectSymbol
from opbuild.runtime.devices.cpu.relocations import LINK_RULES, Kind, LinkRules

_KERNEL = "__kernel0"


class Referent(NamedTuple):
    """The target of a relocation: a place in a section, or the name of what another library defines."""

    section: ObjectSection | None
    value: int
    name: str = ""


class Use(NamedTuple):
    """A relocation with what it needs: ``kind`` is None for an address that the loader completes."""

    section: ObjectSection
    offset: int
    kind: Kind | None
    target: Referent
    addend: int


@dataclass(eq=False)
class Linked:
    """The parts of a library.

    Attributes:
        definitions: The global symbols of all objects, each with its object.
        sections: The sections that are reached, in order.
        uses: Their relocations.
        imports: Names that other libraries define, and whether they may be missing.
        table: What has an entry in the table of addresses, and the number of the entry.
        stubs: Imported functions that are called, and the numbers of their jumps.
    """

    machine: LinkRules
    elf_machine: int
    flags: int
    definitions: dict[str, tuple[ObjectFile, ObjectSymbol]] = field(default_factory=dict)
    sections: list[ObjectSection] = field(default_factory=list)
    uses: list[Use] = field(default_factory=list)
    imports: dict[str, bool] = field(default_factory=dict)
    table: dict[Referent, int] = field(default_factory=dict)
    stubs: dict[str, int] = field(default_factory=dict)

    def exports(self) -> dict[str, tuple[ObjectSection, ObjectSymbol]]:
        """Return the symbols that are looked up, kernels and what is linked with them, each with its section."""
        return {
            name: (object_.section(symbol), symbol)
            for name, (object_, symbol) in self.definitions.items()
            if _KERNEL not in name or name.endswith(_KERNEL)
        }

    def define(self, object_: ObjectFile) -> None:
        """Add the global symbols of an object."""
        for symbol in object_.symbols:
            if symbol.is_local or not symbol.section:
                continue
            _, before = self.definitions.get(symbol.name, (None, None))
            if before is not None and not symbol.is_weak and not before.is_weak:
                raise ObjectError(f"{symbol.name} is defined twice")
            if before is None or (before.is_weak and not symbol.is_weak):
                self.definitions[symbol.name] = object_, symbol

    def target(self, object_: ObjectFile, number: int) -> tuple[Referent, ObjectFile]:
        """Return where a symbol of an object is, and whose section that is."""
        symbol = object_.symbols[number]
        if not symbol.is_local:
            if symbol.name not in self.definitions:
                self.imports[symbol.name] = self.imports.get(symbol.name, True) and symbol.is_weak
                return Referent(None, 0, symbol.name), object_
            object_, symbol = self.definitions[symbol.name]
        return Referent(object_.section(symbol), symbol.value), object_

    def use(self, section: ObjectSection, offset: int, number: int, target: Referent, addend: int) -> None:
        """Add a relocation."""
        kind = None
        if number == self.machine.absolute:
            if not section.is_written:
                raise ObjectError("an address is among what is only read")
        elif number in self.machine.kinds:
            kind = self.machine.kinds[number]
            if kind.by_table or target.section is None:
                self.table.setdefault(target, len(self.table))
            if target.section is None and not kind.by_table:
                self.stubs.setdefault(target.name, len(self.stubs))
        else:
            raise ObjectError(f"it has a relocation of the kind {number}, which is not known")
        self.uses.append(Use(section, offset, kind, target, addend))


def reached(objects: Sequence[ObjectFile]) -> Linked:
    """Return the parts of a library: what its exported symbols reach, and what runs when it is opened and closed.

    Raises:
        ObjectError: If objects are for different machines or an unknown one, or if a symbol is defined twice.
    """
    machines = {(each.machine, each.flags) for each in objects}
    if len(machines) != 1 or objects[0].machine not in LINK_RULES:
        raise ObjectError(f"they are for the machines {sorted(machines)}, not for one that is known")
    linked = Linked(LINK_RULES[objects[0].machine], *machines.pop())
    for object_ in objects:
        linked.define(object_)
    waiting = [(linked.definitions[name][0], section) for name, (section, _) in linked.exports().items()]
    waiting += [(each, section) for each in objects for section in each.sections.values() if section.kind in ARRAYS]
    seen: set[int] = set()
    while waiting:
        object_, section = waiting.pop()
        if id(section) in seen:
            continue
        seen.add(id(section))
        for offset, number, symbol, addend in object_.relocations(section):
            target, owner = linked.target(object_, symbol)
            linked.use(section, offset, number, target, addend)
            if target.section is not None:
                waiting.append((owner, target.section))
    linked.sections = [section for each in objects for section in each.sections.values() if id(section) in seen]
    return linked
