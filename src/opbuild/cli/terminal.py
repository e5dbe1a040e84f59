"""The terminals that commands draw on: tables, bars and the texts beside them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from opbuild.text.visible import visible


class Terminal(Console):
    """A console to which foreign words are no orders: neither their control characters nor their brackets.

    Args:
        options: As rich's.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the output; only rich's own orders to the terminal stay orders."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else visible(text), style, control)
