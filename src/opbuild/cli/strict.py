"""``--strict``: what could not be stored fails the command, after the work is done."""

from __future__ import annotations

from collections.abc import Callable

from opbuild.errors import BuildError
from opbuild.events import Event, Warned
from opbuild.plural import counted, verb


class StorageWatch:
    """Passes events on and counts what could not be stored.

    Args:
        observer: Gets every event.

    Attributes:
        not_stored: Number of operators and networks that are used but not stored.
    """

    def __init__(self, observer: Callable[[Event], None]) -> None:
        self._observer = observer
        self.not_stored = 0

    def __call__(self, event: Event) -> None:
        """Observe one event."""
        if isinstance(event, Warned):
            self.not_stored += event.not_stored
        self._observer(event)

    @property
    def summary(self) -> str:
        """What to add to a line that sums a build up; empty if everything was stored."""
        return f", {self.not_stored} not stored" if self.not_stored else ""

    def require_stored(self, strict: bool) -> None:
        """Fail if the user was strict and something could not be stored.

        Raises:
            BuildError: If so; everything was built and written all the same.
        """
        if strict and self.not_stored:
            what = f"{counted(self.not_stored, 'part')} {verb(self.not_stored, 'was', 'were')}"
            raise BuildError(
                f"{what} built and not stored, and --strict was given",
                "the warning says why; make the cache folder writable, or leave --strict out",
            )
