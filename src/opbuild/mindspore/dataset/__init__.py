"""``dataset``: rows from arrays, lists and generators, batched, shuffled and mapped, for training and measuring."""

from opbuild.mindspore import names
from opbuild.mindspore.dataset import config, sources, transforms, vision
from opbuild.mindspore.dataset.pipeline import Dataset, zip
from opbuild.mindspore.dataset.sources import *

__getattr__ = names.getter(__name__)

__all__ = ["Dataset", "config", "transforms", "vision", "zip"]
__all__ += vars(sources)["__all__"]
