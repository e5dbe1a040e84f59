"""The fate of stored items: where they went, which could not be stored, and ``--strict``, which fails for that."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.config import Config
from opbuild.errors import BuildError
from opbuild.events import Event, Warned
from opbuild.text.plural import counted, verb


class StorageWatch:
    """Passes events on and counts what could not be stored.

    Args:
        observer: Gets every event.

    Attributes:
        not_stored: Number of operators and networks that are used but not stored.
        not_sent: Number of those that are not in the store that others share.
    """

    def __init__(self, observer: Callable[[Event], None]) -> None:
        self._observer = observer
        self.not_stored = self.not_sent = 0

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        if isinstance(event, Warned):
            self.not_stored += event.not_stored
            self.not_sent += event.not_sent
        self._observer(event)

    @property
    def summary(self) -> str:
        """The addition to a line that sums a build up; empty if everything was stored."""
        counts = ((self.not_stored, "stored"), (self.not_sent, "sent"))
        return "".join(f", {count} not {what}" for count, what in counts if count)

    def require_stored(self, strict: bool) -> None:
        """Fail if the user was strict and something could not be stored or sent.

        Raises:
            BuildError: If so; everything was built and written all the same.
        """
        for count, failed, remedy in (
            (self.not_stored, "stored", "make the cache folder writable"),
            (self.not_sent, "sent", "send it by 'opbuild push'"),
        ):
            if strict and count:
                raise BuildError(
                    f"{counted(count, 'part')} {verb(count, 'was', 'were')} built and not {failed}, "
                    "and --strict was given",
                    f"the warning says why; {remedy}, or leave --strict out",
                )


def stored_in(config: Config, watch: StorageWatch) -> str:
    """Return the line that says where a build has put its items; empty if it was to store nothing.

    Args:
        config: The build's settings.
        watch: What observed it.
    """
    from opbuild.files.trust import trusted

    if not config.uses_cache:
        return ""
    place = config.cache_folder
    if config.op_compiler_cache_dir is not None and not config.soc_version:
        place = place.parent
    if watch.not_stored or not trusted(config)[0].uses_folder:
        return f"not kept in {place}: the warning says why; --cache_path names another folder"
    return f"kept in {place} for later builds and runs"
