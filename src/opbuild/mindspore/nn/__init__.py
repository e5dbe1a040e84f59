"""``nn``: cells, the layers that networks are made of."""

import sys

from opbuild.mindspore import names
from opbuild.mindspore.nn.activation import *
from opbuild.mindspore.nn.attention import *
from opbuild.mindspore.nn.basic import *
from opbuild.mindspore.nn.cell import *
from opbuild.mindspore.nn.combined import *
from opbuild.mindspore.nn.container import *
from opbuild.mindspore.nn.convolution import *
from opbuild.mindspore.nn.distributed import *
from opbuild.mindspore.nn.image import *
from opbuild.mindspore.nn.loss import *
from opbuild.mindspore.nn.matrix import *
from opbuild.mindspore.nn.normalization import *
from opbuild.mindspore.nn.optimizer import *
from opbuild.mindspore.nn.padding import *
from opbuild.mindspore.nn.pooling import *
from opbuild.mindspore.nn.recurrent import *
from opbuild.mindspore.nn.scaling import *
from opbuild.mindspore.nn.schedule import *
from opbuild.mindspore.nn.training import *
from opbuild.mindspore.nn.transformer import *

__getattr__ = names.getter(__name__)

layer = optim = wrap = dynamic_lr = learning_rate_schedule = sys.modules[__name__]
"""MindSpore has layers in modules of their own too: ``from mindspore.nn import layer``."""

__all__ = names.public(vars())
