"""``mint.nn``."""

from opbuild.mindspore import names

__getattr__ = names.getter(__name__, lazy=("functional",))
__all__: list[str] = []
