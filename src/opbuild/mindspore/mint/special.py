"""``mint.special``."""

from __future__ import annotations

from opbuild.mindspore import names
from opbuild.mindspore.mint.nn.functional import log_softmax
from opbuild.mindspore.ops import erfc, exp2, expm1, log1p, round, sinc

__getattr__ = names.getter(__name__)
__all__ = ["erfc", "exp2", "expm1", "log1p", "log_softmax", "round", "sinc"]
