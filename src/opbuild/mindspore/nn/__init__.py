"""``nn``: cells, the layers that networks are made of."""

import sys

from opbuild.mindspore import names
from opbuild.mindspore.nn.basic import *
from opbuild.mindspore.nn.cell import *
from opbuild.mindspore.nn.convolution import *
from opbuild.mindspore.nn.layers import *
from opbuild.mindspore.nn.loss import *
from opbuild.mindspore.nn.optimizer import *
from opbuild.mindspore.nn.sequences import *
from opbuild.mindspore.nn.training import *

__getattr__ = names.getter(__name__)

layer = optim = wrap = dynamic_lr = learning_rate_schedule = sys.modules[__name__]
"""MindSpore has layers in modules of their own too: ``from mindspore.nn import layer``."""

__all__ = names.public(vars())
