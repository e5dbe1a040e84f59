"""Key: the named components that decide an operator's code, and their digest.

Two operators with equal keys may share one object file, on any machine and in any network; so everything that decides
the object's bytes is here, and nothing else: no names of nodes, paths, ranks, devices, times or users. A missing
component hands somebody a wrong object without a word; a superfluous one rebuilds what need not be.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from opbuild.kernel.opdesc import OpDesc
from opbuild.platform.digest import sha256
from opbuild.platform.locks import lazy_property
from opbuild.platform.records import dataclass, field
from opbuild.target.level import Target
from opbuild.text.canonical import canonical_json

KEY_FORMAT = 3
"""Raise this whenever the meaning of a component, the form of an entry or the call convention of kernels changes; old
and new releases then share a folder without reading each other's entries."""

_OP_TYPE_LIMIT = 60
"""Characters of the operator type in a file name: with the number, the device and the suffix a name stays under 100."""


@dataclass(frozen=True)
class CompilerIdentity:
    """Which compiler makes the objects.

    Attributes:
        name: e.g. ``halide``.
        version: The release, for readers.
        digest: Digest of the compiler's own bytes: a library swapped in place changes it, a reinstalled one does not.
    """

    name: str
    version: str
    digest: str

    def components(self) -> dict[str, str]:
        """Return it as named JSON values."""
        return {"name": self.name, "version": self.version, "digest": self.digest}


@dataclass(frozen=True)
class Key:
    """The identity of an operator's code.

    Attributes:
        components: Named JSON values, in the order in which differences are looked for.
        sha256: Digest of the components' canonical JSON, 64 hexadecimal digits.
    """

    components: Mapping[str, Any] = field(hash=False)
    sha256: str

    @property
    def number(self) -> int:
        """The first 64 bits of the digest; its decimal digits are in the file names."""
        return int(self.sha256[:16], 16)

    @lazy_property
    def stem(self) -> str:
        """``<optype>_<number>``: the beginning of the names of files and of the kernel's symbol."""
        return f"{file_op_type(self.components['op_types'])}_{self.number}"

    @lazy_property
    def operator(self) -> str:
        """Digest of all components but the sources: of the operator, its target and its compiler.

        The text of a user's operator is one of them.
        """
        return key_digest(
            {name: value for name, value in self.components.items() if name != "sources"} | {"source": ""}
        )

    @lazy_property
    def operator_stem(self) -> str:
        """``<optype>_<number>`` of ``operator``."""
        return f"{file_op_type(self.components['op_types'])}_{int(self.operator[:16], 16)}"

    @property
    def symbol(self) -> str:
        """The symbol that the kernel is compiled with; it does not hold the device, nor the sources.

        So sources that define the same make the same object, byte for byte.
        """
        return f"{self.operator_stem}__kernel0"

    @property
    def origin(self) -> str:
        """The origin: the digest of its family's sources, and on further lines the text of a user's operator."""
        return "\n".join(filter(None, (self.components["sources"], self.components["source"])))

    def of_origin(self, origin: str) -> Key:
        """Return the key of the same operator that something else defines."""
        sources, _, source = origin.partition("\n")
        components = {**self.components, "sources": sources, "source": source}
        return Key(components, key_digest(components))

    def name(self, device_id: int) -> str:
        """Return the entry's name: the files' name without suffix."""
        return f"{self.stem}_{device_id}"

    def first_difference(self, other: Key | Mapping[str, Any]) -> str | None:
        """Return the first difference of ``other`` from this key, e.g. ``variant tile 7 -> 4``; None if there is none.

        Args:
            other: A key or the components of one; its values stand right of the arrow.
        """
        from opbuild.kernel.difference import first_change  # a start never needs it

        components = other.components if isinstance(other, Key) else other
        return first_change(self.components, components)


def kernel_symbols(op_types: Sequence[str], defined: Sequence[str]) -> list[str]:
    """Return those of an object's symbols that are kernels of operators of such types."""
    begin, end = f"{file_op_type(op_types)}_", "__kernel0"
    found = [symbol for symbol in defined if symbol.startswith(begin) and symbol.endswith(end)]
    return [symbol for symbol in found if symbol[len(begin) : -len(end)].isdecimal()]


def make_key(desc: OpDesc, target: Target, compiler: CompilerIdentity, sources: str, debug: Sequence[str] = ()) -> Key:
    """Return the key of an operator.

    Args:
        desc: What to compute and how.
        target: What the code is for.
        compiler: Which compiler makes it.
        sources: Digest of the source files that define the operator's family (``Compiler.sources_digest``).
        debug: Debug options that decide the code (``kernel.debug.flags_of``); none: no such component.
    """
    components: dict[str, Any] = {
        **desc.components(),
        "target": target.name,
        "compiler": compiler.components(),
        "sources": sources,
        **({"debug": list(debug)} if debug else {}),
        "format": KEY_FORMAT,
    }
    return Key(components, key_digest(components))


def key_digest(components: Mapping[str, Any]) -> str:
    """Return the digest of a key's components."""
    return sha256(canonical_json(components).encode())


def file_op_type(op_types: Sequence[str]) -> str:
    """Return the joined operator types as names of files and symbols have them: short lower-case C identifiers."""
    text = re.sub(r"[^a-z0-9_]", "_", "_".join(op_types).lower())[:_OP_TYPE_LIMIT].strip("_") or "op"
    return f"op_{text}" if text[0].isdigit() else text
