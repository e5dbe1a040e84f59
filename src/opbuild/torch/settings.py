"""Options of ``torch.compile(..., backend="opbuild", options={...})``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from opbuild.arguments import read_option
from opbuild.config import OPTIONS, Config
from opbuild.errors import OptionError
from opbuild.platform.records import NamedTuple

OnError = Literal["raise", "eager"]


class Settings(NamedTuple):
    """The settings for building torch's graphs.

    Attributes:
        config: Settings of the build.
        on_error: What becomes of a part that opbuild cannot build: ``raise`` raises the error, ``eager`` leaves the
            part to torch with a warning, and the report counts it.
        device: The kind of device that computes, as torch and ``target.devices`` name it.
    """

    config: Config
    on_error: OnError = "raise"
    device: str = "cpu"


def read_settings(options: Mapping[str, Any] | None) -> Settings:
    """Return the settings in options.

    Raises:
        OptionError: If there is no such option, or a value is not allowed.
    """
    given = dict(options or {})
    on_error = given.pop("on_error", "raise")
    if on_error not in ("raise", "eager"):
        raise OptionError(f"on_error is {on_error!r}", "give 'raise' or 'eager'")
    unknown = next((name for name in given if name not in OPTIONS), None)
    if unknown is not None:
        known = ", ".join((*sorted(OPTIONS), "on_error"))
        raise OptionError(f"there is no option {unknown!r}", f"options are {known}")
    return Settings(
        Config.from_environment(**{name: read_option(name, each) for name, each in given.items()}), on_error
    )
