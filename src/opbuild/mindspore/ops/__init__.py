"""``ops``: operators as functions (``ops.matmul``) and as classes, the primitives (``ops.MatMul()``)."""

import sys

from opbuild.mindspore import names
from opbuild.mindspore.ops.arithmetic import *
from opbuild.mindspore.ops.arranging import *
from opbuild.mindspore.ops.control import *
from opbuild.mindspore.ops.declaration import *
from opbuild.mindspore.ops.images import *
from opbuild.mindspore.ops.loss import *
from opbuild.mindspore.ops.matrices import *
from opbuild.mindspore.ops.normalization import *
from opbuild.mindspore.ops.pooling import *
from opbuild.mindspore.ops.primitives import *
from opbuild.mindspore.ops.random import *
from opbuild.mindspore.ops.reduction import *
from opbuild.mindspore.ops.shaping import *
from opbuild.mindspore.tensor import is_tensor as is_tensor

__getattr__ = names.getter(__name__)

composite = function = functional = operations = sys.modules[__name__]
"""MindSpore has functions and primitives in modules of their own too: ``from mindspore.ops import operations as P``."""

__all__ = names.public(vars())
