"""``soc_version``: which machine an offline model is for, as the command line and ATC spell it."""

from __future__ import annotations

import re

from opbuild.errors import OptionError, TargetError
from opbuild.kernel.target import Target, host_target, parse_target

_TIERS = {
    "sse41": (),
    "avx": ("sse41",),
    "f16c": ("avx",),
    "fma": ("avx",),
    "avx2": ("avx", "f16c", "fma"),
    "avx512": ("avx2",),
    "avx512_skylake": ("avx512",),
    "avx512_cannonlake": ("avx512_skylake",),
    "avx512_zen4": ("avx512_cannonlake",),
    "avx512_zen5": ("avx512_zen4", "avxvnni"),
    "avx512_sapphirerapids": ("avx512_cannonlake", "avxvnni"),
    "avxvnni": ("avx2",),
}
"""What every x86 processor with a feature has too; code uses all of it."""

_FEATURES = {"x86-64-linux": tuple(_TIERS), "arm-64-linux": ("arm_dot_prod", "arm_fp16")}

BUILDABLE = (
    "host, x86-64-linux[-sse41|-avx|-avx2|-avx512|-avx512_skylake|-avx512_cannonlake|-avx512_zen4|-avx512_zen5|"
    "-avx512_sapphirerapids|-avxvnni], arm-64-linux[-arm_dot_prod|-arm_fp16]"
)
"""What ``soc_version`` may be, for messages and help."""

_ASCEND = re.compile(r"(?i)(ascend|bs9sx|kirin|mc61|opt|soc)\w*")


def resolve_soc_version(text: str) -> Target:
    """Return the target that a ``soc_version`` names, with every feature that the named ones imply.

    Args:
        text: ``host``, or architecture, bits, system and features, e.g. ``x86-64-linux-avx2``.

    Raises:
        OptionError: If it names no machine that opbuild makes code for; the hint lists those.
    """
    if text == "host":
        return host_target()
    allowed = f"it may be {BUILDABLE}"
    if _ASCEND.fullmatch(text):
        raise OptionError(f"soc_version is {text!r}, and opbuild makes no code for NPUs", allowed)
    try:
        target = parse_target(text)
    except TargetError as error:
        raise OptionError(f"soc_version is {text!r}, which is no target", allowed) from error
    known = _FEATURES.get(target.triple)
    if known is None:
        raise OptionError(f"soc_version is {text!r}, which opbuild makes no offline models for", allowed)
    for feature in target.features:
        if feature not in known:
            raise OptionError(f"soc_version is {text!r}, and {target.triple} has no feature {feature!r}", allowed)
    return Target(target.triple, tuple(sorted(_closure(target.features))))


def _closure(features: tuple[str, ...]) -> set[str]:
    found: set[str] = set()
    waiting = [*features]
    while waiting:
        feature = waiting.pop()
        if feature not in found:
            found.add(feature)
            waiting.extend(_TIERS.get(feature, ()))
    return found
