"""Builds of operators that the release brings: they need not know which compiler is installed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from opbuild.builder.job import OperatorJob
from opbuild.config import Config
from opbuild.kernel.interfaces import Compiler, Missing, Release, Store
from opbuild.kernel.key import make_key
from opbuild.kernel.opdesc import OpDesc
from opbuild.target.level import Target

_LOOKED_AT = 2000
"""Files of one's own store looked at for an operator: a millisecond."""


class PrebuiltOwner(Protocol):
    """The attributes of a ``Builder`` that are used here; it describes them."""

    store: Store
    compiler: Compiler
    target: Target
    config: Config
    release: Release | None


def take_prebuilt(builder: PrebuiltOwner, needed: Mapping[OpDesc, tuple[str, ...]]) -> tuple[OperatorJob, ...]:
    """Return operators if the release brings all, and one's own store, which goes before it, has nothing; else none.

    Their keys name the compiler that made them: 165 MB of the installed one need not be read to know it.

    Args:
        builder: Says where they are looked for.
        needed: Each distinct operator with the nodes that need it (``Program.descriptors()``).
    """
    release = builder.release
    compiler = None if release is None else release.compiler()
    if release is None or compiler is None or builder.store.names(_LOOKED_AT):
        return ()
    jobs = []
    for desc, nodes in needed.items():
        key = make_key(desc, builder.target, compiler, builder.compiler.sources_digest(desc))
        found = release.lookup(key)
        if isinstance(found, Missing):
            return ()
        jobs.append(OperatorJob(desc, key, key.name(builder.config.device_id), nodes, builder.store, found))
    return tuple(jobs)
