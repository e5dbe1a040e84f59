"""Builders: made of what a build was asked for, and started early where it surely compiles."""

from __future__ import annotations

import contextlib
from importlib import import_module
from typing import TYPE_CHECKING

from opbuild.pipeline.setup import Setup
from opbuild.pipeline.stores import Stores

if TYPE_CHECKING:
    from opbuild.builder.build import Builder


def make_builder(setup: Setup, stores: Stores) -> Builder:
    """Return a builder that finds and keeps operators in a build's stores."""
    from opbuild.builder.build import Builder
    from opbuild.runtime.support import provided_symbols
    from opbuild.store.debug_folder import DebugFolder

    operators, runtimes = stores.operators_and_runtimes
    return Builder(
        operators,
        setup.compiler,
        setup.target,
        setup.config,
        setup.observer,
        runtime_store=runtimes,
        provided=provided_symbols(setup.target.triple),
        force=setup.config.forces,
        rebuilt=stores.rebuilt,
        others=stores.other_targets,
        debug=setup.debug,
        debug_folder=DebugFolder(setup.debug.folder),
        claims=stores.claims,
    )


def deciding_builder(setup: Setup, stores: Stores) -> Builder:
    """Return a builder that only decides: unlike a build it remembers the compiler in no file."""
    from opbuild.kernel.identity import identify

    builder = make_builder(setup, stores)
    memo = setup.config.compiler_memo if setup.compiler.library() is None else None
    builder.use_identity(identify(setup.compiler, memo, setup.trust))
    return builder


class EarlyStart:
    """What takes time and can begin before a model is read: starting the compile server, and loading onnx.

    Args:
        setup: What the build was asked for.
        stores: Its stores.
    """

    def __init__(self, setup: Setup, stores: Stores) -> None:
        self._setup = setup
        self._stores = stores
        self._builder: Builder | None = None

    def __enter__(self) -> EarlyStart:
        return self

    def __exit__(self, *_: object) -> None:
        builder, self._builder = self._builder, None
        if builder is not None:
            builder.close()

    def begin(self) -> None:
        """Begin, unless that was done."""
        from opbuild.platform.background import begin

        if self._builder is None:
            self._builder = self._warm()
            begin(_load_frontend, "opbuild-import")

    def builder(self) -> Builder:
        """Return the builder that began early, once; else a new one whose compile server starts now."""
        builder, self._builder = self._builder or self._warm(), None
        return builder

    def _warm(self) -> Builder:
        builder = make_builder(self._setup, self._stores)
        builder.warm_up()
        return builder


def _load_frontend() -> None:
    with contextlib.suppress(Exception):  # raised again, and reported, where it is needed
        import_module("opbuild.frontend.onnx_model")
