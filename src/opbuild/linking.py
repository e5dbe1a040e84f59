"""The step from built operators to a library: the linker is found before anything is compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from opbuild.session import Session

if TYPE_CHECKING:
    from opbuild.builder.result import BuildResult
    from opbuild.kernel.opdesc import OpDesc
    from opbuild.runtime.link import Linker


def linker_for(needed: Mapping[OpDesc, tuple[str, ...]], session: Session) -> Linker | None:
    """Return what links the operators of a network, before any is compiled; None if it has none.

    Raises:
        LinkError: If there is no linker that works.
    """
    from opbuild.runtime.link import find_linker

    return find_linker(session.config.linker, session.target.triple) if needed else None


def link_build(built: BuildResult, session: Session, linker: Linker | None) -> bytes:
    """Return the library of all operators of a build; empty if there are none."""
    from opbuild.runtime.link import link
    from opbuild.runtime.support import support_objects

    entries = list(built.entries.values())
    if linker is None:
        return b""
    triple = session.target.triple
    objects = [entry.object for entry in entries]
    objects += support_objects(triple, {symbol for entry in entries for symbol in entry.undefined})
    if built.runtime is not None:
        objects += [entry.object for entry in built.runtime.entries.values()]
    return link(objects, linker)
