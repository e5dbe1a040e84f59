"""``mint.nn``: layers with the arguments of PyTorch."""

from opbuild.mindspore import names
from opbuild.mindspore.mint.nn.layers import *
from opbuild.mindspore.nn.basic import Identity as Identity
from opbuild.mindspore.nn.basic import Linear as Linear
from opbuild.mindspore.nn.cell import Cell

__getattr__ = names.getter(__name__, lazy=("functional",))
__all__ = ["Cell", *names.public(vars(), Cell)]
