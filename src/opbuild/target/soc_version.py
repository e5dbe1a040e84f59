"""Users' names of levels: a level's name, ``host``, or, as before there were levels, Halide's features."""

from __future__ import annotations

import re

from opbuild.errors import OptionError, TargetError
from opbuild.target.host import host_level
from opbuild.target.level import BY_NAME, LEVELS, Level

_FEATURES: dict[str, tuple[frozenset[str], ...]] = {
    "x86-64-v2": tuple(frozenset({each}) for each in ("sse41", "avx", "f16c", "fma")),
    "x86-64-v3": tuple(frozenset({each}) for each in ("avx2", "avx512", "avxvnni")),
    "x86-64-v4": tuple(frozenset({each}) for each in ("avx512_skylake", "avx512_cannonlake")),
    "x86-64-v4-bf16": tuple(frozenset({each}) for each in ("avx512_zen4", "avx512_zen5", "avx512_sapphirerapids")),
    "armv8.2-a-dotprod": (frozenset({"arm_dot_prod", "arm_fp16"}),),
}
"""For each level Halide's features that mean it: one of these sets, and every processor with it has all of the level.

AVX-512 of Knights Landing (``avx512``) is below ``x86-64-v4``, and AVX (``avx``) below ``x86-64-v3``."""

_OFFLINE = ("x86-64-linux", "arm-64-linux")
"""What offline models are made for; on other machines networks are built where they run."""
BUILDABLE = f"host, {', '.join(level.name for level in LEVELS if level.triple in _OFFLINE)}"
"""What ``soc_version`` may be, for messages and help."""

_ASCEND = re.compile(r"(?i)(ascend|bs9sx|kirin|mc61|opt|soc)\w*")
_TRIPLES = {level.triple for level in LEVELS}


def parse_level(text: str) -> Level:
    """Return the level that ``text`` names.

    Args:
        text: A level's name, ``host``, or architecture, bits, system and features, e.g. ``x86-64-linux-avx2-fma``: the
            highest level that uses no others, and what every processor with them has.

    Raises:
        TargetError: If it names none; the hint lists those that there are.
    """
    if text == "host":
        return host_level()
    return BY_NAME.get(text) or _level_of_features(text)


def resolve_soc_version(text: str) -> Level:
    """Return the level that a ``soc_version`` names, as ``parse_level`` does.

    Raises:
        OptionError: If it names none; the hint lists those that there are.
    """
    if _ASCEND.fullmatch(text):
        raise OptionError(f"soc_version is {text!r}, and opbuild makes no code for NPUs", f"it may be {BUILDABLE}")
    try:
        level = parse_level(text)
    except TargetError as error:
        raise OptionError(f"soc_version is {text!r}: {error.message}", error.hint) from error
    if level.triple not in _OFFLINE and text != "host":
        message = f"soc_version is {text!r}, which opbuild makes no offline models for"
        raise OptionError(message, f"it may be {BUILDABLE}")
    return level


def _level_of_features(text: str) -> Level:
    parts = text.split("-")
    triple, features = "-".join(parts[:3]), frozenset(parts[3:])
    if triple not in _TRIPLES:
        raise TargetError(f"there is no level {text!r}", f"it may be {BUILDABLE}")
    own = [level for level in LEVELS if level.triple == triple]
    known = frozenset[str]().union(*(each for level in own for each in _FEATURES.get(level.name, ())))
    if unknown := features - known:
        message = f"there is no level {text!r}: {triple} has no feature {min(unknown)!r}"
        raise TargetError(message, f"it may be {BUILDABLE}")
    named = [level for level in own if any(each <= features for each in _FEATURES.get(level.name, ()))]
    return named[-1] if named else own[0]
