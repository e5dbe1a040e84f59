"""``opbuild bench --generate``: texts of a decoder, and how what was measured is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from opbuild.errors import OptionError
from opbuild.platform.records import NamedTuple
from opbuild.text.plural import counted

if TYPE_CHECKING:
    from rich.table import Table

    from opbuild.frontend.models.declaration import Declared
    from opbuild.platform.paths import Path
    from opbuild.runtime.endpoint import Endpoint
    from opbuild.tuning.bench.measure import TextFigures


class Measurement(NamedTuple):
    """A way to measure.

    Attributes:
        measure: Returns the figures of some runtimes with a number of threads.
        shown: Returns the table of figures, and a line for each number of threads.
        about: What was measured, for a file of results.
    """

    measure: Callable[..., list[Any]]
    shown: Callable[[Sequence[Any]], tuple[Table, list[str]]]
    about: Mapping[str, Any]


def texts(model: Path, ends: tuple[Sequence[Endpoint], Sequence[Declared]], prompt: int, tokens: int) -> Measurement:
    """Return the way to measure texts of a decoder.

    Args:
        model: Its file.
        ends: Its inputs and outputs.
        prompt: Tokens of a prompt.
        tokens: Tokens that follow it.

    Raises:
        OptionError: If it has other inputs than exporters of decoders give them, or no room for so many tokens.
    """
    from opbuild.tuning.bench.decoder import layout_of
    from opbuild.tuning.bench.measure import measure_texts

    decoder = layout_of(model.name, *ends)
    if 0 < decoder.room < prompt + tokens:
        asked = f"--prompt {prompt} and --tokens {tokens} are {counted(prompt + tokens, 'token')}"
        raise OptionError(f"{asked}, and the caches of {model.name!r} have room for {decoder.room}", "ask for fewer")
    measured = partial(measure_texts, model, decoder, prompt=prompt, tokens=tokens)
    about = {"prompt": prompt, "tokens": tokens}
    return Measurement(measured, lambda figures: (_table(figures, prompt, tokens), _verdicts(figures)), about)


def _table(figures: Sequence[TextFigures], prompt: int, tokens: int) -> Table:
    from opbuild.cli.tables import figures_table

    def cells(each: TextFigures) -> Sequence[str]:
        return (
            f"{each.first:.2f}", f"{each.text:.2f}", f"{each.again:.2f}",
            f"{prompt / each.prompt:.0f}", f"{1 / each.median:.1f}", f"{each.memory / 1e6:.0f}",
            "reference" if each.same is None else f"{each.same} of {tokens + 1}",
        )  # fmt: skip

    rates = ("prompt tokens/s", "next tokens/s")
    return figures_table(("first answer s", "first text s", "again s", *rates, "MB", "same tokens"), figures, cells)


def _verdicts(figures: Sequence[TextFigures]) -> list[str]:
    """Return a line for each number of threads: opbuild's times relative to ONNX Runtime's."""
    measured = {(each.runtime, each.threads): each for each in figures if not each.failure}
    lines = []
    for count in dict.fromkeys(each.threads for each in figures):
        own, other = (measured.get((name, count)) for name in ("opbuild", "onnxruntime"))
        if own is not None and other is not None:
            prompt, token = own.prompt / other.prompt, own.median / other.median
            lines.append(
                f"{counted(count, 'thread')}: opbuild takes {prompt:.2f} of the time of ONNX Runtime for the prompt, "
                f"{token:.2f} for a token behind it"
            )
    return lines
