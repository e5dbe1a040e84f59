"""``dataset``: rows from arrays, lists and generators, batched, shuffled and mapped, for training and measuring."""

from opbuild.mindspore import names
from opbuild.mindspore.dataset import config, transforms, vision
from opbuild.mindspore.dataset.pipeline import Dataset, zip
from opbuild.mindspore.dataset.sources import (
    DistributedSampler,
    GeneratorDataset,
    NumpySlicesDataset,
    RandomSampler,
    Sampler,
    SequentialSampler,
    SubsetRandomSampler,
    SubsetSampler,
    WeightedRandomSampler,
)

__getattr__ = names.getter(__name__)

__all__ = [
    "Dataset", "DistributedSampler", "GeneratorDataset", "NumpySlicesDataset", "RandomSampler", "Sampler",
    "SequentialSampler", "SubsetRandomSampler", "SubsetSampler", "WeightedRandomSampler", "config", "transforms",
    "vision", "zip",
]  # fmt: skip
