"""Recorded sizes as ``warm``, ``pack`` and ``tune`` take them: the option, and the models and sizes that it names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opbuild.cli.options import OnePath, value_option
from opbuild.errors import OptionError
from opbuild.platform.paths import Path

if TYPE_CHECKING:
    from opbuild.frontend.models.recorded import RecordedSize

recorded_option = value_option(
    "--recorded", "FILE",
    "Sizes that models were bound to where they ran with OPBUILD_RECORD_SHAPES=FILE; without MODEL all models in it.",
    OnePath("the path of a file or folder"),
)  # fmt: skip


def recorded_models(
    paths: tuple[Path, ...], recorded: Path | None, missing: str
) -> tuple[tuple[Path, ...], list[RecordedSize]]:
    """Return the models of a command and their recorded sizes; of models that are not named those recorded.

    Raises:
        OptionError: If there is no model, which ``missing`` helps, or the sizes cannot be read.
    """
    from opbuild.frontend.models.recorded import read_recorded

    sizes = [] if recorded is None else read_recorded(recorded)
    named = paths or tuple(Path(each) for each in dict.fromkeys(each.model for each in sizes) if each)
    if not named:
        raise OptionError("the models are missing", f"give their paths: {missing}")
    return named, sizes
