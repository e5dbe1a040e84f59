"""Torch's mega-cache: the operators that this process used, in ``torch.compiler.save_cache_artifacts()``.

Torch keeps what is recorded in memory until it is saved, so images of networks, which have the weights, are not there.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING

from torch.compiler._cache import CacheArtifact, CacheArtifactFactory, CacheArtifactManager

from opbuild.errors import BuildError
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from opbuild.config import Config
    from opbuild.kernel.entry import Entry
    from opbuild.platform.files.trust import Trust
    from opbuild.report import Report

_TYPE = "opbuild"


@CacheArtifactFactory.register
class OperatorArtifact(CacheArtifact):
    """One operator; its key is the entry's name."""

    @staticmethod
    def type() -> str:
        """Return torch's name of such artifacts."""
        return _TYPE

    def populate_cache(self) -> None:
        """Check the operator as a store's look-up does, and add it to the store that the environment names.

        An operator for a machine that this one is not is left out.

        Raises:
            BuildError: If it is damaged, or the store cannot be written.
        """
        from opbuild.config import Config
        from opbuild.pipeline.setup import set_up
        from opbuild.store.operators import operators_in

        entry = _unpacked(self.key, self.content)
        setup = set_up(Config.from_environment(), None, None)
        if entry.info["key"]["components"]["target"] != setup.level.name:
            return
        folder = setup.config.network_meta if _is_runtime(self.key) else setup.config.kernel_meta
        problem = operators_in(folder, trust=setup.trust).publish(entry)
        if problem:
            raise BuildError(f"the store {folder} cannot be written: {problem}", "make room or name another store")


class Recorder:
    """Records the operators that the parts of a process use; each is read once.

    Args:
        config: Says where the store is.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._recorded = set[tuple[Path, str]]()

    def __call__(self, report: Report) -> None:
        """Record the operators of a build; one that the store does not have is left out."""
        if not self._config.uses_cache:
            return
        from opbuild.pipeline.setup import set_up
        from opbuild.store.operators import operators_in

        setup = set_up(self._config, None, None)
        if not setup.config.uses_folder:
            return
        operators, runtimes = setup.config.kernel_meta, setup.config.network_meta
        names = [(operators, each.name) for each in report.operators]
        names += [(runtimes, name) for name in operators_in(runtimes, trust=setup.trust).names() if _is_runtime(name)]
        for place in names:
            if place not in self._recorded:
                self._recorded.add(place)
                _record(*place, setup.trust)


def _record(folder: Path, name: str, trust: Trust) -> None:
    from opbuild.kernel.entry import Entry
    from opbuild.store.blobs import Folder
    from opbuild.store.operators import entry_in

    entry = entry_in(Folder(folder, trust, is_quiet=True, is_judged=True), name)
    if isinstance(entry, Entry):
        CacheArtifactManager.record_artifact(_TYPE, name, _packed(entry))


def _packed(entry: Entry) -> bytes:
    from opbuild.platform.files.trust import seal

    return seal({Path(name).suffix: base64.b64encode(data).decode() for name, data in entry.files()}, entry.name)


def _is_runtime(name: str) -> bool:
    from opbuild.kernel.key import file_op_type
    from opbuild.kernel.opdesc import runtime_desc

    return name.startswith(f"{file_op_type(runtime_desc().op_types)}_")


def _unpacked(name: str, content: bytes) -> Entry:
    """Return the operator of an artifact; it is an error if that is not the saved one."""
    from opbuild.kernel.entry import Entry
    from opbuild.platform.files.trust import unseal
    from opbuild.store.operators import entry_of

    try:
        files = {suffix: base64.b64decode(text, validate=True) for suffix, text in unseal(content, name).items()}
        found = entry_of(name, files)
    except (ValueError, TypeError, LookupError, AttributeError, binascii.Error) as error:
        raise BuildError(f"the artifact {name} is not what was saved: {error}", "save the artifacts again") from error
    if not isinstance(found, Entry):
        raise BuildError(f"the artifact {name} is not what was saved: {found.text}", "save the artifacts again")
    return found
